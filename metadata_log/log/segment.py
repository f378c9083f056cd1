"""One segment: a `.log` file and its two indexes (Kafka: `LogSegment`, `FileRecords`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from metadata_log.disk import Disk, File
from metadata_log.errors import REMEDY, CorruptBatch, IncompleteBatch, UnsupportedVersion
from metadata_log.java_text import whole_number
from metadata_log.log.indexes import (
    NO_TIMESTAMP,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
    last_time,
)
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, read_batch, read_header, scan
from metadata_log.records.record import unpacking
from metadata_log.records.walk import MOST_RECORD_BYTES, Frame, frames
from metadata_log.serde.codec import finished
from metadata_log.types import NO_OFFSET

SUFFIX: Final = ".log"
INDEX_SUFFIXES: Final = (".index", ".timeindex")
DELETED_SUFFIX: Final = ".deleted"
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""The largest distance of an offset from the segment's base: indexes store distances in 32 bits."""

MOST_BATCH_BYTES: Final = 256 << 20
"""The size limit of a batch: batches have some megabytes, and no request carries more than 100 MiB."""

_CHUNK_BYTES: Final = 1 << 20
_MAGIC_AT: Final = 16
_PLAUSIBLE: Final = ((0, 8), (23, 27), (57, 61))
"""The positions of base offset, last offset delta and record count in a header; none of them is negative."""
_LOOK_BYTES: Final = 1 << 14
_HEADERS_PER_STEP: Final = 256
_MOST_RECENT: Final = 256
"""How many of the last batches have their places in memory, half of them at the least once there were so many."""
_NOWHERE: Final = 1 << 63
"""After all offsets."""
_KEPT_ENDS: Final = 64
"""How many ends of reads are remembered: a reader goes on where its last read has ended."""


def file_name(base_offset: int, suffix: str = SUFFIX) -> str:
    """The name of a segment's file: its base offset in twenty digits."""
    return f"{base_offset:020d}{suffix}"


@lru_cache(4096)
def parse_file_name(name: str, suffix: str = SUFFIX) -> int | None:
    """The base offset in a segment file's name, or None for any other name."""
    stem = name[: -len(suffix)]
    if not (name.endswith(suffix) and len(stem) == 20 and stem.isdecimal() and stem.isascii()):
        return None
    return whole_number(stem, bits=64)


