"""PLAIN: user and password in one message (RFC 4616; Kafka: `PlainSaslServer`, `PlainSaslClient`)."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Final

from transport.protocol.inbound import Principal
from transport.protocol.login import LoginRefused
from transport.protocol.sasl.credentials import WRONG_AUTHORIZATION_ID, Login, Users

_INVALID: Final = "Authentication failed: Invalid username or password"
_SEPARATOR: Final = "\0"
_MOST_TOKENS: Final = 4


def _hashed(password: str) -> bytes:
    return sha256(password.encode("utf-8", "replace")).digest()


class PlainServer:
    """The server's side of one exchange."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self.login: Login | None = None
        """The result, once the exchange is finished."""

    def respond(self, message: bytes) -> bytes:
        """Judge the one message of the client; raises `LoginRefused`."""
        tokens = message.decode("utf-8", "replace").split(_SEPARATOR, _MOST_TOKENS)
        if len(tokens) != 3:
            count = min(len(tokens), _MOST_TOKENS)
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
            raise LoginRefused(text, text)
        authorization_id, user, password = tokens
        if not user:
            raise LoginRefused("no user name", "Authentication failed: username not specified")
        if not password:
            raise LoginRefused("no password", "Authentication failed: password not specified")
        expected = self._users.passwords.get(user)
        # The comparison takes place for an unknown user, too: the time of the answer must not tell them apart. The
        # hashes have one size, so that the time does not depend on the size of a password either.
        is_same = compare_digest(_hashed(password), _hashed(expected or ""))
        if not is_same or not expected:
            raise LoginRefused("wrong user name or password", _INVALID)
        if authorization_id not in ("", user):
            raise LoginRefused("another authorization id", WRONG_AUTHORIZATION_ID)
        self.login = Login(Principal(name=user))
        return b""


class PlainClient:
    """The client's side of one exchange."""

    def __init__(self, user: str, password: str) -> None:
        self._message = f"{_SEPARATOR}{user}{_SEPARATOR}{password}".encode()

    def begin(self) -> bytes:
        """The message with the password."""
        return self._message

    def respond(self, message: bytes) -> bytes | None:
        """Nothing more to say, whatever the server adds."""
        return None
