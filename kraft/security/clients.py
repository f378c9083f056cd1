"""The configuration file of a client, as Kafka's tools take it (Kafka: `--command-config`, `AdminClientConfig`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.config.properties import read_properties
from kraft.config.settings_reader import SettingsReader
from kraft.config.tls_settings import SSL, ConfigTls, read_tls
from kraft.security.contexts import load_tls
from transport.tcp import TcpTransport
from transport.tls import Tls

_PROTOCOL: Final = "security.protocol"
_PLAINTEXT: Final = "PLAINTEXT"
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


class ClientSecurity(Struct, frozen=True):
    """How a client secures its connections."""

    protocol: str = _PLAINTEXT
    tls: Tls | None = None
    warnings: tuple[str, ...] = ()

    def transport(self) -> TcpTransport:
        """A new transport for one client."""
        return TcpTransport(tls=self.tls)


def load_client(path: str) -> ClientSecurity:
    """Read the configuration file of a client.

    Args:
        path: A properties file with the keys of Kafka's tools: `security.protocol`, `ssl.truststore.location` and so
            on.

    Returns:
        The security of the client, with warnings for its user.

    Raises:
        ConfigError: The file or a store is unreadable, or a value is invalid. The text repeats no secret.
    """
    reader = SettingsReader.of(read_properties(path), path)
    setting = reader.settings.get(_PROTOCOL)
    protocol = _PLAINTEXT if setting is None else setting.value.upper()
    if protocol == _PLAINTEXT:
        ignored = next((key for key in reader.settings if key.startswith("ssl.")), None)
        if ignored is None:
            return ClientSecurity()
        return ClientSecurity(warnings=(f"{ignored} has no effect without {_PROTOCOL}=SSL ({path})",))
    if protocol in _SASL:
        raise reader.bad(_PROTOCOL, "SASL is not supported yet", hint="Use SSL with a certificate, or PLAINTEXT.")
    if protocol != SSL:
        raise reader.bad(_PROTOCOL, "allowed is PLAINTEXT or SSL")
    loaded = load_tls(ConfigTls(outgoing=read_tls(reader)))
    return ClientSecurity(SSL, loaded.tls, loaded.warnings)
