"""Where the records of a quorum have nothing but values, one loop reads them as the general reader does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import MetadataLogError
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, read_batch
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.quorum_batch import (
    RECORDS_PER_PORTION,
    _plain_values,
    data_values_by_portions,
    quorum_records,
)

LENGTHS = (0, 1, 2, 56, 57, 58, 63, 64, 120, 121, 127, 128, 8000, 8191, 8192, 20_000)
"""Lengths around those at which a varint of a record gets longer."""


def batch_of(*lengths: int) -> RecordBatch:
    return read_batch(build_batch(7, 1, 5, [b"v" * length for length in lengths]), 0)


def values(batch: RecordBatch) -> list[bytes]:
    return [value for portion in data_values_by_portions(batch) for value in portion]


def by_records(batch: RecordBatch) -> list[bytes | None] | None:
    """The values by the general reader; None where it refuses the batch."""
    try:
        return [record.value for record in quorum_records(batch)]
    except MetadataLogError:
        return None


@pytest.mark.parametrize("length", LENGTHS)
def test_a_plain_batch_is_read_in_one_loop_whatever_its_lengths(length: int) -> None:
    batch = batch_of(length, 3, length)
    found = _plain_values(batch)
    assert values(batch) == by_records(batch) == [b"v" * length, b"vvv", b"v" * length]
    assert found is None or found == values(batch)
    assert (found is not None) == (length <= 8000), "longer ones take another way"


def test_offsets_of_two_bytes_are_read_too() -> None:
    batch = batch_of(*[1] * RECORDS_PER_PORTION)
    assert _plain_values(batch) == [b"v"] * RECORDS_PER_PORTION
    assert values(batch_of(*[1] * (RECORDS_PER_PORTION + 1))) == [b"v"] * (RECORDS_PER_PORTION + 1)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(LENGTHS[:12]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    st.integers(0, 3),
)
def test_of_damaged_records_the_loop_reads_what_the_general_reader_reads_or_nothing(
    lengths: list[int], changes: list[tuple[int, int]], cut: int
) -> None:
    """Nothing behind the header is trusted: bytes change there, and some may be missing at the end."""
    data = bytearray(build_batch(7, 1, 5, [b"\0" * length for length in lengths]))
    for at, byte in changes:
        data[HEADER_BYTES + at % (len(data) - HEADER_BYTES)] = byte
    batch = read_batch(bytes(data), 0, verify=False)
    shorter = RecordBatch(
        **{name: getattr(batch, name) for name in batch.__struct_fields__}
        | {"data": batch.data[: len(batch.data) - cut]}
    )
    found = _plain_values(shorter)
    assert found is None or found == by_records(shorter)
