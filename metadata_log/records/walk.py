"""Looks at the records of a batch without making an object for each (Kafka: `PartialDefaultRecord`).

`walking` checks the records of a client, and `frames` finds where the records are. Both take the unpacked bytes, and
work in steps of less than a millisecond: a few kilobytes may hold millions of records or headers. Both favour speed
over readability: one record takes about 0.5 µs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from msgspec import Struct

from metadata_log.errors import OversizedRecord
from metadata_log.records.batch import LONG, RecordBatch, java_long
from metadata_log.records.record import LONG_BYTES, check_headers, raise_damaged, varint, varint_at

MOST_RECORDS: Final = 1 << 20
"""The most records that a broker takes in a compressed batch, and the most headers of all records of a batch."""
MOST_RECORD_BYTES: Final = 2147483639
"""The most bytes that a record may have in Kafka, and the default of `max.decompressed.message.bytes`."""
NO_TIME: Final = -1

_RECORDS_PER_STEP: Final = 512
_FRAMES_PER_STEP: Final = 256
_HEADERS_PER_STEP: Final = 2048
_BYTES_PER_STEP: Final = 1 << 20


class Wanted(Struct, frozen=True, kw_only=True):
    """The rules that the records of a client must meet. Times are ms since 1970."""

    has_keys: bool = False
    """Whether each record needs a key."""
    now_ms: int = 0
    before_max_ms: int = LONG - 1
    after_max_ms: int = LONG - 1
    """How far a time may be from `now_ms`; the time -1, which stands for none, is always allowed."""
    needs_order: bool = False
    """Whether the walk ends at the first offset that does not follow the one before."""
    most_refused: int = 100
    """The walk ends at so many records that are refused."""

    def is_far(self, time: int) -> bool:
        """Whether a time is too far from `now_ms` (`LogValidator.recordHasInvalidTimestamp`)."""
        behind = java_long(self.now_ms - time)
        return behind > self.before_max_ms or java_long(-behind) > self.after_max_ms


class Walked(Struct, frozen=True):
    """The findings of a walk.

    Args:
        newest: The largest time of a record, in ms since 1970; -1 at least, as in Kafka.
        is_in_order: Whether the offsets are consecutive.
        refused: The records that are refused by their index: the time that is out of bounds, or None for no key.
    """

    newest: int
    is_in_order: bool
    refused: tuple[tuple[int, int | None], ...]


def walking(
    batch: RecordBatch, data: bytes | bytearray, wanted: Wanted, *, where: str | None = None
) -> Generator[None, None, Walked]:
    """Check the records of a batch without an object for each, in steps of less than a millisecond; one record with
    very many headers is one longer step, with empty ones after it.

    Args:
        batch: The batch.
        data: Its records, as `unpacking` makes them.
        wanted: What each record needs.
        where: The file or peer, for errors.

    Raises:
        CorruptBatch: The records do not fill the batch exactly, or have more headers than a broker takes.
    """
    base_time, has_keys = batch.base_timestamp, wanted.has_keys
    position = start = headers = headers_paid = 0
    refused: list[tuple[int, int | None]] = []
    newest, past, time, is_in_order, is_time_bad, is_refusing = NO_TIME, None, 0, True, False, has_keys
    count = batch.record_count
    try:
        for begin in range(0, count, _RECORDS_PER_STEP):
            if begin:
                yield None
            for index in range(begin, min(count, begin + _RECORDS_PER_STEP)):
                start = position
                byte = data[position]
                if byte < 0x80:
                    position += 1
                elif (second := data[position + 1]) < 0x80:
                    byte, position = byte & 0x7F | second << 7, position + 2
                else:
                    size, position = varint_at(data, position)
                    byte = size << 1 if size >= 0 else 1
                if byte & 1:
                    raise ValueError("a record has a negative size")
                end = position + (byte >> 1)
                byte = data[position + 1]  # after the attributes
                if byte < 0x80:
                    delta_ms, position = (byte >> 1) ^ -(byte & 1), position + 2
                else:
                    delta_ms, position = varint_at(data, position + 1, LONG_BYTES)
                if delta_ms != past:
                    past, time = delta_ms, java_long(base_time + delta_ms)
                    newest = max(newest, time)
                    is_time_bad = time != NO_TIME and wanted.is_far(time)
                    is_refusing = has_keys or is_time_bad
                byte = data[position]
                if byte < 0x80:
                    delta, position = (byte >> 1) ^ -(byte & 1), position + 1
                else:
                    delta, position = varint_at(data, position)
                if delta != index:
                    is_in_order = False
                    if wanted.needs_order:
                        return Walked(newest, is_in_order, tuple(refused))
                byte = data[position]
                if is_refusing and (is_time_bad or byte & 1):
                    refused.append((index, None if has_keys and byte & 1 else time))
                    if len(refused) >= wanted.most_refused:
                        return Walked(newest, is_in_order, tuple(refused))
                if byte == 1:
                    position += 1
                else:
                    position = position + 1 + (byte >> 1) if byte < 0x80 and not byte & 1 else _skip(data, position)
                byte = data[position]
                if byte & 1:
                    position = _skip(data, position)
                elif byte < 0x80:
                    position += 1 + (byte >> 1)
                elif (second := data[position + 1]) < 0x80:
                    position += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    position = _skip(data, position)
                if data[position] == 0:
                    position += 1
                else:
                    more, position = _behind_headers(data, position)
                    headers += more
                    if headers > MOST_RECORDS:
                        raise ValueError(f"the records have more than {MOST_RECORDS} headers")
                    while headers - headers_paid >= _HEADERS_PER_STEP:
                        headers_paid += _HEADERS_PER_STEP
                        yield None
                if position != end:
                    raise ValueError("the content of a record has another size than the record")
        start = position
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes follow the last record")
    except (IndexError, ValueError) as bad:
        raise_damaged(batch, bad, start, where)
    return Walked(newest, is_in_order, tuple(refused))


def largest_record(count: int, data: bytes | bytearray) -> Generator[None, None, int]:
    """The size of the largest of so many records by the sizes that stand before them, in steps as `walking`.

    It ends at a size that leads out of the data, which `walking` refuses.
    """
    position = largest = 0
    try:
        for index in range(count):
            if index and index % _RECORDS_PER_STEP == 0:
                yield None
            size, position = varint_at(data, position)
            if size < 0:
                break
            largest, position = max(largest, size), position + size
    except (IndexError, ValueError):
        pass
    return largest


def _skip(data: bytes | bytearray, position: int) -> int:
    """The position after nullable bytes."""
    size, position = varint_at(data, position)
    return position + max(0, size)


def _behind_headers(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """The number of headers of a record, and the position after them."""
    count, position = varint_at(data, position)
    check_headers(count)
    for _ in range(count):
        byte = data[position]
        if byte & 1:
            raise ValueError("a header has no key")
        position = position + 1 + (byte >> 1) if byte < 0x80 else _skip(data, position)
        byte = data[position]
        position = position + 1 + (byte >> 1) if byte < 0x80 and not byte & 1 else _skip(data, position)
    return count, position


class Frame(Struct, frozen=True, gc=False):
    """Where one record is in the unpacked bytes of its batch.

    Args:
        offset: The offset in the log.
        timestamp: The time in ms since 1970. Under log append time, this is the batch's time.
        timestamp_delta: The stored distance in ms from the base timestamp of the batch.
        content: The position of the key, after the offset.
        end: The position after the record.
    """

    offset: int
    timestamp: int
    timestamp_delta: int
    content: int
    end: int


def frames(
    batch: RecordBatch,
    data: bytes | bytearray,
    *,
    most_bytes: int = MOST_RECORD_BYTES,
    where: str | None = None,
) -> Iterator[Frame | None]:
    """Where the records of a batch are; nothing after their offsets is looked at.

    Args:
        batch: The batch.
        data: Its records, as `unpacking` makes them.
        most_bytes: The most bytes that a record of a compressed batch may have; others are not measured.
        where: The file, for errors.

    Returns:
        The records; None between two of them after less than a millisecond.

    Raises:
        CorruptBatch: The records do not fill the batch exactly.
        OversizedRecord: The record has more bytes; those before it were given.
    """
    most = most_bytes if batch.is_compressed else MOST_RECORD_BYTES
    fixed_time = batch.max_timestamp if batch.is_log_append_time else None
    base_offset, base_time = batch.base_offset, batch.base_timestamp
    position = start = 0
    total = len(data)
    try:
        for index in range(batch.record_count):
            if index and index % _FRAMES_PER_STEP == 0:
                yield None
            start = position
            size, position = varint_at(data, position)
            end = position + size
            if size > most:
                raise OversizedRecord(oversized_text(size, most), where=where, position=batch.position)
            if size < 0 or end > total:
                raise IndexError
            delta_ms, position = varint_at(data, position + 1, LONG_BYTES)
            delta, position = varint_at(data, position)
            time = java_long(base_time + delta_ms) if fixed_time is None else fixed_time
            yield Frame(java_long(base_offset + delta), time, delta_ms, position, end)
            position = end
        start = position
        if position != total:
            raise ValueError(f"{total - position} bytes follow the last record")
    except (IndexError, ValueError) as bad:
        raise_damaged(batch, bad, start, where)


def oversized_text(size: int, most: int) -> str:
    """Describe a record that has more bytes than its topic allows."""
    return f"a record has {size} bytes without its compression; max.decompressed.message.bytes allows {most}"


def key_of(data: bytes | bytearray, frame: Frame) -> tuple[bytes | None, bool]:
    """The key of a record, and whether the record has a value; damage gives a short or an empty key."""
    try:
        size, begin = varint_at(data, frame.content)
        key = None if size < 0 else bytes(data[begin : min(begin + size, frame.end)])
        value_at = begin + max(0, size)
        return key, value_at < frame.end and not data[value_at] & 1
    except (IndexError, ValueError):
        return b"", True


def rewriting(
    batch: RecordBatch,
    data: bytes | bytearray,
    *,
    base_time: int,
    kept: bytes | bytearray | None = None,
    renumbers: bool = False,
    where: str | None = None,
) -> Generator[None, None, bytearray]:
    """Encode the records of a batch again, in steps of less than a millisecond.

    Args:
        batch: The batch.
        data: Its records, as `unpacking` makes them.
        base_time: The new base timestamp, in ms since 1970.
        kept: Which records stay: not 0 at their index. None for all.
        renumbers: Whether the offsets become consecutive.
        where: The file, for errors.

    Raises:
        CorruptBatch: The records do not fill the batch exactly.
    """
    body = bytearray()
    count = 0
    index = -1
    for frame in frames(batch, data, where=where):
        if frame is None:
            yield None
            continue
        index += 1
        if kept is not None and not kept[index]:
            continue
        delta = count if renumbers else frame.offset - batch.base_offset
        front = b"\x00" + varint(java_long(frame.timestamp - base_time)) + varint(delta)
        body += varint(len(front) + frame.end - frame.content)
        body += front
        for begin in range(frame.content, frame.end, _BYTES_PER_STEP):
            if begin > frame.content:
                yield None
            body += data[begin : min(begin + _BYTES_PER_STEP, frame.end)]
        count += 1
    return body
