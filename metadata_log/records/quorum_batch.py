"""Record batches as a quorum writes them, and no others: stricter than the format (Kafka: `BatchAccumulator`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from metadata_log.errors import CorruptBatch
from metadata_log.records.batch import HEADER_BYTES, LONG, RecordBatch
from metadata_log.records.record import FIRST_BYTES, ONE_BYTE, SECOND_BYTES, SHORT_VARINTS, Record, records

RECORDS_PER_PORTION: Final = 500
"""How many records a reader in portions reads without a pause."""
MAX_CONTROL_RECORDS: Final = 100
"""The most records of a control batch of a quorum; a leader writes at most three at once."""
_NO_KEY: Final = 1
_NO_KEYS: Final = bytes((_NO_KEY,))
_FEW: Final = 16
"""So many records are worth a look whether they are alike."""
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
    decoded = list(records(batch, where=where))
    _check_offsets(decoded, batch.base_offset, batch, where)
    return decoded


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
    count, position, delta = batch.record_count, HEADER_BYTES, 0
    if batch.base_offset < LONG - count:
        while delta < count:
            portion = min(count - delta, RECORDS_PER_PORTION)
            plain = _plain_values(batch.data, position, delta, portion)
            if plain is None or (delta + portion == count and plain[1] != len(batch.data)):
                break
            values, position = plain
            delta += portion
            yield values
        else:
            return
    offset = batch.base_offset + delta
    source = islice(records(batch, where=where), delta, None)
    while some := list(islice(source, RECORDS_PER_PORTION)):
        _check_offsets(some, offset, batch, where)
        offset += len(some)
        yield _values_of(some, batch, where)


def _plain_values(data: bytes, position: int, first: int, count: int) -> tuple[list[bytes], int] | None:
    """The values of records that have nothing but values, as nearly all of a quorum have: at consecutive offsets,
    without keys, headers and times of their own; and the position after them. None for all others, damaged ones
    included, which `records` reads.

    The first record stands at `position`, with the offset delta `first`.
    """
    if count >= _FEW and (alike := _alike_values(data, position, first, count)) is not None:
        return alike
    values: list[bytes] = []
    try:
        for delta in range(2 * first, 2 * (first + count), 2):
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
            # After the attributes, which nobody uses, the difference of the times.
            is_plain = not size & 1 and not data[position + 1]
            offset_delta = data[position + 2]
            position += 3
            if offset_delta >= 0x80:
                more = data[position]
                if more >= 0x80:
                    return None
                offset_delta += (more << 7) - 0x80
                position += 1
            is_plain = is_plain and offset_delta == delta and data[position] == _NO_KEY
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
    return values, position


def _alike_values(data: bytes, position: int, first: int, count: int) -> tuple[list[bytes], int] | None:
    """As `_plain_values`, for values of one size, as a program of its own mostly has them; None for all others.

    Where all records are as long, the same byte of each is a slice with a step: the first record says what they hold,
    and some eight comparisons of slices whether all of them do. To read them one by one takes ten times as long.
    """
    values: list[bytes] = []
    while count:
        # From some offset deltas on, the records are a byte longer.
        run = min(count, (ONE_BYTE if first < ONE_BYTE else len(SHORT_VARINTS)) - first)
        if run <= 0 or position >= len(data):
            return None
        delta = SHORT_VARINTS[first]
        size_end = position + (1 if data[position] < 0x80 else 2)
        length_at = size_end + 3 + len(delta)
        if length_at + 1 >= len(data):
            return None
        value_at = length_at + (1 if data[length_at] < 0x80 else 2)
        length = _of_two(data, length_at)
        step = size_end - position + (_of_two(data, position) >> 1)
        stop = position + run * step
        if length & 1 or value_at + (length >> 1) + 1 != position + step or stop > len(data):
            return None
        expected = [
            *((at, data[at : at + 1] * run) for at in range(position, size_end)),
            (size_end + 1, bytes(run)),
            (size_end + 2, FIRST_BYTES[first : first + run]),
            *(((size_end + 3, SECOND_BYTES[first : first + run]),) if len(delta) == 2 else ()),
            (length_at - 1, _NO_KEYS * run),
            *((at, data[at : at + 1] * run) for at in range(length_at, value_at)),
            (position + step - 1, bytes(run)),
        ]
        if any(data[at:stop:step] != column for at, column in expected):
            return None
        size = length >> 1
        values += [data[at : at + size] for at in range(value_at, stop, step)]
        position = stop
        first += run
        count -= run
    return values, position


def _of_two(data: bytes, at: int) -> int:
    """A number of one or two bytes, which is twice as large as what it says; an odd one where it is no such number."""
    low = data[at]
    if low < 0x80:
        return low
    high = data[at + 1]
    return 1 if high >= 0x80 else low + (high << 7) - 0x80


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
