"""Record batches of format 2, the unit of the log (Kafka: `DefaultRecordBatch`, `DefaultRecord`).

`build_batch` and `records` favour speed over readability: a record takes about 0.2 µs to write and 1.1 µs to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct as Layout
from typing import Final

from google_crc32c import value as crc32c
from msgspec import Struct

from metadata_log.compression import BadCompression, Compression, deflate, inflate
from metadata_log.errors import CorruptBatch, IncompleteBatch, UnsupportedVersion

MAX_INFLATED_BYTES: Final = 1 << 26
"""The most bytes that the records of a compressed batch may have uncompressed; a few bytes can claim gigabytes."""
RECORDS_PER_PORTION: Final = 500
"""How many records are read without a pause by readers that read a batch in portions."""
MAX_CONTROL_RECORDS: Final = 100
"""The most records of a control batch of a quorum; a leader writes at most three at once."""
_RECORDS_PER_HEADER: Final = 2
_BYTES_PER_RECORD: Final = 4096
"""The bytes that are copied and checksummed in about the time of reading one record."""
HEADER_BYTES: Final = 61
"""The header's size, the record count included."""

_HEADER: Final = Layout(">qiibIhiqqqhii")
_CHECKED: Final = Layout(">hiqqqhii")
_FRONT: Final = Layout(">qiibI")
_CONTROL_KEY: Final = Layout(">hh")
_CRC: Final = Layout(">I")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_BEFORE_LENGTH: Final = 12
_SMALLEST_LENGTH: Final = 14

_COMPRESSION_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40


class RecordBatch(Struct, frozen=True, gc=False):
    """The header of one batch, and its bytes (Kafka: `DefaultRecordBatch`).

    Args:
        position: The byte position of the batch in the scanned data.
        base_offset: The offset of the first record.
        size_bytes: The size of the batch with its header, in bytes.
        epoch: The partition leader epoch.
        magic: The batch format; always 2.
        crc: The stored CRC-32C.
        attributes: The attribute bits: codec, time type, transaction, control.
        last_offset_delta: The distance from the base offset to the last offset.
        base_timestamp: The time of the first record, in ms.
        max_timestamp: The latest time of a record, in ms.
        producer_id: The producer's id; -1 in the metadata log.
        producer_epoch: The producer's epoch; -1 in the metadata log.
        base_sequence: The sequence number of the first record; -1 in the metadata log.
        record_count: The number of records.
        data: The bytes of the batch; empty after `read_header`.
    """

    position: int
    base_offset: int
    size_bytes: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: bytes

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def end_position(self) -> int:
        """The position just behind the batch."""
        return self.position + self.size_bytes

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction; never so in the metadata log."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the records' time is `max_timestamp`, set by the broker that appended them."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop the batch's tombstones, in ms; such a batch stores it as `base_timestamp`."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed; never so in the metadata log."""
        return bool(self.attributes & _COMPRESSION_MASK)

    @property
    def codec(self) -> str:
        """The name of the compression codec; also for an undefined codec."""
        code = self.attributes & _COMPRESSION_MASK
        return Compression(code).name.lower() if code <= Compression.ZSTD else f"unknown codec {code}"

    @property
    def compression(self) -> Compression:
        """The compression codec; raises `UnsupportedVersion` for an undefined codec."""
        code = self.attributes & _COMPRESSION_MASK
        if code > Compression.ZSTD:
            raise UnsupportedVersion(f"unknown compression codec {code}", position=self.position, field="attributes")
        return Compression(code)


class Header(Struct, frozen=True, gc=False):
    """A header of one record; the metadata log has none."""

    key: str
    value: bytes | None


_NO_HEADERS: Final[tuple[Header, ...]] = ()


class Record(Struct, frozen=True, gc=False):
    """One record (Kafka: `DefaultRecord`).

    Args:
        offset: The offset in the log.
        timestamp: The time in ms; under log append time, the batch's time.
        timestamp_delta: The stored distance in ms from the batch's base timestamp.
        key: The key, or None.
        value: The value, or None.
        headers: The headers; the metadata log has none.
    """

    offset: int
    timestamp: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


# ---------------------------------------------------------------------------------------------------------- writing


def _varint(number: int) -> bytes:
    """The zigzag variable-length form of a signed number."""
    number = number << 1 if number >= 0 else ((-number - 1) << 1) | 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_DELTA_COUNT: Final = 8192
