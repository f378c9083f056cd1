"""The metadata log: segments as one sequence of batches (Kafka: `UnifiedLog` as `KafkaRaftLog` uses it).

`recovery` checks the files when the log is opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk, File
from metadata_log.log.epochs import EpochHistory, write_epochs
from metadata_log.log.fsync_failure import FsyncFailure
from metadata_log.log.indexes import NO_TIMESTAMP
from metadata_log.log.recovery import RecoveredLog, recovering
from metadata_log.log.segment import MAX_RELATIVE_OFFSET, Segment
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.record import Record, records
from metadata_log.serde.codec import finished

DEFAULT_SEGMENT_BYTES: Final = 1 << 30
DEFAULT_SEGMENT_MS: Final = 7 * 24 * 3600 * 1000
DEFAULT_INDEX_INTERVAL_BYTES: Final = 4096
TAIL_BYTES: Final = 4 << 20
"""How many bytes at the end of the log stay in memory for fetching followers."""


class FlushHandle(Struct, frozen=True, eq=False):
    """One fsync of the log, for any thread, while the owner continues to append."""

    file: File
    offset: int
    generation: int
    failure: FsyncFailure

    def run(self) -> None:
        """Return once everything below `offset` is on disk. After an `OSError` the caller must not retry."""
        self.failure.fsync(self.file)


class MetadataLog:
    """The log of one partition directory (Kafka: `UnifiedLog`, `KafkaRaftLog`). `open` is the only way to create one.

    Offsets count records. An append is on disk after `flush`, or after `FlushHandle.run` and `flush_done`. Only
    `FlushHandle.run` is thread-safe.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        found: RecoveredLog,
        *,
        segment_bytes: int,
        segment_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """For `open` only."""
        self.directory = directory
        self.epochs = found.epochs
        self.end_offset = found.segments[-1].end_offset
        """The offset of the next record."""
        self.flushed_offset = self.end_offset
        """Everything below this offset is on disk."""
        self.flushing: FlushHandle | None = None
        """The flush that another thread runs."""
        self.recovered = found.findings
        """The truncations and removals of the recovery, as texts."""
        self.control_batches = found.control_batches
        """The control batches that the recovery found, oldest first."""
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._index_interval_bytes = index_interval_bytes
        self._segments = list(found.segments)
        self._generation = 0
        self._start_offset = 0
        self._retired: list[File] = []
        self._failure = FsyncFailure()
        self._tail: list[RecordBatch] = []
        self._tail_offsets: list[int] = []
        self._tail_bytes = 0

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        segment_ms: int = DEFAULT_SEGMENT_MS,
        index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> MetadataLog:
        """Open and recover the log of a partition directory.

        Args:
            disk: The disk.
            directory: The partition directory; made if missing.
            segment_bytes: The size of a segment in bytes, as `metadata.log.segment.bytes`.
            segment_ms: The age of a segment in ms, as `metadata.log.segment.ms`.
            index_interval_bytes: The bytes between two entries of an index.

        Returns:
            The recovered log; `recovered` lists the truncations and removals.

        Raises:
            CorruptBatch: Damage that no torn write explains, or valid batches in a wrong order. Nothing was changed.
            UnsupportedVersion: A batch of a newer format. Nothing was changed.
            OSError: The disk failed.
        """
        return finished(
            cls.opening(
                disk,
                directory,
                segment_bytes=segment_bytes,
                segment_ms=segment_ms,
                index_interval_bytes=index_interval_bytes,
            )
        )

    @classmethod
    def opening(
        cls,
        disk: Disk,
        directory: str,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        segment_ms: int = DEFAULT_SEGMENT_MS,
        index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> Generator[None, None, MetadataLog]:
        """As `open`, in steps of some milliseconds. A generator that is closed before its end closes the files."""
        found = yield from recovering(disk, directory, index_interval_bytes=index_interval_bytes)
        return cls(
            disk,
            directory,
            found,
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            index_interval_bytes=index_interval_bytes,
        )

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        base_offset = self._segments[0].base_offset
        return base_offset if base_offset > self._start_offset else self._start_offset

    @property
    def last_epoch(self) -> int | None:
        """The epoch of the last record, or None for an empty log."""
        return self.epochs.last_epoch

    @property
    def size_bytes(self) -> int:
        """The size of all segments, in bytes, without their indexes."""
        return sum(segment.size_bytes for segment in self._segments)

    def read(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> bytes:
        """Whole batches from the one that holds `offset`, byte for byte as appended (`UnifiedLog.read`).

        One call reads from one segment only, so that more batches may follow.

        Args:
            offset: The offset of the first record.
            max_bytes: The most bytes to return; the first batch may exceed them.
            end_offset: No batch may reach past this offset; None for the end of the log.

        Returns:
            The batches; empty at the end of the log.

        Raises:
            OSError: The disk failed.
        """
        limit = self._limit(offset, end_offset)
        if offset >= limit:
            return b""
        if self._tail_offsets and offset >= self._tail_offsets[0]:
            if offset == self._tail_offsets[-1] and limit == self.end_offset:
                return self._tail[-1].data  # the newest batch, which followers that keep up fetch
            found = self._read_tail(offset, max_bytes, limit)
            return found[0].data if len(found) == 1 else b"".join([batch.data for batch in found])
        return self._segment_of(offset).read(offset, max_bytes, limit)

    def read_batches(self, offset: int, max_bytes: int, *, end_offset: int) -> Iterable[RecordBatch]:
        """The batches that `read` would return, without parsing the in-memory tail again (`RecordsBatchReader`).

        Args:
            offset: The offset of the first record.
            max_bytes: The most bytes to return; the first batch may exceed them.
            end_offset: No batch may reach past this offset.

        Returns:
            The batches; their `position` is undefined.

        Raises:
            CorruptBatch: The disk has other bytes than were appended; raised during iteration.
            OSError: The disk failed.
        """
        limit = self._limit(offset, end_offset)
        if offset < limit and self._tail_offsets and offset >= self._tail_offsets[0]:
            return self._read_tail(offset, max_bytes, limit)
        return scan(self.read(offset, max_bytes, end_offset=end_offset), where=self.directory)

    def batch_in_memory(self, offset: int) -> RecordBatch | None:
        """The batch that holds `offset`, if this object still has it in memory; the call does not touch the disk."""
        at = bisect_right(self._tail_offsets, offset) - 1
        return self._tail[at] if at >= 0 and offset < self.end_offset else None

    def stored_batches(self, offset: int) -> Iterator[tuple[RecordBatch, str]]:
        """The batches in the files from the one that holds `offset` on, each with its file; no CRC is checked."""
        for segment in self._segments:
            if segment.end_offset > offset:
                for batch in segment.batches(offset):
                    yield batch, segment.file.path

    def _limit(self, offset: int, end_offset: int | None) -> int:
        end = self.end_offset
        assert self.start_offset <= offset <= end, (self.start_offset, offset, end)
        return end if end_offset is None or end_offset > end else end_offset

    def find_time(self, timestamp_ms: int) -> Record | None:
        """Find a record by its time (`UnifiedLog.fetchOffsetByTimestamp`).

        Args:
            timestamp_ms: The time in ms since 1970.

        Returns:
            The first record with this timestamp or a later one; None if there is none.

        Raises:
            CorruptBatch: The batch of the record is damaged.
            OSError: The disk failed.
        """
        for segment in self._segments:
            found = segment.find_time(timestamp_ms, self.start_offset)
            if found is not None:
                batch = next(segment.batches(found.offset))
                return next(each for each in records(batch) if each.offset == found.offset)
        return None

    def _read_tail(self, offset: int, max_bytes: int, limit: int) -> list[RecordBatch]:
        first = bisect_right(self._tail_offsets, offset) - 1
        found: list[RecordBatch] = []
        size = 0
        for at in range(first, len(self._tail)):
            batch = self._tail[at]
            size += batch.size_bytes
            if batch.base_offset + batch.last_offset_delta >= limit or (found and size > max_bytes):
                break
            found.append(batch)
        return found

    def _segment_of(self, offset: int) -> Segment:
        """The last segment that begins at or before `offset`."""
        for segment in reversed(self._segments):
            if segment.base_offset <= offset:
                return segment
        raise AssertionError((offset, self.start_offset))

    def append(self, data: bytes, batches: Sequence[RecordBatch] | None = None) -> None:
        """Write whole, valid batches. The first begins at `end_offset`, the others follow it, epochs never fall.

        The batches are on disk only after a flush. The epoch history is on disk when this returns, if an epoch is new
        (`LeaderEpochFileCache`).

        Args:
            data: The bytes of the batches; not empty.
            batches: The batches that `data` consists of, if the caller has parsed or built them.

        Raises:
            OSError: The disk failed.
        """
        assert data, "nothing to append"
        if batches is None:
            batches = tuple(scan(data, verify=False))
        epochs = self.epochs
        end = self.end_offset
        last = epochs.entries[-1].epoch if epochs.entries else None
        newest = NO_TIMESTAMP
        size = 0
        for batch in batches:
            assert batch.base_offset == end, (batch.base_offset, end)
            assert batch.last_offset_delta >= 0, batch.last_offset_delta
            if batch.epoch != last:
                assert last is None or batch.epoch > last, (batch.epoch, last)
                epochs = epochs.assign(batch.epoch, batch.base_offset)
                last = batch.epoch
            end += batch.last_offset_delta + 1
            newest = max(newest, batch.max_timestamp)
            size += batch.size_bytes
        assert size == len(data), (size, len(data))
        if self._is_to_roll(len(data), newest, end - 1):
            self.roll()
        if epochs is not self.epochs:
            write_epochs(self._disk, self.directory, epochs)
            self.epochs = epochs
        self._segments[-1].append(data, batches)
        self.end_offset = end
        self._remember(batches)

    def _is_to_roll(self, size_bytes: int, newest_timestamp: int, last_offset: int) -> bool:
        """Whether these batches would make the last segment too large or too old (`LogSegment.shouldRoll`)."""
        last = self._segments[-1]
        return last.size_bytes > 0 and (
            last.size_bytes + size_bytes > self._segment_bytes
            or newest_timestamp - last.first_timestamp > self._segment_ms
            or last_offset - last.base_offset > MAX_RELATIVE_OFFSET
        )

    def roll(self) -> None:
        """Flush the last segment and begin a new one at the end of the log; raises `OSError` (`UnifiedLog.roll`)."""
        last = self._segments[-1]
        if last.base_offset == self.end_offset:
            return
        self.flush()
        last.write_indexes()
        self._segments.append(self._new_segment(self.end_offset))

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._disk, self.directory, base_offset, index_interval_bytes=self._index_interval_bytes)

    def _remember(self, batches: Sequence[RecordBatch]) -> None:
        """Keep the newest batches in memory; above the limit half of them are dropped."""
        for batch in batches:
            self._tail.append(batch)
            self._tail_offsets.append(batch.base_offset)
            self._tail_bytes += batch.size_bytes
        if self._tail_bytes <= TAIL_BYTES:
            return
        kept = kept_bytes = 0
        while kept < len(self._tail) and kept_bytes + self._tail[-1 - kept].size_bytes <= TAIL_BYTES // 2:
            kept_bytes += self._tail[-1 - kept].size_bytes
            kept += 1
        del self._tail[: len(self._tail) - kept]
        del self._tail_offsets[: len(self._tail_offsets) - kept]
        self._tail_bytes = kept_bytes

    def flush(self) -> None:
        """Return once the whole log is on disk.

        Raises:
            OSError: The fsync failed. After that every call raises the same error, without another fsync.
        """
        self._failure.fsync(self._segments[-1].file)
        # A flush in another thread may have failed meanwhile: the kernel reports the error to one of the two only.
        self._failure.check()
        self.flushed_offset = self.end_offset

    def flush_handle(self) -> FlushHandle:
        """Begin a flush of the log as it is now, for another thread. At most one handle is in use at a time.

        Returns:
            The handle. A thread calls its `run`, and then the owner of the log calls `flush_done`.
        """
        assert self.flushing is None, "a flush is under way"
        # Rolling flushes, so only the last segment can be dirty.
        self.flushing = FlushHandle(self._segments[-1].file, self.end_offset, self._generation, self._failure)
        return self.flushing

    def flush_done(self) -> None:
        """Register that the handle's `run` has returned."""
        handle = self.flushing
        assert handle is not None, "no flush is under way"
        self.flushing = None
        for file in self._retired:
            file.close()
        self._retired.clear()
        if handle.generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, handle.offset)

    # ------------------------------------------------------------------------------------------------ truncating

    def truncate(self, offset: int) -> int:
        """Truncate the log; the shorter log is on disk when this returns (`UnifiedLog.truncateTo`).

        Args:
            offset: The new end; at least the start of the log.

        Returns:
            The end of the log. It is smaller than `offset` if `offset` is inside a batch: the whole batch is removed.

        Raises:
            CorruptBatch: A header on the way to the cut is damaged. The log must not be used then.
            OSError: The disk failed.
        """
        assert self.start_offset <= offset, (offset, self.start_offset)
        if offset >= self.end_offset:
            return self.end_offset
        self._failure.check()
        self._generation += 1
        while self._segments[-1].base_offset > offset:
            self._drop_last_segment()
        last = self._segments[-1]
        last.remove_indexes()
        last.truncate(offset, is_dense=True)
        self.end_offset = last.end_offset
        self.flushed_offset = self.end_offset
        self._forget_tail(self.end_offset)
        self._set_epochs(self.epochs.truncate_end(self.end_offset))
        return self.end_offset

    def reset_to(self, offset: int) -> None:
        """Remove all records and begin again at the end of a snapshot (`KafkaRaftLog.truncateToLatestSnapshot`).

        Args:
            offset: The end offset of the snapshot.

        Raises:
            OSError: The disk failed.
        """
        self._generation += 1
        while self._segments:
            self._drop_last_segment()
        self._segments.append(self._new_segment(offset))
        self._start_offset = offset
        self.end_offset = self.flushed_offset = offset
        self._forget_tail(0)
        self._set_epochs(EpochHistory())

    def raise_start(self, offset: int) -> tuple[str, ...]:
        """Begin the log at the end of a snapshot (`UnifiedLog.maybeIncrementLogStartOffset`, `deleteOldSegments`).

        Only whole segments are removed, so earlier records may remain on disk. They count again after a restart, as in
        Kafka.

        Args:
            offset: The new start; at most the flushed offset.

        Returns:
            The paths of the files that are no longer part of the log. They are renamed, durably. The caller removes
            them once no reader has them open.

        Raises:
            OSError: The disk failed.
        """
        assert self.start_offset <= offset <= self.flushed_offset, (self.start_offset, offset, self.flushed_offset)
        self._start_offset = offset
        marked: list[str] = []
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            segment = self._segments.pop(0)
            self._release(segment.file)
            marked += segment.mark_deleted()
        self._set_epochs(self.epochs.truncate_start(offset))
        return tuple(marked)

    def _drop_last_segment(self) -> None:
        segment = self._segments.pop()
        self._release(segment.file)
        segment.remove()

    def _release(self, file: File) -> None:
        """Close a file, unless another thread may be flushing the file."""
        if self.flushing is None:
            file.close()
        else:
            self._retired.append(file)

    def _forget_tail(self, end_offset: int) -> None:
        while self._tail and self._tail[-1].next_offset > end_offset:
            self._tail_bytes -= self._tail.pop().size_bytes
            self._tail_offsets.pop()

    def _set_epochs(self, epochs: EpochHistory) -> None:
        if epochs != self.epochs:
            write_epochs(self._disk, self.directory, epochs)
            self.epochs = epochs

    # --------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Flush and close the files; write the indexes of the last segment.

        No handle may be running. A finished handle needs no `flush_done`.

        Raises:
            OSError: An fsync fails or failed before. Then the files are closed, and nothing is written.
        """
        try:
            self.flush()
            self._segments[-1].write_indexes()
        finally:
            for file in (*self._retired, *(segment.file for segment in self._segments)):
                file.close()
