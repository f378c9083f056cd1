"""Logins in a configuration: mechanisms, users and credentials of each listener (Kafka: `SaslConfigs`, `JaasContext`).

A listener's value has the key `listener.name.<listener>.<key>`, with the mechanism in between for what depends on it.
Names of listeners and mechanisms are in lower case there. No error repeats a JAAS string, which holds passwords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kraft.config.addresses import ListenerSpec, split_list
from kraft.config.errors import ConfigError
from kraft.config.jaas import JaasEntry, parse_jaas
from kraft.config.keys import LONG_MAX
from kraft.config.oauth_settings import (
    LOGIN_CLASS,
    LOGIN_HANDLER,
    SERVER_HANDLER,
    BearerLogin,
    FindKey,
    TokenRules,
    read_bearer_login,
    read_token_rules,
)
from kraft.config.settings_reader import SettingsReader

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
JAAS: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
MAX_REAUTH: Final = "connections.max.reauth.ms"
LOGIN_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
UNSUPPORTED: Final = "Supported are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER."
_GSSAPI: Final = "The default is GSSAPI, which is not supported."
_USER: Final = "user_"
_TOKEN: Final = "tokenauth"
_CLASSES: Final = (SERVER_HANDLER, LOGIN_HANDLER, LOGIN_CLASS)
"""Settings with a class. This software loads none, and knows those of Kafka for OAUTHBEARER."""


class LoginSettings(Struct, frozen=True, kw_only=True):
    """The credentials with which this side logs in at its peers."""

    mechanism: str
    user: str = ""
    password: str = ""
    is_token: bool = False
    """Whether the credentials are a delegation token's id and HMAC."""
    bearer: BearerLogin | None = None
    """Where the token of OAUTHBEARER comes from."""

    def __repr__(self) -> str:
        return f"LoginSettings({self.mechanism})"


class SaslListenerSettings(Struct, frozen=True, kw_only=True):
    """The logins of peers at one listener."""

    mechanisms: tuple[str, ...]
    passwords: dict[str, str]
    """The users of PLAIN."""
    scram_passwords: dict[str, str] = {}
    """The users of SCRAM whom a program has named, besides those in the metadata."""
    max_reauth_ms: dict[str, int]
    """The longest session by mechanism; 0 for no end."""
    tokens: TokenRules | None = None
    """How tokens of OAUTHBEARER are judged."""

    def __repr__(self) -> str:
        return f"SaslListenerSettings({', '.join(self.mechanisms)})"


class SaslSettings(Struct, frozen=True, kw_only=True):
    """The logins of a node."""

    listeners: dict[str, SaslListenerSettings] = {}
    """By the name of the listener."""
    outgoing: Mapping[str, LoginSettings | None] = {}
    """The login at each kind of peers; None for peers without login."""


class Destination(Struct, frozen=True, kw_only=True):
    """By whose settings a node connects to one kind of peers."""

    listener: str
    """The name of the listener."""
    protocol: str
    mechanism_key: str
    """The setting that names the mechanism of the login."""


def read_sasl(
    reader: SettingsReader, listeners: tuple[ListenerSpec, ...], destinations: Mapping[str, Destination]
) -> SaslSettings:
    """The logins of a node with these listeners, which reaches its peers so.

    Raises:
        ConfigError: A setting is missing, invalid or not supported.
    """
    secured = [one for one in listeners if one.protocol in SASL_PROTOCOLS]
    found = {one.name: _listener(reader, one.name) for one in secured}
    outgoing = {
        kind: _outgoing(reader, one, is_own=one.listener in found) if one.protocol in SASL_PROTOCOLS else None
        for kind, one in destinations.items()
    }
    return SaslSettings(listeners=found, outgoing=outgoing)


