"""When a replica makes, installs and removes snapshots (Kafka: `SnapshotGenerator`,
`KafkaMetadataLog.maybeClean`; KIP-630).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from kraft.committed import LogReader
from kraft.quorum.core import RaftCore
from kraft.quorum.events import LogStartRaised, SnapshotTaken
from kraft.replica.interface.events import LogState, SnapshotMade
from kraft.replica.interface.options import SnapshotOptions
from kraft.replica.storage.snapshots import SnapshotCleaner, SnapshotMaker
from kraft.replica.storage.storage import Storage
from metadata_log.disk import Disk
from metadata_log.records.batch import RecordBatch
from metadata_log.types import NO_OFFSET, OffsetAndEpoch


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
        self._wanted: list[tuple[int, int]] = []
        """The calls that want a snapshot, each with the least end of it."""
        self._given: deque[tuple[LogState, RecordBatch]] = deque()
        """The states of a raw log that are to be written, each with the last batch that it holds."""
        self._refused: list[SnapshotMade] = []
        self.maker = SnapshotMaker(disk, storage.log.directory, options, now_ms)
        self.cleaner = SnapshotCleaner(len(storage.snapshots.ids()), now_ms, options.clean_every_ms)

    def want(self, call_id: int) -> None:
        """Note a call that wants a snapshot of what is applied; `take_made` returns it once there is one."""
        self._wanted.append((call_id, max(self.maker.next_end, self.maker.writing_end)))
        self.maker.is_wanted = True

    def take_state(self, call_id: int, state: LogState, now_ms: int) -> None:
        """Note a call that gives the state of a raw log; `take_made` returns it as `want` says."""
        if state.offset > self._storage.snapshots.newest.offset:
            last = self._batch_before(state.offset)
            if isinstance(last, str):
                self._refused.append(SnapshotMade(call_id, None, last))
                return
            self._given.append((state, last))
        self._wanted.append((call_id, state.offset))
        self._begin_given(now_ms)

    def _batch_before(self, offset: int) -> RecordBatch | str:
        """The committed batch that ends at an offset, or why there is none."""
        high_watermark = self._core.log.high_watermark
        if offset > high_watermark:
            known = "nothing" if high_watermark <= 0 else f"what is below offset {high_watermark}"
            return f"this node knows that {known} is committed, and not yet what is below offset {offset}"
        (batch,) = list(self._storage.log.read_batches(offset - 1, 1, end_offset=high_watermark))[:1]
        if batch.next_offset != offset:
            return f"offset {offset} is inside of a batch, which ends at offset {batch.next_offset}"
        return batch

    def _begin_given(self, now_ms: int) -> None:
        """Begin the next snapshot of a given state, unless one is being written."""
        newest, maker = self._storage.snapshots.newest, self.maker
        while self._given and maker.writing_end == NO_OFFSET:
            state, last = self._given.popleft()
            if state.offset > newest.offset:
                snapshot = OffsetAndEpoch(epoch=last.epoch, offset=state.offset)
                maker.begin_at(snapshot, last.max_timestamp, partial(iter, state.values), self._core.history, now_ms)

    def take_made(self) -> Iterator[SnapshotMade]:
        """Take the calls that have what they want, or cannot have it."""
        refused, self._refused = self._refused, []
        yield from refused
        if not self._wanted:
            return
        newest = self._storage.snapshots.newest
        for call_id, end in self._wanted:
            if end <= newest.offset:
                yield SnapshotMade(call_id, newest if newest.offset > 0 else None)
        self._wanted = [(call_id, end) for call_id, end in self._wanted if end > newest.offset]
        self.maker.is_wanted = bool(self._wanted)

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
        # What was to be written ends before it: a snapshot is only installed in place of a log that ends before.
        self._given.clear()

    def work(self, step_core: Callable[[SnapshotTaken | LogStartRaised, int], None], now_ms: int) -> None:
        """Write the next piece of a snapshot and remove obsolete snapshots, each if it is due."""
        storage, cleaner = self._storage, self.cleaner
        if now_ms >= self.maker.deadline_ms:
            taken = self.maker.write_some(now_ms, storage.log.flushed_offset)
            if taken is not None:
                step_core(SnapshotTaken(taken), now_ms)
                cleaner.wait(len(storage.snapshots.ids()), now_ms)
                self._begin_given(now_ms)
        if cleaner.is_round_due(now_ms):
            cleaned = storage.snapshots.clean(self._options.retention, now_ms)
            if cleaned.snapshots:
                step_core(LogStartRaised(storage.log.start_offset), now_ms)
            cleaner.mark(cleaned.files, now_ms)
            cleaner.wait(len(storage.snapshots.ids()), now_ms)
        for files in cleaner.take_due(now_ms):
            storage.snapshots.remove(files)
