"""SCRAM: a proof of the password, in both directions (RFC 5802, RFC 7677; Kafka: `ScramSaslServer`, `ScramMessages`).

There is no channel binding. The messages have only characters of ASCII, so a user with another name cannot log in.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from hashlib import new as new_hash
from hmac import compare_digest, digest
from typing import Final

from msgspec import Struct

from metadata_log.pbkdf2 import pbkdf2_hmac
from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused
from transport.protocol.sasl.credentials import (
    SCRAM_HASHES,
    WRONG_AUTHORIZATION_ID,
    Login,
    ScramKeys,
    TokenKeys,
    Users,
)

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
"""The limits of Kafka for credentials. A client derives its key in one go, which takes some ten milliseconds."""
TOKEN_EXTENSION: Final = "tokenauth"
_SALT_BYTES: Final = 20
_BARE_AT: Final = 2
"""The position of the bare message among the parts of a first message: after the flag and the authorization id."""


class _First(Struct, frozen=True):
    """The first message of a client."""

    header: str
    """The flag of channel binding and the authorization id."""
    bare: str
    authorization_id: str
    user: str
    nonce: str
    is_token: bool


def _text(message: bytes) -> str:
    """The message as text; raises `LoginRefused` for a character that no message may have."""
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise LoginRefused("a message has characters outside ASCII") from None
    if "\0" in text:
        raise LoginRefused("a message has a character that is not allowed")
    return text


def _value(part: str, name: str) -> str:
    """The value of the attribute `name`, which is due now."""
    if not part.startswith(f"{name}="):
        raise LoginRefused(f"the attribute {name} is missing or in another place")
    return part[2:]


def _name(text: str) -> str:
    """The name behind its escapes."""
    if not text or "=" in text.replace("=2C", "").replace("=3D", ""):
        raise LoginRefused("a name is empty or has a wrong escape")
    return text.replace("=2C", ",").replace("=3D", "=")


def escaped(name: str) -> str:
    """A name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _nonce(text: str) -> str:
    if not text or not (text.isprintable() and " " not in text):
        raise LoginRefused("a nonce is empty or has a character that is not allowed")
    return text


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginRefused("a value is not base64") from None


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _extensions(parts: list[str]) -> dict[str, str]:
    extensions: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not (equals and value and name.isalpha()):
            raise LoginRefused("an extension is not NAME=VALUE")
        extensions[name] = value
    return extensions


def _read_first(message: bytes) -> _First:
    text = _text(message)
    parts = text.split(",")
    if len(parts) < 4 or parts[0] != "n":
        raise LoginRefused("the first message is malformed, or asks for channel binding")
    authorization_id = _name(_value(parts[1], "a")) if parts[1] else ""
    # A reserved attribute `m` means that the client demands an extension; so `n` is not in its place then.
    user = _name(_value(parts[_BARE_AT], "n"))
    nonce = _nonce(_value(parts[3], "r"))
    header = f"{parts[0]},{parts[1]},"
    is_token = _extensions(parts[4:]).get(TOKEN_EXTENSION, "").lower() == "true"
    return _First(header, text[len(header) :], authorization_id, user, nonce, is_token)


def hidden_salt(key: bytes, mechanism: str, user: str) -> bytes:
    """A salt that is always the same for a name, and that only this node can derive."""
    return digest(key, f"{mechanism}:{user}".encode(), "sha256")[:_SALT_BYTES]


