"""The records in a batch of format 2 (Kafka: `DefaultRecord`).

`records` makes an object for each record, and favours speed over readability: one record takes about 1.1 µs. `walk`
looks at records without making objects, in steps, at the bytes that `unpacking` makes in steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import repeat
from typing import Final, NoReturn

from msgspec import Struct

from metadata_log.compression import BadCompression, TooMuch, has_large_blocks, inflating
from metadata_log.errors import CorruptBatch, OversizedBatch
from metadata_log.records.batch import HEADER_BYTES, LONG, RecordBatch, java_long
from metadata_log.serde.codec import finished

MAX_INFLATED_BYTES: Final = 1 << 26
"""The most bytes that the records of a compressed batch may have uncompressed; a few bytes can claim gigabytes."""
MAX_CONTROL_BYTES: Final = 1 << 20
"""The same for a batch of control records, which have some bytes each."""
MOST_HEADERS: Final = 1 << 16
"""The most headers of one record."""

_STEP: Final = 1 << 10
STEPS_OF_A_TURN: Final = 20
"""The most steps that are made at once."""
_PIECE: Final = 4
_BYTES_SHIFT: Final = 7
"""Each piece of unpacked bytes counts as this much of a step, and as one more for so many bytes, as a power of two."""
_INT_BYTES: Final = 5
LONG_BYTES: Final = 10


class Header(Struct, frozen=True, gc=False):
    """A header of one record. Records of the metadata log have none."""

    key: str
    value: bytes | None


_NULL: Final = b"\x01"
"""The length of what is missing."""
_NO_HEADERS: Final[tuple[Header, ...]] = ()


class Record(Struct, frozen=True, gc=False):
    """One record of a batch (Kafka: `DefaultRecord`).

    Args:
        offset: The offset in the log.
        timestamp: The time in ms since 1970. Under log append time, this is the batch's time.
        timestamp_delta: The stored distance in ms from the base timestamp of the batch.
        key: The key, or None.
        value: The value, or None.
        headers: The headers. Records of the metadata log have none.
    """

    offset: int
    timestamp: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


ONE_BYTE: Final = 64
"""The first number of two bytes."""
_MOST_KNOWN: Final = 8192
FIRST_BYTES: Final = bytes(range(0, 128, 2)) + bytes(range(128, 256, 2)) * (_MOST_KNOWN // ONE_BYTE - 1)
"""The first byte of each of `SHORT_VARINTS`."""
SECOND_BYTES: Final = b"".join([bytes((high,)) * ONE_BYTE for high in range(_MOST_KNOWN // ONE_BYTE)])
"""The second one, 0 where there is none."""
SHORT_VARINTS: Final = (
    *(bytes((number,)) for number in FIRST_BYTES[:ONE_BYTE]),
    *map(bytes, zip(FIRST_BYTES[ONE_BYTE:], SECOND_BYTES[ONE_BYTE:], strict=True)),
)
"""The encoded numbers of one or two bytes that are not negative: most lengths and offset deltas."""

_MOST_SMALL: Final = _MOST_KNOWN - 16
"""A key and a value below this size make a record with a length that is among them, too."""


def varint(number: int) -> bytes:
    """Encode a signed number as a zigzag varint."""
    if 0 <= number < _MOST_KNOWN:
        return SHORT_VARINTS[number]
    number = number << 1 if number >= 0 else ((-number - 1) << 1) | 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> bytes:
    """Encode a record with its length."""
    if (
        key is not None
        and value is not None
        and not headers
        and 0 <= timestamp_delta < _MOST_KNOWN
        and 0 <= offset_delta < _MOST_KNOWN
        and len(key) + len(value) < _MOST_SMALL
    ):
        # Each number is known: a record of a coordinator, and most others.
        known = SHORT_VARINTS
        body = b"".join(
            (
                *(b"\x00", known[timestamp_delta], known[offset_delta]),
                *(known[len(key)], key, known[len(value)], value, b"\x00"),
            )
        )
        return known[len(body)] + body
    parts = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    parts += (_NULL,) if key is None else (varint(len(key)), key)
    parts += (_NULL,) if value is None else (varint(len(value)), value)
    parts.append(varint(len(headers)))
    for header in headers:
        name = header.key.encode()
        parts += (varint(len(name)), name)
        parts += (_NULL,) if header.value is None else (varint(len(header.value)), header.value)
    body = b"".join(parts)
    return varint(len(body)) + body


def unpacking(batch: RecordBatch, *, where: str | None = None) -> Generator[None, None, bytes | bytearray]:
    """The records of a batch, uncompressed, in steps of less than a millisecond, or of 4 MiB.

    A step gives 128 KiB, or one larger block, after which there are empty steps. Before a block of more than 4 MiB is a
    pause of `STEPS_OF_A_TURN` steps: those who wait for their turn must not hold it.

    Args:
        batch: The batch, with its bytes.
        where: The file or peer, for errors.

    Raises:
        CorruptBatch: The compressed data is damaged.
        OversizedBatch: It unpacks to more than `MAX_INFLATED_BYTES`.
        UnsupportedVersion: The compression codec is undefined.
    """
    packed = batch.data[HEADER_BYTES:]
    if not batch.is_compressed:
        return packed
    unpacked, left = bytearray(), _STEP
    most = MAX_CONTROL_BYTES if batch.is_control else MAX_INFLATED_BYTES
    try:
        if has_large_blocks(batch.compression, packed):
            yield from repeat(None, STEPS_OF_A_TURN)
        for piece in inflating(batch.compression, packed, most):
            unpacked += piece
            left -= _PIECE + (len(piece) >> _BYTES_SHIFT)
            while left <= 0:
                left += _STEP
                yield None
    except BadCompression as bad:
        kind = OversizedBatch if isinstance(bad, TooMuch) else CorruptBatch
        raise kind(f"the batch's {batch.codec} data is damaged: {bad}", where=where, position=batch.position) from bad
    return unpacked


def _record_bytes(batch: RecordBatch, where: str | None) -> bytes:
    """The records of a batch, uncompressed at once."""
    return bytes(finished(unpacking(batch, where=where)))


def varint_at(data: bytes | bytearray, position: int, most: int = _INT_BYTES) -> tuple[int, int]:
    """The zigzag varint of at most `most` bytes at a position, and the position after it.

    Bits above those of Java's `int` in five bytes, or of a `long` in ten, are lost, as in Java.
    """
    first = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        result = first & 0x7F | second << 7
        return (result >> 1) ^ -(result & 1), position + 2
    result = shift = 0
    for at in range(position, position + most):
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            result &= 0xFFFFFFFF if most == _INT_BYTES else 0xFFFFFFFFFFFFFFFF
            return (result >> 1) ^ -(result & 1), at + 1
        shift += 7
    raise ValueError(f"a variable-length number is longer than {most} bytes")


def _bytes_at(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Nullable bytes after their length, and the position after them."""
    size, position = varint_at(data, position)
    if size < 0:
        return None, position
    if position + size > len(data):
        raise IndexError
    return data[position : position + size], position + size


