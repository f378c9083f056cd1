"""PBKDF2 with HMAC (RFC 8018, 5.2), with the name and the first arguments of `hashlib`."""

from __future__ import annotations

import hmac
from itertools import count


def pbkdf2_hmac(hash_name: str, password: bytes, salt: bytes, iterations: int, dklen: int | None = None) -> bytes:
    """Derive a key of `dklen` bytes, by default as long as a digest of the hash function."""
    keyed = hmac.new(password, digestmod=hash_name)
    length = keyed.digest_size if dklen is None else dklen
    key = b""
    for number in count(1):
        if len(key) >= length:
            break
        key += _block(keyed, salt + number.to_bytes(4, "big"), iterations)
    return key[:length]


def _block(keyed: hmac.HMAC, first: bytes, iterations: int) -> bytes:
    """The exclusive or of all iterations of one block."""
    mixed, one = 0, first
    for _ in range(iterations):
        turn = keyed.copy()
        turn.update(one)
        one = turn.digest()
        mixed ^= int.from_bytes(one, "big")
    return mixed.to_bytes(keyed.digest_size, "big")
