"""The settings of a group coordinator (Kafka: `GroupCoordinatorConfig`)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Struct

from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader

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
    (
        ("group.share.session.timeout.ms", 45_000),
        ("group.share.min.session.timeout.ms", 45_000),
        ("group.share.max.session.timeout.ms", 60_000),
    ),
    (
        ("group.share.heartbeat.interval.ms", 5000),
        ("group.share.min.heartbeat.interval.ms", 5000),
        ("group.share.max.heartbeat.interval.ms", 15_000),
    ),
    (
        ("group.share.assignment.interval.ms", 1000),
        ("group.share.min.assignment.interval.ms", 0),
        ("group.share.max.assignment.interval.ms", 15_000),
    ),
    (
        ("group.share.delivery.count.limit", 5),
        ("group.share.min.delivery.count.limit", 2),
        ("group.share.max.delivery.count.limit", 10),
    ),
    (
        ("group.share.record.lock.duration.ms", 30_000),
        ("group.share.min.record.lock.duration.ms", 15_000),
        ("group.share.max.record.lock.duration.ms", 60_000),
    ),
    (
        ("group.share.partition.max.record.locks", 2000),
        ("group.share.min.partition.max.record.locks", 100),
        ("group.share.max.partition.max.record.locks", 4000),
    ),
)
"""Settings with their least and greatest values, and the defaults of all."""
_ASSIGNORS: Final = "group.consumer.assignors"
_SHARE_ASSIGNORS: Final = "group.share.assignors"
SHARE_ASSIGNOR: Final = "simple"
"""The assignor of share groups."""
_STREAMS_ASSIGNORS: Final = "group.streams.assignors"
STREAMS_ASSIGNOR: Final = "sticky"
"""The assignor of streams groups."""
_RACK_TAGS: Final = "group.streams.rack.aware.assignment.tags"
_MIGRATION: Final = "group.consumer.migration.policy"
_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
PROTOCOLS: Final = frozenset(("classic", "consumer", "share", "streams"))


def _assignors(reader: SettingsReader) -> tuple[str, ...]:
    if _ASSIGNORS not in reader.settings:
        return ASSIGNORS
    given: Any = reader.value(_ASSIGNORS)
    if unknown := [one for one in given if one not in ASSIGNORS]:
        raise reader.bad(_ASSIGNORS, f"there is no assignor {unknown[0]}", hint=f"There are {', '.join(ASSIGNORS)}.")
    return tuple(given)


def _check_only_assignor(reader: SettingsReader, key: str, only: str, kind: str) -> None:
    given: Any = reader.value(key) if key in reader.settings else [only]
    if list(given) != [only]:
        raise reader.bad(key, f"it is not {only}", hint=f"{kind} groups have no other assignor.")


def _rack_tags(reader: SettingsReader) -> tuple[str, ...]:
    given: Any = reader.value(_RACK_TAGS) if _RACK_TAGS in reader.settings else ()
    return tuple(given)


def _migration_policy(reader: SettingsReader) -> str:
    return str(reader.value(_MIGRATION)).lower() if _MIGRATION in reader.settings else "bidirectional"


def _protocols(reader: SettingsReader) -> frozenset[str]:
    given: Any = reader.value(_PROTOCOLS) if _PROTOCOLS in reader.settings else PROTOCOLS
    return frozenset(one.lower() for one in given)


class ConsumerGroupConfig(Struct, frozen=True, kw_only=True):
    """The settings of consumer groups (KIP-848); the defaults are Kafka's."""

    session_timeout_ms: Annotated[int, Key("group.consumer.session.timeout.ms")] = 45_000
    heartbeat_interval_ms: Annotated[int, Key("group.consumer.heartbeat.interval.ms")] = 5000
    assignment_interval_ms: Annotated[int, Key("group.consumer.assignment.interval.ms")] = 1000
    max_size: Annotated[int, Key("group.consumer.max.size")] = 2**31 - 1
    assignors: Annotated[tuple[str, ...], Key(_ASSIGNORS, read=_assignors)] = ASSIGNORS
    """The assignors that members may ask for; the first is for those that do not ask."""
    migration_policy: Annotated[str, Key(_MIGRATION, read=_migration_policy)] = "bidirectional"
    """Whether groups change between the classic and the consumer protocol: also upgrade, downgrade and disabled."""
    regex_refresh_ms: Annotated[int, Key("group.consumer.regex.refresh.interval.ms")] = 600_000
    protocols: Annotated[frozenset[str], Key(_PROTOCOLS, read=_protocols)] = PROTOCOLS
    """The kinds of groups that there may be."""


class ShareGroupConfig(Struct, frozen=True, kw_only=True):
    """The settings of share groups (KIP-932) at a group coordinator; the defaults are Kafka's."""

    session_timeout_ms: Annotated[int, Key("group.share.session.timeout.ms")] = 45_000
    heartbeat_interval_ms: Annotated[int, Key("group.share.heartbeat.interval.ms")] = 5000
    assignment_interval_ms: Annotated[int, Key("group.share.assignment.interval.ms")] = 1000
    max_size: Annotated[int, Key("group.share.max.size")] = 200
    initialize_retry_ms: Annotated[int, Key("group.share.initialize.retry.interval.ms")] = 30_000
    """After how long a share partition that waits for its state is asked for again."""


