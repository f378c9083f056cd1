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
_CODECS: Final = 5
_CODEC: Final = "offsets.topic.compression.codec"


class GroupConfig(Struct, frozen=True, kw_only=True):
    """What a group coordinator reads; the defaults are Kafka's."""

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


def read_groups(reader: SettingsReader) -> GroupConfig:
    """The settings in the file; raises `ConfigError` for a value that Kafka refuses."""
    found: dict[str, Any] = {field: reader.value(key) for field, key in _KEYS.items() if key in reader.settings}
    if not 0 <= found.get("compression_codec", 0) < _CODECS:
        raise reader.bad(_CODEC, "there is no such codec", hint="Allowed: 0 (none) to 4 (zstd).")
    return GroupConfig(**found)