_DELTAS: Final = tuple(_varint(delta) for delta in range(_DELTA_COUNT))
"""Offset deltas that take one or two bytes."""


@lru_cache(maxsize=4096)
def _record_frame(value_size: int, delta_size: int) -> tuple[bytes, bytes]:
    """The bytes of a data record before its offset delta, and those between the delta and the value."""
    rest = b"\x01" + _varint(value_size)
    return _varint(2 + delta_size + len(rest) + value_size + 1) + b"\x00\x00", rest


def record_bytes(value_size: int, delta: int) -> int:
    """The bytes of a data record that `build_batch` writes, for a value of this size at this offset delta."""
    delta_size = len(_DELTAS[delta]) if delta < _DELTA_COUNT else len(_varint(delta))
    before, behind = _record_frame(value_size, delta_size)
    return len(before) + delta_size + len(behind) + value_size + 1


def _with_header(
    base_offset: int, epoch: int, attributes: int, last_delta: int, timestamps: tuple[int, int], count: int, body: bytes
) -> RecordBatch:
    checked = _CHECKED.pack(attributes, last_delta, *timestamps, -1, -1, -1, count) + body
    crc = crc32c(checked)
    data = _FRONT.pack(base_offset, len(checked) + 9, epoch, 2, crc) + checked
    return RecordBatch(
        0, base_offset, len(data), epoch, 2, crc, attributes, last_delta, *timestamps, -1, -1, -1, count, data
    )


def build_batch(base_offset: int, epoch: int, timestamp_ms: int, values: Sequence[bytes]) -> bytes:
    """A batch of data records as a controller writes them: uncompressed, without keys, with one timestamp.

    Args:
        base_offset: The offset of the first record.
        epoch: The partition leader epoch.
        timestamp_ms: The time of every record.
        values: The values of the records; at least one.

    Returns:
        The encoded batch (Kafka's `BatchBuilder`).
    """
    return new_batch(base_offset, epoch, timestamp_ms, values).data


def new_batch(base_offset: int, epoch: int, timestamp_ms: int, values: Sequence[bytes]) -> RecordBatch:
    """The same as `build_batch`, together with the header of the batch."""
    assert values, "a batch has records"
    parts: list[bytes] = []
    append = parts.append
    known_size = -1
    before = behind = b""
    for delta, value in enumerate(values):
        delta_bytes = _DELTAS[delta] if delta < _DELTA_COUNT else _varint(delta)
        size = len(value)
        # The frame is the same for a run of values of one size, as long as the delta keeps its length.
        if size != known_size or delta == 64 or delta >= _DELTA_COUNT:
            before, behind = _record_frame(size, len(delta_bytes))
            known_size = size
        append(before)
        append(delta_bytes)
        append(behind)
        append(value)
        append(b"\x00")
    count = len(values)
    return _with_header(base_offset, epoch, 0, count - 1, (timestamp_ms, timestamp_ms), count, b"".join(parts))


def build_control_batch(base_offset: int, epoch: int, timestamp_ms: int, records: Sequence[tuple[int, bytes]]) -> bytes:
    """A control batch; each record is its type (`ControlRecordType`) and its encoded value."""
    assert records, "a batch has records"
    body = b"".join(
        _encode_record(0, delta, _CONTROL_KEY.pack(0, kind), value, ()) for delta, (kind, value) in enumerate(records)
    )
    count = len(records)
    return _with_header(base_offset, epoch, _CONTROL, count - 1, (timestamp_ms, timestamp_ms), count, body).data


