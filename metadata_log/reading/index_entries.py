"""Compares the entries of an index with the batches of its segment (Kafka: `DumpLogSegments --index-sanity-check`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from metadata_log.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, parse_offset_index, parse_time_index
from metadata_log.reading.damage import Damage
from metadata_log.reading.file_kinds import FileKind


class Indexed(Protocol):
    """A batch, as far as indexes describe it."""

    @property
    def position(self) -> int:
        """Where the batch begins in the segment, in bytes."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""

    @property
    def max_timestamp(self) -> int:
        """The largest time of a record, in ms since 1970."""


def verify_entries(
    path: str, content: bytes, kind: FileKind, base_offset: int, batches: Iterable[Indexed]
) -> Iterator[Damage]:
    """Find damage in an index: each entry must name a batch, and both of its numbers must rise.

    Args:
        path: The index file, for the damage.
        content: The bytes of the file.
        kind: An offset index or a time index.
        base_offset: The base offset of the segment.
        batches: The batches of the segment.
    """
    if kind is FileKind.OFFSET_INDEX:
        size, entries = OFFSET_ENTRY_BYTES, parse_offset_index(content, base_offset)
        known = {(batch.last_offset, batch.position) for batch in batches}
        what, expected = "no batch ends at offset {0} and begins at byte {1}", "last offset and position of a batch"
    else:
        size, entries = TIME_ENTRY_BYTES, parse_time_index(content, base_offset)
        known = {(batch.max_timestamp, batch.last_offset) for batch in batches}
        what, expected = "no batch has the time {0} and ends at offset {1}", "time and last offset of a batch"
    if left := len(content) % size:
        text = f"{left} bytes follow the last whole entry"
        yield Damage(where=path, what=text, expected=f"entries of {size} bytes", position=len(content) - left)
    for number, entry in enumerate(entries):
        wrong = None
        if entry not in known:
            wrong = f"entry {number}: {what.format(*entry)}"
        elif number and not (entry[0] > entries[number - 1][0] and entry[1] > entries[number - 1][1]):
            wrong = f"entry {number} does not rise"
        if wrong is not None:
            yield Damage(where=path, what=wrong, expected=f"{expected}, rising", position=number * size)
