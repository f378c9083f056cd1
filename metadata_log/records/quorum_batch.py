"""Record batches as a quorum writes them, and no others: stricter than the format (Kafka: `BatchAccumulator`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from metadata_log.errors import CorruptBatch
from metadata_log.records.batch import HEADER_BYTES, LONG, RecordBatch
from metadata_log.records.record import Record, records

RECORDS_PER_PORTION: Final = 500
"""How many records a reader in portions reads without a pause."""
MAX_CONTROL_RECORDS: Final = 100
"""The most records of a control batch of a quorum; a leader writes at most three at once."""
_NO_KEY: Final = 1
_RECORDS_PER_HEADER: Final = 2
_BYTES_PER_RECORD: Final = 4096
"""How many bytes are copied and checksummed in about the time of reading one record."""


def quorum_records(batch: RecordBatch, *, where: str | None = None) -> list[Record]:
    """Decode the records of a batch as a quorum writes it: uncompressed, without a transaction, without gaps.

    Kafka's quorum never compresses a batch (`BatchAccumulator` with `Compression.NONE`), but its readers would accept a
    compressed one.

    Args:
        batch: The batch.
        where: The file or peer, for errors.

    Returns:
        The records; at least one.

    Raises:
        CorruptBatch: The batch is damaged, or no quorum writes such a batch.
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
        wrong = f"the batch is compressed ({batch.codec}), which no batch of a quorum is"
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
            what = f"a record has offset {record.offset}, where offset {offset} comes next"
            raise CorruptBatch(what, where=where, position=batch.position)


def data_values_by_portions(batch: RecordBatch, *, where: str | None = None) -> Iterator[list[bytes]]:
    """Decode the values of a batch of data records, at most `RECORDS_PER_PORTION` of them at a time.

    Errors are those of `quorum_records`, and `CorruptBatch` for a record without a value. Each is raised with the
    portion of the wrong record.
    """
    _check_header(batch, where)
    has_few = batch.record_count <= RECORDS_PER_PORTION and batch.base_offset < LONG - RECORDS_PER_PORTION
    if has_few and (plain := _plain_values(batch)) is not None:
        yield plain
        return
    offset = batch.base_offset
    source = records(batch, where=where)
    while found := list(islice(source, RECORDS_PER_PORTION)):
        _check_offsets(found, offset, batch, where)
        offset += len(found)
        yield _values_of(found, batch, where)


def _plain_values(batch: RecordBatch) -> list[bytes] | None:
    """The values of records that have nothing but values, as nearly all of a quorum have: at consecutive offsets,
    without keys, headers and times of their own. None for all others, damaged ones included, which `records` reads.
    """
    data = batch.data
    values: list[bytes] = []
    position = HEADER_BYTES
    try:
        for delta in range(0, 2 * batch.record_count, 2):
            # Each number has one or two bytes. One of more has no plain record, nor has an odd one, which is negative.
            size = data[position]
            position += 1
            if size >= 0x80:
                more = data[position]
                if more >= 0x80:
                    return None
                size += (more << 7) - 0x80
                position += 1
            end = position + (size >> 1)
            # Behind the attributes, which nobody uses, the difference of the times.
            is_plain = not size & 1 and not data[position + 1]
            found = data[position + 2]
            position += 3
            if found >= 0x80:
                more = data[position]
                if more >= 0x80:
                    return None
                found += (more << 7) - 0x80
                position += 1
            is_plain = is_plain and found == delta and data[position] == _NO_KEY
            length = data[position + 1]
            position += 2
            if length >= 0x80:
                more = data[position]
                if more >= 0x80:
                    return None
                length += (more << 7) - 0x80
                position += 1
            stop = position + (length >> 1)
            if not is_plain or length & 1 or stop + 1 != end or data[stop]:
                return None
            values.append(data[position:stop])
            position = end
    except IndexError:
        return None
    return values if position == len(data) else None


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
