"""Checks of every setting of a file: values by Kafka's definitions, and settings that depend on each other.

Kafka: `ConfigDef`, `KafkaConfig.validateValues`, `GroupCoordinatorConfig`, `ShareGroupConfig`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from kraft.config.addresses import ListenerSpec, parse_connection_limit, split_list
from kraft.config.definitions import NODE, OF_QUOTAS, checked, elements
from kraft.config.errors import ConfigError
from kraft.config.kafka_keys import LISTENER_PREFIX, REFUSED, definition_of, is_refused
from kraft.config.node_settings import BROKER, CONTROLLER
from kraft.config.settings_reader import SettingsReader

_MEBIBYTE: Final = 1 << 20
TIERED_STORAGE: Final = "remote.log.storage.system.enable"
_LAST_CODEC: Final = 4
"""Kafka's number of zstd."""


def _ladder(*keys: str) -> tuple[tuple[str, str], ...]:
    """Pairs of neighbours, of which the first is at most the second."""
    return tuple(pairwise(keys))


def _of_groups(kind: str, what: str) -> tuple[tuple[str, str], ...]:
    return _ladder(f"group.{kind}.min.{what}", f"group.{kind}.{what}", f"group.{kind}.max.{what}")


_TIMES: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
AT_MOST: Final = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    *(pair for kind in ("consumer", "share", "streams") for what in _TIMES for pair in _of_groups(kind, what)),
    *(
        pair
        for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")
        for pair in _of_groups("share", what)
    ),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
    ("group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"),
)
"""Settings of which the first is at most the second."""
BELOW: Final = (
    *(
        (f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
        for kind in ("consumer", "share", "streams")
    ),
)
"""Settings of which the first is less than the second."""


_OF_CONTROLLERS: Final = ("num.partitions", "default.replication.factor")
_DEPRECATED: Final = {
    "broker.id": "is deprecated: use node.id instead",
    "group.coordinator.rebalance.protocols": "is deprecated: Kafka 5.0 has the levels of features alone for this",
    **dict.fromkeys(_OF_CONTROLLERS, "belongs into the files of controllers: brokers of Kafka 5.0 ignore it"),
}


def check_refused(reader: SettingsReader) -> None:
    """Refuse settings that restrict or protect something that this software does not have; raises `ConfigError`."""
    for key, setting in reader.settings.items():
        definition = definition_of(key)
        if definition is not None and is_refused(definition, setting.value):
            why = f"allowed is {definition.default or 'an empty value'} only"
            raise reader.bad(key, why, hint=f"{REFUSED[definition.name]} Leave the setting out.")


def check_settings(reader: SettingsReader, listeners: tuple[ListenerSpec, ...], *, roles: Sequence[str]) -> None:
    """Refuse values that Kafka refuses, also of settings that nothing reads. `listeners` are those of the node. The
    `ConfigError` names the setting, its value, and what is allowed.
    """
    for key in reader.settings:
        if definition_of(key) is not None or key in OF_QUOTAS:
            reader.value(key)
    _check_pairs(reader)
    _check_log_times(reader)
    _check_connections(reader)
    _check_listeners(reader, listeners)
    _check_coordinators(reader)
    if BROKER in roles:
        _check_cordoned(reader)
        _check_tiered(reader)
    if CONTROLLER not in roles and reader.flag("controller.quorum.auto.join.enable"):
        raise reader.bad("controller.quorum.auto.join.enable", "the node has no role of a controller")


def _check_tiered(reader: SettingsReader) -> None:
    """A broker with tiered storage copies segments to a remote store, and reads them there."""
    setting = reader.settings.get(TIERED_STORAGE)
    if setting is not None and reader.as_flag(TIERED_STORAGE, setting.value):
        hint = "Brokers of this software copy nothing to tiered storage. A node that is a controller alone takes it."
        raise reader.bad(TIERED_STORAGE, "allowed is false only", hint=hint)


def _number(reader: SettingsReader, key: str) -> float:
    """The number in a setting, or its default; the values have been checked."""
    setting = reader.settings.get(key)
    value = checked(NODE[key], NODE[key].default or "0" if setting is None else setting.value)
    assert isinstance(value, int | float), key
    return value


def _check_pairs(reader: SettingsReader) -> None:
    for pairs, is_wrong, words in (
        (AT_MOST, operator.gt, "must not be greater than"),
        (BELOW, operator.ge, "must be less than"),
    ):
        for one, other in pairs:
            key = one if one in reader.settings else other
            if key in reader.settings and is_wrong(_number(reader, one), _number(reader, other)):
                why = f"{one} ({_number(reader, one):g}) {words} {other} ({_number(reader, other):g})"
                raise reader.bad(key, why)


def _first(reader: SettingsReader, *keys: str) -> str | None:
    return next((key for key in keys if key in reader.settings), None)


def _check_log_times(reader: SettingsReader) -> None:
    """The times of logs that no definition bounds, and the memory of the cleaner."""
    for keys, least, allowed in (
        (("log.roll.ms", "log.roll.hours"), 1, "at least 1"),
        (("log.roll.jitter.ms", "log.roll.jitter.hours"), 0, "at least 0"),
    ):
        if (key := _first(reader, *keys)) is not None and _number(reader, key) < least:
            raise reader.bad(key, f"allowed is {allowed}")
    key = _first(reader, "log.retention.ms", "log.retention.minutes", "log.retention.hours")
    if key is not None and _number(reader, key) == 0:
        # Kafka: "log.retention.ms must be unlimited (-1) or, greater than or equal to 1".
        raise reader.bad(
            key,
            "allowed is -1 for no limit, or at least 1",
            hint="Set a time, or -1: with 0 every record would be deleted.",
        )
    key = _first(reader, "log.cleaner.dedupe.buffer.size", "log.cleaner.threads")
    memory, threads = (_number(reader, one) for one in ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"))
    if key is not None and (threads == 0 or memory // threads <= _MEBIBYTE):
        raise reader.bad(key, "log.cleaner.dedupe.buffer.size must be more than 1 MiB for each of log.cleaner.threads")


def _check_connections(reader: SettingsReader) -> None:
    key, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    queued, request = _number(reader, key), _number(reader, largest)
    if 0 < queued < request:
        raise reader.bad(key, f"the value is less than {largest}, which is {request:g}")
    key, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    reader.entries(overrides, parse_connection_limit)
    if _number(reader, key) == 0 and not reader.text(overrides):
        raise reader.bad(key, f"0 is allowed only with {overrides}")
    key, delay = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
    idle_ms = _number(reader, key)
    if 0 <= idle_ms <= _number(reader, delay):
        at = key if key in reader.settings else delay
        raise reader.bad(at, f"{delay} must be less than {key}")


def _check_listeners(reader: SettingsReader, listeners: tuple[ListenerSpec, ...]) -> None:
    key = "early.start.listeners"
    known = tuple(listener.name for listener in listeners)
    for name in split_list(reader.text(key)):
        if name.upper() not in known:
            raise reader.bad(key, f"{name} is not among the listeners of this node ({', '.join(known)})")
    key = "inter.broker.listener.name"
    if key in reader.settings and not reader.text(key):
        raise reader.bad(key, "the value is empty", hint="Name a listener, or leave the setting out.")


def _check_cordoned(reader: SettingsReader) -> None:
    """Kafka: `KafkaConfig.validateCordonedLogDirs`."""
    key = "cordoned.log.dirs"
    named = split_list(reader.text(key))
    if "*" in named and len(named) > 1:
        raise reader.bad(key, "* stands alone", hint="Name directories, or write * for all of them.")
    directories = split_list(reader.text("log.dirs")) or split_list(reader.text("log.dir"))
    for path in named:
        if path != "*" and path not in directories:
            raise reader.bad(key, f"{path} is not in log.dirs", hint=f"Allowed: {', '.join(directories)}, or *.")


def _check_coordinators(reader: SettingsReader) -> None:
    """Refuse the settings that Kafka's coordinators refuse, though this software lacks what they configure."""
    key = "group.coordinator.rebalance.protocols"
    if key in reader.settings and "classic" not in split_list(reader.settings[key].value):
        raise reader.bad(key, "classic is missing", hint="Kafka cannot be without the protocol classic.")
    key = "group.streams.rack.aware.assignment.tags"
    if key in reader.settings:
        tags = elements(reader.settings[key].value)
        if len(set(tags)) < len(tags):
            raise reader.bad(key, "a tag is there twice")
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if key in reader.settings and not 0 <= _number(reader, key) <= _LAST_CODEC:
            raise reader.bad(key, f"allowed is a whole number from 0 to {_LAST_CODEC}")


def deprecated(reader: SettingsReader, *, roles: Sequence[str]) -> Iterator[str]:
    """A warning for each setting of the file that a later release of Kafka refuses, at all or for these roles."""
    for key, why in _DEPRECATED.items():
        is_last = key != "broker.id" or "node.id" not in reader.settings
        is_here = key not in _OF_CONTROLLERS or CONTROLLER not in roles
        if key in reader.settings and is_last and is_here:
            yield f"{key} {why} ({reader.settings[key].where})"


def refused_by_kafka_alone(reader: SettingsReader, listeners: tuple[ListenerSpec, ...]) -> Iterator[ConfigError]:
    """Find settings that this software accepts and Apache Kafka refuses, in a file that passes the other checks.

    `listeners` are those of the node, with their protocols.
    """
    names, protocol_map = "controller.listener.names", "listener.security.protocol.map"
    for name in split_list(reader.text(names)):
        if name != name.upper() and protocol_map not in reader.settings:
            yield reader.bad(names, f"{name} is not in upper case, and has no entry in {protocol_map}")
    controllers = {name.upper() for name in split_list(reader.text(names))}
    own = {one.name: one.protocol for one in listeners if one.name not in controllers}
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    inter = (reader.text(by_name) or reader.text(by_protocol)).upper()
    if own and inter not in own:
        yield reader.bad(by_protocol, f"there is no listener {inter}", hint=f"Add {by_name}={next(iter(own))}.")
    key, enabled = "sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"
    if own.get(inter, "").startswith("SASL"):
        at = f"{LISTENER_PREFIX}{inter.lower()}.{enabled}"
        mechanisms = reader.settings.get(at) or reader.settings.get(enabled)
        wanted = reader.settings[key].value if key in reader.settings else NODE[key].default
        if wanted not in split_list(mechanisms.value if mechanisms else NODE[enabled].default or ""):
            yield reader.bad(key, f"{wanted} is not in {enabled}", hint=f"Name a mechanism of {enabled}.")
