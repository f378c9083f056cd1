"""The two sparse indexes of a segment (Kafka: `OffsetIndex`, `TimeIndex`).

The indexes are in memory and are written when a segment is closed. Both Kafka and this software rebuild them from the
log at every start.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct as Layout
from typing import Final

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
        self.offsets: list[int] = []
        self.positions: list[int] = []

    def append(self, offset: int, position: int) -> None:
        """Add the batch at `position`, with the last offset `offset`."""
        self.offsets.append(offset)
        self.positions.append(position)

    def position_before(self, offset: int, *, earlier: int = 0) -> int:
        """A position at or before the batch of `offset`, to begin the search; `earlier` is a number of entries more."""
        after = bisect_right(self.offsets, offset) - earlier
        return self.positions[after - 1] if after > 0 else 0

    def last_position(self, end: int, end_offset: int) -> int:
        """The position of the last indexed batch that begins at or before `end` and ends below `end_offset`; 0 if there
        is none.
        """
        found = min(bisect_right(self.positions, end), bisect_left(self.offsets, end_offset))
        return self.positions[found - 1] if found else 0

    def truncate(self, end_offset: int) -> None:
        """Remove the entries from `end_offset` on."""
        kept = bisect_left(self.offsets, end_offset)
        del self.offsets[kept:]
        del self.positions[kept:]

    def encode(self) -> bytes:
        """The content of the `.index` file."""
        entry, base = _OFFSET_ENTRY.pack, self.base_offset
        return b"".join(
            entry(offset - base, position) for offset, position in zip(self.offsets, self.positions, strict=True)
        )


class TimeIndex:
    """The timestamps of the log: entries of (largest timestamp so far, offset of its batch)."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps: list[int] = []
        self.offsets: list[int] = []

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last entry, or `NO_TIMESTAMP`."""
        return self.timestamps[-1] if self.timestamps else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, or `NO_OFFSET`."""
        return self.offsets[-1] if self.offsets else NO_OFFSET

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the timestamp is not above the last one."""
        if timestamp > self.last_timestamp:
            self.timestamps.append(timestamp)
            self.offsets.append(offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset to begin the search for `timestamp`: no batch before it has that timestamp or a later one."""
        after = bisect_left(self.timestamps, timestamp)
        return self.offsets[after - 1] if after else self.base_offset

    def truncate(self, end_offset: int) -> None:
        """Remove the entries from `end_offset` on."""
        kept = bisect_left(self.offsets, end_offset)
        del self.timestamps[kept:]
        del self.offsets[kept:]

    def encode(self) -> bytes:
        """The content of the `.timeindex` file."""
        entry, base = _TIME_ENTRY.pack, self.base_offset
        return b"".join(
            entry(timestamp, offset - base) for timestamp, offset in zip(self.timestamps, self.offsets, strict=True)
        )

    def copy(self) -> TimeIndex:
        """An independent copy."""
        made = TimeIndex(self.base_offset)
        made.timestamps = self.timestamps.copy()
        made.offsets = self.offsets.copy()
        return made


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
