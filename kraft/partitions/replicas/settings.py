"""The settings of a broker's replicas, with the names and defaults of Kafka (`KafkaConfig`, `ReplicationConfigs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kraft.partitions.log.cleaning.choice import CleanerSettings
from metadata_log.types import NEVER_MS, Uuid

INT_MAX: Final = 2**31 - 1


class DataDirectory(Struct, frozen=True):
    """A log directory.

    Args:
        id: The `directory.id` of its meta.properties.
        path: The directory.
        is_clean: Whether the last run has proved a clean shutdown of this directory.
    """

    id: Uuid
    path: str
    is_clean: bool


class DataSettings(Struct, frozen=True, kw_only=True):
    """The settings of the replicas of one broker. Times are ms, sizes are bytes."""

    broker_id: int
    directories: tuple[DataDirectory, ...]
    static: Mapping[str, str] = {}
    """The broker's properties with the defaults of topics, such as `log.retention.ms` and `min.insync.replicas`, and
    those of the cleaner.
    """
    lag_time_max_ms: int = 30_000
    """`replica.lag.time.max.ms`."""
    fetch_wait_max_ms: int = 500
    """`replica.fetch.wait.max.ms`."""
    fetch_min_bytes: int = 1
    """`replica.fetch.min.bytes`."""
    fetch_max_bytes: int = 1 << 20
    """`replica.fetch.max.bytes`: for one partition."""
    fetch_response_max_bytes: int = 10 << 20
    """`replica.fetch.response.max.bytes`."""
    fetch_backoff_ms: int = 1000
    """`replica.fetch.backoff.ms`."""
    watermark_checkpoint_ms: int = 5000
    """`replica.high.watermark.checkpoint.interval.ms`."""
    offset_checkpoint_ms: int = 60_000
    """`log.flush.offset.checkpoint.interval.ms`, and that of the log starts."""
    retention_check_ms: int = 300_000
    """`log.retention.check.interval.ms`."""
    file_delete_delay_ms: int = 60_000
    """`log.segment.delete.delay.ms`."""
    producer_expiry_check_ms: int = 600_000
    """`producer.id.expiration.check.interval.ms`."""
    has_cleaner: bool = True
    """`log.cleaner.enable`: whether compacted topics are cleaned."""
    cleaner: CleanerSettings = CleanerSettings()
    cleaner_backoff_ms: int = 15_000
    """`log.cleaner.backoff.ms`: the pause after a look that has found no dirty log."""
    move_bytes_per_second: int | None = None
    """`replica.alter.log.dirs.io.max.bytes.per.second`: for moves between log directories; None for no limit."""
    flush_check_ms: int = NEVER_MS
    """`log.flush.scheduler.interval.ms`: the interval of looking for logs whose records wait for a flush."""
    initial_task_delay_ms: int = 30_000
    """`log.initial.task.delay.ms`: the first run of checkpoints of recovery points, retention and deletion."""


def cleaner_settings(memory: int, threads: int, load_factor: float) -> CleanerSettings:
    """The settings of the cleaner: each cleaning may use the memory of one thread (`CleanerConfig`)."""
    return CleanerSettings(buffer_bytes=min(memory // threads, INT_MAX), load_factor=load_factor)
