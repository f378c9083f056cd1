"""The listeners of a node: addresses, security protocols, limits of connections (Kafka: `SocketServerConfigs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.addresses import (
    ANY_ADDRESS,
    PROTECTED_PROTOCOLS,
    ListenerSpec,
    QuorumVoter,
    parse_connection_limit,
    parse_listener,
    share_a_port,
    split_list,
)
from kraft.config.key import Key
from kraft.config.keys import INT_MAX
from kraft.config.node_settings import BROKER, CONTROLLER
from kraft.config.sasl_settings import CONTROLLERS, INTER_BROKER, Destination
from kraft.config.settings_reader import SettingsReader
from kraft.config.tls_settings import SSL, ConfigTls, TlsSettings, read_tls

_OVERRIDES: Final = "max.connections.per.ip.overrides"
_PLAINTEXT: Final = "PLAINTEXT"
_ADVERTISED: Final = "advertised.listeners"
_INTER_BROKER: Final = ("inter.broker.listener.name", "security.inter.broker.protocol")
_SASL_SSL: Final = "SASL_SSL"
TO_CONTROLLERS: Final = ""
"""Connections to controllers; and those to peers of no named kind (`transport.interface.PEERS`)."""
TO_BROKERS: Final = "brokers"
"""Connections to other brokers."""


def read_controller_listener_names(reader: SettingsReader) -> tuple[str, ...]:
    """The names of the controller listeners, in upper case as in Kafka; the first one is for other controllers."""
    key = "controller.listener.names"
    names = tuple(dict.fromkeys(name.upper() for name in split_list(reader.text(key))))
    if not names:
        raise reader.missing(key, "Add controller.listener.names=CONTROLLER, or a name from listeners.")
    return names


def read_listeners(
    reader: SettingsReader, controllers: tuple[str, ...], roles: tuple[str, ...]
) -> tuple[ListenerSpec, ...]:
    """The listeners of the node: for a controller the controller listeners, for a broker all other ones.

    Controller listeners are in the order of their names.
    """
    key = "listeners"
    if key not in reader.settings and CONTROLLER in roles and _PLAINTEXT not in controllers:
        raise reader.missing(key, f"Add listeners={controllers[0]}://host:port.")
    listeners = tuple(dict.fromkeys(reader.entries(key, parse_listener)))
    bound = {listener.name: listener for listener in listeners}
    if len(bound) != len(listeners):
        raise reader.bad(key, "two listeners have the same name")
    _check_ports(reader, listeners)
    if CONTROLLER in roles:
        for name in controllers:
            if name not in bound:
                raise reader.bad(
                    "controller.listener.names",
                    f"{name} is not among the listeners ({', '.join(bound)})",
                    hint="Every name must be in listeners.",
                )
    for name in bound:
        if name in controllers and CONTROLLER not in roles:
            raise reader.bad(
                key,
                f"{name} is in controller.listener.names ({', '.join(controllers)})",
                hint="A node that is only a broker has no controller listeners.",
            )
        if name not in controllers and BROKER not in roles:
            raise reader.bad(
                key,
                f"{name} is not in controller.listener.names ({', '.join(controllers)})",
                hint="A node that is only a controller has only controller listeners.",
            )
    if BROKER in roles and all(name in controllers for name in bound):
        raise reader.bad(
            key,
            f"each of them is in controller.listener.names ({', '.join(controllers)})",
            hint=f"A broker has a listener for clients, too: add {_PLAINTEXT}://host:port.",
        )
    protocols = _protocols(reader, tuple(bound), controllers)
    own = (*(name for name in controllers if name in bound), *(name for name in bound if name not in controllers))
    return tuple(ListenerSpec(name, bound[name].host, bound[name].port, protocols[name]) for name in own)


def _check_ports(reader: SettingsReader, listeners: tuple[ListenerSpec, ...]) -> None:
    """As in Kafka (`AbstractKafkaConfig.validate`) a port has one listener, or an IPv4 and an IPv6 address."""
    for port in {listener.port for listener in listeners} - {0}:
        same = [listener for listener in listeners if listener.port == port]
        if len(same) > 2 or (len(same) == 2 and not share_a_port(*same)):
            raise reader.bad(
                "listeners",
                f"{' and '.join(map(str, same))} have the same port",
                hint="Only two listeners with an IPv4 and an IPv6 address may have the same port.",
            )


def read_inter_broker_listener(
    reader: SettingsReader, listeners: tuple[ListenerSpec, ...], controllers: tuple[str, ...], roles: tuple[str, ...]
) -> str:
    """The listener at which brokers reach each other; empty for a node that is no broker.

    As in Kafka (`KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol`) a setting names the listener, or the
    listener is named after the security protocol between brokers. It must be advertised. Without both settings and
    without a listener PLAINTEXT, the listener is the first one, where Kafka refuses to start.
    """
    by_name, by_protocol = _INTER_BROKER
    own = [one.name for one in listeners if one.name not in controllers]
    key = by_name if by_name in reader.settings else by_protocol
    wanted = (reader.text(key) or _PLAINTEXT).upper()
    if by_name in reader.settings and by_protocol in reader.settings:
        raise reader.bad(by_name, f"{by_protocol} is set, too", hint="Set one of the two.")
    if BROKER not in roles:
        if key == by_name and wanted in controllers:
            raise reader.bad(key, f"{wanted} is in controller.listener.names", hint="Name a listener of brokers.")
        if key == by_name and wanted not in _protocols(reader, tuple(one.name for one in listeners), controllers):
            raise reader.bad(key, f"listener {wanted} has no security protocol")
        return ""
    advertised = [one.name for one in reader.entries(_ADVERTISED, parse_listener)]
    reached = [name for name in own if name in advertised] if advertised else own
    if own and not reached:
        raise reader.bad(_ADVERTISED, "no listener of brokers is there", hint=f"Add an address of {' or '.join(own)}.")
    if key not in reader.settings:
        return wanted if wanted in reached else next(iter(reached), wanted)
    if wanted not in own:
        raise reader.bad(key, f"there is no listener {wanted}", hint=f"The listeners are {', '.join(own)}.")
    if wanted not in reached:
        raise reader.bad(key, f"{wanted} is not in {_ADVERTISED}", hint=f"Advertised are {', '.join(reached)}.")
    return wanted


def read_destinations(
    reader: SettingsReader, listeners: tuple[ListenerSpec, ...], controllers: tuple[str, ...], inter_broker: str
) -> dict[str, Destination]:
    """By whose settings this node connects to each kind of peers: the one table for TLS and for logins.

    Kafka: `KafkaRaftManager` and `NodeToControllerChannelManagerImpl` for controllers, `ReplicaFetcherBlockingSend` and
    `TransactionMarkerChannelManager` for brokers.
    """
    protocols = _protocols(reader, tuple(listener.name for listener in listeners), controllers)
    wanted = {TO_CONTROLLERS: (controllers[0], CONTROLLERS)}
    if inter_broker:
        wanted[TO_BROKERS] = (inter_broker, INTER_BROKER)
    return {
        kind: Destination(listener=name, protocol=protocols[name], mechanism_key=key)
        for kind, (name, key) in wanted.items()
    }


def read_node_tls(
    reader: SettingsReader, listeners: tuple[ListenerSpec, ...], destinations: Mapping[str, Destination]
) -> ConfigTls:
    """TLS of the listeners, and of the connections to each kind of peers."""
    return ConfigTls(
        tuple(
            (listener.name, _listener_tls(reader, listener))
            for listener in listeners
            if listener.protocol in (SSL, _SASL_SSL)
        ),
        {
            kind: read_tls(reader, one.listener) if one.protocol in (SSL, _SASL_SSL) else None
            for kind, one in destinations.items()
        },
        altered=lambda values: read_node_tls(reader.with_values(values), listeners, destinations),
    )


def _listener_tls(reader: SettingsReader, listener: ListenerSpec) -> TlsSettings:
    """As in Kafka, a listener with SASL_SSL asks for certificates only by the setting with its own prefix."""
    found = read_tls(reader, listener.name, needs_key=True)
    if (
        listener.protocol == _SASL_SSL
        and f"listener.name.{listener.name.lower()}.ssl.client.auth" not in reader.settings
    ):
        return replace(found, client_auth="none")
    return found


def _protocols(reader: SettingsReader, own: tuple[str, ...], controllers: tuple[str, ...]) -> dict[str, str]:
    """The security protocol of each listener of this node, and of its listeners for connections to controllers.

    As in Kafka (`KafkaConfig.effectiveListenerSecurityProtocolMap`): without a map, listeners named after a
    protocol have that protocol, and other controller listeners have PLAINTEXT if no other protocol is in use.
    """
    key = "listener.security.protocol.map"
    is_set = key in reader.settings
    names = tuple(dict.fromkeys((*own, *controllers)))
    protocols = _protocol_map(reader) if is_set else {name: name for name in (_PLAINTEXT, *PROTECTED_PROTOCOLS)}
    if not is_set and not any(name in PROTECTED_PROTOCOLS for name in names):
        protocols |= dict.fromkeys(controllers, _PLAINTEXT)
    for name in names:
        at = key if is_set else "listeners" if name in own else "controller.listener.names"
        if name not in protocols:
            if is_set:
                raise reader.bad(key, f"the protocol of listener {name} is missing", hint=f"Add {name}:PLAINTEXT.")
            every = ",".join(f"{one}:{_PLAINTEXT}" for one in names)
            raise reader.bad(at, f"listener {name} has no security protocol", hint=f"Add {key}={every}.")
    return protocols


def _protocol_map(reader: SettingsReader) -> dict[str, str]:
    """`listener.security.protocol.map` as protocols by listener name."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in split_list(reader.text(key)):
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not (colon and name and protocol):
            raise reader.bad(key, f"{entry!r} is not NAME:PROTOCOL")
        if name in protocols:
            raise reader.bad(key, f"listener {name} is named twice")
        if protocol != _PLAINTEXT and protocol not in PROTECTED_PROTOCOLS:
            raise reader.bad(key, f"there is no security protocol {protocol}")
        protocols[name] = protocol
    return protocols


