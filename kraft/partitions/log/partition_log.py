"""The log of one topic partition (Kafka: `UnifiedLog`, `LocalLog`).

A leader appends batches of producers, a follower those of its leader. An append is in the files when the call returns,
and on disk after `flush`. High watermark and log start come from outside; `loading` opens the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter
from typing import Final

from kraft.partitions.log.data_segment import DataSegment, fsync_file
from kraft.partitions.log.fetched import batches_that_follow, parts_that_fit
from kraft.partitions.log.loading import LoadedLog, Pace, loading, rebuild_producers
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import NOTHING, Appended, Place, RefusedAppend
from kraft.partitions.log.swap import swap_in
from kraft.partitions.log.transaction_index import aborted_within
from kraft.partitions.log.validation import Checked, check_producers, prepare_all
from metadata_log.disk import Disk
from metadata_log.log.epochs import EpochHistory, write_epochs
from metadata_log.log.fsync_failure import FsyncFailure
from metadata_log.log.indexes import NO_TIMESTAMP
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import RecordBatch
from metadata_log.records.walk import Frame
from metadata_log.serde.codec import finished
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error

_KEPT_PLACES: Final = 8
_NEWEST_BYTES: Final = 4096
_UNWRITTEN: Final = -2
"""No epoch."""
_NONE: Final = (NO_OFFSET, NO_OFFSET, b"")
_base_offset = attrgetter("base_offset")


def _size_of(batches: Sequence[RecordBatch]) -> int:
    return batches[0].size_bytes if len(batches) == 1 else sum([batch.size_bytes for batch in batches])


class PartitionLog:
    """The log of one partition directory. `open` is the only way to create one; one owner calls its methods."""

    def __init__(
        self, disk: Disk, directory: str, options: LogOptions, loaded: LoadedLog, high_watermark: int, now_ms: int
    ) -> None:
        """Only `opening` calls this."""
        self.directory = directory
        self.options = options
        self.start_offset = loaded.start_offset
        """The first offset of the log; what is before `local_start` is in tiered storage."""
        self.local_start = max(loaded.start_offset, loaded.segments[0].base_offset)
        """The first offset that a client may read here."""
        self.end_offset = loaded.end_offset
        """The offset of the next record."""
        self.recovery_point = loaded.recovery_point
        """Everything below this offset is on disk."""
        self.epochs = loaded.epochs
        self.last_epoch = loaded.epochs.last_epoch
        """The last of these epochs; None for none."""
        self._written_epoch = self.last_epoch if loaded.epochs_are_written else _UNWRITTEN
        """The last epoch, if the file has these epochs; `_UNWRITTEN` otherwise."""
        self.producers = loaded.producers
        self.recovered = tuple(loaded.findings)
        """The files that the load truncated, removed or rebuilt, as texts."""
        self.doomed = loaded.marked
        """Files with the suffix `.deleted`; the owner removes them after `file.delete.delay.ms`."""
        self.high_watermark = self.start_offset
        self.cleaned_offset: int | None = None
        """The cleaner has looked at every record before this offset; None before the first cleaning."""
        self.cuts = 0
        """How often the log was truncated or has lost segments: a cleaning that runs meanwhile ends."""
        self._disk = disk
        self._segments = loaded.segments
        self._failure = FsyncFailure()
        self._unsynced_snapshots = set[int]()
        self._places: dict[int, Place] = {}
        """Some of the last answers of `place_of`, by offset."""
        self._newest = _NONE
        """The last append if it is small, after its offset and the next one: each follower and consumer reads it."""
        if loaded.findings or loaded.recovery_point < loaded.end_offset:
            self._unsynced_snapshots.update(loaded.producers.snapshots)
        self.raise_high_watermark(high_watermark)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        options: LogOptions,
        *,
        now_ms: int,
        start_checkpoint: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        is_clean: bool = False,
    ) -> PartitionLog:
        """Load the log of a partition directory.

        Args:
            disk: The disk.
            directory: The partition directory; made if missing.
            options: The settings of the log.
            now_ms: The time in ms since 1970.
            start_checkpoint: The log start in the checkpoint file; 0 for none.
            recovery_point: The recovery point in the checkpoint file; 0 for none.
            high_watermark: The high watermark in the checkpoint file; 0 for none.
            is_clean: Whether the last run ended with a clean shutdown.

        Returns:
            The log; `recovered` lists what the load changed.

        Raises:
            DecodeError: The leader-epoch-checkpoint is damaged.
            OSError: The disk failed.
        """
        return finished(
            cls.opening(
                disk,
                directory,
                options,
                now_ms=now_ms,
                start_checkpoint=start_checkpoint,
                recovery_point=recovery_point,
                high_watermark=high_watermark,
                is_clean=is_clean,
            )
        )

    @classmethod
    def opening(
        cls,
        disk: Disk,
        directory: str,
        options: LogOptions,
        *,
        now_ms: int,
        start_checkpoint: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        is_clean: bool = False,
        names: list[str] | None = None,
        pace: Pace | None = None,
    ) -> Generator[None, None, PartitionLog]:
        """As `open`, in steps of some milliseconds. A generator that is closed before its end closes the files.

        `names` is what is in the directory, if somebody has just looked, and `pace` what the step has done before.
        """
        loaded = yield from loading(
            disk,
            directory,
            options,
            start_checkpoint=start_checkpoint,
            recovery_point=recovery_point,
            is_clean=is_clean,
            now_ms=now_ms,
            names=names,
            pace=pace,
        )
        return cls(disk, directory, options, loaded, high_watermark, now_ms)

    @property
    def segments(self) -> Sequence[DataSegment]:
        """The segments in order; the last one grows."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        """The size of all batches."""
        return sum(segment.batches.size_bytes for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a reader of committed records may not read."""
        states = self.producers.states
        if not (states.open_transactions or states.unreplicated):
            return self.high_watermark
        unstable = states.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def max_timestamp(self) -> int:
        """The largest time of a record in ms since 1970; -1 for none."""
        return max(segment.batches.max_timestamp for segment in self._segments)

    # ---------------------------------------------------------------------------------------------------- appending

    def append_as_leader(
        self, data: bytes | Checked | RecordBatch, *, epoch: int, now_ms: int, is_client: bool = True
    ) -> Appended | RefusedAppend:
        """Check the batches of a producer, give them offsets and the epoch, and write them (`appendAsLeader`).

        Args:
            data: The records of a request for this partition, or what `checking_all` made of them. An incomplete batch
                at the end is left out, as in Kafka. Or a batch of this broker's own that `takes_as_is` has accepted.
            epoch: The leader epoch.
            now_ms: The time in ms since 1970.
            is_client: Whether a producer sent the batches; a coordinator may write control batches, and its sequence
                numbers are not checked.

        Returns:
            The offsets, or why nothing was written.

        Raises:
            OSError: The disk failed.
        """
        placed: list[RecordBatch] | RefusedAppend
        if isinstance(data, Checked):
            placed = data.placed(self.end_offset, epoch)
        elif isinstance(data, RecordBatch):
            placed = [data]
        else:
            placed = prepare_all(
                data, offset=self.end_offset, epoch=epoch, options=self.options, now_ms=now_ms, is_client=is_client
            )
        if isinstance(placed, RefusedAppend):
            return placed
        if not placed:
            return NOTHING
        size = _size_of(placed)
        self._assign_epochs(placed)
        if size > self.options.segment_bytes:
            text = f"the batches have {size} bytes; segment.bytes allows {self.options.segment_bytes}"
            return RefusedAppend(Error.RECORD_LIST_TOO_LARGE, text)
        self._roll_for(placed, size, now_ms)
        known = check_producers(self.producers.states, placed) if is_client else None
        if isinstance(known, RefusedAppend):
            return known
        if known is not None:
            return Appended(known.first_offset, known.last_offset, known.timestamp, is_duplicate=True)
        self._write(placed)
        time = placed[0].max_timestamp if placed[0].is_log_append_time else NO_TIMESTAMP
        return Appended(placed[0].base_offset, self.end_offset - 1, time)

    def takes_as_is(self, batch: RecordBatch) -> bool:
        """Whether a sound batch of this broker's own needs no change before it is written: it has the offset of the end
        of the log, and the settings leave its times and its codec as they are.
        """
        options = self.options
        return (
            batch.base_offset == self.end_offset
            and not batch.is_compressed
            and not options.compression
            and not options.is_log_append_time
        )

    def append_as_follower(self, data: bytes, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write the batches of a leader as they are (`appendAsFollower`).

        Args:
            data: Whole batches; an incomplete one at the end is left out. Offsets may have holes after compaction.
            leader_epoch: The epoch of the leader; batches of a later epoch are left out.
            now_ms: The time in ms since 1970.

        Returns:
            The offsets.

        Raises:
            CorruptBatch: A batch is damaged, or begins before the end of the log. Nothing was written.
            OSError: The disk failed.
        """
        batches = batches_that_follow(data, self.end_offset, leader_epoch, self.directory)
        if not batches:
            return NOTHING
        size, most = _size_of(batches), self.options.segment_bytes
        for part in (batches,) if size <= most else parts_that_fit(batches, most):
            self._assign_epochs(part)
            self._roll_for(part, size if part is batches else _size_of(part), now_ms)
            self._write(part)
        return Appended(batches[0].base_offset, self.end_offset - 1)

    def _assign_epochs(self, batches: Sequence[RecordBatch]) -> None:
        epochs, last = self.epochs, self._written_epoch
        for batch in batches:
            if batch.epoch != last and batch.epoch >= 0:
                # A copy: the epoch may be known, and not be in the file.
                epochs = EpochHistory(epochs.assign(batch.epoch, batch.base_offset).entries)
                last = epochs.last_epoch
        if epochs is not self.epochs:
            self._set_epochs(epochs)

    def _set_epochs(self, epochs: EpochHistory) -> None:
        if epochs != self.epochs or self._written_epoch == _UNWRITTEN:
            last = epochs.last_epoch
            write_epochs(self._disk, self.directory, epochs)
            self.epochs, self.last_epoch, self._written_epoch = epochs, last, last

    def assign_epoch(self, epoch: int) -> None:
        """Begin an epoch at the end of the log, as a new leader does (`assignEpochStartOffset`); raises `OSError`."""
        self._set_epochs(self.epochs.assign(epoch, self.end_offset))

    def _write(self, batches: Sequence[RecordBatch]) -> None:
        self._failure.check()
        active = self._segments[-1]
        data = batches[0].data if len(batches) == 1 else b"".join([batch.data for batch in batches])
        active.batches.append(data, batches)
        end_offset = batches[-1].next_offset
        if len(data) <= _NEWEST_BYTES:
            self._newest = (batches[0].base_offset, end_offset, data)
        self.end_offset = end_offset
        for batch in batches:
            if batch.producer_id >= 0:
                ended = self.producers.note(batch)
                if ended is not None:
                    active.end_transaction(ended, self.producers)
        self.producers.end_offset = self.end_offset
        most = self.options.flush_messages
        if most is not None and self.end_offset - self.recovery_point >= most:
            self.flush()

    def _roll_for(self, batches: Sequence[RecordBatch], size: int, now_ms: int) -> None:
        """Begin a new segment if these batches do not belong into the active one."""
        newest = batches[0].max_timestamp if len(batches) == 1 else max([batch.max_timestamp for batch in batches])
        if self._segments[-1].is_to_roll(size, newest, batches[-1].last_offset, self.options, now_ms):
            self.roll(now_ms, batches[0].base_offset)

    def roll(self, now_ms: int, first_offset: int | None = None) -> None:
        """Close the active segment and begin a new one (`UnifiedLog.roll`); raises `OSError`.

        The closed segment is on disk before the new one exists: otherwise a power failure could leave a hole between
        them. Kafka flushes the closed segment later, in another thread, and accepts such a hole.

        Args:
            now_ms: The time in ms since 1970.
            first_offset: The offset of the next record, if it is above the end of the log.
        """
        base_offset = max(self.end_offset, first_offset or 0)
        active = self._segments[-1]
        if active.base_offset == base_offset:
            return
        # The cleaner may change what is in a closed segment.
        self._newest = _NONE
        active.write_indexes()
        self.flush()
        self._segments.append(self._new_segment(base_offset, now_ms))
        self.producers.end_offset = base_offset
        self.producers.take_snapshot_later()
        self._unsynced_snapshots.add(base_offset)

    def _new_segment(self, base_offset: int, now_ms: int) -> DataSegment:
        interval = self.options.index_interval_bytes
        return DataSegment.create(self._disk, self.directory, base_offset, index_interval_bytes=interval, now_ms=now_ms)

    def flush(self) -> None:
        """Return once the whole log is on disk, with the files of closed segments; the recovery point is then the end.

        Raises:
            OSError: An fsync failed. After that every call raises the same error, without another fsync.
        """
        self._failure.check()
        try:
            for segment in self._segments:
                if segment.batches.end_offset > self.recovery_point or segment is self._segments[-1]:
                    segment.flush()
            for offset in sorted(self._unsynced_snapshots.intersection(self.producers.snapshots)):
                fsync_file(self._disk, self.producers.path(offset))
            self._disk.fsync_dir(self.directory)
        except OSError as failed:
            self._failure.error = failed
            raise
        unwritten = self.producers.unwritten
        self._unsynced_snapshots = set() if unwritten is None else {unwritten}
        self.recovery_point = self.end_offset

    # ------------------------------------------------------------------------------------------------------ reading

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int | None = None, at_least_one: bool = True
    ) -> bytes | RefusedAppend:
        """Whole batches from the one that holds `offset`, of one segment (`UnifiedLog.read`).

        Args:
            offset: The offset of the first record.
            max_bytes: The most bytes to return.
            end_offset: No batch may reach past this offset: the high watermark for a consumer, the last stable offset
                for a reader of committed records; None for the end of the log.
            at_least_one: Whether the first batch is returned even if it is larger than `max_bytes`.

        Returns:
            The batches; empty at the end. A refusal if the log does not hold the offset.

        Raises:
            CorruptBatch: A header on the way to the offset is damaged.
            OSError: The disk failed.
        """
        if not self.local_start <= offset <= self.end_offset:
            return RefusedAppend(
                Error.OFFSET_OUT_OF_RANGE,
                f"the log of {self.directory} holds the offsets {self.local_start} to {self.end_offset - 1}, "
                f"not {offset}",
            )
        limit = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if offset >= limit:
            return b""
        begin, end, data = self._newest
        if offset == begin and limit == end == self.end_offset and len(data) <= max_bytes:
            return data
        for segment in self._segments[self._floor(offset) :]:
            if segment.base_offset >= limit:
                break
            found = segment.batches.read(max(offset, segment.base_offset), max_bytes, limit)
            if found:
                return found if at_least_one or len(found) <= max_bytes else b""
        return b""

    def place_of(self, offset: int) -> Place:
        """Where a reader of an offset begins. A reader of the end costs nothing, and the last answers are kept: all
        readers that wait ask for the same watermark.

        Args:
            offset: An offset from the log start to the end.

        Raises:
            CorruptBatch: A header on the way to the offset is damaged.
            OSError: The disk failed.
        """
        if offset >= self.end_offset:
            active = self._segments[-1]
            return Place(active.base_offset, active.batches.size_bytes)
        place = self._places.get(offset)
        if place is None:
            segment = self._segments[self._floor(offset)]
            place = Place(segment.base_offset, *segment.batches.place_of(offset))
            if len(self._places) >= _KEPT_PLACES:
                self._places.clear()
            self._places[offset] = place
        return place

    def _floor(self, offset: int) -> int:
        """The index of the last segment that begins at or before an offset; 0 if there is none."""
        return max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0)

    def finding_time(self, timestamp_ms: int) -> Generator[None, None, Frame | None]:
        """The first record with this time or a later one (`fetchOffsetByTimestamp`); None if there is none.

        Between two steps, of less than a millisecond, the log may change: a segment that is gone by then is left out.

        Raises:
            CorruptBatch: The batch of the record is damaged.
            OversizedRecord: A record that is looked at has more than `max.decompressed.message.bytes`.
            OSError: The disk failed.
        """
        most = self.options.max_decompressed_bytes
        for segment in list(self._segments):
            if segment not in self._segments:
                continue
            frame = yield from segment.batches.finding_time(timestamp_ms, self.start_offset, most_record_bytes=most)
            if frame is not None:
                return frame
        return None

    def aborted(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in a range of offsets (`collectAbortedTransactions`).

        Args:
            offset: The first offset of the range.
            end_offset: The offset after the range.
        """
        held = (segment.aborted for segment in self._segments[self._floor(offset) :])
        return aborted_within(held, offset, end_offset)

    # ------------------------------------------------------------------------------------- watermark, start and end

    def raise_high_watermark(self, offset: int) -> None:
        """Move the high watermark up to an offset, at most to the end of the log; it never falls here."""
        offset = min(offset, self.end_offset)
        self.high_watermark = max(self.high_watermark, offset)
        if self.producers.states.unreplicated:
            self.producers.states.pass_high_watermark(self.high_watermark)

    def truncate(self, offset: int, *, now_ms: int) -> None:
        """Remove the records from an offset on; the shorter log is on disk when this returns (`truncateTo`).

        Whole batches go. The end of the log is `offset` in any case, so that a follower fetches from there.

        Args:
            offset: The new end of the log.
            now_ms: The time in ms since 1970.

        Raises:
            CorruptBatch: A header on the way to the cut is damaged. The log must not be used then.
            OSError: The disk failed.
        """
        if offset >= self.end_offset:
            self._set_epochs(self.epochs.truncate_end(self.end_offset))
            return
        if offset < self._segments[0].base_offset:
            start_offset, epochs = self.start_offset, self.epochs
            self.reset(offset, now_ms=now_ms)
            if start_offset < offset:
                # The log goes on in tiered storage.
                self.start_offset = start_offset
                self._set_epochs(epochs.truncate_end(offset))
            return
        self._failure.check()
        self._cut(offset)
        while self._segments[-1].base_offset > offset:
            self.doomed += self._segments.pop().mark_deleted()
        self._segments[-1].truncate(offset)
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.local_start = min(self.local_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._set_epochs(self.epochs.truncate_end(offset))
        ended = self.producers.states.unreplicated
        segments = self._segments
        finished(
            rebuild_producers(self.producers, segments, self.start_offset, offset, trusts_absence=False, now_ms=now_ms)
        )
        # A snapshot after a marker does not say whether the marker is replicated. On the other hand the replay has
        # ended transactions that the high watermark passed long ago.
        states = self.producers.states
        kept = {first: each for first, each in ended.items() if each.last_offset < offset}
        known = sorted((states.unreplicated | kept).items(), key=lambda one: one[1].last_offset)
        states.unreplicated = dict(known)
        states.pass_high_watermark(self.high_watermark)
        self._unsynced_snapshots.update(self.producers.snapshots)

    def _cut(self, end_offset: int) -> None:
        """Note a cut of the log: what follows is new for the cleaner (`LogCleanerManager.maybeTruncateCheckpoint`)."""
        self.cuts += 1
        self._places.clear()
        self._newest = _NONE
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, end_offset)

    def reset(self, offset: int, *, now_ms: int) -> None:
        """Remove all records and begin anew at an offset (`truncateFullyAndStartAt`); raises `OSError`."""
        self._failure.check()
        self._clear(offset, now_ms)
        self._set_epochs(EpochHistory())
        self.producers.reset(offset)

    def _clear(self, offset: int, now_ms: int) -> None:
        self._cut(offset)
        while self._segments:
            self.doomed += self._segments.pop().mark_deleted()
        self._segments.append(self._new_segment(offset, now_ms))
        self.start_offset = self.end_offset = self.high_watermark = self.recovery_point = offset
        self.local_start = offset

    def begin_behind_tier(
        self, offset: int, start_offset: int, epochs: EpochHistory, producers: Iterable[StoredProducer], *, now_ms: int
    ) -> None:
        """Remove all records and begin anew where tiered storage ends (`TierStateMachine.buildRemoteLogAuxState`).

        What is known of the time before is on disk first: after a crash the log is the old one, or is whole.

        Args:
            offset: The local start.
            start_offset: The log start, in tiered storage.
            epochs: The leader epochs from the log start to the local start.
            producers: The producers at the local start.
            now_ms: The time in ms since 1970.

        Raises:
            OSError: The disk failed.
        """
        self._failure.check()
        self.producers.begin(offset, producers)
        fsync_file(self._disk, self.producers.path(offset))
        self._set_epochs(epochs)
        self._clear(offset, now_ms)
        self.start_offset = start_offset

    def raise_start(self, offset: int) -> None:
        """Begin the log at an offset, at most the high watermark; `delete_segments` removes files. Raises `OSError`."""
        assert offset <= self.high_watermark, (offset, self.high_watermark)
        if offset > self.start_offset:
            self.start_offset = offset
            self.local_start = max(offset, self._segments[0].base_offset)
            self._set_epochs(self.epochs.truncate_start(offset))

    def delete_segments(self, count: int, *, now_ms: int) -> None:
        """Remove the oldest segments, with the snapshots before the new start (`UnifiedLog.deleteOldSegments`).

        The files get the suffix `.deleted` and are added to `doomed`. If all segments go, a new one begins at the end.

        Args:
            count: How many segments go.
            now_ms: The time in ms since 1970.

        Raises:
            OSError: The disk failed.
        """
        if count == len(self._segments):
            self.roll(now_ms)
        self.cuts += 1
        gone, self._segments = self._segments[:count], self._segments[count:]
        for segment in gone:
            self.doomed += segment.mark_deleted()
            self.producers.remove_snapshot(segment.base_offset)
        self.raise_start(self._segments[0].base_offset)

    def replace_segments(self, old: Sequence[DataSegment]) -> None:
        """Put the segment that a cleaner wrote in the place of others (`UnifiedLog.replaceSegments`).

        The files of the new one have the base offset of the first of the old ones, and the suffix `.cleaned`, and are
        on disk. After a crash the next start finds either the old segments, or the new one. Raises `OSError`.
        """
        at = self._segments.index(old[0])
        doomed, made = swap_in(self._disk, self.directory, old, self.options.index_interval_bytes)
        self.doomed += doomed
        self._segments[at : at + len(old)] = [made]
        self._places.clear()
        for each in old[1:]:
            self.producers.remove_snapshot(each.base_offset)

    def succeed(self, former: PartitionLog) -> None:
        """Take over what batches do not say from the log of which this one is a whole copy; raises `OSError`."""
        self.raise_high_watermark(former.high_watermark)
        self.raise_start(former.start_offset)
        if self.options.is_tiered:
            # The copy begins where the segments do.
            self.start_offset = former.start_offset
        self._set_epochs(former.epochs)
        self.producers.states = former.producers.states.copy()
        self.cleaned_offset = former.cleaned_offset

    def relocate(self, directory: str) -> None:
        """Take the new name of the partition directory; raises `OSError`."""
        self.directory = directory
        self.producers.relocate(directory)
        for segment in self._segments:
            segment.relocate(directory)

    def close(self) -> None:
        """Flush and close the log as a clean shutdown does: index files and a snapshot at the end are on disk.

        Raises:
            OSError: An fsync fails or failed before. Then the files are closed, and the shutdown is not clean.
        """
        try:
            self._failure.check()
            self.producers.finish_writing()
            self.producers.take_snapshot()
            self._unsynced_snapshots.update(self.producers.snapshots[-1:])
            self._segments[-1].write_indexes()
            self.flush()
        finally:
            for segment in self._segments:
                segment.close()

    def abandon(self) -> None:
        """Close the files without a flush: the log is deleted, or the disk has failed."""
        for segment in self._segments:
            segment.close()
