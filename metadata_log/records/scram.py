"""SCRAM: derived keys of a password, and the credentials of a newly formatted cluster (Kafka: `ScramParser`,
`ScramFormatter`; RFC 5802).
"""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import new as new_hash
from hmac import digest
from random import Random
from typing import Final

from metadata_log.errors import DirectoryError
from metadata_log.pbkdf2 import pbkdf2_hmac
from metadata_log.records.metadata import UserScramCredentialRecord
from metadata_log.releases import METADATA_VERSIONS

SCRAM_SINCE: Final = METADATA_VERSIONS["3.5-IV2"]
"""The lowest metadata.version with SCRAM credentials."""

MECHANISMS: Final = {1: "sha256", 2: "sha512"}
"""The hash of each mechanism, by its number in records and requests."""
ITERATIONS: Final = range(4096, 16384 + 1)

NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SALT_BYTES: Final = 20
_CREDENTIAL: Final = r"(?s)([^=]+)=\[(.*)\]"
_PART: Final = re.compile(r'\s*(\w+)=(?:"([^"]*)"|([^,"]*))\s*(?:,|$)')
_HINT: Final = "For example SCRAM-SHA-256=[name=alice,password=alice-secret]."


def derived_keys(hash_name: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """The stored key and the server key: a server checks proofs and proves itself with them, but cannot log in."""
    client_key = digest(salted_password, b"Client Key", hash_name)
    return new_hash(hash_name, client_key).digest(), digest(salted_password, b"Server Key", hash_name)


def parse_credential(text: str, rng: Random) -> UserScramCredentialRecord:
    """Parse `MECHANISM=[name=…,password=…]`, as kafka-storage accepts it; raises `DirectoryError`.

    `iterations` and `salt` (base64) are optional; `saltedpassword` may replace `password`.
    """
    match = re.fullmatch(_CREDENTIAL, text.strip())
    if match is None or match[1] not in NUMBERS:
        known = " or ".join(NUMBERS)
        raise _bad(f"a credential begins with {known}, and its settings are in brackets")
    number = NUMBERS[match[1]]
    hash_name = MECHANISMS[number]
    parts = _parts(match[2])
    name = parts.pop("name", "")
    if not name:
        raise _bad("the credential has no name")
    iterations = _iterations(parts.pop("iterations", str(ITERATIONS[0])))
    salt = _salt(parts.pop("salt", None), rng, salted="saltedpassword" in parts)
    password, salted = parts.pop("password", None), parts.pop("saltedpassword", None)
    if parts:
        raise _bad(f"a credential has no setting {next(iter(parts))}")
    if (password is None) == (salted is None):
        raise _bad("a credential has either password or saltedpassword")
    if not password and not salted:
        raise _bad("the password is empty")
    if password is not None:
        secret = pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    else:
        secret = _base64("saltedpassword", salted or "")
    stored_key, server_key = derived_keys(hash_name, secret)
    return UserScramCredentialRecord(
        name=name, mechanism=number, salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations
    )


def _parts(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or match[1] in values:
            raise _bad("a credential is a list of NAME=VALUE, each once")
        values[match[1]] = match[2] if match[2] is not None else match[3]
        position = match.end()
    return values


def _iterations(text: str) -> int:
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    if count not in ITERATIONS:
        raise _bad(f"iterations are {ITERATIONS[0]} to {ITERATIONS[-1]}, not {text}")
    return count


def _salt(text: str | None, rng: Random, *, salted: bool) -> bytes:
    if text is not None:
        return _base64("salt", text)
    if salted:
        raise _bad("saltedpassword needs its salt")
    return rng.randbytes(SALT_BYTES)


def _base64(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as bad:
        raise _bad(f"{field} is not base64") from bad


def _bad(what: str) -> DirectoryError:
    """An error without the text itself, which may hold a password."""
    return DirectoryError(what, hint=_HINT)
