"""Bearer tokens in a configuration: how a listener judges them, and where a client gets its own (KIP-255, KIP-768).

Kafka: `OAuthBearerValidatorCallbackHandler`, `OAuthBearerLoginCallbackHandler`, their unsecured counterparts, and
`SaslConfigs`. No error repeats an option of a JAAS string, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from kraft.config.addresses import split_list
from kraft.config.described import Secret
from kraft.config.errors import ConfigError
from kraft.config.keys import INT_MAX, LONG_MAX
from kraft.config.properties import Setting
from kraft.config.settings_reader import SettingsReader

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
SIGNED: Final = f"{_PACKAGE}OAuthBearerValidatorCallbackHandler"
UNSECURED: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
REMOTE_LOGIN: Final = f"{_PACKAGE}OAuthBearerLoginCallbackHandler"
UNSECURED_LOGIN: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_OLD: Final = f"{_PACKAGE}secured."
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
LOGIN_CLASS: Final = "sasl.login.class"
_REFRESHING: Final = f"{_PACKAGE}internals.OAuthBearerRefreshingLogin"
_PREFIX: Final = "sasl.oauthbearer."
JWKS_URL: Final = f"{_PREFIX}jwks.endpoint.url"
TOKEN_URL: Final = f"{_PREFIX}token.endpoint.url"
_CLASSES: Final = {
    f"{_PREFIX}jwt.retriever.class": ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever"),
    f"{_PREFIX}jwt.validator.class": ("DefaultJwtValidator", "BrokerJwtValidator", "ClientJwtValidator"),
}
"""Settings with a class of Kafka, and the classes that change nothing here."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_MINE: Final = "unsecuredLogin"
_STRING, _NUMBER, _LIST = (f"{_MINE}{kind}Claim_" for kind in ("String", "Number", "List"))

FindKey = Callable[[str], str | None]
"""The key of the file that counts for a setting, with its prefix; None if none is set."""


class TokenRules(Struct, frozen=True, kw_only=True):
    """How a listener judges bearer tokens."""

    keys_url: str | None
    """The place of the keys that sign tokens (JWKS): a URL with `https` or `file`. None for unsigned tokens."""
    keys_at: str = ""
    """The place of that setting, for errors."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    audiences: tuple[str, ...] = ()
    """One of these must be among the token's audiences; empty for any."""
    issuer: str | None = None
    skew_ms: int = 30_000
    """How far the clocks of issuer and server may differ."""
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    required_scope: tuple[str, ...] = ()
    """The scopes that a token without signature needs."""
    trust: Mapping[str, Setting] = {}
    """The settings of TLS for the URL, from the JAAS string."""


class BearerLogin(Struct, frozen=True, kw_only=True):
    """Where a client gets its token."""

    url: str | None
    """A file with a token, or the token endpoint of an issuer. None for a token that the client makes, unsigned."""
    at: str = ""
    """The place of that setting, for errors."""
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str | None = None
    claims: Mapping[str, str | float | list[str]] = {}
    """The claims of an unsigned token."""
    lifetime_s: int = 3600
    """The lifetime of an unsigned token."""
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    extensions: Mapping[str, str] = {}
    trust: Mapping[str, Setting] = {}

    def __repr__(self) -> str:
        return f"BearerLogin({self.url})"


class _Keys(Struct, frozen=True):
    """The settings of one listener or client."""

    reader: SettingsReader
    find: FindKey

    def text(self, key: str) -> str | None:
        full_key = self.find(key)
        return None if full_key is None else self.reader.settings[full_key].value or None

    def number(self, key: str, default: int, minimum: int, maximum: int) -> int:
        full_key = self.find(key)
        return default if full_key is None else self.reader.whole_number(full_key, minimum, maximum)

    def flag(self, key: str) -> bool:
        """A setting that is false without a value."""
        full_key = self.find(key)
        return full_key is not None and self.reader.as_flag(full_key, self.reader.settings[full_key].value)

    def at(self, key: str) -> str:
        full_key = self.find(key)
        return self.reader.source if full_key is None else self.reader.settings[full_key].where

    def bad(self, key: str, why: str, hint: str | None = None) -> ConfigError:
        return self.reader.bad(self.find(key) or key, why, hint=hint)

    def url(self, key: str) -> str:
        """A URL of a file, or one with answers that no other host can change."""
        text = self.text(key) or ""
        parts = urlsplit(text)
        if parts.username is not None or parts.password is not None:
            raise ConfigError(f"{self.find(key)}: the URL has a user or a password", where=self.at(key))
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if parts.scheme == "file" and parts.path and parts.netloc in ("", "localhost"):
            return text
        if not parts.hostname or not (parts.scheme == "https" or is_local):
            hint = "Plain http is allowed on loopback only."
            raise self.bad(key, "allowed is a URL with https, or file:///PATH", hint)
        return text