def read_client_login(reader: SettingsReader, mechanism: str) -> LoginSettings:
    """The credentials of a client, by the settings without prefix.

    Raises:
        ConfigError: A setting is missing, invalid or not supported.
    """
    if JAAS not in reader.settings:
        example = "" if mechanism == OAUTHBEARER else ' username="…" password="…"'
        raise reader.missing(JAAS, f"Add {JAAS}={LOGIN_MODULES[mechanism]} required{example};")
    try:
        entry = _entry(reader.settings[JAAS].value, mechanism)
        if mechanism != OAUTHBEARER:
            return _credentials(entry, mechanism)
    except ValueError as bad:
        raise ConfigError(f"{JAAS}: {bad}", where=reader.settings[JAAS].where) from None
    bearer = read_bearer_login(reader, lambda key: key if key in reader.settings else None, entry.options)
    return LoginSettings(mechanism=mechanism, bearer=bearer)


def _credentials(entry: JaasEntry, mechanism: str) -> LoginSettings:
    user, password = entry.options.get("username"), entry.options.get("password")
    if not user or not password:
        raise ValueError("the JAAS entry needs username and password")
    is_token = mechanism != PLAIN and entry.options.get(_TOKEN, "").lower() == "true"
    return LoginSettings(mechanism=mechanism, user=user, password=password, is_token=is_token)


def check_mechanism(mechanism: str) -> str | None:
    """Why this software does not support a mechanism; None for a supported one."""
    if mechanism in MECHANISMS:
        return None
    if mechanism == "GSSAPI":
        return "GSSAPI (Kerberos) is not supported"
    return f"there is no mechanism {mechanism}"


def _entry(text: str, mechanism: str) -> JaasEntry:
    entry = parse_jaas(text)
    if entry.module != LOGIN_MODULES[mechanism]:
        raise ValueError(f"the login module of {mechanism} is {LOGIN_MODULES[mechanism]}")
    return entry


def _missing(reader: SettingsReader, key: str, listener: str, hint: str) -> ConfigError:
    return ConfigError(f"listener {listener} has a login, and {key} is not set", where=reader.source, hint=hint)


def _prefix(listener: str) -> str:
    return f"listener.name.{listener.lower()}."


def _key(reader: SettingsReader, listener: str, key: str, mechanism: str | None = None) -> str | None:
    """The key that counts for a listener; None if none is set."""
    prefix = _prefix(listener)
    keys = [f"{prefix}{key}", key]
    if mechanism is not None:
        keys.insert(0, f"{prefix}{mechanism.lower()}.{key}")
    return next((one for one in keys if one in reader.settings), None)


def _listener(reader: SettingsReader, name: str) -> SaslListenerSettings:
    for each in _CLASSES:
        if (key := _key(reader, name, each)) is not None:
            hint = f"Leave the setting out. For OAUTHBEARER the key is {_prefix(name)}oauthbearer.{each}."
            raise reader.bad(key, "this software loads no classes", hint=hint)
    key = _key(reader, name, ENABLED)
    mechanisms = split_list(reader.settings[key].value) if key is not None else ("GSSAPI",)
    where = ENABLED if key is None else key
    if not mechanisms or len(set(mechanisms)) != len(mechanisms):
        raise reader.bad(where, "the value names no mechanism, or one twice", hint=UNSUPPORTED)
    for mechanism in mechanisms:
        if (why := check_mechanism(mechanism)) is not None:
            if key is None:
                raise _missing(reader, ENABLED, name, f"{_GSSAPI} Add {ENABLED}={PLAIN}. {UNSUPPORTED}")
            raise reader.bad(where, why, hint=UNSUPPORTED)
    passwords: dict[str, str] = {}
    tokens: TokenRules | None = None
    for mechanism in mechanisms:
        entry = _jaas(reader, name, mechanism)
        if mechanism == OAUTHBEARER:
            handler = f"{_prefix(name)}oauthbearer.{SERVER_HANDLER}"
            tokens = read_token_rules(reader, _finder(reader, name), handler, entry.options)
            continue
        for each in _CLASSES:
            if (key := f"{_prefix(name)}{mechanism.lower()}.{each}") in reader.settings:
                raise reader.bad(key, "this software loads no classes", hint="Leave the setting out.")
        if mechanism == PLAIN:
            passwords = {
                option.removeprefix(_USER): password
                for option, password in entry.options.items()
                if option.startswith(_USER)
            }
    reauth = {mechanism: _max_reauth_ms(reader, name, mechanism) for mechanism in mechanisms}
    return SaslListenerSettings(mechanisms=mechanisms, passwords=passwords, max_reauth_ms=reauth, tokens=tokens)