def check_headers(count: int) -> None:
    """Raise `ValueError` for a number of headers that no record has, or more than this software takes."""
    if not 0 <= count <= MOST_HEADERS:
        raise ValueError(f"a record has {count} headers, where {MOST_HEADERS} are the most")


def _headers_at(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    """The headers of a record, and the position after them."""
    count, position = varint_at(data, position)
    check_headers(count)
    headers = []
    for _ in range(count):
        key, position = _bytes_at(data, position)
        if key is None:
            raise ValueError("a header has no key")
        value, position = _bytes_at(data, position)
        headers.append(Header(key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def records(batch: RecordBatch, *, where: str | None = None) -> Iterator[Record]:
    """Decode the records of a batch, in order.

    Args:
        batch: The batch, with its bytes.
        where: The file or peer, for errors.

    Returns:
        The records.

    Raises:
        CorruptBatch: The records do not fill the batch exactly, or the compressed data is damaged.
        UnsupportedVersion: The compression codec is undefined.
    """
    data = _record_bytes(batch, where)
    base_offset, base_time = batch.base_offset, batch.base_timestamp
    fixed_time = batch.max_timestamp if batch.is_log_append_time else None
    position = start = 0
    total = len(data)
    try:
        for _ in range(batch.record_count):
            start = position
            # Most numbers in a record of the metadata log have one byte, offsets two: this code reads both inline.
            byte = data[position]
            if byte < 0x80:
                size, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, position = varint_at(data, position)
            end = position + size
            if size < 0 or end > total:
                raise IndexError
            position += 1  # attributes: unused by Kafka
            if data[position] == 0:
                delta_ms, position = 0, position + 1
            else:
                delta_ms, position = varint_at(data, position, LONG_BYTES)
            byte = data[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif data[position + 1] < 0x80:
                byte += (data[position + 1] << 7) - 0x80
                delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                delta, position = varint_at(data, position)
            if data[position] == 1:
                key, position = None, position + 1
            else:
                key, position = _bytes_at(data, position)
            byte = data[position]
            if byte < 0x80 and not byte & 1:
                value_at, position = position + 1, position + 1 + (byte >> 1)
                value: bytes | None = data[value_at:position]
            else:
                value, position = _bytes_at(data, position)
            if data[position] == 0:
                headers, position = _NO_HEADERS, position + 1
            else:
                headers, position = _headers_at(data, position)
            if position != end:
                raise ValueError(f"a record of {size} bytes has contents of {size + position - end}")
            offset = base_offset + delta
            if offset >= LONG:
                offset = java_long(offset)
            if fixed_time is not None:
                timestamp = fixed_time
            else:
                timestamp = base_time + delta_ms if delta_ms == 0 else java_long(base_time + delta_ms)
            yield Record(offset, timestamp, delta_ms, key, value, headers)
        start = position
        if position != total:
            raise ValueError(f"{total - position} bytes follow the last record")
    except (IndexError, ValueError) as bad:
        raise_damaged(batch, bad, start, where)


def raise_damaged(batch: RecordBatch, bad: Exception, start: int, where: str | None) -> NoReturn:
    """Raise the error for records that are wrong from a position of the unpacked bytes on."""
    what = str(bad) if isinstance(bad, ValueError) else "a record runs over the end of its batch"
    inside = f" of the {batch.codec} data" if batch.is_compressed else ""
    raise CorruptBatch(
        f"{what} ({start + HEADER_BYTES} bytes into the batch{inside})",
        where=where,
        position=batch.position + (0 if batch.is_compressed else HEADER_BYTES + start),
    ) from bad
