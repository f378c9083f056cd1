"""The settings of a broker's replicas, with the names and defaults of Kafka (`KafkaConfig`, `ReplicationConfigs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Struct

from kraft.config.key import Key
from kraft.config.settings_reader import seconds_in_ms
from kraft.partitions.log.cleaning.choice import CleanerSettings
from kraft.rates import SAMPLES, WINDOW_MS
from metadata_log.types import NEVER_MS, Uuid

_QUOTA_WINDOW: Final = "replication.quota.window.size.seconds"


class DataDirectory(Struct, frozen=True):
    """A log directory.

    Args:
        id: The `directory.id` of its meta.properties.
        path: The directory.
        is_clean: Whether the last run has proved a clean shutdown of this directory.
        shown: The path from the root, by which requests name it; empty if that is the path.
    """

    id: Uuid
    path: str
    is_clean: bool
    shown: str = ""

    def is_at(self, path: str) -> bool:
        """Whether a path of a request names this directory."""
        return path.rstrip("/") in {self.path.rstrip("/"), self.shown.rstrip("/")}


class ReplicationSettings(Struct, frozen=True, kw_only=True):
    """How followers fetch, and when they are behind. Times are ms, sizes are bytes."""

    lag_time_max_ms: Annotated[int, Key("replica.lag.time.max.ms")] = 30_000
    fetch_wait_max_ms: Annotated[int, Key("replica.fetch.wait.max.ms")] = 500
    fetch_min_bytes: Annotated[int, Key("replica.fetch.min.bytes")] = 1
    fetch_max_bytes: Annotated[int, Key("replica.fetch.max.bytes")] = 1 << 20
    """For one partition."""
    fetch_response_max_bytes: Annotated[int, Key("replica.fetch.response.max.bytes")] = 10 << 20
    fetch_backoff_ms: Annotated[int, Key("replica.fetch.backoff.ms")] = 1000
    quota_samples: Annotated[int, Key("replication.quota.window.num")] = SAMPLES
    """Over how many windows the rate of a throttle is counted."""
    quota_window_ms: Annotated[int, Key(_QUOTA_WINDOW, read=seconds_in_ms(_QUOTA_WINDOW))] = WINDOW_MS


class DataSettings(Struct, frozen=True, kw_only=True):
    """The settings of the replicas of one broker. Times are ms, sizes are bytes."""

    broker_id: int
    directories: tuple[DataDirectory, ...]
    static: Mapping[str, str] = {}
    """The broker's properties with the defaults of topics, such as `log.retention.ms` and `min.insync.replicas`, and
    those of the cleaner.
    """
    replication: ReplicationSettings = ReplicationSettings()
    new_log_weight: int = 1
    change_weight: int = 1
    """For how many of `ReplicaManager.partitions_per_turn` a replica counts whose log is made, and any other one. They
    are more on the disks of a machine, where a flush takes its time.
    """
    logs_per_step: int = 1
    """How many logs and segments that need no more than a look a step of a start opens."""
    watermark_checkpoint_ms: Annotated[int, Key("replica.high.watermark.checkpoint.interval.ms")] = 5000
    offset_checkpoint_ms: Annotated[int, Key("log.flush.offset.checkpoint.interval.ms")] = 60_000
    """And that of the log starts."""
    retention_check_ms: Annotated[int, Key("log.retention.check.interval.ms")] = 300_000
    file_delete_delay_ms: Annotated[int, Key("log.segment.delete.delay.ms")] = 60_000
    producer_expiry_check_ms: Annotated[int, Key("producer.id.expiration.check.interval.ms")] = 600_000
    has_cleaner: Annotated[bool, Key("log.cleaner.enable")] = True
    """Whether compacted topics are cleaned."""
    cleaner: CleanerSettings = CleanerSettings()
    cleaner_backoff_ms: Annotated[int, Key("log.cleaner.backoff.ms")] = 15_000
    """The pause after a look that has found no dirty log."""
    move_bytes_per_second: Annotated[int | None, Key("replica.alter.log.dirs.io.max.bytes.per.second")] = None
    """For moves between log directories; None for no limit."""
    flush_check_ms: Annotated[int, Key("log.flush.scheduler.interval.ms")] = NEVER_MS
    """The interval of looking for logs whose records wait for a flush."""
    initial_task_delay_ms: Annotated[int, Key("log.initial.task.delay.ms")] = 30_000
    """The first run of checkpoints of recovery points, retention and deletion."""