class StreamsGroupConfig(Struct, frozen=True, kw_only=True):
    """The settings of streams groups (KIP-1071); the defaults are Kafka's."""

    session_timeout_ms: Annotated[int, Key("group.streams.session.timeout.ms")] = 45_000
    heartbeat_interval_ms: Annotated[int, Key("group.streams.heartbeat.interval.ms")] = 5000
    assignment_interval_ms: Annotated[int, Key("group.streams.assignment.interval.ms")] = 1000
    initial_rebalance_delay_ms: Annotated[int, Key("group.streams.initial.rebalance.delay.ms")] = 3000
    """How long the first targets of a group wait for further members."""
    max_size: Annotated[int, Key("group.streams.max.size")] = 2**31 - 1
    num_standby_replicas: Annotated[int, Key("group.streams.num.standby.replicas")] = 0
    """How many standbys each task with state has."""
    rack_aware_tags: Annotated[tuple[str, ...], Key(_RACK_TAGS, read=_rack_tags)] = ()
    """The tags that each member is to have. No assignor of Kafka's, nor of ours, looks at their values."""
    task_offset_interval_ms: Annotated[int, Key("group.streams.task.offset.interval.ms")] = 60_000
    """How often members tell the offsets of their tasks."""
    acceptable_recovery_lag: Annotated[int, Key("group.streams.acceptable.recovery.lag")] = 10_000
    """How many records a task may lag behind and still become active, which members are told."""


class ShareLeaderConfig(Struct, frozen=True, kw_only=True):
    """The settings of share groups at the leaders of partitions; the defaults are Kafka's."""

    delivery_count_limit: Annotated[int, Key("group.share.delivery.count.limit")] = 5
    lock_duration_ms: Annotated[int, Key("group.share.record.lock.duration.ms")] = 30_000
    max_record_locks: Annotated[int, Key("group.share.partition.max.record.locks")] = 2000
    """How far apart the first and the last record may be that are on their way."""
    max_sessions: Annotated[int, Key("group.share.max.share.sessions")] = 2000
    letters_prefix: Annotated[str, Key("errors.deadletterqueue.topic.name.prefix")] = "dlq."
    """How the names of dead-letter queues begin."""
    creates_queues: Annotated[bool, Key("errors.deadletterqueue.auto.create.topics.enable")] = False
    """Whether a dead-letter queue that does not exist is made."""


class GroupConfig(Struct, frozen=True, kw_only=True):
    """The settings of a group coordinator; the defaults are Kafka's."""

    topic_partitions: Annotated[int, Key("offsets.topic.num.partitions")] = 50
    topic_replication_factor: Annotated[int, Key("offsets.topic.replication.factor")] = 3
    topic_segment_bytes: Annotated[int, Key("offsets.topic.segment.bytes")] = 100 << 20
    compression_codec: Annotated[int, Key("offsets.topic.compression.codec")] = 0
    """The codec of the batches that the coordinator writes, by Kafka's number."""
    commit_timeout_ms: Annotated[int, Key("offsets.commit.timeout.ms")] = 5000
    """How long any request waits for the records that it has caused."""
    retention_minutes: Annotated[int, Key("offsets.retention.minutes")] = 7 * 24 * 60
    retention_check_ms: Annotated[int, Key("offsets.retention.check.interval.ms")] = 600_000
    metadata_max_characters: Annotated[int, Key("offset.metadata.max.bytes")] = 4096
    """In units of UTF-16, whatever the name of the setting says."""
    min_session_timeout_ms: Annotated[int, Key("group.min.session.timeout.ms")] = 6000
    max_session_timeout_ms: Annotated[int, Key("group.max.session.timeout.ms")] = 1_800_000
    initial_rebalance_delay_ms: Annotated[int, Key("group.initial.rebalance.delay.ms")] = 3000
    max_size: Annotated[int, Key("group.max.size")] = 2**31 - 1
    consumer: ConsumerGroupConfig = ConsumerGroupConfig()
    share: ShareGroupConfig = ShareGroupConfig()
    share_leader: ShareLeaderConfig = ShareLeaderConfig()
    streams: StreamsGroupConfig = StreamsGroupConfig()


def check_groups(reader: SettingsReader) -> None:
    """Raise `ConfigError` for settings of groups that Kafka refuses, or for an assignor that this software lacks."""
    _assignors(reader)
    _check_only_assignor(reader, _SHARE_ASSIGNORS, SHARE_ASSIGNOR, "Share")
    _check_only_assignor(reader, _STREAMS_ASSIGNORS, STREAMS_ASSIGNOR, "Streams")
    for bounded in _BOUNDED:
        values: list[Any] = [reader.value(key) if key in reader.settings else usual for key, usual in bounded]
        if not values[1] <= values[0] <= values[2]:
            (key, _), (least, _), (most, _) = bounded
            raise reader.bad(key, f"it is not between {least} ({values[1]}) and {most} ({values[2]})")
