"""Cleans one log: only the last record of each key stays (Kafka: `Cleaner`).

The first pass notes the last offset of each key in the dirty part. The second one copies what stays, some segments at a
time, into a new segment that takes their place. Offsets never change. The active segment is never touched.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

from msgspec import Struct

from kraft.limits import CLEANED_BYTES_PER_STEP
from kraft.partitions.log.cleaning.batch_filter import Filter
from kraft.partitions.log.cleaning.choice import Cleanable, CleanerSettings, segments_between
from kraft.partitions.log.cleaning.cleaned_segment import CleanedSegment
from kraft.partitions.log.cleaning.offset_map import OffsetMap
from kraft.partitions.log.cleaning.transactions import CleanedTransactions
from kraft.partitions.log.data_segment import DataSegment
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.disk import Disk
from metadata_log.log.segment import MAX_RELATIVE_OFFSET
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import unpacking
from metadata_log.records.walk import frames, key_of

_BYTES_PER_BATCH = 1024
_STEPS_PER_PAUSE = 16
Result = TypeVar("Result")


class CleanedLog(Struct, frozen=True):
    """The result of a cleaning.

    Args:
        end_offset: The log is clean up to this offset.
        bytes_before: The size of the segments that were cleaned.
        bytes_after: The size of the segments in their places.
    """

    end_offset: int
    bytes_before: int
    bytes_after: int


class _LogHasChanged(Exception):
    """The log was truncated, or has lost segments, since the cleaning began."""


def cleaning(
    log: PartitionLog, disk: Disk, found: Cleanable, settings: CleanerSettings, *, now_ms: int
) -> Generator[None, None, CleanedLog | None]:
    """Clean a log, in steps of some milliseconds. A generator that is closed before its end removes its files.

    Between two steps the log may grow. A log that was truncated, or has lost segments, keeps what it has: the cleaning
    ends then.

    Args:
        log: The log.
        disk: The disk of the log.
        found: The part of the log to clean, as `cleanable` says.
        settings: The settings of the cleaner.
        now_ms: The time in ms since 1970. Tombstones stay for `delete.retention.ms` from now on.

    Returns:
        What was done; None if the log has changed.

    Raises:
        CorruptBatch: A batch is damaged. The log is as before, up to the segments before that batch.
        OversizedRecord: A record has more than `max.decompressed.message.bytes`; the same holds.
        UnsupportedVersion: A batch has an undefined codec.
        OSError: The disk failed.
    """
    cleaner = _Cleaner(log, disk, found, now_ms)
    try:
        return (yield from cleaner.run(settings))
    except _LogHasChanged:
        return None


class _Cleaner:
    """One cleaning; the steps are those of `Cleaner.doClean`, in its order."""

    def __init__(self, log: PartitionLog, disk: Disk, found: Cleanable, now_ms: int) -> None:
        self._log = log
        self._disk = disk
        self._found = found
        self._now_ms = now_ms
        self._cuts = log.cuts
        self._steps = 0

    def run(self, settings: CleanerSettings) -> Generator[None, None, CleanedLog]:
        log, end_offset = self._log, self._found.end_offset
        most_keys = end_offset - self._found.first_dirty_offset
        offsets = OffsetMap(settings.buffer_bytes, settings.load_factor, most_keys)
        yield from self._map(offsets)
        clean_to = offsets.latest_offset + 1
        before = after = 0
        transactions = CleanedTransactions()
        for group in grouped(segments_between(log, 0, clean_to), log.options, end_offset):
            producers = log.producers.states.producers.copy()
            kept = Filter(offsets, producers, end_offset, self._now_ms, log.options)
            before += sum(each.batches.size_bytes for each in group)
            after += yield from self._clean(group, kept, transactions)
        return CleanedLog(clean_to, before, after)

    def _pause(self) -> Generator[None, None, None]:
        yield None
        if self._log.cuts != self._cuts:
            raise _LogHasChanged

    def _pausing(self, steps: Generator[None, None, Result]) -> Generator[None, None, Result]:
        """Do the short steps of another, with pauses of this cleaning."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            yield from self._after_step()

    def _after_step(self) -> Generator[None, None, None]:
        self._steps += 1
        if self._steps % _STEPS_PER_PAUSE == 0:
            yield from self._pause()

    # ------------------------------------------------------------------------------------------------ the first pass

    def _map(self, offsets: OffsetMap) -> Generator[None, None, None]:
        """Note the last offset of each key in the dirty part (`buildOffsetMap`)."""
        start, end_offset = self._found.first_dirty_offset, self._found.end_offset
        segments = segments_between(self._log, start, end_offset)
        transactions = CleanedTransactions()
        transactions.add_aborted(self._log.aborted(start, end_offset))
        nexts = [*(each.base_offset for each in segments[1:]), end_offset]
        left = CLEANED_BYTES_PER_STEP
        for segment, next_offset in zip(segments, nexts, strict=True):
            where = segment.batches.file.path
            for batch in segment.batches.scan_from(start):
                left -= batch.size_bytes + _BYTES_PER_BATCH
                if left <= 0:
                    left = CLEANED_BYTES_PER_STEP
                    yield from self._pause()
                is_aborted = transactions.read(batch, where=where)
                if not batch.is_control and not is_aborted and (yield from self._map_records(batch, offsets, where)):
                    return
                if batch.last_offset >= start:
                    offsets.latest_offset = batch.last_offset
            offsets.latest_offset = next_offset - 1

    def _map_records(self, batch: RecordBatch, offsets: OffsetMap, where: str) -> Generator[None, None, bool]:
        """Note the keys of one batch; returns whether the map is full."""
        start = self._found.first_dirty_offset
        data = yield from self._pausing(unpacking(batch, where=where))
        for frame in frames(batch, data, most_bytes=self._log.options.max_decompressed_bytes, where=where):
            if frame is None:
                yield from self._after_step()
            elif frame.offset >= start and (key := key_of(data, frame)[0]) is not None:
                if offsets.is_full:
                    return True
                offsets.put(key, frame.offset)
        return False

    # ----------------------------------------------------------------------------------------------- the second pass

    def _clean(
        self, group: Sequence[DataSegment], kept: Filter, transactions: CleanedTransactions
    ) -> Generator[None, None, int]:
        """Write one segment in the place of some; returns its size (`cleanSegments`)."""
        log = self._log
        interval = log.options.index_interval_bytes
        made = CleanedSegment(self._disk, log.directory, group[0].base_offset, index_interval_bytes=interval)
        is_done = False
        try:
            for at, segment in enumerate(group):
                is_last = at == len(group) - 1
                next_offset = segment.batches.end_offset if is_last else group[at + 1].base_offset
                transactions.add_aborted(log.aborted(segment.base_offset, next_offset))
                yield from self._copy(segment, made, kept, transactions)
            made.finish(transactions.kept)
            yield from self._pause()
            log.replace_segments(group)
            is_done = True
        finally:
            if not is_done:
                made.give_up()
        transactions.kept = []
        yield from self._pause()
        return made.size_bytes

    def _copy(
        self, segment: DataSegment, made: CleanedSegment, kept: Filter, transactions: CleanedTransactions
    ) -> Generator[None, None, None]:
        kept.where = segment.batches.file.path
        left = CLEANED_BYTES_PER_STEP
        for batch in segment.batches.scan_from(segment.base_offset):
            left -= batch.size_bytes + _BYTES_PER_BATCH
            if left <= 0:
                left = CLEANED_BYTES_PER_STEP
                yield from self._pause()
            may_discard = transactions.read(batch, where=kept.where)
            data = yield from self._pausing(kept.filtering(batch, may_discard=may_discard))
            if data:
                made.append(data)
                if made.flush_some():
                    yield from self._pause()


def grouped(segments: Sequence[DataSegment], options: LogOptions, end_offset: int) -> list[list[DataSegment]]:
    """The segments in runs of which each becomes one segment (`groupSegmentsBySize`).

    Args:
        segments: The segments to clean, in order.
        options: `segment.bytes` and `segment.index.bytes` bound a run.
        end_offset: The offset after the last one.
    """
    groups: list[list[DataSegment]] = []
    nexts = [*(each.base_offset for each in segments[1:]), end_offset]
    room: list[int] = []
    for segment, next_offset in zip(segments, nexts, strict=True):
        needs = (segment.batches.size_bytes, *segment.batches.closed_index_bytes)
        fits = (
            bool(groups)
            and all(need <= left for need, left in zip(needs, room, strict=True))
            and (needs[0] == 0 or next_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if not fits:
            groups.append([])
            room = [options.segment_bytes, options.index_bytes, options.index_bytes]
        groups[-1].append(segment)
        room = [left - need for need, left in zip(needs, room, strict=True)]
    return groups