def read_advertised_listeners(
    reader: SettingsReader,
    listeners: tuple[ListenerSpec, ...],
    controllers: tuple[str, ...],
    own_voter: QuorumVoter | None,
) -> tuple[ListenerSpec, ...]:
    """The listeners with their addresses for other nodes.

    As in Kafka (`KafkaConfig.effectiveAdvertisedControllerListeners`) the first controller listener of a static voter
    is where `controller.quorum.voters` has it, if nothing is advertised and the listener is on every address. Otherwise
    such a listener has an empty host. Then the host is the name of the machine, which only a starting node determines
    (Kafka: `ListenerInfo.withWildcardHostnamesResolved`).
    """
    key = _ADVERTISED
    names = [listener.name for listener in listeners]
    is_broker = any(name not in controllers for name in names)
    entries = tuple(dict.fromkeys(reader.entries(key, parse_listener)))
    advertised = {listener.name: listener for listener in entries}
    if len(advertised) != len(entries):
        raise reader.bad(key, "two listeners have the same name")
    protocols = _protocols(reader, tuple(names), controllers)
    for listener in entries:
        # One file may serve several nodes: a controller has no listeners of brokers, and a broker none of controllers.
        is_of_others = listener.name in controllers if is_broker else listener.name not in controllers
        if listener.name not in names and not is_of_others:
            raise reader.bad(key, f"{listener.name} is not among the listeners of this node ({', '.join(names)})")
        if listener.name not in protocols:
            raise reader.bad(key, f"listener {listener.name} has no security protocol")
        if listener.host in ANY_ADDRESS:
            raise reader.bad(
                key, f"no other host can reach {listener}", hint="Use an address that other nodes can route to."
            )
    result = []
    for bound in listeners:
        listener = advertised.get(bound.name, bound)
        host, port = listener.host, listener.port
        if bound.name not in advertised and (not host or host in ANY_ADDRESS):
            if own_voter is not None and bound.name == controllers[0]:
                host, port = own_voter.host, own_voter.port
            elif host and bound.name not in controllers:
                raise reader.bad(
                    "listeners",
                    f"{bound} is on every address, so that its address for other nodes is unknown",
                    hint=f"Add advertised.listeners={bound.name}://host:{bound.port}.",
                )
            else:
                host = ""
        result.append(ListenerSpec(bound.name, host, port, bound.protocol))
    return tuple(result)


def _overrides(reader: SettingsReader) -> tuple[tuple[str, int], ...]:
    return reader.entries(_OVERRIDES, parse_connection_limit)


class ConnectionSettings(Struct, frozen=True, kw_only=True):
    """How many connections and requests a node takes, and how large they may be."""

    request_max_bytes: Annotated[int, Key("socket.request.max.bytes")] = 100 << 20
    max_idle_ms: Annotated[int, Key("connections.max.idle.ms")] = 600_000
    creation_rate: Annotated[int, Key("max.connection.creation.rate")] = INT_MAX
    max_connections: Annotated[int, Key("max.connections")] = INT_MAX
    max_per_ip: Annotated[int, Key("max.connections.per.ip")] = INT_MAX
    max_per_ip_overrides: Annotated[tuple[tuple[str, int], ...], Key(_OVERRIDES, read=_overrides)] = ()
    queued_max_requests: Annotated[int, Key("queued.max.requests")] = 500
    queued_max_request_bytes: Annotated[int, Key("queued.max.request.bytes")] = -1
    sasl_max_receive_bytes: Annotated[int, Key("sasl.server.max.receive.size")] = 524_288
    failed_authentication_delay_ms: Annotated[int, Key("connection.failed.authentication.delay.ms")] = 100
