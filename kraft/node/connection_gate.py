"""How many connections a node takes, and how fast: by its settings, by what the metadata has changed of them since, and
by the quotas of addresses (Kafka: `ConnectionQuotas`, `DynamicListenerConfig`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from kraft.access.connection_rates import UNLIMITED, ConnectionRates, CreationRates
from kraft.config import Config
from kraft.config.addresses import parse_connection_limit, split_list
from kraft.config.definitions import Value, checked
from kraft.config.described import of_file
from kraft.config.kafka_keys import LISTENER_PREFIX, definition_of
from kraft.node.clock import NodeClock
from kraft.rates import SAMPLES, WINDOW_MS
from metadata_log.image import ConfigsImage, MetadataImage, ResourceType
from transport.descriptors import connections_allowed
from transport.limits import MAX_CONNECTIONS
from transport.wire import WireTransport

_MOST, _MOST_PER_IP = "max.connections", "max.connections.per.ip"
_OVERRIDES, _RATE = "max.connections.per.ip.overrides", "max.connection.creation.rate"
_SAMPLES, _WINDOW = "quota.window.num", "quota.window.size.seconds"
_READ = frozenset({_MOST, _MOST_PER_IP, _OVERRIDES, _RATE, _SAMPLES, _WINDOW})


class _Limits(Struct, frozen=True):
    """The most connections: all, of one address, of some addresses, and of some listeners."""

    most: int
    most_per_ip: int
    overrides: Mapping[str, int]
    by_listener: Mapping[str, int]


class ConnectionGate:
    """The gate of one node's transport. It looks at the metadata whenever a peer connects.

    Args:
        config: The configuration of the node.
        clock: The clock of the node.
        transport: The transport, whose limits follow the metadata.
        image: Returns the committed metadata.
    """

    def __init__(
        self, config: Config, clock: NodeClock, transport: WireTransport, image: Callable[[], MetadataImage]
    ) -> None:
        self._now_ms = clock.now_ms
        self._transport = transport
        self._image = image
        self._node_id = config.node_id
        self._file = _usable(of_file(config.described))
        self._configs = ConfigsImage()
        windows = _number(self._file, _SAMPLES, SAMPLES), 1000 * _number(self._file, _WINDOW, WINDOW_MS // 1000)
        # Kafka's controller and broker have listeners of their own each, also in one process.
        of_clients = [one.name for one in config.listeners if one.name in config.client_listeners]
        others = [one.name for one in config.listeners if one.name not in config.client_listeners]
        self._by_listener = {
            name: rates
            for names in (of_clients, others)
            for rates in (ConnectionRates(names, config.inter_broker_listener or "", *windows),)
            for name in names
        }
        self.rates = tuple(dict.fromkeys(self._by_listener.values()))
        """The rates of the broker, and those of the controller."""
        self._limits: _Limits | None = None
        self._take({})

    def wait_s(self, listener: str) -> float:
        """For how many seconds a listener accepts neither this connection nor another."""
        image = self._image()
        if image.configs is not self._configs:
            self._configs = image.configs
            for_all, own = (image.configs.of((ResourceType.BROKER, one)) for one in ("", str(self._node_id)))
            self._take({**_usable(for_all), **_usable(own)})
        for one in self.rates:
            one.use(image.quotas)
        return self._by_listener[listener].wait_ms(listener, self._now_ms()) / 1000

    def hold_s(self, listener: str, address: str) -> float:
        """For how many seconds to hold the connection of an address, to close it then; 0 to accept it."""
        return self._by_listener[listener].hold_ms(listener, address, self._now_ms()) / 1000

    def _take(self, changed: Mapping[str, Value]) -> None:
        """Use the settings of the file with what the metadata has changed of them."""
        values = {**self._file, **changed}
        rates = CreationRates(_number(values, _RATE), dict(self._of_listeners(values, _RATE)))
        for one in self.rates:
            one.limits = rates
        found = _Limits(
            _number(values, _MOST),
            _number(values, _MOST_PER_IP),
            dict(map(parse_connection_limit, split_list(str(values.get(_OVERRIDES, ""))))),
            dict(self._of_listeners(values, _MOST)),
        )
        before, self._limits = self._limits, found
        # The transport is made with the limits of the file, but for those of single listeners.
        if found.by_listener if before is None else found != before:
            most = MAX_CONNECTIONS if found.most == UNLIMITED else found.most
            self._transport.limit_connections(
                min(most, connections_allowed()), found.most_per_ip, found.overrides, found.by_listener
            )

    def _of_listeners(self, values: Mapping[str, Value], key: str) -> Iterator[tuple[str, int]]:
        for name in self._by_listener:
            own = f"{LISTENER_PREFIX}{name.lower()}.{key}"
            if own in values:
                yield name, _number(values, own)


def _number(values: Mapping[str, Value], key: str, default: int = UNLIMITED) -> int:
    value = values.get(key, default)
    assert isinstance(value, int), key
    return value


def _usable(configs: Mapping[str, str]) -> dict[str, Value]:
    """The settings of connections that a broker uses: one that it cannot read stays as it was."""
    found: dict[str, Value] = {}
    for key, text in configs.items():
        definition = definition_of(key)
        if definition is None or definition.name not in _READ:
            continue
        try:
            found[key] = checked(definition, text)
            if key == _OVERRIDES:
                list(map(parse_connection_limit, split_list(text)))
        except ValueError:
            found.pop(key, None)
    return found
