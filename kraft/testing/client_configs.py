"""How each client is told of a cluster, in its own keys."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from kraft.testing.identities import Account, Authority, Certificate


class Access(Struct, frozen=True, kw_only=True):
    """Where a cluster is, and how a client gets in."""

    servers: str
    security: str
    authority: Authority
    account: Account | None = None
    mechanism: str = "PLAIN"
    certificate: Certificate | None = None

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security.endswith("SSL")

    @property
    def context(self) -> ssl.SSLContext:
        """A context of TLS for the client."""
        if self.certificate is None:
            return self.authority.context
        context = ssl.create_default_context(cadata=self.authority.ca_pem)
        context.load_cert_chain(self.certificate.file)
        return context


def _librdkafka(access: Access) -> dict[str, Any]:
    config = {"bootstrap.servers": access.servers, "security.protocol": access.security}
    if access.has_tls:
        config["ssl.ca.pem"] = access.authority.ca_pem
    if access.certificate is not None:
        config |= {
            "ssl.certificate.pem": access.certificate.certificate,
            "ssl.key.pem": access.certificate.key,
        }
    if access.account is not None:
        config |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.account.user,
            "sasl.password": access.account.password,
        }
    return config


def _kafka_python(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": access.servers, "security_protocol": access.security}
    if access.has_tls:
        config["ssl_cafile"] = access.authority.ca_file
    if access.certificate is not None:
        config |= {"ssl_certfile": access.certificate.file, "ssl_keyfile": access.certificate.file}
    return config | _sasl_plain(access)


def _aiokafka(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": access.servers, "security_protocol": access.security}
    if access.has_tls:
        config["ssl_context"] = access.context
    return config | _sasl_plain(access)


def _sasl_plain(access: Access) -> dict[str, Any]:
    if access.account is None:
        return {}
    return {
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.account.user,
        "sasl_plain_password": access.account.password,
    }


def _franz_go(access: Access) -> dict[str, Any]:
    config: dict[str, Any] = {"SeedBrokers": access.servers.split(",")}
    if access.has_tls:
        config["DialTLSConfig"] = {"RootCAs": access.authority.ca_file}
        if access.certificate is not None:
            config["DialTLSConfig"]["Certificates"] = [access.certificate.file]
    if access.account is not None:
        config["SASL"] = {
            "Mechanism": access.mechanism,
            "User": access.account.user,
            "Pass": access.account.password,
        }
    return config


def _java(access: Access) -> dict[str, Any]:
    config = {"bootstrap.servers": access.servers, "security.protocol": access.security}
    if access.has_tls:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": access.authority.ca_pem}
    if access.certificate is not None:
        config |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": access.certificate.certificate,
            "ssl.keystore.key": access.certificate.key,
        }
    if access.account is not None:
        kind = "plain.Plain" if access.mechanism == "PLAIN" else "scram.Scram"
        user, password = access.account.user, access.account.password
        config |= {
            "sasl.mechanism": access.mechanism,
            "sasl.jaas.config": (
                f'org.apache.kafka.common.security.{kind}LoginModule required username="{user}" password="{password}";'
            ),
        }
    return config


CLIENTS: Final[Mapping[str, Callable[[Access], dict[str, Any]]]] = {
    "aiokafka": _aiokafka,
    "confluent-kafka": _librdkafka,
    "franz-go": _franz_go,
    "java": _java,
    "kafka-python": _kafka_python,
    "librdkafka": _librdkafka,
}
"""The notifier of each client, by the client's name."""