def _check_classes(keys: _Keys) -> None:
    for key, names in _CLASSES.items():
        if (value := keys.text(key)) is not None and value.removeprefix(_PACKAGE) not in names:
            raise keys.bad(key, "this software loads no classes", f"Allowed: {', '.join(names)}.")


def read_token_rules(reader: SettingsReader, find: FindKey, handler: str, options: Mapping[str, str]) -> TokenRules:
    """How a listener judges bearer tokens.

    Args:
        reader: The settings.
        find: Finds the key of a setting for this listener and OAUTHBEARER.
        handler: The key of the listener's `sasl.server.callback.handler.class`.
        options: The options of the JAAS string.

    Raises:
        ConfigError: A setting is missing, invalid or not supported. The class has to be named, because Kafka's default
            accepts unsigned tokens.
    """
    keys = _Keys(reader, find)
    if handler not in reader.settings:
        raise ConfigError(
            f"OAUTHBEARER needs {handler}, because the default of Kafka accepts tokens without a signature",
            where=reader.source,
            hint=f"Add {handler}={SIGNED} and {JWKS_URL}. For tests only: {UNSECURED}.",
        )
    name = reader.settings[handler].value.replace(_OLD, _PACKAGE)
    if name == UNSECURED:
        return _unsecured_rules(options, reader.settings[handler].where)
    if name != SIGNED:
        raise reader.bad(handler, "this software loads no classes", hint=f"Allowed: {SIGNED}, or {UNSECURED}.")
    _check_classes(keys)
    if keys.text(JWKS_URL) is None:
        raise reader.missing(JWKS_URL, f"Add {JWKS_URL}=https://…, or file:///PATH: the keys that sign tokens (JWKS).")
    return TokenRules(
        keys_url=keys.url(JWKS_URL),
        keys_at=keys.at(JWKS_URL),
        refresh_ms=keys.number(f"{_PREFIX}jwks.endpoint.refresh.ms", 3_600_000, 1, LONG_MAX),
        backoff_ms=keys.number(f"{_PREFIX}jwks.endpoint.retry.backoff.ms", 100, 1, LONG_MAX),
        backoff_max_ms=keys.number(f"{_PREFIX}jwks.endpoint.retry.backoff.max.ms", 10_000, 1, LONG_MAX),
        audiences=split_list(_expected(keys, "expected.audience", "allow.unverified.audience") or ""),
        issuer=_expected(keys, "expected.issuer", "allow.unverified.issuer"),
        skew_ms=keys.number(f"{_PREFIX}clock.skew.seconds", 30, 0, INT_MAX) * 1000,
        scope_claim=keys.text(f"{_PREFIX}scope.claim.name") or "scope",
        subject_claim=keys.text(f"{_PREFIX}sub.claim.name") or "sub",
        trust=_trust(options, keys.at(JWKS_URL)),
    )


def _expected(keys: _Keys, expected: str, allowing: str) -> str | None:
    """The issuer or audience that a token must name; None for any, which must be set (Kafka 4.4: `BrokerJwtValidator`).

    Issuers sign tokens for many services with the same keys: a token for another one would be a login here.
    """
    key, any_is_fine = f"{_PREFIX}{expected}", f"{_PREFIX}{allowing}"
    value = keys.text(key)
    if value is None and not keys.flag(any_is_fine):
        raise keys.reader.missing(key, f"Add {key}=…, or, to accept tokens with any other: {any_is_fine}=true.")
    return value


def _unsecured_rules(options: Mapping[str, str], where: str) -> TokenRules:
    skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
    if not (skew.isdecimal() and len(skew) < 10):
        raise ConfigError("unsecuredValidatorAllowableClockSkewMs of a JAAS string is no number", where=where)
    return TokenRules(
        keys_url=None,
        skew_ms=int(skew),
        scope_claim=options.get("unsecuredValidatorScopeClaimName") or "scope",
        subject_claim=options.get("unsecuredValidatorPrincipalClaimName") or "sub",
        required_scope=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
    )


def _trust(options: Mapping[str, str], where: str) -> dict[str, Setting]:
    return {key: Setting(value, where) for key, value in options.items() if key.startswith("ssl.")}


