"""The configuration of a node that a program starts without a properties file: `kraft.create`, `kraft.join`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.addresses import ANY_ADDRESS, parse_listener
from kraft.config.config import Config
from kraft.config.errors import ConfigError
from kraft.config.listener_settings import TO_CONTROLLERS
from kraft.config.sasl_settings import LOGIN_MODULES, PLAIN, SCRAM, SaslSettings
from kraft.config.tls_settings import PEM
from metadata_log.java_properties import setting

LISTENER: Final = "CONTROLLER"
ANY_PORT: Final = "127.0.0.1:0"
RANDOM_IDS: Final = (1000, 2**31)
"""Ids of nodes that nobody chose; the lower ones are left to people."""
_PROTOCOLS: Final = {(False, False): "PLAINTEXT", (True, False): "SSL", (False, True): "SASL_PLAINTEXT"}


class Tls(Struct, frozen=True, kw_only=True):
    """TLS between the nodes of a quorum. Both sides show certificates.

    Args:
        identity: The path of a PEM file with the private key of the node and the chain of its certificate.
        authorities: The path of a PEM file with the authorities that sign the certificates of the nodes.
        password: The password of the private key, if it has one.
        checks_host: Whether a certificate must name the host that a node connects to.
    """

    identity: str
    authorities: str
    password: str = ""
    checks_host: bool = True

    def __repr__(self) -> str:
        return f"Tls({self.identity})"


class Sasl(Struct, frozen=True, kw_only=True):
    """The login of the nodes of a quorum at each other.

    By PLAIN the password is read on the way, unless there is `tls`. By SCRAM it does not travel: both sides prove that
    they know it. All nodes use one mechanism.

    Args:
        user: The user as which this node logs in.
        password: Its password.
        others: The passwords of further users who may log in at this node.
        mechanism: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    """

    user: str
    password: str
    others: Mapping[str, str] = {}
    mechanism: str = PLAIN

    def __repr__(self) -> str:
        return f"Sasl({self.user})"


class NodeSettings(TypedDict, total=False):
    """The settings that `kraft.create` and `kraft.join` take besides a directory."""

    node_id: int
    """The id of the node; by default a random one, which the directory keeps."""
    listen: str
    """The address to bind, as `host:port`; by default a port of the system, for this machine only."""
    advertise: str
    """The address at which other nodes reach this one, as `host:port`; by default that of `listen`."""
    tls: Tls
    """TLS of the listener, and of the connections to other nodes."""
    sasl: Sasl
    """The logins at the listener and at other nodes."""
    monitor: Callable[..., Any]
    """Makes what hears of the node's metrics, as for `open_node`: `metrics_hook(tell)`."""
    settings: Mapping[str, str]
    """Further settings by Kafka's names, such as `controller.quorum.election.timeout.ms`."""


def embedded_config(node_id: int, directory: str, servers: tuple[tuple[str, int], ...], given: NodeSettings) -> Config:
    """The configuration of a voter of a dynamic quorum. Raises `ConfigError`."""
    for name in given:
        if name not in NodeSettings.__optional_keys__:
            known = tuple(NodeSettings.__annotations__)
            nearest = get_close_matches(name, known, n=1)
            advice = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known)}"
            raise TypeError(f"there is no argument {name}; {advice}")
    listen = given.get("listen", ANY_PORT)
    try:
        spec = parse_listener(f"{LISTENER}://{listen}")
    except ValueError:
        raise ConfigError(f"{listen!r} is not host:port", where="listen") from None
    if "advertise" not in given and spec.host in ("", *ANY_ADDRESS):
        raise ConfigError(
            f"other nodes cannot reach this one at {listen}", where="listen", hint="Say where with advertise=HOST:PORT."
        )
    values = {
        "process.roles": "controller",
        "node.id": str(node_id),
        "controller.listener.names": LISTENER,
        "listeners": f"{LISTENER}://{listen}",
        "advertised.listeners": f"{LISTENER}://{given.get('advertise', listen)}",
        # Replaced below: in a file the list cannot be empty, as it is for the first node.
        "controller.quorum.bootstrap.servers": "localhost:1",
        "log.dirs": directory,
        "controller.quorum.append.linger.ms": "0",
        **dict(_security(given.get("tls"), given.get("sasl"))),
        **given.get("settings", {}),
    }
    text = "".join(setting(key, value) + "\n" for key, value in values.items())
    config = replace(Config.parse(text, source="create or join"), bootstrap_servers=servers)
    sasl = given.get("sasl")
    return config if sasl is None or sasl.mechanism == PLAIN else replace(config, sasl=_by_scram(config.sasl, sasl))


def _by_scram(plain: SaslSettings, sasl: Sasl) -> SaslSettings:
    """The logins by SCRAM instead of PLAIN.

    In Kafka, and in a file, controllers cannot do so: their credentials are in the log, which a controller reads only
    once it is logged in. Here the program of each node knows the passwords.
    """
    users = {**sasl.others, sasl.user: sasl.password}
    if sasl.mechanism not in SCRAM:
        raise ConfigError(
            f"there is no mechanism {sasl.mechanism!r}", where="sasl", hint=f"Allowed: {', '.join((PLAIN, *SCRAM))}."
        )
    for user in users:
        if not user.isascii():
            raise ConfigError(f"a user of SCRAM has a name of ASCII, and not {user!r}", where="sasl")
    (listener,) = plain.listeners.values()
    login = plain.outgoing[TO_CONTROLLERS]
    assert login is not None, "the settings above name the login"
    by_scram = replace(
        listener, mechanisms=(sasl.mechanism,), passwords={}, scram_passwords=users, max_reauth_ms={sasl.mechanism: 0}
    )
    return SaslSettings(
        listeners=dict.fromkeys(plain.listeners, by_scram),
        outgoing={TO_CONTROLLERS: replace(login, mechanism=sasl.mechanism)},
    )


def _security(tls: Tls | None, sasl: Sasl | None) -> Iterator[tuple[str, str]]:
    protocol = _PROTOCOLS.get((tls is not None, sasl is not None), "SASL_SSL")
    yield "listener.security.protocol.map", f"{LISTENER}:{protocol}"
    if tls is not None:
        yield "ssl.keystore.type", PEM
        yield "ssl.keystore.location", tls.identity
        yield "ssl.truststore.type", PEM
        yield "ssl.truststore.location", tls.authorities
        # With the name of the listener: where there are logins, too, Kafka asks for certificates by this key alone.
        yield f"listener.name.{LISTENER.lower()}.ssl.client.auth", "required"
        if tls.password:
            yield "ssl.key.password", tls.password
        if not tls.checks_host:
            yield "ssl.endpoint.identification.algorithm", ""
    if sasl is not None:
        users = {**sasl.others, sasl.user: sasl.password}
        options = {"username": sasl.user, "password": sasl.password} | {f"user_{one}": users[one] for one in users}
        words = " ".join(f"{_quoted(key)}={_quoted(value)}" for key, value in options.items())
        yield "sasl.enabled.mechanisms", PLAIN
        yield "sasl.mechanism.controller.protocol", PLAIN
        yield f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config", f"{LOGIN_MODULES[PLAIN]} required {words};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
