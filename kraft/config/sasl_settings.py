"""Logins in a configuration: mechanisms, users and credentials of each listener (Kafka: `SaslConfigs`, `JaasContext`).

A listener's value has the key `listener.name.<listener>.<key>`, with the mechanism in between for what depends on it.
Names of listeners and mechanisms are in lower case there. No error repeats a JAAS string, which holds passwords.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.config.addresses import ListenerSpec, split_list
from kraft.config.errors import ConfigError
from kraft.config.jaas import JaasEntry, parse_jaas
from kraft.config.keys import LONG_MAX
from kraft.config.settings_reader import SettingsReader

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM)
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
JAAS: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
MAX_REAUTH: Final = "connections.max.reauth.ms"
LOGIN_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
UNSUPPORTED: Final = "Supported are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512."
_GSSAPI: Final = "The default is GSSAPI, which is not supported."
_USER: Final = "user_"
_TOKEN: Final = "tokenauth"
_FIXED: Final = ("sasl.server.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")
"""Settings with a class, which this software cannot load."""


class LoginSettings(Struct, frozen=True, kw_only=True):
    """The credentials with which this side logs in at its peers."""

    mechanism: str
    user: str
    password: str
    is_token: bool = False
    """Whether the credentials are a delegation token's id and HMAC."""

    def __repr__(self) -> str:
        return f"LoginSettings({self.mechanism})"


class SaslListenerSettings(Struct, frozen=True, kw_only=True):
    """The logins of peers at one listener."""

    mechanisms: tuple[str, ...]
    passwords: dict[str, str]
    """The users of PLAIN."""
    max_reauth_ms: dict[str, int]
    """The longest session by mechanism; 0 for no end."""

    def __repr__(self) -> str:
        return f"SaslListenerSettings({', '.join(self.mechanisms)})"


class SaslSettings(Struct, frozen=True, kw_only=True):
    """The logins of a node."""

    listeners: dict[str, SaslListenerSettings] = {}
    """By the name of the listener."""
    outgoing: LoginSettings | None = None
    """The login at controllers."""


def read_sasl(reader: SettingsReader, listeners: tuple[ListenerSpec, ...], controllers: str | None) -> SaslSettings:
    """The logins of a node with these listeners.

    `controllers` is the name of the listener for connections to controllers, if these have a login.

    Raises:
        ConfigError: A setting is missing, invalid or not supported.
    """
    secured = [one for one in listeners if one.protocol in SASL_PROTOCOLS]
    found = {one.name: _listener(reader, one.name) for one in secured}
    outgoing = None if controllers is None else _outgoing(reader, controllers, is_controller=controllers in found)
    return SaslSettings(listeners=found, outgoing=outgoing)


def read_login(text: str, mechanism: str) -> LoginSettings:
    """The credentials of a client in a JAAS string; raises `ValueError`, which names no value."""
    entry = _entry(text, mechanism)
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
    if mechanism == "OAUTHBEARER":
        return "OAUTHBEARER is not supported yet"
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
    for each in _FIXED:
        if (key := _key(reader, name, each)) is not None:
            raise reader.bad(key, "this software loads no classes", hint=f"Leave the setting out. {UNSUPPORTED}")
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
    for mechanism in mechanisms:
        entry = _jaas(reader, name, mechanism)
        if mechanism == PLAIN:
            passwords = {
                option.removeprefix(_USER): password
                for option, password in entry.options.items()
                if option.startswith(_USER)
            }
    reauth = {mechanism: _max_reauth_ms(reader, name, mechanism) for mechanism in mechanisms}
    return SaslListenerSettings(mechanisms=mechanisms, passwords=passwords, max_reauth_ms=reauth)


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


def _outgoing(reader: SettingsReader, name: str, *, is_controller: bool) -> LoginSettings:
    """The login at controllers: with the credentials of the server's own JAAS entry, as in Kafka."""
    mechanism = reader.settings[CONTROLLERS].value if CONTROLLERS in reader.settings else "GSSAPI"
    if (why := check_mechanism(mechanism)) is not None:
        if CONTROLLERS not in reader.settings:
            raise _missing(reader, CONTROLLERS, name, f"{_GSSAPI} Add {CONTROLLERS}={PLAIN}.")
        raise reader.bad(CONTROLLERS, why, hint=UNSUPPORTED)
    if is_controller and mechanism in SCRAM:
        raise reader.bad(
            CONTROLLERS,
            f"controllers cannot log in at each other by {mechanism}: the credentials are in the metadata log, which"
            " they read only once a quorum has a leader, so that no leader is elected after a full restart",
            hint=f"Use {CONTROLLERS}={PLAIN} on SASL_SSL, or SSL with ssl.client.auth=required. Brokers and clients may"
            f" log in by {mechanism}.",
        )
    key = f"{_prefix(name)}{mechanism.lower()}.{JAAS}"
    _jaas(reader, name, mechanism)
    if is_controller and mechanism not in _enabled(reader, name):
        enabled = _key(reader, name, ENABLED) or ENABLED
        raise reader.bad(enabled, f"{mechanism} is missing, which {CONTROLLERS} names", hint=f"Add {mechanism}.")
    try:
        return read_login(reader.settings[key].value, mechanism)
    except ValueError:
        hint = "Controllers log in with username and password of their own entry."
        raise ConfigError(
            f"{key}: username or password is missing", where=reader.settings[key].where, hint=hint
        ) from None


def _enabled(reader: SettingsReader, name: str) -> tuple[str, ...]:
    key = _key(reader, name, ENABLED)
    return () if key is None else split_list(reader.settings[key].value)
