"""The results of appends to a partition log and reads of it (Kafka: `LogAppendInfo`, the errors of `UnifiedLog`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.log.indexes import NO_TIMESTAMP
from transport.protocol.errors import Error


class RecordRefusal(Struct, frozen=True):
    """One record for which a batch is refused: its index in the batch, and the reason."""

    index: int
    text: str


class RefusedAppend(Struct, frozen=True):
    """Why nothing was appended: the answer of a Produce request for this partition."""

    error: Error
    text: str
    records: tuple[RecordRefusal, ...] = ()


class Place(Struct, frozen=True, gc=False):
    """Where the batch of an offset begins (Kafka: `LogOffsetMetadata`)."""

    segment: int
    """The base offset of the segment."""
    position: int
    """The position in the file of the segment."""
    size_bytes: int = 0
    """The size of the batch that begins there; 0 at the end."""


class Appended(Struct, frozen=True):
    """The place of appended batches in the log.

    Args:
        first_offset: The offset of the first record; -1 if there was none.
        last_offset: The offset of the last record; -1 if there was none.
        append_time_ms: The log append time, in ms since 1970; -1 if the records keep their own times.
        is_duplicate: Whether the log held the batch already, so that nothing was written.
    """

    first_offset: int
    last_offset: int
    append_time_ms: int = NO_TIMESTAMP
    is_duplicate: bool = False


NOTHING: Final = Appended(-1, -1)
"""Nothing was appended."""
