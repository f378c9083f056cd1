"""The names of topic settings in a node's configuration (Kafka: `ServerTopicConfigSynonyms`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


class Synonym(Struct, frozen=True):
    """A node's name of a topic setting, and the factor `unit` that converts its unit to the topic's unit."""

    name: str
    type: Literal["INT", "LONG", "DOUBLE", "BOOLEAN", "STRING", "LIST"]
    unit: int = 1
    words: tuple[str, ...] = ()
    """The words of which a text or a list consists."""

    def of_topics(self, value: str) -> str:
        """A node's value in the form of a topic setting; a text that is no number is unchanged."""
        if self.unit == 1:
            return value
        try:
            return str(int(value) * self.unit)
        except ValueError:
            return value


CLEANUP_POLICIES: Final = ("compact", "delete")
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

TOPIC_SYNONYMS: Final[dict[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy", "LIST", words=CLEANUP_POLICIES),),
    "compression.gzip.level": (Synonym("compression.gzip.level", "INT"),),
    "compression.lz4.level": (Synonym("compression.lz4.level", "INT"),),
    "compression.type": (Synonym("compression.type", "STRING", words=COMPRESSION_TYPES),),
    "compression.zstd.level": (Synonym("compression.zstd.level", "INT"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms", "LONG"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms", "LONG"),),
    "flush.messages": (Synonym("log.flush.interval.messages", "LONG"),),
    "flush.ms": (Synonym("log.flush.interval.ms", "LONG"), Synonym("log.flush.scheduler.interval.ms", "LONG")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes", "INT"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes", "LONG"),),
    "local.retention.ms": (Synonym("log.local.retention.ms", "LONG"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms", "LONG"),),
    "max.message.bytes": (Synonym("message.max.bytes", "INT"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms", "LONG"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms", "LONG"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type", "STRING", words=TIMESTAMP_TYPES),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio", "DOUBLE"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms", "LONG"),),
    "min.insync.replicas": (Synonym("min.insync.replicas", "INT"),),
    "preallocate": (Synonym("log.preallocate", "BOOLEAN"),),
    "retention.bytes": (Synonym("log.retention.bytes", "LONG"),),
    "retention.ms": (
        Synonym("log.retention.ms", "LONG"),
        Synonym("log.retention.minutes", "INT", _MINUTE_MS),
        Synonym("log.retention.hours", "INT", _HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes", "INT"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes", "INT"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms", "LONG"),
        Synonym("log.roll.jitter.hours", "INT", _HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms", "LONG"), Synonym("log.roll.hours", "INT", _HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable", "BOOLEAN"),),
}
"""The node's names of each topic setting, by precedence."""


def inherited(key: str, settings: Mapping[str, str]) -> str | None:
    """The topic value of `key` that follows from the settings of a node; None if they do not set it."""
    for synonym in TOPIC_SYNONYMS.get(key, ()):
        if (value := settings.get(synonym.name)) is not None:
            return synonym.of_topics(value)
    return None
