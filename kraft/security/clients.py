"""The configuration file of a client, as Kafka's tools take it (Kafka: `--command-config`, `AdminClientConfig`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.definitions import NODE
from kraft.config.errors import ConfigError
from kraft.config.kafka_keys import PREFIXES
from kraft.config.oauth_settings import TOKEN_URL
from kraft.config.properties import read_properties
from kraft.config.sasl_settings import SASL_PROTOCOLS, UNSUPPORTED, check_mechanism, read_client_login
from kraft.config.settings_reader import SettingsReader
from kraft.config.tls_settings import SSL, ConfigTls, read_tls
from kraft.config.unknown_keys import near
from kraft.security.contexts import load_tls
from kraft.security.logins import login_of
from transport.interface import PEERS
from transport.protocol.inbound import Cause
from transport.protocol.sasl.client import SaslLogin
from transport.sasl import Sasl, wall_clock_ms
from transport.tcp import TcpTransport
from transport.tls import Tls

_PROTOCOL: Final = "security.protocol"
_PLAINTEXT: Final = "PLAINTEXT"
_SASL_SSL: Final = "SASL_SSL"
_MECHANISM: Final = "sasl.mechanism"
_VERY_SIMILAR: Final = 0.85


class ClientSecurity(Struct, frozen=True):
    """How a client secures its connections."""

    protocol: str = _PLAINTEXT
    tls: Tls | None = None
    login: SaslLogin | None = None
    warnings: tuple[str, ...] = ()
    path: str | None = None
    """The file that says so; None without one."""

    def transport(self) -> TcpTransport:
        """A new transport for one client."""
        return TcpTransport(tls=self.tls, sasl=Sasl(outgoing={PEERS: self.login}))

    def hint_for(self, cause: Cause) -> str | None:
        """A hint for the user about a connection that fails with a cause that a retry does not cure."""
        if cause is Cause.UNKNOWN_HOST:
            return "Check the name of the host. A name that was not typed comes from advertised.listeners of a node."
        if cause not in (Cause.AUTHENTICATION, Cause.FOREIGN):
            return None
        if self.path is None:
            return (
                "Check the port. A cluster with TLS or logins needs --command-config FILE, with security.protocol, "
                "ssl.truststore.location, sasl.jaas.config and so on."
            )
        keys = [f"{_PROTOCOL}={self.protocol}"]
        if cause is Cause.AUTHENTICATION:
            keys += ["ssl.truststore.location", "ssl.keystore.location"] if self.tls is not None else []
            keys += [_MECHANISM, "sasl.jaas.config"] if self.login is not None else []
        return f"Check the address, and {', '.join(keys)} in {self.path}, the file of --command-config."


def load_client(path: str) -> ClientSecurity:
    """Read the configuration file of a client.

    Args:
        path: A properties file with the keys of Kafka's tools: `security.protocol`, `ssl.truststore.location`,
            `sasl.mechanism`, `sasl.jaas.config` and so on.

    Returns:
        The security of the client, with warnings for its user. A token of OAUTHBEARER has been read, which may take
        some seconds, and a thread renews the token until the process ends.

    Raises:
        ConfigError: The file, a store or a token is unreadable, or a value is invalid. The text repeats no secret.
    """
    reader = SettingsReader.of(read_properties(path), path)
    loaded = _security(reader, path)
    return replace(loaded, warnings=(*_near_misses(reader), *loaded.warnings))


def _near_misses(reader: SettingsReader) -> Iterator[str]:
    """A warning for each key that may mean one of security. Clients have many other keys, which are passed over."""
    known = (_PROTOCOL, _MECHANISM, *(key for key in NODE if key.startswith(("ssl.", "sasl."))))
    for key, setting in reader.settings.items():
        if key not in known and not key.startswith(PREFIXES) and (nearest := near(key, known, _VERY_SIMILAR)):
            yield f"unknown setting {key}; did you mean {nearest}? ({setting.where})"


def _security(reader: SettingsReader, path: str) -> ClientSecurity:
    setting = reader.settings.get(_PROTOCOL)
    protocol = _PLAINTEXT if setting is None else setting.value.upper()
    if protocol == _PLAINTEXT:
        ignored = next((key for key in reader.settings if key.startswith(("ssl.", "sasl."))), None)
        if ignored is None:
            return ClientSecurity(path=path)
        needed = "SSL" if ignored.startswith("ssl.") else "SASL_SSL"
        warning = f"{ignored} has no effect without {_PROTOCOL}={needed} ({path})"
        return ClientSecurity(warnings=(warning,), path=path)
    if protocol != SSL and protocol not in SASL_PROTOCOLS:
        raise reader.bad(_PROTOCOL, f"allowed is PLAINTEXT, SSL, {' or '.join(SASL_PROTOCOLS)}")
    login = _login(reader) if protocol in SASL_PROTOCOLS else None
    if protocol not in (SSL, _SASL_SSL):
        return ClientSecurity(protocol, login=login, path=path)
    loaded = load_tls(ConfigTls(outgoing={PEERS: read_tls(reader)}))
    return ClientSecurity(protocol, loaded.tls, login, loaded.warnings, path)


def _login(reader: SettingsReader) -> SaslLogin | None:
    """The login of a client, by the settings without prefix."""
    mechanism = reader.settings[_MECHANISM].value if _MECHANISM in reader.settings else "GSSAPI"
    if (why := check_mechanism(mechanism)) is not None:
        if _MECHANISM not in reader.settings:
            raise reader.missing(_MECHANISM, f"The default is GSSAPI, which is not supported. {UNSUPPORTED}")
        raise reader.bad(_MECHANISM, why, hint=UNSUPPORTED)
    login, remote = login_of(read_client_login(reader, mechanism), wall_clock_ms)
    if remote is not None:
        remote.begin()
        remote.wait()
        if remote.value is None:
            why = remote.error or "the answer takes too long"
            raise ConfigError(f"{TOKEN_URL}: no token: {why}", where=reader.settings[TOKEN_URL].where)
    return login