def _finder(reader: SettingsReader, name: str) -> FindKey:
    """Finds the key of a setting of OAUTHBEARER at a listener."""
    return lambda key: _key(reader, name, key, OAUTHBEARER)


def _max_reauth_ms(reader: SettingsReader, name: str, mechanism: str) -> int:
    key = _key(reader, name, MAX_REAUTH, mechanism)
    return 0 if key is None else max(0, reader.whole_number(key, -LONG_MAX, LONG_MAX))


def _jaas(reader: SettingsReader, name: str, mechanism: str) -> JaasEntry:
    """The JAAS entry of a listener and a mechanism."""
    key = f"{_prefix(name)}{mechanism.lower()}.{JAAS}"
    if key not in reader.settings:
        hint = f"Add {key}={LOGIN_MODULES[mechanism]} required …;"
        if JAAS in reader.settings:
            hint = f"{hint} On a server {JAAS} alone has no effect, as in Kafka."
        raise _missing(reader, key, name, hint)
    try:
        return _entry(reader.settings[key].value, mechanism)
    except ValueError as bad:
        raise ConfigError(f"{key}: {bad}", where=reader.settings[key].where) from None


def _outgoing(reader: SettingsReader, destination: Destination, *, is_own: bool) -> LoginSettings:
    """The login at one kind of peers: with the credentials of the server's own JAAS entry, as in Kafka.

    `is_own` says whether this node has the listener, too.
    """
    name, named_by = destination.listener, destination.mechanism_key
    mechanism = reader.settings[named_by].value if named_by in reader.settings else "GSSAPI"
    if (why := check_mechanism(mechanism)) is not None:
        if named_by not in reader.settings:
            raise _missing(reader, named_by, name, f"{_GSSAPI} Add {named_by}={PLAIN}.")
        raise reader.bad(named_by, why, hint=UNSUPPORTED)
    if is_own and named_by == CONTROLLERS and mechanism in SCRAM:
        raise reader.bad(
            CONTROLLERS,
            f"controllers cannot log in at each other by {mechanism}: the credentials are in the metadata log, which"
            " they read only once a quorum has a leader, so that no leader is elected after a full restart",
            hint=f"Use {CONTROLLERS}={PLAIN} on SASL_SSL, or SSL with ssl.client.auth=required. Brokers and clients may"
            f" log in by {mechanism}.",
        )
    key = f"{_prefix(name)}{mechanism.lower()}.{JAAS}"
    entry = _jaas(reader, name, mechanism)
    if is_own and mechanism not in _enabled(reader, name):
        enabled = _key(reader, name, ENABLED) or ENABLED
        raise reader.bad(enabled, f"{mechanism} is missing, which {named_by} names", hint=f"Add {mechanism}.")
    if mechanism == OAUTHBEARER:
        return LoginSettings(
            mechanism=mechanism, bearer=read_bearer_login(reader, _finder(reader, name), entry.options)
        )
    try:
        return _credentials(entry, mechanism)
    except ValueError:
        hint = "Nodes log in at each other with username and password of their own entry."
        raise ConfigError(
            f"{key}: username or password is missing", where=reader.settings[key].where, hint=hint
        ) from None


def _enabled(reader: SettingsReader, name: str) -> tuple[str, ...]:
    key = _key(reader, name, ENABLED)
    return () if key is None else split_list(reader.settings[key].value)
