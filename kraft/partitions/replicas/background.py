"""The periodic work of a broker's replicas (Kafka: the tasks that `LogManager.startup` schedules).

Checkpoints, retention, removal of files, expiry of producers, and the cleaner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kraft.partitions.log.retention import delete_old_segments
from kraft.partitions.replicas.compacting import Compacting
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.moves import Moves
from metadata_log.disk import Disk
from metadata_log.types import NEVER_MS


class Background:
    """The tasks of one broker that are due at some time.

    Args:
        disk: The disk of the log directories.
        hosting: The replicas.
    """

    def __init__(self, disk: Disk, hosting: Hosting) -> None:
        self._hosting = hosting
        self._settings = hosting.settings
        self._compacting = Compacting(disk, hosting)
        self.moves = Moves(hosting)
        self._watermarks_ms = self._offsets_ms = self._retention_ms = self._expiry_ms = self._flush_ms = NEVER_MS
        self._next_ms = NEVER_MS
        """The first of these times."""
        self._flushed_ms: dict[PartitionKey, int] = {}
        """When each log was last found without records that wait for a flush."""

    def begin(self, now_ms: int) -> None:
        """Set the first times of all tasks, as the logs are open now."""
        settings = self._settings
        self._watermarks_ms = now_ms + settings.watermark_checkpoint_ms
        self._offsets_ms = self._retention_ms = now_ms + settings.initial_task_delay_ms
        self._expiry_ms = now_ms + settings.producer_expiry_check_ms
        self._flush_ms = min(now_ms + settings.flush_check_ms, NEVER_MS)
        self._next_ms = self._earliest_ms()
        self._compacting.begin(now_ms)

    def _earliest_ms(self) -> int:
        return min(self._watermarks_ms, self._offsets_ms, self._retention_ms, self._expiry_ms, self._flush_ms)

    def stop(self) -> None:
        """Stop the cleaner, as the logs are closed next."""
        self._compacting.stop()

    def deadline_ms(self) -> int:
        """When the next `run` is due."""
        if self._hosting.unwritten or self._hosting.store.outdated:
            return 0
        removal_ms = self._hosting.store.removal_deadline_ms()
        return min(self._next_ms, self._compacting.due_ms, self.moves.deadline_ms(), removal_ms)

    def run(self, now_ms: int) -> None:
        """Do what is due."""
        hosting = self._hosting
        if hosting.store.outdated:
            hosting.store.write_outdated()
            hosting.look_at_writes()
        if now_ms >= self._next_ms:
            self._run_tasks(now_ms)
            self._next_ms = self._earliest_ms()
        if hosting.unwritten:
            self._write_more()
        if now_ms >= self._compacting.due_ms:
            self._compacting.run(now_ms)
        if self.moves.under_way:
            self.moves.run(now_ms)
        hosting.store.remove_due(now_ms)
        if hosting.store.findings:
            hosting.take_findings()
        if hosting.store.failures:
            hosting.look_at_failures()

    def _run_tasks(self, now_ms: int) -> None:
        """Run the periodic tasks that are due."""
        store, settings = self._hosting.store, self._settings
        # What follows finds no replica online of which the log is closed.
        self._hosting.look_at_writes()
        if now_ms >= self._watermarks_ms:
            self._watermarks_ms = now_ms + settings.watermark_checkpoint_ms
            store.write_watermarks()
            store.write_cleaned()
            store.schedule_removals(now_ms)
        if now_ms >= self._offsets_ms:
            self._offsets_ms = now_ms + settings.offset_checkpoint_ms
            store.write_offsets()
        self._hosting.look_at_writes()
        if now_ms >= self._retention_ms:
            self._retention_ms = now_ms + settings.retention_check_ms
            self._for_each(lambda part: self._delete_old(part, now_ms))
        if now_ms >= self._expiry_ms:
            self._expiry_ms = now_ms + settings.producer_expiry_check_ms
            self._for_each(lambda part: part.log.producers.expire(now_ms))
        if now_ms >= self._flush_ms:
            self._flush_ms = now_ms + settings.flush_check_ms
            known = self._hosting.partitions
            self._flushed_ms = {key: since for key, since in self._flushed_ms.items() if key in known}
            self._for_each(lambda part: self._flush_old(part, now_ms))

    def _write_more(self) -> None:
        """Make a step of a snapshot of very many producers."""
        key = next(iter(self._hosting.unwritten))
        part = self._hosting.partitions.get(key)
        if part is not None and not part.is_offline:
            self._hosting.guarded(part, part.log.producers.write_more)
        if part is None or part.is_offline or part.log.producers.unwritten is None:
            del self._hosting.unwritten[key]

    def _for_each(self, act: Callable[[HostedPartition], None]) -> None:
        """Do something with the log of every replica that is online."""
        for part in list(self._hosting.partitions.values()):
            if not part.is_offline:
                self._hosting.guarded(part, partial(act, part))

    def _delete_old(self, part: HostedPartition, now_ms: int) -> None:
        if delete_old_segments(part.log, now_ms=now_ms, leads=part.leading is not None):
            self._hosting.touch(part)

    def _flush_old(self, part: HostedPartition, now_ms: int) -> None:
        """Flush a log whose records have waited for `flush.ms` (`LogManager.flushDirtyLogs`)."""
        log, most = part.log, part.log.options.flush_ms
        since = self._flushed_ms.setdefault(part.key, now_ms - self._settings.flush_check_ms)
        if log.recovery_point < log.end_offset:
            if most is None or now_ms - since < most:
                return
            log.flush()
        self._flushed_ms[part.key] = now_ms
