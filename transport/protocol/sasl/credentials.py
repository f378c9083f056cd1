"""A server's credentials of its users (Kafka: `ScramCredential`, `CredentialCache`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from transport.protocol.inbound import Principal

PLAIN: Final = "PLAIN"
SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each SCRAM mechanism, by its name."""
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM_HASHES, OAUTHBEARER)
"""The mechanisms that both ends know."""

WRONG_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class ScramKeys(Struct, frozen=True):
    """The data to verify a client's proof, without the password (Kafka: `ScramCredential`, RFC 5802).

    Args:
        salt: The salt of the password.
        stored_key: The hash of the client's key.
        server_key: The key with which the server proves itself.
        iterations: The iterations of PBKDF2; a login with fewer than 4096 is refused.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramKeys(iterations={self.iterations})"


class TokenKeys(Struct, frozen=True):
    """A delegation token as a credential (Kafka: `DelegationTokenCache`).

    Args:
        keys: The keys of the token's HMAC as base64 text.
        owner: The principal of a login by the token.
        expires_ms: The time in milliseconds since 1970 at which the token expires.
    """

    keys: ScramKeys
    owner: Principal
    expires_ms: int


class Login(Struct, frozen=True):
    """A finished login."""

    principal: Principal
    expires_ms: int | None = None
    """When the credential expires, in milliseconds since 1970; None for a credential without an end."""


class TokenRefused(Exception):
    """A bearer token is refused.

    Args:
        why: The reason for the log of this side. Never a part of the token.
        scope: The scope that the token lacks; None if the token is refused for another reason.
    """

    def __init__(self, why: str, *, scope: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.scope = scope


def _no_bearer(token: str) -> Login:
    raise TokenRefused("this listener judges no bearer tokens")


class Users(Struct, frozen=True, kw_only=True):
    """The credentials of one mechanism at a listener.

    Args:
        passwords: The passwords of PLAIN, by user.
        scram: Finds the SCRAM credential of a mechanism and a user.
        token: Finds the delegation token of a mechanism and a token id.
        bearer: Judges a bearer token: its login, or `TokenRefused`. The function must not block.
        hiding_key: A secret of this node. The salts of users that do not exist derive from this key, so that a client
            cannot tell them from users that do.
    """

    passwords: Mapping[str, str] = {}
    scram: Callable[[str, str], ScramKeys | None] = lambda mechanism, user: None
    token: Callable[[str, str], TokenKeys | None] = lambda mechanism, token_id: None
    bearer: Callable[[str], Login] = _no_bearer
    hiding_key: bytes = b""

    def __repr__(self) -> str:
        return "Users()"
