"""The settings of a group coordinator (Kafka: `GroupCoordinatorConfig`)."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from kraft.config.settings_reader import SettingsReader

_KEYS: Final = {
    "topic_partitions": "offsets.topic.num.partitions",
    "topic_replication_factor": "offsets.topic.replication.factor",
    "topic_segment_bytes": "offsets.topic.segment.bytes",
    "compression_codec": "offsets.topic.compression.codec",
    "commit_timeout_ms": "offsets.commit.timeout.ms",
    "retention_minutes": "offsets.retention.minutes",
    "retention_check_ms": "offsets.retention.check.interval.ms",
    "metadata_max_characters": "offset.metadata.max.bytes",
    "min_session_timeout_ms": "group.min.session.timeout.ms",
    "max_session_timeout_ms": "group.max.session.timeout.ms",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "max_size": "group.max.size",
}
"""The setting of each field of `GroupConfig`."""
_CONSUMER_KEYS: Final = {
    "session_timeout_ms": "group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "assignment_interval_ms": "group.consumer.assignment.interval.ms",
    "max_size": "group.consumer.max.size",
    "assignors": "group.consumer.assignors",
    "migration_policy": "group.consumer.migration.policy",
    "regex_refresh_ms": "group.consumer.regex.refresh.interval.ms",
}
"""The setting of each field of `ConsumerGroupConfig`."""
ASSIGNORS: Final = ("uniform", "range")
"""The assignors that there are; this software loads no classes of Java."""
_BOUNDED: Final = (
    (
        ("group.consumer.session.timeout.ms", 45_000),
        ("group.consumer.min.session.timeout.ms", 45_000),
        ("group.consumer.max.session.timeout.ms", 60_000),
    ),
    (
        ("group.consumer.heartbeat.interval.ms", 5000),
        ("group.consumer.min.heartbeat.interval.ms", 5000),
        ("group.consumer.max.heartbeat.interval.ms", 15_000),
    ),
    (
        ("group.consumer.assignment.interval.ms", 1000),
        ("group.consumer.min.assignment.interval.ms", 0),
        ("group.consumer.max.assignment.interval.ms", 15_000),
    ),
)
"""Settings with their least and greatest values, and the defaults of all."""
_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
_CODECS: Final = 5
_CODEC: Final = "offsets.topic.compression.codec"


class ConsumerGroupConfig(Struct, frozen=True, kw_only=True):
    """The settings of consumer groups (KIP-848); the defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ASSIGNORS
    """The assignors that members may ask for; the first is for those that do not ask."""
    migration_policy: str = "bidirectional"
    """Whether groups change between the classic and the consumer protocol: also upgrade, downgrade and disabled."""
    regex_refresh_ms: int = 600_000
    is_enabled: bool = True
    """Whether `group.coordinator.rebalance.protocols` has the protocol."""


class GroupConfig(Struct, frozen=True, kw_only=True):
    """The settings of a group coordinator; the defaults are Kafka's."""

    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_segment_bytes: int = 100 << 20
    compression_codec: int = 0
    """The codec of the batches that the coordinator writes, by Kafka's number."""
    commit_timeout_ms: int = 5000
    """How long any request waits for the records that it has caused."""
    retention_minutes: int = 7 * 24 * 60
    retention_check_ms: int = 600_000
    metadata_max_characters: int = 4096
    """In units of UTF-16, whatever the name of the setting says."""
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    consumer: ConsumerGroupConfig = ConsumerGroupConfig()
    streams_are_enabled: bool = True
    """Whether `group.coordinator.rebalance.protocols` has the protocol of streams groups."""


def read_groups(reader: SettingsReader) -> GroupConfig:
    """The settings in the file; raises `ConfigError` for a value that Kafka refuses."""
    values = reader.given(_KEYS)
    if not 0 <= values.get("compression_codec", 0) < _CODECS:
        raise reader.bad(_CODEC, "there is no such codec", hint="Allowed: 0 (none) to 4 (zstd).")
    return GroupConfig(**values, consumer=_read_consumer(reader), streams_are_enabled=_has_protocol(reader, "streams"))


def _has_protocol(reader: SettingsReader, name: str) -> bool:
    """Whether the coordinators may use a protocol; without the setting they may."""
    if _PROTOCOLS not in reader.settings:
        return True
    protocols: Any = reader.value(_PROTOCOLS)
    return name in [one.lower() for one in protocols]


def _read_consumer(reader: SettingsReader) -> ConsumerGroupConfig:
    given = reader.given(_CONSUMER_KEYS)
    if "migration_policy" in given:
        given["migration_policy"] = given["migration_policy"].lower()
    if "assignors" in given:
        given["assignors"] = tuple(given["assignors"])
        if unknown := [one for one in given["assignors"] if one not in ASSIGNORS]:
            key = _CONSUMER_KEYS["assignors"]
            raise reader.bad(key, f"there is no assignor {unknown[0]}", hint=f"There are {', '.join(ASSIGNORS)}.")
    given["is_enabled"] = _has_protocol(reader, "consumer")
    for bounded in _BOUNDED:
        values: list[Any] = [reader.value(key) if key in reader.settings else usual for key, usual in bounded]
        if not values[1] <= values[0] <= values[2]:
            (key, _), (least, _), (most, _) = bounded
            raise reader.bad(key, f"it is not between {least} ({values[1]}) and {most} ({values[2]})")
    return ConsumerGroupConfig(**given)
