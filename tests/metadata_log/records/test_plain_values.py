"""Where the records of a quorum have nothing but values, one loop reads them as the general reader does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import MetadataLogError
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, read_batch
from metadata_log.records.batch_builder import batch_of as batch_of_bodies
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.quorum_batch import (
    RECORDS_PER_PORTION,
    _alike_values,
    _plain_values,
    data_values_by_portions,
    quorum_records,
)
from metadata_log.records.record import encode_record

LENGTHS = (0, 1, 2, 56, 57, 58, 63, 64, 120, 121, 127, 128, 8000, 8191, 8192, 20_000)
"""Lengths around those at which a varint of a record gets longer."""


def batch_of(*lengths: int) -> RecordBatch:
    return read_batch(build_batch(7, 1, 5, [b"v" * length for length in lengths]), 0)


def values(batch: RecordBatch) -> list[bytes]:
    return [value for portion in data_values_by_portions(batch) for value in portion]


def plain_values(batch: RecordBatch) -> list[bytes] | None:
    """The values of a batch that is plain to its last byte."""
    plain = _plain_values(batch.data, HEADER_BYTES, 0, batch.record_count)
    return None if plain is None or plain[1] != len(batch.data) else plain[0]


def by_records(batch: RecordBatch) -> list[bytes | None] | None:
    """The values by the general reader; None where it refuses the batch."""
    try:
        return [record.value for record in quorum_records(batch)]
    except MetadataLogError:
        return None


@pytest.mark.parametrize("length", LENGTHS)
def test_a_plain_batch_is_read_in_one_loop_whatever_its_lengths(length: int) -> None:
    batch = batch_of(length, 3, length)
    found = plain_values(batch)
    assert values(batch) == by_records(batch) == [b"v" * length, b"vvv", b"v" * length]
    assert found is None or found == values(batch)
    assert (found is not None) == (length <= 8000), "longer ones take another way"


def test_offsets_of_two_bytes_are_read_too() -> None:
    batch = batch_of(*[1] * RECORDS_PER_PORTION)
    assert plain_values(batch) == [b"v"] * RECORDS_PER_PORTION
    assert values(batch_of(*[1] * (RECORDS_PER_PORTION + 1))) == [b"v"] * (RECORDS_PER_PORTION + 1)


@pytest.mark.parametrize("count", [15, 16, 63, 64, 65, 128, 8192, 8193])
@pytest.mark.parametrize("length", [0, 1, 55, 56, 57, 58, 63, 64, 130])
def test_values_of_one_size_are_written_and_read_together_as_one_by_one(length: int, count: int) -> None:
    contents = [bytes([number % 251]) * length for number in range(count)]
    batch = read_batch(build_batch(7, 1, 5, contents), 0)
    one_by_one = batch_of_bodies(
        [encode_record(0, delta, None, value, ()) for delta, value in enumerate(contents)],
        base_offset=7,
        epoch=1,
        timestamps=(5, 5),
    )
    assert batch.data == one_by_one.data
    assert values(batch) == contents == by_records(batch)
    alike = _alike_values(batch.data, HEADER_BYTES, 0, count)
    assert (alike is None) == (count > 8192)
    assert alike is None or alike == (contents, len(batch.data))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([0, 1, 57, 70]), st.integers(16, 70), st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_among_values_of_one_size_is_read_as_the_general_reader_does(
    length: int, count: int, at: int, byte: int
) -> None:
    data = bytearray(build_batch(7, 1, 5, [b"\0" * length] * count))
    data[HEADER_BYTES + at % (len(data) - HEADER_BYTES)] = byte
    batch = read_batch(bytes(data), 0, verify=False)
    alike = _alike_values(batch.data, HEADER_BYTES, 0, count)
    assert alike is None or alike[1] != len(batch.data) or alike[0] == by_records(batch)


def test_a_damaged_record_behind_the_first_portion_is_found_where_it_is() -> None:
    good = batch_of(*[3] * (RECORDS_PER_PORTION + 20))
    data = bytearray(good.data)
    data[-1] = 7
    portions = data_values_by_portions(read_batch(bytes(data), 0, verify=False))
    assert next(portions) == [b"vvv"] * RECORDS_PER_PORTION
    with pytest.raises(MetadataLogError):
        next(portions)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(LENGTHS[:12]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    st.integers(0, 3),
)
def test_of_damaged_records_the_loop_reads_what_the_general_reader_reads_or_nothing(
    lengths: list[int], changes: list[tuple[int, int]], cut: int
) -> None:
    """Nothing after the header is trusted: bytes change there, and some may be missing at the end."""
    data = bytearray(build_batch(7, 1, 5, [b"\0" * length for length in lengths]))
    for at, byte in changes:
        data[HEADER_BYTES + at % (len(data) - HEADER_BYTES)] = byte
    batch = read_batch(bytes(data), 0, verify=False)
    shorter = RecordBatch(
        **{name: getattr(batch, name) for name in batch.__struct_fields__}
        | {"data": batch.data[: len(batch.data) - cut]}
    )
    found = plain_values(shorter)
    assert found is None or found == by_records(shorter)
