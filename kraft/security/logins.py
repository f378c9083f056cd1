"""From settings to the logins of a transport (Kafka: `SaslChannelBuilder`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.config import Config
from kraft.config.listener_settings import ConnectionSettings
from kraft.config.oauth_settings import TokenRules
from kraft.config.sasl_settings import LoginSettings, SaslListenerSettings
from transport.protocol.sasl.credentials import ScramKeys, TokenKeys, Users
from transport.protocol.sasl.scram import LEAST_ITERATIONS, keys_of
from transport.protocol.sasl.server import SaslListener
from transport.sasl import NO_SASL, Sasl

if TYPE_CHECKING:
    # Few nodes log in somewhere, and few take tokens: what does loads these.
    from kraft.security.bearer_tokens import Judge
    from kraft.security.remote import Remote
    from transport.protocol.sasl.client import SaslLogin

_HIDING_KEY_BYTES = 32
_SALT_BYTES = 20
_FILE_EVERY_S = 10.0

FindKeys = Callable[[str, str], ScramKeys | None]
"""The SCRAM credential of a mechanism and a user."""
FindToken = Callable[[str, str], TokenKeys | None]
"""The delegation token of a mechanism and a token id."""
Clock = Callable[[], int]
"""Returns the time in milliseconds since 1970."""


class Logins(Struct, frozen=True):
    """The logins of a transport, and the values that they need from elsewhere.

    Args:
        sasl: The logins.
        remotes: The keys and the token that threads read: `begin` starts each one, and `end` stops them.
    """

    sasl: Sasl
    remotes: tuple[Remote[Any], ...] = ()


def login_of(settings: LoginSettings | None, now_ms: Clock) -> tuple[SaslLogin | None, Remote[Any] | None]:
    """The login of a client, and the reader of its token, if it has one. Raises `ConfigError` for bad stores."""
    if settings is None:
        return None, None
    from transport.protocol.sasl.client import SaslLogin

    if settings.bearer is not None:
        from kraft.security.bearer_tokens import bearer_of

        bearer, remote = bearer_of(settings.bearer, now_ms)
        extensions = settings.bearer.extensions
        return SaslLogin(mechanism=settings.mechanism, bearer=bearer, extensions=extensions), remote
    login = SaslLogin(
        mechanism=settings.mechanism, user=settings.user, password=settings.password, is_token=settings.is_token
    )
    return login, None


def sasl_of(config: Config, scram: FindKeys, token: FindToken, now_ms: Clock) -> Logins:
    """The logins of a node. The functions look up what the configuration does not hold.

    Args:
        config: The configuration of the node.
        scram: Finds the SCRAM credential of a mechanism and a user.
        token: Finds the delegation token of a mechanism and a token id.
        now_ms: The clock for the expiry of bearer tokens.

    Raises:
        ConfigError: A store of certificates is unusable.
    """
    settings = config.sasl
    if not settings.listeners and not any(settings.outgoing.values()):
        return Logins(NO_SASL)
    hiding_key = secrets.token_bytes(_HIDING_KEY_BYTES)
    outgoing, remotes, listeners = {}, [], {}
    for kind, wanted in settings.outgoing.items():
        outgoing[kind], remote = login_of(wanted, now_ms)
        remotes += [] if remote is None else [remote]
    for name, one in settings.listeners.items():
        known = _with_passwords(scram, one.scram_passwords) if one.scram_passwords else scram
        users = Users(passwords=one.passwords, scram=known, token=token, hiding_key=hiding_key)
        if one.tokens is not None:
            judge, keys = _judge(one.tokens, now_ms)
            users = replace(users, bearer=judge)
            remotes += [] if keys is None else [keys]
        listeners[name] = _listener(config, one, users)
    return Logins(Sasl(listeners=listeners, outgoing=outgoing), tuple(remotes))


def _with_passwords(scram: FindKeys, passwords: dict[str, str]) -> FindKeys:
    """Finds the credentials of users whose passwords are known, and of others. A key takes some milliseconds, once."""
    salt = secrets.token_bytes(_SALT_BYTES)

    @cache
    def keys(mechanism: str, user: str) -> ScramKeys:
        return keys_of(mechanism, passwords[user].encode(), salt, LEAST_ITERATIONS)

    return lambda mechanism, user: keys(mechanism, user) if user in passwords else scram(mechanism, user)


def _listener(config: Config, settings: SaslListenerSettings, users: Users) -> SaslListener:
    return SaslListener(
        mechanisms=settings.mechanisms,
        users=dict.fromkeys(settings.mechanisms, users),
        max_reauth_ms=settings.max_reauth_ms,
        max_receive_bytes=config.of(ConnectionSettings).sasl_max_receive_bytes,
        failed_delay_ms=config.of(ConnectionSettings).failed_authentication_delay_ms,
    )


def _judge(rules: TokenRules, now_ms: Clock) -> tuple[Judge, Remote[Any] | None]:
    """The function that judges the tokens of a listener, and the reader of its keys."""
    from kraft.security.bearer_tokens import context_of, judge_of, read_keys
    from kraft.security.remote import Remote, read_url

    url = rules.keys_url
    if url is None:
        return judge_of(rules, None, now_ms), None
    context = context_of(rules.trust, rules.keys_at)
    pause_s = _FILE_EVERY_S if urlsplit(url).scheme == "file" else rules.refresh_ms / 1000
    keys = Remote(
        f"the JWKS document {url}",
        lambda: (read_keys(read_url(url, context)), pause_s),
        backoff_ms=rules.backoff_ms,
        backoff_max_ms=rules.backoff_max_ms,
    )
    return judge_of(rules, keys, now_ms), keys