def read_bearer_login(reader: SettingsReader, find: FindKey, options: Mapping[str, str]) -> BearerLogin:
    """Where a client gets its token.

    Args:
        reader: The settings.
        find: Finds the key of a setting for this client.
        options: The options of the JAAS string.

    Raises:
        ConfigError: A setting is missing, invalid or not supported.
    """
    keys = _Keys(reader, find)
    if (login := keys.text(LOGIN_CLASS)) is not None and login != _REFRESHING:
        raise keys.bad(LOGIN_CLASS, "this software loads no classes", "Leave the setting out.")
    handler = (keys.text(LOGIN_HANDLER) or UNSECURED_LOGIN).replace(_OLD, _PACKAGE)
    if handler == UNSECURED_LOGIN:
        return _unsecured_login(options, keys.at("sasl.jaas.config"))
    if handler != REMOTE_LOGIN:
        raise keys.bad(LOGIN_HANDLER, "this software loads no classes", f"Allowed: {REMOTE_LOGIN}.")
    _check_classes(keys)
    if keys.text(TOKEN_URL) is None:
        raise reader.missing(TOKEN_URL, f"Add {TOKEN_URL}=https://…, or file:///PATH of a file with a token.")
    credentials = f"{_PREFIX}client.credentials.client."
    secret = keys.text(f"{credentials}secret") or options.get("clientSecret")
    bearer_login = BearerLogin(
        url=keys.url(TOKEN_URL),
        at=keys.at(TOKEN_URL),
        client_id=keys.text(f"{credentials}id") or options.get("clientId") or "",
        client_secret=None if secret is None else Secret(secret),
        scope=keys.text(f"{_PREFIX}scope") or options.get("scope"),
        backoff_ms=keys.number("sasl.login.retry.backoff.ms", 100, 1, LONG_MAX),
        backoff_max_ms=keys.number("sasl.login.retry.backoff.max.ms", 10_000, 1, LONG_MAX),
        extensions=_extensions(options, "extension_", keys.at("sasl.jaas.config")),
        trust=_trust(options, keys.at(TOKEN_URL)),
    )
    if urlsplit(bearer_login.url or "").scheme != "file" and not (bearer_login.client_id and secret):
        raise reader.missing(
            f"{credentials}id", f"A token endpoint wants {credentials}id and {credentials}secret of this client."
        )
    return bearer_login


def _unsecured_login(options: Mapping[str, str], where: str) -> BearerLogin:
    claims: dict[str, str | float | list[str]] = {}
    for option, value in options.items():
        if option.startswith(_STRING):
            claims[option.removeprefix(_STRING)] = value
        elif option.startswith(_NUMBER):
            try:
                claims[option.removeprefix(_NUMBER)] = float(value)
            except ValueError:
                raise ConfigError(f"{option} of a JAAS string is no number", where=where) from None
        elif option.startswith(_LIST):
            # The first character separates the others.
            claims[option.removeprefix(_LIST)] = value[1:].split(value[:1]) if len(value) > 1 else []
    name = options.get(f"{_MINE}PrincipalClaimName") or "sub"
    if not isinstance(claims.get(name), str) or not claims[name]:
        raise ConfigError(
            f"the JAAS string of OAUTHBEARER makes no token: {_STRING}{name} is missing",
            where=where,
            hint=f"Add {LOGIN_HANDLER}={REMOTE_LOGIN} and {TOKEN_URL}, so that an issuer makes the token.",
        )
    lifetime = options.get(f"{_MINE}LifetimeSeconds") or "3600"
    if not (lifetime.isdecimal() and len(lifetime) < 10):
        raise ConfigError(f"{_MINE}LifetimeSeconds of a JAAS string is no number", where=where)
    return BearerLogin(
        url=None,
        claims=claims,
        lifetime_s=int(lifetime),
        extensions=_extensions(options, f"{_MINE}Extension_", where),
    )


def _extensions(options: Mapping[str, str], prefix: str, where: str) -> dict[str, str]:
    """The extensions of a login; a name has letters only, and `auth` is the token's own."""
    extensions = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    for name, value in extensions.items():
        is_name = name.isascii() and name.isalpha() and name.lower() != "auth"
        is_text = value.isascii() and all(one.isprintable() or one in "\t\r\n" for one in value)
        if not (is_name and is_text and value):
            raise ConfigError(f"{prefix}{name} of a JAAS string is no extension: letters, and a text", where=where)
    return extensions