def write_batch(
    contents: Sequence[Record],
    *,
    epoch: int,
    compression: Compression = Compression.NONE,
    append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    transactional: bool = False,
    control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch with any attributes (Kafka: `MemoryRecordsBuilder`). The first record sets its base offset and time.

    Args:
        contents: The records, at least one, in order. Their `timestamp_delta` is ignored.
        epoch: The partition leader epoch.
        compression: The codec of the records.
        append_time_ms: The log append time of all records, in ms; None for the records' own times.
        delete_horizon_ms: The delete horizon in ms, from which the records' times then count; None for none.
        transactional: Whether the batch belongs to a transaction.
        control: Whether the records are control records.
        producer_id: The producer's id, -1 for none.
        producer_epoch: The producer's epoch, -1 for none.
        base_sequence: The sequence number of the first record, -1 for none.

    Returns:
        The encoded batch.
    """
    assert contents, "a batch has records"
    base_offset = contents[0].offset
    base_time = contents[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    attributes = (
        compression
        | (_LOG_APPEND_TIME if append_time_ms is not None else 0)
        | (_DELETE_HORIZON if delete_horizon_ms is not None else 0)
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0)
    )
    body = b"".join(
        _encode_record(
            record.timestamp - base_time, record.offset - base_offset, record.key, record.value, record.headers
        )
        for record in contents
    )
    checked = _CHECKED.pack(
        attributes,
        contents[-1].offset - base_offset,
        base_time,
        max(record.timestamp for record in contents) if append_time_ms is None else append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(contents),
    ) + deflate(compression, body)
    return _FRONT.pack(base_offset, len(checked) + 9, epoch, 2, crc32c(checked)) + checked


def rebuild_batch(batch: RecordBatch, contents: Iterable[Record]) -> bytes:
    """The bytes of a batch with this header and these records; size, count and CRC are computed anew.

    Without compression the result equals Kafka's bytes. Raises `UnsupportedVersion` for an undefined codec.
    """
    bodies = [
        _encode_record(
            record.timestamp_delta, record.offset - batch.base_offset, record.key, record.value, record.headers
        )
        for record in contents
    ]
    checked = _CHECKED.pack(
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(bodies),
    ) + deflate(batch.compression, b"".join(bodies))
    return _FRONT.pack(batch.base_offset, len(checked) + 9, batch.epoch, 2, crc32c(checked)) + checked


def with_checksum(batch: bytes) -> bytes:
    """The same batch with the correct checksum of its bytes, valid or not; for tools that forge batches."""
    return batch[:_CRC_AT] + _CRC.pack(crc32c(batch[_CHECKED_AT:])) + batch[_CHECKED_AT:]


def _encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> bytes:
    def nullable(data: bytes | None) -> bytes:
        return b"\x01" if data is None else _varint(len(data)) + data

    body = b"".join(
        (
            b"\x00",
            _varint(timestamp_delta),
            _varint(offset_delta),
            nullable(key),
            nullable(value),
            _varint(len(headers)),
            *(nullable(header.key.encode()) + nullable(header.value) for header in headers),
        )
    )
    return _varint(len(body)) + body


# ---------------------------------------------------------------------------------------------------------- reading


def scan(
    data: bytes | memoryview, position: int = 0, *, where: str | None = None, verify: bool = True, at: int = 0
) -> Iterator[RecordBatch]:
    """The batches from `position` to the end of `data`.

    Args:
        data: The bytes of whole batches.
        position: The position of the first batch.
        where: The file or peer, for errors.
        verify: Whether to check each CRC-32C.
        at: The position of `data` in a larger whole; added to every reported position.

    Returns:
        The batches in order.

    Raises:
        IncompleteBatch: The data ends inside a batch.
        CorruptBatch: A batch is damaged.
        UnsupportedVersion: A batch has a format before 2.
    """
    end = len(data)
    while position < end:
        batch = read_batch(data, position, where=where, verify=verify, at=at)
        yield batch
        position += batch.size_bytes


def read_batch(
    data: bytes | memoryview, position: int = 0, *, where: str | None = None, verify: bool = True, at: int = 0
) -> RecordBatch:
    """The batch at `position`.

    Args:
        data: Bytes that hold the batch.
        position: The position of the batch.
        where: The file or peer, for errors.
        verify: Whether to check the CRC-32C.
        at: The position of `data` in a larger whole; added to every reported position.

    Returns:
        The batch.

    Raises:
        IncompleteBatch: The data ends inside the batch.
        CorruptBatch: The batch is damaged.
        UnsupportedVersion: The batch has a format before 2.
    """
    left = len(data) - position
    if left < HEADER_BYTES:
        raise _short(data, position, left, where, at)
    (
        base_offset,
        length,
        epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_time,
        max_time,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(data, position)
    size = length + _BEFORE_LENGTH
    if magic != 2 or length < _SMALLEST_LENGTH or size < HEADER_BYTES or size > left:
        raise _bad_front(length, magic, left, where, position + at)
    whole = bytes(data[position : position + size])
    if verify and (computed := crc32c(whole[_CHECKED_AT:])) != crc:
        raise CorruptBatch(
            f"the batch's bytes give CRC {computed:#010x} where {crc:#010x} is stored",
            where=where,
            position=position + at,
            field="crc",
        )
    return RecordBatch(
        position + at,
        base_offset,
        size,
        epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_time,
        max_time,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
        whole,
    )


def read_header(
    data: bytes | memoryview, at: int = 0, *, left: int, where: str | None = None, position: int = 0
) -> RecordBatch:
    """The header at `at`, without its records: `data` of the result is empty, and the CRC is not checked.

    `left` is the number of bytes from there, `position` the reported position. Errors as for `scan`.
    """
    if min(len(data) - at, left) < HEADER_BYTES:
        raise _short(data, at, min(len(data) - at, left), where, position - at)
    base_offset, length, epoch, magic, crc, attributes, last_delta, *times_and_producer = _HEADER.unpack_from(data, at)
    base_time, max_time, producer_id, producer_epoch, base_sequence, count = times_and_producer
    size = length + _BEFORE_LENGTH
    if magic != 2 or length < _SMALLEST_LENGTH or size < HEADER_BYTES or size > left:
        raise _bad_front(length, magic, left, where, position)
    return RecordBatch(
        position,
        base_offset,
        size,
        epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_time,
        max_time,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
        b"",
    )


def _short(
    data: bytes | memoryview, position: int, left: int, where: str | None, at: int
) -> CorruptBatch | UnsupportedVersion:
    """The error where fewer bytes are left than a header has."""
    if left > _MAGIC_AT:
        length = int.from_bytes(data[position + _LENGTH_AT : position + _BEFORE_LENGTH], "big", signed=True)
        magic = int.from_bytes(data[position + _MAGIC_AT : position + _MAGIC_AT + 1], "big", signed=True)
        return _bad_front(length, magic, left, where, position + at)
    if left >= _BEFORE_LENGTH:
        length = int.from_bytes(data[position + _LENGTH_AT : position + _BEFORE_LENGTH], "big", signed=True)
        return _bad_front(length, 2, left, where, position + at)
    return IncompleteBatch(f"a batch header ends after {left} bytes", where=where, position=position + at)


def _bad_front(
    length: int, magic: int, left: int, where: str | None, position: int
) -> CorruptBatch | UnsupportedVersion:
    """The error for a batch with a wrong length or format."""
    size = length + _BEFORE_LENGTH
    if length < _SMALLEST_LENGTH:
        return CorruptBatch(f"no batch has a length of {length}", where=where, position=position, field="batch length")
    if magic in {0, 1}:
        return UnsupportedVersion(
            f"a message set of the old format {magic}, which the metadata log never holds",
            where=where,
            position=position,
            field="magic",
        )
    if magic != 2:
        return CorruptBatch(f"unknown batch format {magic}", where=where, position=position, field="magic")
    if size < HEADER_BYTES:
        return CorruptBatch(
            f"a batch of {size} bytes is shorter than its header", where=where, position=position, field="batch length"
        )
    return IncompleteBatch(f"a batch of {size} bytes ends after {left}", where=where, position=position)


def _record_bytes(batch: RecordBatch, where: str | None) -> bytes:
    """The records of a batch, uncompressed."""
    packed = batch.data[HEADER_BYTES:]
    if not batch.attributes & _COMPRESSION_MASK:
        return packed
    try:
        return inflate(batch.compression, packed, MAX_INFLATED_BYTES)
    except BadCompression as bad:
        raise CorruptBatch(
            f"the batch's {batch.codec} data is damaged: {bad}", where=where, position=batch.position
        ) from bad


def _varint_at(data: bytes, position: int, most: int = 5) -> tuple[int, int]:
    """A zigzag variable-length number of at most `most` bytes, and the position behind it."""
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
            return (result >> 1) ^ -(result & 1), at + 1
        shift += 7
    raise ValueError(f"a variable-length number is longer than {most} bytes")


def _bytes_at(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Nullable bytes behind their length, and the position behind them."""
    size, position = _varint_at(data, position)
    if size < 0:
        return None, position
    if position + size > len(data):
        raise IndexError
    return data[position : position + size], position + size


def _headers_at(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    """The headers of a record, and the position behind them."""
    count, position = _varint_at(data, position)
    if count < 0:
        raise ValueError(f"a record has {count} headers")
    headers = []
    for _ in range(count):
        key, position = _bytes_at(data, position)
        if key is None:
            raise ValueError("a header has no key")
        value, position = _bytes_at(data, position)
        headers.append(Header(key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def records(batch: RecordBatch, *, where: str | None = None) -> Iterator[Record]:
    """The records of a batch, in order; raises `CorruptBatch` if they do not fill the batch exactly."""
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
                size, position = _varint_at(data, position)
            end = position + size
            if size < 0 or end > total:
                raise IndexError
            position += 1  # attributes: unused by Kafka
            if data[position] == 0:
                delta_ms, position = 0, position + 1
            else:
                delta_ms, position = _varint_at(data, position, 10)
            byte = data[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif data[position + 1] < 0x80:
                byte += (data[position + 1] << 7) - 0x80
                delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                delta, position = _varint_at(data, position)
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
            timestamp = base_time + delta_ms if fixed_time is None else fixed_time
            yield Record(base_offset + delta, timestamp, delta_ms, key, value, headers)
        start = position
        if position != total:
            raise ValueError(f"{total - position} bytes follow the last record")
    except IndexError:
        what = "a record runs over the end of its batch"
    except ValueError as bad:
        what = str(bad)
    else:
        return
    inside = f" of the {batch.codec} data" if batch.is_compressed else ""
    raise CorruptBatch(
        f"{what} ({start + HEADER_BYTES} bytes into the batch{inside})",
        where=where,
        position=batch.position + (0 if batch.is_compressed else HEADER_BYTES + start),
    )


def quorum_records(batch: RecordBatch, *, where: str | None = None) -> list[Record]:
    """The records of a batch as a quorum writes it: uncompressed, without a transaction, at least one, without gaps.

    Raises `CorruptBatch` for any other batch. Kafka's quorum never compresses a batch (`BatchAccumulator` with
    `Compression.NONE`), but its readers would accept one.
    """
    _check_header(batch, where)
    found = list(records(batch, where=where))
    _check_offsets(found, batch.base_offset, batch, where)
    return found


def _check_header(batch: RecordBatch, where: str | None) -> None:
    """Raise `CorruptBatch` for a header that no batch of a quorum has."""
    if batch.attributes == 0 and 0 < batch.record_count == batch.last_offset_delta + 1:
        return
    wrong = None
    if batch.is_compressed:
        wrong = f"the batch is packed ({batch.codec}), which no batch of a quorum is"
    elif batch.is_transactional or batch.delete_horizon_ms is not None:
        wrong = f"the batch has the attributes {batch.attributes:#x}, which no batch of a quorum has"
    elif not 0 < batch.record_count == batch.last_offset_delta + 1:
        wrong = f"a batch of {batch.record_count} records ends {batch.last_offset_delta} offsets after its first one"
    if wrong is not None:
        raise CorruptBatch(wrong, where=where, position=batch.position)


def _check_offsets(found: Sequence[Record], first: int, batch: RecordBatch, where: str | None) -> None:
    """Raise `CorruptBatch` unless the offsets of the records are consecutive from `first` on."""
    for offset, record in enumerate(found, first):
        if record.offset != offset:
            what = f"the record at offset {offset} says that it is at offset {record.offset}"
            raise CorruptBatch(what, where=where, position=batch.position)


def data_values(batch: RecordBatch, *, where: str | None = None) -> tuple[bytes, ...]:
    """The values of a batch of data records; errors as of `quorum_records`, and for a record without a value."""
    return tuple(_values_of(quorum_records(batch, where=where), batch, where))


def data_values_by_portions(batch: RecordBatch, *, where: str | None = None) -> Iterator[list[bytes]]:
    """The values of a batch of data records, at most `RECORDS_PER_PORTION` of them at a time.

    Errors are those of `data_values`, each raised with the portion of the wrong record.
    """
    _check_header(batch, where)
    offset = batch.base_offset
    source = records(batch, where=where)
    while found := list(islice(source, RECORDS_PER_PORTION)):
        _check_offsets(found, offset, batch, where)
        offset += len(found)
        yield _values_of(found, batch, where)


def overhead(batch: RecordBatch) -> int:
    """The number of records that take about as long to read as a batch does without its records."""
    return _RECORDS_PER_HEADER + batch.size_bytes // _BYTES_PER_RECORD


def _values_of(found: Sequence[Record], batch: RecordBatch, where: str | None) -> list[bytes]:
    values = []
    for record in found:
        if record.value is None:
            what = f"the data record at offset {record.offset} has no value"
            raise CorruptBatch(what, where=where, position=batch.position)
        values.append(record.value)
    return values
