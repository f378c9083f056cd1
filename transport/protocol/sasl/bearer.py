"""OAUTHBEARER: a token in place of a password (RFC 7628, KIP-255).

Kafka: `OAuthBearerSaslServer`, `OAuthBearerSaslClient`.

A function of the owner judges the token; this module knows only the messages around the token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from transport.protocol.login import LoginRefused
from transport.protocol.sasl.credentials import Login, TokenRefused, Users

MOST_TOKENS: Final = 3
"""How many tokens a peer may send in one login. Kafka sets no limit."""
MOST_TOKEN_BYTES: Final = 65_536
_END: Final = "\x01"
_GO_ON: Final = b"\x01"
"""The answer of a client to the description of an error."""
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY: Final = r"[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
_AUTH: Final = r"([A-Za-z0-9_]+) +([-_.a-zA-Z0-9]+)"


class _First(Struct, frozen=True):
    """The message of a client."""

    authorization_id: str
    token: str


def _read(message: bytes) -> _First:
    """Parse the message of a client; raises `LoginRefused`."""
    header, separator, rest = message.decode("utf-8", "replace").partition(_END)
    flag, comma, named = header.partition(",")
    if not separator or flag != "n" or not comma or not named.endswith(",") or not rest.endswith(_END):
        raise LoginRefused("the message is malformed, or asks for channel binding")
    authorization_id = named[:-1]
    if authorization_id:
        is_named = authorization_id.startswith("a=")
        authorization_id = authorization_id[2:]
        if not is_named or not re.fullmatch(_NAME, authorization_id):
            raise LoginRefused("the authorization id is malformed")
    fields: dict[str, str] = {}
    pairs = rest[:-1]
    if pairs and not pairs.endswith(_END):
        raise LoginRefused("the message does not end as it should")
    for pair in pairs.split(_END)[:-1]:
        key, equals, value = pair.partition("=")
        if not (equals and re.fullmatch(_KEY, key) and re.fullmatch(_VALUE, value)):
            raise LoginRefused("an extension is not NAME=VALUE")
        fields[key] = value
    parts = re.fullmatch(_AUTH, fields.get("auth", ""))
    if parts is None or parts[1].lower() != "bearer":
        raise LoginRefused("the message has no bearer token")
    if len(parts[2]) > MOST_TOKEN_BYTES:
        raise LoginRefused(f"the token is longer than {MOST_TOKEN_BYTES} characters")
    return _First(authorization_id, parts[2])


class BearerServer:
    """The server's side of one exchange."""

    def __init__(self, users: Users) -> None:
        self.login: Login | None = None
        """The result, once the exchange is finished."""
        self._users = users
        self._refused: TokenRefused | None = None
        """Why the last token is refused."""
        self._tokens = 0

    def respond(self, message: bytes) -> bytes:
        """The answer to the next message of the client; raises `LoginRefused`.

        A bad token is answered with a description of the error. Then the client ends the exchange, or sends another
        token.
        """
        refused = self._refused
        if refused is not None and message == _GO_ON:
            raise LoginRefused(refused.why, _described(refused))
        first = _read(message)
        self._tokens += 1
        try:
            login = self._users.bearer(first.token)
        except TokenRefused as bad:
            if self._tokens >= MOST_TOKENS:
                raise LoginRefused(f"{bad.why} (token {self._tokens})", _described(bad)) from None
            self._refused = bad
            return _described(bad).encode()
        name = login.principal.name
        if first.authorization_id not in ("", name):
            raise LoginRefused(
                "another authorization id",
                f"Authentication failed: Client requested an authorization id ({first.authorization_id}) that is"
                f" different from the token's principal name ({name})",
            )
        self.login = login
        return b""


def _described(refused: TokenRefused) -> str:
    """The error as JSON for the client: its kind, and nothing about the token."""
    told = {"status": "invalid_token" if refused.scope is None else "insufficient_scope"}
    if refused.scope is not None:
        told["scope"] = refused.scope
    return json.dumps(told, separators=(",", ":"))


class BearerClient:
    """The client's side of one exchange.

    Args:
        token: The token.
        extensions: Names and values that accompany the token; Kafka's brokers show them to their plug-ins.
    """

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = "".join(f"{_END}{key}={value}" for key, value in extensions.items())
        self._message = f"n,,{_END}auth=Bearer {token}{pairs}{_END}{_END}".encode()
        self._is_refused = False

    def begin(self) -> bytes:
        """The message with the token."""
        return self._message

    def respond(self, message: bytes) -> bytes | None:
        """The answer to a description of an error; None if the server accepts the token."""
        if self._is_refused:
            raise LoginRefused("the server has refused the token, and goes on")
        if not message:
            return None
        self._is_refused = True
        return _GO_ON
