"""The settings of a partition's log: topic configurations with the names and defaults of Kafka (`LogConfig`)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.compression import Compression
from metadata_log.records.walk import MOST_RECORD_BYTES

NO_LIMIT = -1
_DAY_MS = 24 * 3600 * 1000


class LogOptions(Struct, frozen=True, kw_only=True):
    """The settings of one log. Sizes are bytes, times are ms; the defaults are those of Kafka."""

    segment_bytes: int = 1 << 30
    """`segment.bytes`."""
    segment_ms: int = 7 * _DAY_MS
    """`segment.ms`, less the jitter that the caller has drawn."""
    index_interval_bytes: int = 4096
    """`index.interval.bytes`."""
    index_bytes: int = 10 << 20
    """`segment.index.bytes`."""
    max_message_bytes: int = 1048588
    """`max.message.bytes`: the size of one batch as stored."""
    max_decompressed_bytes: int = MOST_RECORD_BYTES
    """`max.decompressed.message.bytes`: the size of one record of a compressed batch, without the compression."""
    flush_messages: int | None = None
    """`flush.messages`: an append that leaves this many records without a flush flushes; None for no flush."""
    flush_ms: int | None = None
    """`flush.ms`: how long records stay without a flush; None for no limit."""
    producer_expiration_ms: int = _DAY_MS
    """`producer.id.expiration.ms`."""
    is_log_append_time: bool = False
    """`message.timestamp.type=LogAppendTime`."""
    timestamp_before_max_ms: int = 2**63 - 1
    """`message.timestamp.before.max.ms`."""
    timestamp_after_max_ms: int = 3_600_000
    """`message.timestamp.after.max.ms`."""
    compression: Compression | None = None
    """`compression.type`; None for that of the producer."""
    is_compacted: bool = False
    """Whether `cleanup.policy` has `compact`: then every record needs a key."""
    is_deleted: bool = True
    """Whether `cleanup.policy` has `delete`."""
    is_tiered: bool = False
    """`remote.storage.enable`: other brokers may have a part of the log in tiered storage alone."""
    is_copy_disabled: bool = False
    """`remote.log.copy.disable`: no leader copies to tiered storage any more (KIP-950)."""
    retention_bytes: int = NO_LIMIT
    """`retention.bytes`; negative for no limit."""
    retention_ms: int = 7 * _DAY_MS
    """`retention.ms`; negative for no limit."""
    min_dirty_ratio: float = 0.5
    """`min.cleanable.dirty.ratio`: a log with a larger share of dirty bytes is cleaned."""
    min_compaction_lag_ms: int = 0
    """`min.compaction.lag.ms`: no segment with a younger record is cleaned."""
    max_compaction_lag_ms: int = 2**63 - 1
    """`max.compaction.lag.ms`: a log with an older dirty record is cleaned, whatever its share."""
    delete_retention_ms: int = _DAY_MS
    """`delete.retention.ms`: how long tombstones and transaction markers stay after their first cleaning."""
