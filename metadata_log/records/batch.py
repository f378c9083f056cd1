"""Record batches of format 2, the unit of the log: the header, and the boundaries of batches (Kafka:
`DefaultRecordBatch`). `record` has the records in a batch, `batch_builder` writes batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from metadata_log.compression import Compression
from metadata_log.crc32c import value as crc32c
from metadata_log.errors import CorruptBatch, IncompleteBatch, UnsupportedVersion

HEADER_BYTES: Final = 61
"""The size of the header, the record count included."""
CHECKED_AT: Final = 21
"""The position of the first byte that the CRC covers."""

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_HEADER: Final = Layout(">qiibIhiqqqhii")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
BEFORE_LENGTH: Final = 12
"""The bytes of a batch that its length field does not count."""
_SMALLEST_LENGTH: Final = 14
"""The smallest length that a batch of any format has (Kafka: `LegacyRecord.RECORD_OVERHEAD_V0`)."""


LONG: Final = 1 << 63
"""The first number above those of Java's `long`."""
_LEAST_LONG: Final = -LONG


def java_long(number: int) -> int:
    """A number as a sum of Java's `long` wraps it."""
    return number if _LEAST_LONG <= number < LONG else (number + LONG & (LONG << 1) - 1) - LONG


class RecordBatch(Struct, frozen=True, gc=False):
    """The header of one batch, and its bytes (Kafka: `DefaultRecordBatch`).

    Args:
        position: The position of the batch in the scanned data or file, in bytes.
        base_offset: The offset of the first record.
        size_bytes: The size of the batch with its header, in bytes.
        epoch: The partition leader epoch.
        magic: The batch format; always 2.
        crc: The stored CRC-32C.
        attributes: The attribute bits: codec, time type, transaction, control.
        last_offset_delta: The distance from the base offset to the last offset.
        base_timestamp: The time of the first record, in ms since 1970.
        max_timestamp: The latest time of a record, in ms since 1970.
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
        """The offset of the last record; the sum wraps as Java's."""
        last = self.base_offset + self.last_offset_delta
        return last if _LEAST_LONG <= last < LONG else java_long(last)

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch; the sum wraps as Java's."""
        following = self.base_offset + self.last_offset_delta + 1
        return following if _LEAST_LONG <= following < LONG else java_long(following)

    @property
    def end_position(self) -> int:
        """The position just after the batch."""
        return self.position + self.size_bytes

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction; never so in the metadata log."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the records' time is `max_timestamp`, set by the broker that appended them."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the log cleaner may drop the tombstones, in ms since 1970; None for none. `base_timestamp` stores it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed; never so in the metadata log."""
        return bool(self.attributes & COMPRESSION_MASK)

    @property
    def codec(self) -> str:
        """The name of the compression codec; also for an undefined codec."""
        code = self.attributes & COMPRESSION_MASK
        return Compression(code).name.lower() if code <= Compression.ZSTD else f"unknown codec {code}"

    @property
    def compression(self) -> Compression:
        """The compression codec; raises `UnsupportedVersion` for an undefined codec."""
        code = self.attributes & COMPRESSION_MASK
        if code > Compression.ZSTD:
            raise UnsupportedVersion(f"unknown compression codec {code}", position=self.position, field="attributes")
        return Compression(code)


def scan(
    data: bytes | memoryview, position: int = 0, *, where: str | None = None, verify: bool = True, at: int = 0
) -> Iterator[RecordBatch]:
    """Decode the batches from `position` to the end of `data`, one at a time (Kafka: `MemoryRecords.batches`).

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
    data: bytes | memoryview,
    position: int = 0,
    *,
    where: str | None = None,
    verify: bool = True,
    at: int = 0,
    left: int | None = None,
) -> RecordBatch:
    """Decode the batch at `position` (Kafka: `DefaultRecordBatch`).

    Args:
        data: Bytes that hold the batch.
        position: The position of the batch.
        where: The file or peer, for errors.
        verify: Whether to check the CRC-32C.
        at: The position of `data` in a larger whole; added to every reported position.
        left: How many bytes a file has from `position` on, if `data` holds only the header of the batch. Then the
            result has no `data`, and the CRC is not checked.

    Returns:
        The batch.

    Raises:
        IncompleteBatch: The data, or the file, ends inside the batch.
        CorruptBatch: The batch is damaged.
        UnsupportedVersion: The batch has a format before 2.
    """
    held = len(data) - position
    most = held if left is None else left
    if held < HEADER_BYTES or most < HEADER_BYTES:
        raise _short(data, position, min(held, most), where, position + at)
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
    size = length + BEFORE_LENGTH
    if magic != 2 or size < HEADER_BYTES or size > most:
        raise _bad_front(length, magic, most, where, position + at)
    whole = b""
    if left is None:
        whole = bytes(data[position : position + size])
        if verify and (computed := crc32c(whole[CHECKED_AT:])) != crc:
            raise _bad_crc(computed, crc, where, position + at)
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


