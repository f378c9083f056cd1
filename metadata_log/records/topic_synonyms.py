"""The brokers' names of topic settings (Kafka: `ServerTopicConfigSynonyms`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

_ONE_NAME: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.decompressed.message.bytes": "max.decompressed.message.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
    "remote.copy.lag.ms": "log.remote.copy.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
TOPIC_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    **{key: ((name, 1),) for key, name in _ONE_NAME.items()},
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
}
"""By topic setting: the brokers' names by precedence, each with the factor that converts its unit."""

_TOPIC_KEYS: Final = {name: key for key, names in TOPIC_SYNONYMS.items() for name, _ in names}


def topic_key(broker_key: str) -> str | None:
    """The topic setting that a setting of brokers is the default of; None for any other setting."""
    return _TOPIC_KEYS.get(broker_key)


def default_of_topics(key: str, settings: Mapping[str, str]) -> str | None:
    """The value that a topic without a value of its own takes from the settings of brokers.

    Args:
        key: The topic setting.
        settings: The values of the brokers' settings.

    Returns:
        The value in the topic's unit; None if no broker setting gives one. A text that is no number is unchanged.
    """
    for name, unit in TOPIC_SYNONYMS.get(key, ()):
        value = settings.get(name)
        if value is not None:
            return _converted(value, unit)
    return None


def _converted(value: str, unit: int) -> str:
    if unit == 1:
        return value
    try:
        count = int(value)
    except ValueError:
        return value
    # Kafka: `AbstractKafkaConfig.logRetentionTimeMillis` reads each negative number as "without end".
    return str(count * unit) if count >= 0 else "-1"
