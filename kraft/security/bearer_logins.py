"""The tokens with which this side logs in.

Kafka: `DefaultJwtRetriever`, `OAuthBearerUnsecuredLoginCallbackHandler`.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from kraft.config.oauth_settings import BearerLogin
from kraft.config.properties import Setting
from kraft.config.settings_reader import SettingsReader
from kraft.config.tls_settings import ConfigTls, read_tls
from kraft.security.contexts import load_tls
from kraft.security.remote import Remote, RemoteError, read_url
from transport.protocol.login import LoginRefused
from transport.protocol.sasl.bearer import MOST_TOKEN_BYTES

RENEW_AT: Final = 0.8
"""The part of a token's lifetime after which the next one is fetched (Kafka: `sasl.login.refresh.window.factor`)."""
_FILE_EVERY_S: Final = 10.0
_LEAST_S: Final = 1.0


class Token(Struct, frozen=True):
    """A token, and when it expires in milliseconds since 1970."""

    text: str
    expires_ms: int

    def __repr__(self) -> str:
        return "Token()"


def bearer_of(login: BearerLogin, now_ms: Callable[[], int]) -> tuple[Callable[[], str], Remote[Token] | None]:
    """The function that returns the current token of a login, and the reader of that token.

    The reader is None for tokens that this side makes. Raises `ConfigError` for bad stores.
    """
    if login.url is None:
        return (lambda: unsecured_token(login, now_ms())), None
    context = context_of(login.trust, login.at)
    remote = Remote(
        f"the token of {login.url}",
        lambda: _fetched(login, context, now_ms()),
        backoff_ms=login.backoff_ms,
        backoff_max_ms=login.backoff_max_ms,
    )

    def current() -> str:
        token = remote.value
        if token is None:
            raise LoginRefused(f"no token from {login.url}: {remote.error or 'not read yet'}")
        if token.expires_ms <= now_ms():
            raise LoginRefused(f"the token from {login.url} has expired: {remote.error or 'a new one is due'}")
        return token.text

    return current, remote


def unsecured_token(login: BearerLogin, now_ms: int) -> str:
    """A token without signature, as Kafka's client makes one from the options of a JAAS string."""
    now = now_ms / 1000
    claims = {"exp": now + login.lifetime_s, "iat": now, **login.claims}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")


def context_of(trust: Mapping[str, Setting], where: str) -> Callable[[], ssl.SSLContext]:
    """Makes the context of TLS for a URL, from the `ssl.` options of a JAAS string."""
    if not trust:
        return ssl.create_default_context
    tls = load_tls(ConfigTls(outgoing=read_tls(SettingsReader(trust, where)))).tls
    assert tls is not None, where
    assert tls.outgoing is not None, where
    context = tls.outgoing
    return lambda: context


def _fetched(login: BearerLogin, context: Callable[[], ssl.SSLContext], now_ms: int) -> tuple[Token, float]:
    """The token of a file or of a token endpoint, and the seconds until the next read."""
    assert login.url is not None, login
    if urlsplit(login.url).scheme == "file":
        text = read_url(login.url, context).decode("ascii", "replace").strip()
        return _checked(text), _FILE_EVERY_S
    secret = "" if login.client_secret is None else login.client_secret.value
    form = {"grant_type": "client_credentials"} | ({} if login.scope is None else {"scope": login.scope})
    named = base64.b64encode(f"{login.client_id}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {named}", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        answer = json.loads(read_url(login.url, context, body=urlencode(form).encode(), headers=headers))
        text = answer["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RemoteError("the answer has no access_token") from None
    token = _checked(text)
    return token, max((token.expires_ms - now_ms) / 1000 * RENEW_AT, _LEAST_S)


def _checked(text: object) -> Token:
    """A token in the form of a JWT, with its expiry; raises `RemoteError`, which names no part of it."""
    if not isinstance(text, str) or len(text) > MOST_TOKEN_BYTES or not text.isascii() or text.count(".") != 2:
        raise RemoteError("the token is no JWT")
    payload = text.split(".")[1]
    try:
        expires = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return Token(text, int(expires * 1000))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise RemoteError("the token is no JWT with an expiry") from None