def check_crc(batch: RecordBatch) -> None:
    """Check the CRC-32C of a batch that was decoded without; raises `CorruptBatch`."""
    computed = crc32c(batch.data[CHECKED_AT:])
    if computed != batch.crc:
        raise _bad_crc(computed, batch.crc, None, batch.position)


def _bad_crc(computed: int, stored: int, where: str | None, position: int) -> CorruptBatch:
    text = f"the batch's bytes give CRC {computed:#010x} where {stored:#010x} is stored"
    return CorruptBatch(text, where=where, position=position, field="crc")


def sound_batches(data: bytes, *, at: int = 0, offset: int | None = None, epoch: int = 0) -> list[RecordBatch]:
    """The batches from the beginning of `data` up to the first one that is damaged, incomplete or out of order.

    For readers of many small files: a third of the time of `scan`, and `scan` says what is wrong with the next batch.

    Args:
        data: Bytes that begin with a batch.
        at: The position of `data` in a larger whole; added to every reported position.
        offset: The offset of the first batch; None if unknown.
        epoch: The epoch of the batch before.

    Returns:
        The batches, each with a good CRC.
    """
    record_batches: list[RecordBatch] = []
    position, end = 0, len(data)
    while position + HEADER_BYTES <= end:
        base, length, leader, magic, crc, bits, delta, first_ms, last_ms, producer, fence, sequence, count = (
            _HEADER.unpack_from(data, position)
        )
        behind = position + length + BEFORE_LENGTH
        if magic != 2 or length < HEADER_BYTES - BEFORE_LENGTH or behind > end:
            break
        if (offset is not None and base != offset) or delta < 0 or leader < epoch:
            break
        whole = data[position:behind]
        if crc32c(whole[CHECKED_AT:]) != crc:
            break
        size = behind - position
        record_batches.append(
            RecordBatch(
                position + at,
                base,
                size,
                leader,
                magic,
                crc,
                bits,
                delta,
                first_ms,
                last_ms,
                producer,
                fence,
                sequence,
                count,
                whole,
            )
        )
        position, offset, epoch = behind, base + delta + 1, leader
    return record_batches


def read_header(
    data: bytes | memoryview, at: int = 0, *, left: int, where: str | None = None, position: int = 0
) -> RecordBatch:
    """Decode the header at `at`, without its records: `data` of the result is empty, and the CRC is not checked.

    Args:
        data: Bytes that hold the header.
        at: The position of the header in `data`.
        left: How many bytes the file has from the header on.
        where: The file or peer, for errors.
        position: The position that the result and errors report.

    Returns:
        The batch without its bytes.

    Raises:
        IncompleteBatch: The file ends inside the batch.
        CorruptBatch: The header is damaged.
        UnsupportedVersion: The batch has a format before 2.
    """
    return read_batch(data, at, where=where, at=position - at, left=left)


def _short(
    data: bytes | memoryview, at: int, left: int, where: str | None, position: int
) -> CorruptBatch | UnsupportedVersion:
    """The error where fewer bytes are left than a header has."""
    if left < BEFORE_LENGTH:
        return IncompleteBatch(f"a batch header ends after {left} bytes", where=where, position=position)
    length = int.from_bytes(data[at + _LENGTH_AT : at + BEFORE_LENGTH], "big", signed=True)
    magic = 2
    if left > _MAGIC_AT:
        magic = int.from_bytes(data[at + _MAGIC_AT : at + _MAGIC_AT + 1], "big", signed=True)
    return _bad_front(length, magic, left, where, position)


def _bad_front(
    length: int, magic: int, left: int, where: str | None, position: int
) -> CorruptBatch | UnsupportedVersion:
    """The error for a batch with a wrong length or format."""
    size = length + BEFORE_LENGTH
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
