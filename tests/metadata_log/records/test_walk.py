"""The fast ways through the records of a batch read them as the general reader does."""

from __future__ import annotations

import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.compression import Compression, deflate
from metadata_log.errors import CorruptBatch, MetadataLogError, OversizedBatch
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, java_long, read_batch
from metadata_log.records.batch_builder import batch_of as batch_of_bodies
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.quorum_batch import (
    RECORDS_PER_PORTION,
    _alike_values,
    _plain_values,
    data_values_by_portions,
    quorum_records,
)
from metadata_log.records.record import MAX_CONTROL_BYTES, MOST_HEADERS, encode_record, records, unpacking, varint
from metadata_log.records.walk import Walked, Wanted, frames, key_of, rewriting, walking
from metadata_log.serde.codec import finished
from support.bombs import NOW_MS, UNENDING, batch, forbid_objects, headers, in_order, record, steps_of, zstd

MANY = 20_000


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record and no header may become an object."""
    forbid_objects(monkeypatch)


def opened(data: bytes) -> tuple[RecordBatch, bytes | bytearray]:
    found = read_batch(data)
    return found, finished(unpacking(found))


@pytest.mark.usefixtures("objects")
def test_many_records_are_walked_in_steps_without_objects() -> None:
    found, data = opened(batch(zstd(in_order(MANY)), MANY, codec=Compression.ZSTD))
    pauses, walked = steps_of(walking(found, data, Wanted(has_keys=True)))
    assert walked == Walked(NOW_MS, True, ())
    assert pauses >= MANY // 4096
    assert sum(each is None for each in frames(found, data)) >= MANY // 2048 - 1


@pytest.mark.usefixtures("objects")
def test_many_headers_are_walked_in_steps_without_objects() -> None:
    found, data = opened(batch(b"".join(record(at, headers=headers(10_000)) for at in range(8)), 8))
    pauses, walked = steps_of(walking(found, data, Wanted()))
    assert walked.is_in_order
    assert pauses >= 4


def test_unpacking_pauses() -> None:
    found = read_batch(batch(zstd(record(value=bytes(32 << 20))), codec=Compression.ZSTD))
    pauses, data = steps_of(unpacking(found))
    assert len(data) > 32 << 20
    assert pauses >= 8


def test_a_large_block_is_unpacked_after_a_pause() -> None:
    """Those who wait for their turn must not hold it unpacked, and a block of snappy comes out at once."""
    body = record(value=bytes(8 << 20))
    bare, framed = bytes(cramjam.snappy.compress_raw(body)), deflate(Compression.SNAPPY, body)
    for packed, least in ((bare, 1), (framed[:16] + len(bare).to_bytes(4, "big") + bare, 1), (framed, 0)):
        steps = unpacking(read_batch(batch(packed, codec=Compression.SNAPPY)))
        tracemalloc.start()
        try:
            next(steps, None)
            assert tracemalloc.get_traced_memory()[1] < 6 << 20
        finally:
            tracemalloc.stop()
        assert steps_of(steps)[0] >= least


def test_more_headers_than_the_limit_are_refused_before_they_are_counted() -> None:
    for count in (MOST_HEADERS + 1, 2**31 - 1):
        found, data = opened(batch(record(headers=varint(count))))
        with pytest.raises(CorruptBatch, match=f"{count} headers, where 65536 are the most"):
            finished(walking(found, data, Wanted()))
        with pytest.raises(CorruptBatch, match=f"{count} headers, where 65536 are the most"):
            list(records(found))


def test_the_headers_of_all_records_have_a_limit() -> None:
    body = b"".join(record(at, headers=headers(MOST_HEADERS)) for at in range(17))
    found, data = opened(batch(body, 17))
    with pytest.raises(CorruptBatch, match="more than 1048576 headers"):
        finished(walking(found, data, Wanted()))


def test_a_walk_ends_at_its_first_refusals() -> None:
    """What follows is not looked at: here it is damage."""
    found, data = opened(batch(record(key=None) * 5 + b"damage", 10))
    walked = finished(walking(found, data, Wanted(has_keys=True, most_refused=3)))
    assert walked.refused == ((0, None), (1, None), (2, None))
    walked = finished(walking(found, data, Wanted(needs_order=True)))
    assert not walked.is_in_order


def test_times_and_offsets_wrap_as_javas() -> None:
    """The sum of two numbers of a client ended the broker: no field could hold it."""
    end = 2**63 - 1
    found, data = opened(batch(record(time=1) + record(1, time=0), 2, base_time=end))
    assert [each.timestamp for each in frames(found, data) if each is not None] == [-end - 1, end]
    assert [each.timestamp for each in records(found)] == [-end - 1, end]
    assert finished(walking(found, data, Wanted())).newest == end
    late = read_batch((end - 1).to_bytes(8, "big") + found.data[8:])
    assert (late.last_offset, late.next_offset) == (end, -end - 1)
    assert [each.offset for each in records(late)] == [end - 1, end]
    assert (java_long(2**63), java_long(-(2**63) - 1)) == (-(2**63), end)


def test_numbers_lose_the_bits_that_java_loses() -> None:
    """A number of five bytes has 35 bits, of which an `int` keeps 32."""
    wide = b"\x82\x80\x80\x80\x70"  # 1, as a zigzag number, with three bits above the 32nd
    body = b"\x00\x00" + wide + b"\x01\x01\x00"
    found, data = opened(batch(varint(len(body)) + body, base_time=NOW_MS))
    assert [each.offset for each in records(found)] == [1]
    assert [each.offset for each in frames(found, data) if each is not None] == [1]
    with pytest.raises(CorruptBatch, match="longer than 5 bytes"):
        list(records(read_batch(batch(UNENDING))))


def test_a_control_batch_unpacks_to_little() -> None:
    """A leader that lies must not fill the memory of a follower with a marker."""
    bomb = bytearray(batch(zstd(bytes(MAX_CONTROL_BYTES + 1)), codec=Compression.ZSTD | 0x20))
    with pytest.raises(OversizedBatch):
        finished(unpacking(read_batch(bytes(bomb))))


def test_records_are_encoded_again_without_objects() -> None:
    body = record(0, time=5, key=b"a") + record(3, time=-2, key=None, value=None, headers=headers(2))
    found, data = opened(batch(body, 2, base_time=NOW_MS))
    again = finished(rewriting(found, data, base_time=NOW_MS + 5, renumbers=True))
    assert bytes(again) == record(0, time=0, key=b"a") + record(1, time=-7, key=None, value=None, headers=headers(2))
    second = finished(rewriting(found, data, base_time=NOW_MS, kept=b"\x00\x01"))
    assert bytes(second) == record(3, time=-2, key=None, value=None, headers=headers(2))
    assert [key_of(data, each) for each in frames(found, data) if each is not None] == [(b"a", True), (None, False)]


# Where the records of a quorum have nothing but values, one loop reads them as the general reader does.


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
