"""When a replica makes, installs and removes snapshots (Kafka: `SnapshotGenerator`,
`KafkaMetadataLog.maybeClean`; KIP-630).
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.quorum.core import RaftCore
from kraft.quorum.events import LogStartRaised, SnapshotTaken
from kraft.replica.interface.application import LogReader
from kraft.replica.interface.options import SnapshotOptions
from kraft.replica.storage.snapshots import SnapshotCleaner, SnapshotMaker
from kraft.replica.storage.storage import Storage
from metadata_log.disk import Disk
from metadata_log.types import OffsetAndEpoch


class SnapshotSchedule:
    """The snapshot that is being written, and the snapshots that are too many."""

    def __init__(
        self,
        disk: Disk,
        storage: Storage,
        core: RaftCore,
        reader: LogReader,
        options: SnapshotOptions,
        now_ms: int,
    ) -> None:
        self._storage = storage
        self._core = core
        self._reader = reader
        self._options = options
        self.maker = SnapshotMaker(disk, storage.log.directory, options, now_ms)
        self.cleaner = SnapshotCleaner(len(storage.snapshots.ids()), now_ms, options.clean_every_ms)

    def begin(self, now_ms: int) -> None:
        """Begin a snapshot of what is committed, unless there is none to write now."""
        source = self._reader.snapshot()
        if source is not None:
            self.maker.begin(source, self._core.history, now_ms)

    def install(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        """Put a downloaded snapshot in place of the log. The snapshot that is being written is obsolete."""
        self.maker.abandon()
        self.maker.restart(now_ms)
        self.cleaner.mark(self._storage.snapshots.install(snapshot), now_ms)

    def work(self, step_core: Callable[[SnapshotTaken | LogStartRaised, int], None], now_ms: int) -> None:
        """Write the next piece of a snapshot and remove obsolete snapshots, each if it is due."""
        storage, cleaner = self._storage, self.cleaner
        if now_ms >= self.maker.deadline_ms:
            taken = self.maker.write_some(now_ms, storage.log.flushed_offset)
            if taken is not None:
                step_core(SnapshotTaken(taken), now_ms)
                cleaner.wait(len(storage.snapshots.ids()), now_ms)
        if cleaner.is_round_due(now_ms):
            cleaned = storage.snapshots.clean(self._options.retention, now_ms)
            if cleaned.snapshots:
                step_core(LogStartRaised(storage.log.start_offset), now_ms)
            cleaner.mark(cleaned.files, now_ms)
            cleaner.wait(len(storage.snapshots.ids()), now_ms)
        for files in cleaner.take_due(now_ms):
            storage.snapshots.remove(files)