def keys_of(mechanism: str, password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """The keys of a password."""
    hash_name = SCRAM_HASHES[mechanism]
    salted = pbkdf2_hmac(hash_name, password, salt, iterations)
    stored = new_hash(hash_name, digest(salted, b"Client Key", hash_name)).digest()
    return ScramKeys(salt, stored, digest(salted, b"Server Key", hash_name), iterations)


class ScramServer:
    """The server's side of one exchange, with a fresh nonce."""

    def __init__(self, mechanism: str, users: Users, nonce: str) -> None:
        self.login: Login | None = None
        """The result, once the exchange is finished."""
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._nonce = nonce
        self._first: _First | None = None
        self._told = ""
        self._keys: ScramKeys | None = None
        self._login: Login | None = None
        """The result of a right proof; None for an unknown user."""

    def respond(self, message: bytes) -> bytes:
        """The answer to the next message of the client; raises `LoginRefused`."""
        if self._first is None:
            return self._begin(_read_first(message))
        return self._finish(self._first, message)

    def _begin(self, first: _First) -> bytes:
        if first.authorization_id not in ("", first.user):
            raise LoginRefused("another authorization id", WRONG_AUTHORIZATION_ID)
        self._first = first
        self._nonce = first.nonce + self._nonce
        keys = None
        if first.is_token:
            token: TokenKeys | None = self._users.token(self._mechanism, first.user)
            if token is not None:
                keys, self._login = token.keys, Login(token.owner, token.expires_ms)
        else:
            keys = self._users.scram(self._mechanism, first.user)
            if keys is not None and keys.iterations < LEAST_ITERATIONS:
                keys = None
            if keys is not None:
                self._login = Login(Principal(name=first.user))
        self._keys = keys or self._invented(first.user)
        self._told = f"r={self._nonce},s={_encoded(self._keys.salt)},i={self._keys.iterations}"
        return self._told.encode()

    def _invented(self, user: str) -> ScramKeys:
        """Keys for an unknown user, with which no proof is right: the answer looks as for a user that exists."""
        key = self._users.hiding_key
        size = new_hash(self._hash).digest_size
        return ScramKeys(hidden_salt(key, self._mechanism, user), bytes(size), bytes(size), LEAST_ITERATIONS)

    def _finish(self, first: _First, message: bytes) -> bytes:
        keys = self._keys
        assert keys is not None, first
        text = _text(message)
        parts = text.split(",")
        if len(parts) != 3:
            raise LoginRefused("the final message is malformed, or has an extension")
        if _decoded(_value(parts[0], "c")) != first.header.encode():
            raise LoginRefused("the final message repeats another header")
        if not compare_digest(_value(parts[1], "r"), self._nonce):
            raise LoginRefused("the final message has another nonce")
        proof = _decoded(_value(parts[2], "p"))
        signed = f"{first.bare},{self._told},{parts[0]},{parts[1]}".encode()
        signature = digest(keys.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise LoginRefused("the proof has a wrong length")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_right = compare_digest(new_hash(self._hash, client_key).digest(), keys.stored_key)
        if not is_right or self._login is None:
            raise LoginRefused("wrong user name or password")
        self.login = self._login
        return f"v={_encoded(digest(keys.server_key, signed, self._hash))}".encode()


@lru_cache(maxsize=16)
def _salted(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Cached: a client logs in to each server again and again with the same password and salt."""
    return pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


class ScramClient:
    """The client's side of one exchange, with a fresh nonce."""

    def __init__(self, mechanism: str, user: str, password: str, *, is_token: bool, nonce: str) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={escaped(user)},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if is_token else "")
        self._signature: bytes | None = None
        """The expected signature of the server."""

    def begin(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def respond(self, message: bytes) -> bytes | None:
        """The answer to the next message of the server; None if the server has proved itself.

        Raises `LoginRefused` for a server that does not know the password either.
        """
        if self._signature is not None:
            if not compare_digest(_decoded(_value(_text(message).split(",")[0], "v")), self._signature):
                raise LoginRefused("the server has not proved that it knows the password")
            return None
        told = _text(message)
        parts = told.split(",")
        if len(parts) < 3:
            raise LoginRefused("the server's first message is malformed")
        nonce, salt = _value(parts[0], "r"), _decoded(_value(parts[1], "s"))
        iterations = _value(parts[2], "i")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise LoginRefused("the server answers with another nonce")
        is_number = iterations.isdecimal() and len(iterations) < 10
        if not is_number or not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            raise LoginRefused(f"the server asks for iterations outside {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
        salted = _salted(self._hash, self._password, salt, int(iterations))
        client_key = digest(salted, b"Client Key", self._hash)
        final = f"c={_encoded(b'n,,')},r={nonce}"
        signed = f"{self._bare},{told},{final}".encode()
        signature = digest(new_hash(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = digest(digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{final},p={_encoded(proof)}".encode()
