"""The settings of a topic's logs: overrides of the topic, then those of the brokers (Kafka: `LogConfig.fromProps`)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from kraft.config.definitions import NODE, decimal_number, whole_number
from kraft.config.kafka_keys import why_unusable
from kraft.config.properties import trim
from kraft.partitions.log.options import LogOptions
from kraft.partitions.replicas.key import INTERNAL_TOPICS
from kraft.partitions.replicas.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, throttled_partitions
from metadata_log.compression import Compression
from metadata_log.image import ConfigsImage, ResourceType
from metadata_log.records.topic_synonyms import TOPIC_SYNONYMS
from metadata_log.types import REMOTE_TOPIC

_T = TypeVar("_T")

_CODECS: Final[Mapping[str, Compression | None]] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_NO_FLUSH: Final = 2**63 - 1


def may_be_tiered(topic: str) -> bool:
    """Whether a topic may have tiered storage (`UnifiedLog.isRemoteLogEnabled`)."""
    return topic not in INTERNAL_TOPICS and topic != REMOTE_TOPIC


class TopicSettings(Struct, frozen=True):
    """The settings of one topic: those of its logs, `min.insync.replicas`, and the partitions that are throttled."""

    log: LogOptions
    min_isr: int
    leads_throttled: Container[int] = ()
    """The partitions whose leader here holds back followers that are not in sync."""
    follows_throttled: Container[int] = ()
    """The partitions whose follower here holds itself back while it is not in sync."""


def topic_settings(topic: str, configs: ConfigsImage, broker_id: int, static: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic on this broker.

    Args:
        topic: The name of the topic.
        configs: The configurations in the metadata: of the topic, of this broker, and of all brokers.
        broker_id: This broker.
        static: The properties of the broker's configuration file.

    Returns:
        The settings. A value that is no number counts as not set: the controller refuses such values.
    """
    overrides = configs.of((ResourceType.TOPIC, topic))
    layers = (
        configs.of((ResourceType.BROKER, str(broker_id))),
        configs.of((ResourceType.BROKER, "")),
        static,
    )

    def value(key: str, parsed: Callable[[str], _T | None], scaled: Callable[[_T, int], _T], default: _T) -> _T:
        override = overrides.get(key)
        own = None if override is None else parsed(trim(override))
        if own is not None:
            return own
        for layer in layers:
            for broker_key, unit in TOPIC_SYNONYMS.get(key, ()):
                text = layer.get(broker_key)
                # A controller that is asked directly takes any value; as in Kafka, brokers ignore a bad one. Those of
                # the file were judged at the start.
                if text is None or (layer is not static and why_unusable(NODE[broker_key], text)):
                    continue
                given = parsed(trim(text))
                if given is not None:
                    return scaled(given, unit)
        return default

    def number(key: str, default: int) -> int:
        return value(key, whole_number, lambda given, unit: given * unit if given >= 0 else given, default)

    def word(key: str, default: str) -> str:
        return value(key, str, lambda given, _: given, default)

    policies = {each.strip() for each in word("cleanup.policy", "delete").split(",")}
    flush_messages = number("flush.messages", _NO_FLUSH)
    flush_ms = number("flush.ms", _NO_FLUSH)
    defaults = LogOptions()
    is_compacted = "compact" in policies
    segment_ms = number("segment.ms", defaults.segment_ms)
    max_lag_ms = number("max.compaction.lag.ms", defaults.max_compaction_lag_ms)
    log = LogOptions(
        segment_bytes=number("internal.segment.bytes", number("segment.bytes", defaults.segment_bytes)),
        # The active segment is never cleaned, so that it rolls in time (`LogConfig.maxSegmentMs`).
        segment_ms=min(segment_ms, max_lag_ms) if is_compacted and max_lag_ms > 0 else segment_ms,
        index_interval_bytes=number("index.interval.bytes", defaults.index_interval_bytes),
        index_bytes=number("segment.index.bytes", defaults.index_bytes),
        max_message_bytes=number("max.message.bytes", defaults.max_message_bytes),
        max_decompressed_bytes=number("max.decompressed.message.bytes", defaults.max_decompressed_bytes),
        flush_messages=None if flush_messages == _NO_FLUSH else flush_messages,
        flush_ms=None if flush_ms == _NO_FLUSH else flush_ms,
        producer_expiration_ms=_static_number(static, "producer.id.expiration.ms", defaults.producer_expiration_ms),
        is_log_append_time=word("message.timestamp.type", "CreateTime") == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms", defaults.timestamp_before_max_ms),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms", defaults.timestamp_after_max_ms),
        compression=_CODECS.get(word("compression.type", "producer")),
        is_compacted=is_compacted,
        is_deleted="delete" in policies,
        is_tiered=word("remote.storage.enable", "false").lower() == "true"
        and not is_compacted
        and may_be_tiered(topic),
        is_copy_disabled=word("remote.log.copy.disable", "false").lower() == "true",
        retention_bytes=number("retention.bytes", defaults.retention_bytes),
        retention_ms=number("retention.ms", defaults.retention_ms),
        min_dirty_ratio=value(
            "min.cleanable.dirty.ratio", decimal_number, lambda given, _: given, defaults.min_dirty_ratio
        ),
        min_compaction_lag_ms=number("min.compaction.lag.ms", defaults.min_compaction_lag_ms),
        max_compaction_lag_ms=max_lag_ms,
        delete_retention_ms=number("delete.retention.ms", defaults.delete_retention_ms),
    )
    return TopicSettings(
        log,
        number("min.insync.replicas", 1),
        throttled_partitions(LEADER_REPLICAS, overrides, broker_id),
        throttled_partitions(FOLLOWER_REPLICAS, overrides, broker_id),
    )


def _static_number(static: Mapping[str, str], key: str, default: int) -> int:
    number = whole_number(trim(static.get(key, "")))
    return default if number is None else number
