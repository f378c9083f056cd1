"""The two sparse indexes of a segment (Kafka: `OffsetIndex`, `TimeIndex`).

The indexes are in memory and are written when a segment is closed. Both Kafka and this software rebuild them from the
log at every start.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import lt
from struct import Struct as Layout
from typing import Final, Literal

from metadata_log.disk import Disk
from metadata_log.types import NO_OFFSET

NO_TIMESTAMP: Final = -1

_OFFSET_ENTRY: Final = Layout(">ii")
_TIME_ENTRY: Final = Layout(">qi")
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.size


class OffsetIndex:
    """The positions of batches: entries of (last offset of a batch, its position), both increasing."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.distances = array("q")
        """The offsets, counted from the base. An index has 262,144 entries for a gibibyte: as arrays they take a fifth
        of the memory of lists, and are there in a tenth of the time.
        """
        self.positions = array("q")

    def load(self, content: bytes) -> bool:
        """Take over the content of an `.index` file; returns whether its entries are in order."""
        pairs = _words("i", content[: _used_bytes(content, OFFSET_ENTRY_BYTES)])
        self.distances, self.positions = array("q", pairs[0::2]), array("q", pairs[1::2])
        is_positive = not pairs or min(pairs[0], pairs[1]) >= 0
        return is_positive and _rises(self.distances) and _rises(self.positions)

    def append(self, offset: int, position: int) -> None:
        """Add the batch at `position`, with the last offset `offset`."""
        self.distances.append(offset - self.base_offset)
        self.positions.append(position)

    def position_before(self, offset: int, *, earlier: int = 0) -> int:
        """A position at or before the batch of `offset`, to begin the search; `earlier` is a number of entries more."""
        after = bisect_right(self.distances, offset - self.base_offset) - earlier
        return self.positions[after - 1] if after > 0 else 0

    def last_position(self, end: int, end_offset: int) -> int:
        """The position of the last indexed batch that begins at or before `end` and ends below `end_offset`; 0 if there
        is none.
        """
        found = min(bisect_right(self.positions, end), bisect_left(self.distances, end_offset - self.base_offset))
        return self.positions[found - 1] if found else 0

    def truncate(self, end_offset: int) -> None:
        """Remove the entries from `end_offset` on."""
        kept = bisect_left(self.distances, end_offset - self.base_offset)
        del self.distances[kept:]
        del self.positions[kept:]

    def encode(self) -> bytes:
        """The content of the `.index` file."""
        return b"".join(map(_OFFSET_ENTRY.pack, self.distances, self.positions))


class TimeIndex:
    """The timestamps of the log: entries of (largest timestamp so far, offset of its batch)."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.distances = array("q")
        """The offsets, counted from the base."""

    def load(self, content: bytes) -> None:
        """Take over the content of a `.timeindex` file; entries that do not rise are left out."""
        used = content[: _used_bytes(content, TIME_ENTRY_BYTES)]
        words, unsigned = _words("i", used), _words("I", used)
        timestamps = [high << 32 | low for high, low in zip(words[0::3], unsigned[1::3], strict=True)]
        if _rises(timestamps) and min(timestamps[:1], default=0) > NO_TIMESTAMP:
            self.timestamps, self.distances = array("q", timestamps), array("q", words[2::3])
        else:
            for timestamp, distance in zip(timestamps, words[2::3], strict=True):
                self.maybe_append(timestamp, self.base_offset + distance)

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last entry, or `NO_TIMESTAMP`."""
        return self.timestamps[-1] if self.timestamps else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, or `NO_OFFSET`."""
        return self.base_offset + self.distances[-1] if self.distances else NO_OFFSET

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the timestamp is not above the last one."""
        if timestamp > self.last_timestamp:
            self.timestamps.append(timestamp)
            self.distances.append(offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset to begin the search for `timestamp`: no batch before it has that timestamp or a later one."""
        after = bisect_left(self.timestamps, timestamp)
        return self.base_offset + self.distances[after - 1] if after else self.base_offset

    def truncate(self, end_offset: int) -> None:
        """Remove the entries from `end_offset` on."""
        kept = bisect_left(self.distances, end_offset - self.base_offset)
        del self.timestamps[kept:]
        del self.distances[kept:]

    def encode(self) -> bytes:
        """The content of the `.timeindex` file."""
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.distances))

    def copy(self) -> TimeIndex:
        """An independent copy."""
        made = TimeIndex(self.base_offset)
        made.timestamps = self.timestamps[:]
        made.distances = self.distances[:]
        return made


def last_time(disk: Disk, path: str, base_offset: int) -> tuple[int, int] | None:
    """The last entry of a `.timeindex` file, without a look at the others: `NO_TIMESTAMP` without entries or file. None
    if all of the file has to be read: zeros fill that of an active segment of Kafka.
    """
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        return NO_TIMESTAMP, NO_OFFSET
    try:
        whole = file.size() // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES
        if not whole:
            return NO_TIMESTAMP, NO_OFFSET
        found = parse_time_index(file.pread(TIME_ENTRY_BYTES, whole - TIME_ENTRY_BYTES), base_offset)
    finally:
        file.close()
    return found[0] if found and found[0][0] > NO_TIMESTAMP else None


def _words(kind: Literal["i", "I"], content: bytes) -> array[int]:
    """The numbers of 32 bits in a content."""
    words = array(kind, content)
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _used_bytes(content: bytes, entry_bytes: int) -> int:
    """The bytes of whole entries, without the zeros that fill an active index."""
    used = len(content[: len(content) - len(content) % entry_bytes].rstrip(b"\0"))
    return -(-used // entry_bytes) * entry_bytes


def _rises(numbers: Sequence[int]) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))


def parse_offset_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """The (offset, position) entries of an `.index` file, without the zeros that fill an active index."""
    whole = len(data) - len(data) % _OFFSET_ENTRY.size
    entries = list(_OFFSET_ENTRY.iter_unpack(data[:whole]))
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return [(base_offset + relative, position) for relative, position in entries]


def parse_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """The (timestamp, offset) entries of a `.timeindex` file, without the zeros that fill an active index."""
    whole = len(data) - len(data) % _TIME_ENTRY.size
    entries = list(_TIME_ENTRY.iter_unpack(data[:whole]))
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return [(timestamp, base_offset + relative) for timestamp, relative in entries]
