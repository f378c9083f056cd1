"""When a replica makes snapshots, and what it keeps (Kafka: `metadata.log.max.snapshot.interval.ms` and others)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.log.retention import Retention


class SnapshotOptions(Struct, frozen=True, kw_only=True):
    """When a replica makes snapshots, and how much of the past it keeps; 0 ms is never."""

    max_bytes: int = 20 << 20
    """`metadata.log.max.record.bytes.between.snapshots`."""
    max_interval_ms: int = 3_600_000
    """`metadata.log.max.snapshot.interval.ms`."""
    retention: Retention = Retention()
    clean_every_ms: int = 60_000
    """How often to look for what is too much; Kafka has no setting for it."""