def scan_file(
    file: File, position: int = 0, *, end: int | None = None, verify: bool = True, chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[RecordBatch]:
    """The batches of a file from `position` to `end`, read in chunks; errors as those of `batch.scan`."""
    end = file.size() if end is None else end
    size = chunk_bytes
    while position < end:
        piece = file.pread(min(size, end - position), position)
        start = position
        if not piece:
            raise IncompleteBatch("the file was truncated while a reader read it", where=file.path, position=position)
        try:
            for batch in scan(piece, where=file.path, verify=verify, at=start):
                position = batch.end_position
                yield batch
            size = chunk_bytes
        except IncompleteBatch:
            size = chunk_bytes
            if position == start:
                announced = 12 + int.from_bytes(piece[8:12], "big") if len(piece) >= 12 else HEADER_BYTES
                wanted = max(announced, HEADER_BYTES)
                # A piece is shorter than requested if the file was truncated meanwhile.
                if len(piece) >= wanted or position + wanted > end or len(piece) < min(size, end - position):
                    raise
                if wanted > MOST_BATCH_BYTES:
                    raise CorruptBatch(f"no batch has {wanted} bytes", where=file.path, position=position) from None
                size = max(wanted, chunk_bytes)


def scan_headers(file: File, position: int = 0, *, end: int | None = None) -> Iterator[RecordBatch]:
    """The headers of the batches from `position` to `end`, their records skipped; errors as those of `batch.scan`."""
    end = file.size() if end is None else end
    window, start = b"", position
    while position < end:
        if position + HEADER_BYTES > start + len(window):
            window, start = file.pread(min(_LOOK_BYTES, end - position), position), position
        batch = read_header(window, position - start, left=end - position, where=file.path, position=position)
        yield batch
        position = batch.end_position


def next_sound_batch(
    file: File, position: int, *, end: int, offset: int | None = None, epoch: int = 0, budget: int | None = None
) -> RecordBatch | None:
    """The first batch with a good CRC that begins at `position` or later, before `end`; None if there is none.

    With an `offset`, only batches of this offset or later and of this `epoch` or later count. The search skips holes of
    the file. A file can be full of headers without their batches. With a `budget` the search therefore gives up, and
    returns None, once it has read that many bytes of such candidates.
    """
    start = position
    while start + HEADER_BYTES <= end:
        # A header may begin in a hole: its first bytes can be zeros.
        start = max(start, file.next_data(start) - _MAGIC_AT)
        if start + HEADER_BYTES > end:
            return None
        piece = file.pread(min(_CHUNK_BYTES + HEADER_BYTES, end - start), start)
        at = piece.find(2, _MAGIC_AT)
        while 0 <= at < len(piece) - (HEADER_BYTES - _MAGIC_AT) + 1:
            candidate = start + at - _MAGIC_AT
            length = _length_at(file, candidate, end)
            if length is not None:
                if budget is not None:
                    budget -= length
                    if budget < 0:
                        return None
                batch = _sound_batch(file, candidate, length)
                if batch is not None and (offset is None or (batch.base_offset >= offset and batch.epoch >= epoch)):
                    return batch
            at = piece.find(2, at + 1)
        if start + len(piece) >= end:
            return None
        start += _CHUNK_BYTES
    return None


def _length_at(file: File, position: int, end: int) -> int | None:
    """The length of the batch with its header at a position; None if no batch can begin there."""
    head = file.pread(HEADER_BYTES, position)
    length = 12 + int.from_bytes(head[8:12], "big", signed=True)
    if not HEADER_BYTES <= length <= min(end - position, MOST_BATCH_BYTES):
        return None
    base_offset, last_offset_delta, count = (int.from_bytes(head[a:b], "big", signed=True) for a, b in _PLAUSIBLE)
    return length if base_offset >= 0 and last_offset_delta >= 0 and count >= 0 else None


def _sound_batch(file: File, position: int, length: int) -> RecordBatch | None:
    try:
        return read_batch(file.pread(length, position), at=position)
    except (CorruptBatch, UnsupportedVersion):
        return None


class Segment:
    """The batches from `base_offset` on, in one file. Writes only append."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, file: File, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.file = file
        self.size_bytes = 0
        self.end_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self._disk = disk
        self._directory = directory
        self._interval = index_interval_bytes
        self._offsets = OffsetIndex(base_offset)
        self._times = TimeIndex(base_offset)
        self._has_more_times = False
        """Whether entries of the time index are in the file alone."""
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = NO_OFFSET
        self._since_entry = 0
        self._recent_from = _NOWHERE
        """Batches from this offset on are in the two lists: those after the last entry of the index, and not more."""
        self._recent_offsets: list[int] = []
        """The last offsets of these batches."""
        self._recent_positions: list[int] = []
        self._ends: dict[int, int] = {}
        """The positions at which some reads have ended, by the offset that follows."""

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int) -> Segment:
        """Open the file of an existing segment; the caller first calls `load_indexes`, or `note` with each batch."""
        file = disk.open(f"{directory}/{file_name(base_offset)}", create=False)
        return cls(disk, directory, base_offset, file, index_interval_bytes)

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int) -> Segment:
        """Make the file of a new segment; the directory entry is on disk when this returns."""
        file = disk.open(f"{directory}/{file_name(base_offset)}", create=True)
        disk.fsync_dir(directory)
        return cls(disk, directory, base_offset, file, index_interval_bytes)

    def load_indexes(self, *, is_active: bool = True) -> None:
        """Take over the index files, and read the headers from the last index entry on (`LogSegment.readNextOffset`).

        Kafka does not check the content of its index files. Here an offset index has to be in order and within the
        file: a read at a position of no batch would look like a failure of the disk. A missing time index is empty.
        Of a segment that is not active, that index is read later.

        Raises:
            FileNotFoundError: The offset index is missing.
            CorruptBatch: The offset index is out of order, no whole batch begins at its last entry, or the file ends
                inside a batch.
        """
        index, times = (f"{self._directory}/{file_name(self.base_offset, suffix)}" for suffix in INDEX_SUFFIXES)
        if not self._offsets.load(self._disk.read(index)):
            raise CorruptBatch("the entries of the offset index are out of order", where=index)
        last = None if is_active else last_time(self._disk, times, self.base_offset)
        self._has_more_times = last is None or last[0] > NO_TIMESTAMP
        if last is None:
            every = self._all_times()
            last = every.last_timestamp, every.last_offset
        self._max_timestamp, self._max_timestamp_offset = last
        self.size_bytes = self.file.size()
        start = self._offsets.positions[-1] if self._offsets.positions else 0
        if start > self.size_bytes:
            raise CorruptBatch("the last index entry is behind the end of the segment", where=index)
        for header in scan_headers(self.file, start, end=self.size_bytes):
            if not 0 < len(self._recent_offsets) < _MOST_RECENT:
                self._make_room(header)
            self._recent_offsets.append(header.last_offset)
            self._recent_positions.append(header.position)
            self.end_offset = header.next_offset
        if self.size_bytes:
            self.first_timestamp = next(scan_headers(self.file, 0, end=self.size_bytes)).max_timestamp

    def _all_times(self) -> TimeIndex:
        """The time index, which a closed segment reads at its first use: few readers ask for a time."""
        if self._has_more_times:
            self._has_more_times = False
            path = f"{self._directory}/{file_name(self.base_offset, INDEX_SUFFIXES[1])}"
            with suppress(FileNotFoundError):
                self._times.load(self._disk.read(path))
        return self._times

    def forget(self) -> None:
        """Begin again with an empty index, before the recovery of a segment."""
        self._offsets, self._times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        self._has_more_times = False
        self.size_bytes = self._since_entry = 0
        self.end_offset = self.base_offset
        self.first_timestamp = self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = NO_OFFSET
        self._forget_places()

    def _forget_places(self) -> None:
        self._recent_offsets, self._recent_positions, self._ends = [], [], {}
        self._recent_from = _NOWHERE

    def _make_room(self, batch: RecordBatch) -> None:
        """A batch is about to be remembered, as the first one or after as many as may be."""
        offsets = self._recent_offsets
        if not offsets:
            self._recent_from = batch.base_offset
        else:
            half = _MOST_RECENT // 2
            self._recent_from = offsets[half - 1] + 1
            del offsets[:half], self._recent_positions[:half]

    @property
    def max_timestamp(self) -> int:
        """The largest time of a record in ms since 1970; `NO_TIMESTAMP` for none."""
        return self._max_timestamp

    @property
    def index_entries(self) -> tuple[int, int]:
        """The number of entries in the offset index and in the time index."""
        return len(self._offsets.distances), len(self._times.distances)

    @property
    def closed_index_bytes(self) -> tuple[int, int]:
        """The sizes that the offset index and the time index have once the segment is closed, in bytes."""
        every = self._all_times()
        times = len(every.distances) + (self._max_timestamp > every.last_timestamp)
        return len(self._offsets.distances) * OFFSET_ENTRY_BYTES, times * TIME_ENTRY_BYTES

    def closed_indexes(self) -> tuple[bytes, bytes]:
        """The content that the offset index and the time index have once the segment is closed."""
        times = self._all_times().copy()
        times.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        return self._offsets.encode(), times.encode()

    def scan_from(self, offset: int) -> Iterator[RecordBatch]:
        """The batches from the index entry before `offset` on, with their CRC checked."""
        yield from scan_file(self.file, self._offsets.position_before(offset), end=self.size_bytes)

    def note(self, batch: RecordBatch) -> None:
        """Add the next existing batch of the file to the indexes."""
        last_offset = batch.base_offset + batch.last_offset_delta
        if self.size_bytes == 0:
            self.first_timestamp = batch.max_timestamp
        if batch.max_timestamp > self._max_timestamp:
            self._max_timestamp = batch.max_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_entry > self._interval:
            self._offsets.append(last_offset, self.size_bytes)
            self._times.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._since_entry = 0
            self._recent_offsets, self._recent_positions = [], []
        if not 0 < len(self._recent_offsets) < _MOST_RECENT:
            self._make_room(batch)
        self._recent_offsets.append(last_offset)
        self._recent_positions.append(self.size_bytes)
        self.size_bytes += batch.size_bytes
        self.end_offset = last_offset + 1
        self._since_entry += batch.size_bytes

    def end_recovery(self) -> None:
        """End the recovery (`LogSegment.recover`): appended batches follow.

        As Kafka does, this adds an entry to the time index, and resets the byte count since the last offset entry.
        """
        self._times.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self._since_entry = 0

    def append(self, data: bytes, batches: Sequence[RecordBatch]) -> None:
        """Write whole batches at the end."""
        self.file.append(data)
        for batch in batches:
            self.note(batch)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Whole batches from that of `offset`: at least one, at most `max_bytes`, none past `end_offset`."""
        found = self._find(offset)
        if found is None or found[2] > end_offset:
            return b""
        begin, size, following = found
        end, stop = begin + size, min(begin + max(max_bytes, size), self.size_bytes)
        if stop == self.size_bytes and end_offset >= self.end_offset:
            # The usual reader wants all that there is, and the segment ends with a whole batch.
            return self.file.pread(stop - begin, begin)
        # The index leads close to the end, so that this does not read thousands of small batches one by one.
        indexed = self._offsets.last_position(stop, end_offset)
        if indexed > end:
            end, following = indexed, -1
        try:
            for batch in scan_headers(self.file, end, end=stop) if end < stop else ():
                if batch.next_offset > end_offset:
                    break
                end, following = batch.end_position, batch.next_offset
        except IncompleteBatch:
            pass
        if following >= 0:
            if len(self._ends) >= _KEPT_ENDS:
                del self._ends[next(iter(self._ends))]
            self._ends[following] = end
        return self.file.pread(end - begin, begin)

    def place_of(self, offset: int) -> tuple[int, int]:
        """Where a reader of `offset` begins in the file: at the batch that holds it, or at the first one after it, and
        the size of that batch; the end and 0 without such a batch.
        """
        found = self._find(offset)
        return (self.size_bytes, 0) if found is None else found[:2]

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """The batches from the one that holds `offset` on, without checking their CRC."""
        position = self._offsets.position_before(offset)
        for batch in scan_file(self.file, position, end=self.size_bytes, verify=False):
            if batch.next_offset > offset:
                yield batch

    def _find(self, offset: int) -> tuple[int, int, int] | None:
        """The batch that holds `offset`, or the first one after it: its position, its size and the offset after it."""
        if offset >= self._recent_from:
            at = bisect_left(self._recent_offsets, offset)
            if at == len(self._recent_offsets):
                return None
            position, end = self._recent_positions[at], self.size_bytes
            if at + 1 < len(self._recent_positions):
                end = self._recent_positions[at + 1]
            return position, end - position, self._recent_offsets[at] + 1
        start = self._ends.get(offset, -1)
        if start < 0:
            start = self._offsets.position_before(offset)
        for batch in scan_headers(self.file, start, end=self.size_bytes):
            if batch.next_offset > offset:
                return batch.position, batch.size_bytes, batch.next_offset
        return None

    def finding_time(
        self, timestamp: int, from_offset: int, *, most_record_bytes: int = MOST_RECORD_BYTES
    ) -> Generator[None, None, Frame | None]:
        """The first record from `from_offset` on with at least this timestamp (`LogSegment.findOffsetByTimestamp`), in
        steps of less than a millisecond.

        Raises:
            OversizedRecord: A record of a compressed batch on the way has more than `most_record_bytes`.
        """
        if timestamp > self._max_timestamp:
            return None
        position = self._offsets.position_before(max(self._all_times().offset_before(timestamp), from_offset))
        for number, header in enumerate(scan_headers(self.file, position, end=self.size_bytes), 1):
            if number % _HEADERS_PER_STEP == 0:
                yield None
            if header.max_timestamp >= timestamp and header.next_offset > from_offset:
                batch = read_batch(self.file.pread(header.size_bytes, header.position), where=self.file.path)
                data = yield from unpacking(batch, where=self.file.path)
                for frame in frames(batch, data, most_bytes=most_record_bytes, where=self.file.path):
                    if frame is None:
                        yield None
                    elif frame.timestamp >= timestamp and frame.offset >= from_offset:
                        return frame
        return None

    def find_time(self, timestamp: int, from_offset: int) -> Frame | None:
        """As `finding_time`, at once."""
        return finished(self.finding_time(timestamp, from_offset))

    def _batch_to_cut(self, offset: int, *, is_dense: bool) -> RecordBatch | None:
        """The batch that holds `offset`, or the first one after it; damaged offsets on the way are refused.

        No CRC covers the offset at which a batch begins, and a wrong one would move the cut. So the offsets of
        each batch are compared with those of its neighbours, from one index entry earlier on.
        """
        position = self._offsets.position_before(offset, earlier=1)
        follows = None if position else self.base_offset
        cut = None
        for batch in scan_headers(self.file, position, end=self.size_bytes):
            begin = batch.base_offset
            is_next = follows is None or begin == follows or (begin > follows and not is_dense)
            is_last = batch.end_position == self.size_bytes
            if not is_next or (is_last and batch.next_offset != self.end_offset):
                raise CorruptBatch(
                    f"a batch has the offsets {begin} to {batch.last_offset}, where offset {follows} follows and the"
                    f" segment ends before offset {self.end_offset}",
                    where=self.file.path,
                    position=batch.position,
                    field="order",
                    hint=REMEDY,
                )
            if cut is not None:
                break
            if batch.next_offset > offset:
                cut = batch
            follows = batch.next_offset
        return cut

    def truncate(self, offset: int, *, is_dense: bool) -> None:
        """Truncate the file, durably, before the batch that holds `offset`.

        Args:
            offset: The first offset that goes.
            is_dense: Whether each batch begins where the one before ends. Compaction leaves gaps.

        Raises:
            CorruptBatch: A header on the way to the cut is damaged. Nothing was cut.
            OSError: The disk failed.
        """
        self._all_times()  # batches may follow
        cut = self._batch_to_cut(offset, is_dense=is_dense)
        if cut is None:
            return
        self.cut_file(cut.position)
        self._offsets.truncate(cut.base_offset)
        self._times.truncate(cut.base_offset)
        self._max_timestamp = self._times.last_timestamp
        self._max_timestamp_offset = self._times.last_offset
        self._since_entry = 0
        # Batches after the last index entry are added again.
        self.end_offset = self.base_offset
        self.size_bytes = self._offsets.positions[-1] if self._offsets.positions else 0
        self._forget_places()
        for batch in scan_file(self.file, self.size_bytes, end=cut.position, verify=False):
            self.note(batch)
        self._since_entry = 0  # as in Kafka, the count begins at the cut

    def cut_file(self, size: int) -> None:
        """Truncate the file, durably, to `size` bytes; the caller maintains the indexes."""
        self.file.truncate(size)
        self.file.fsync()

    def write_indexes(self) -> None:
        """Write the index files with the content of Kafka's closed segments. Index files need no fsync."""
        contents = (self._offsets.encode(),) if self._has_more_times else self.closed_indexes()
        for suffix, content in zip(INDEX_SUFFIXES, contents, strict=False):
            path = f"{self._directory}/{file_name(self.base_offset, suffix)}"
            if self._disk.exists(path):
                if self._disk.read(path) == content:
                    continue
                self._disk.remove(path)
            file = self._disk.open(path, create=True)
            try:
                file.append(content)
            finally:
                file.close()

    def remove_indexes(self) -> None:
        """Delete the index files: they would be wrong for a growing segment."""
        for suffix in INDEX_SUFFIXES:
            path = f"{self._directory}/{file_name(self.base_offset, suffix)}"
            if self._disk.exists(path):
                self._disk.remove(path)

    def relocate(self, directory: str) -> None:
        """The partition directory has another name: open the file there. Raises `OSError`."""
        self.file.close()
        self._directory = directory
        self.file = self._disk.open(f"{directory}/{file_name(self.base_offset)}")

    def mark_deleted(self) -> tuple[str, ...]:
        """Rename the segment's files, durably, so that they are no part of the log; returns the new paths.

        Kafka removes such files a minute later, for readers that have them open (`LogSegment.changeFileSuffixes`). The
        log file is renamed last: a log without indexes is still complete.
        """
        marked = []
        for suffix in (*INDEX_SUFFIXES, SUFFIX):
            path = f"{self._directory}/{file_name(self.base_offset, suffix)}"
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
                marked.append(path + DELETED_SUFFIX)
        self._disk.fsync_dir(self._directory)
        return tuple(marked)

    def remove(self) -> None:
        """Delete the segment's files, durably. The caller must close the open file."""
        self.remove_indexes()
        self._disk.remove(self.file.path)
        self._disk.fsync_dir(self._directory)
