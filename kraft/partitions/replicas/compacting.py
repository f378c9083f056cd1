"""The cleaner of a broker: one log at a time, the dirtiest first (Kafka: `LogCleaner`, `grabFilthiestCompactedLog`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from msgspec import Struct

from kraft.partitions.log.cleaning.choice import Cleanable, cleanable
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.types import NEVER_MS

if TYPE_CHECKING:
    from kraft.partitions.log.cleaning.cleaner import CleanedLog

STEP_PAUSE_MS = 5
"""The pause between two steps of a cleaning: requests have their turns meanwhile."""


class _Running(Struct):
    """The cleaning under way."""

    part: HostedPartition
    log: PartitionLog
    steps: Generator[None, None, CleanedLog | None]


class Compacting:
    """Cleans the compacted logs of one broker, a step in each call.

    Args:
        disk: The disk of the log directories.
        hosting: The replicas.
    """

    def __init__(self, disk: Disk, hosting: Hosting) -> None:
        self._disk = disk
        self._hosting = hosting
        self.due_ms = NEVER_MS
        """When the next step is due."""
        self._running: _Running | None = None
        self._uncleanable: dict[PartitionLog, None] = {}
        """The logs with a damaged batch: they stay as they are until the next start (`markPartitionUncleanable`)."""

    def begin(self, now_ms: int) -> None:
        """Set the time of the first cleaning, as the logs are open now."""
        settings = self._hosting.settings
        if settings.has_cleaner:
            self.due_ms = now_ms + settings.initial_task_delay_ms

    def stop(self) -> None:
        """End the cleaning under way; the log is as before, up to whole runs of segments."""
        if self._running is not None:
            self._running.steps.close()
            self._running = None

    def run(self, now_ms: int) -> None:
        """Go a step further; a step is due."""
        running = self._running
        if running is None:
            self._begin_one(now_ms)
            return
        part = running.part
        is_there = self._hosting.partitions.get(part.key) is part and not part.is_offline and part.log is running.log
        if not is_there or part.copy is not None:
            self.stop()
            return
        self.due_ms = now_ms + STEP_PAUSE_MS
        self._hosting.guarded(part, lambda: self._step(running))

    def _begin_one(self, now_ms: int) -> None:
        """Choose the log with the largest share of dirty bytes."""
        settings = self._hosting.settings
        dirtiest: tuple[HostedPartition, Cleanable] | None = None
        for part in self._hosting.partitions.values():
            if part.is_offline or not part.log.options.is_compacted or part.log in self._uncleanable:
                continue
            if part.copy is not None:
                continue  # the copy would not follow
            candidate = cleanable(part.log, now_ms=now_ms)
            if candidate.is_due(part.log.options.min_dirty_ratio) and (
                dirtiest is None or candidate.dirty_ratio > dirtiest[1].dirty_ratio
            ):
                dirtiest = part, candidate
        if dirtiest is None:
            self.due_ms = now_ms + settings.cleaner_backoff_ms
            return
        # Loaded here, because a broker starts without a log that is due.
        from kraft.partitions.log.cleaning.cleaner import cleaning

        part, candidate = dirtiest
        steps = cleaning(part.log, self._disk, candidate, settings.cleaner, now_ms=now_ms)
        self._running = _Running(part, part.log, steps)
        self.due_ms = now_ms

    def _step(self, running: _Running) -> None:
        """Go a step further; raises `OSError`."""
        try:
            next(running.steps)
        except StopIteration as end:
            done: CleanedLog | None = end.value
            self._running = None
            if done is not None:
                running.log.cleaned_offset = done.end_offset
                self._hosting.store.write_cleaned()
        except MetadataLogError as bad:
            self._running = None
            self._uncleanable[running.log] = None
            self._hosting.report(f"{running.part} is not cleaned until the next start: {bad}")
        except OSError:
            self._running = None
            raise
