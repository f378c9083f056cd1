"""Both readers of frames agree on many batches at once, with control batches, tampered records and false counts."""

from __future__ import annotations

from random import Random, randrange

import pytest
from msgspec.structs import replace

from metadata_log.arrow import frames, frames_numpy
from metadata_log.records.batch import CONTROL, HEADER_BYTES, RecordBatch
from metadata_log.records.batch_builder import new_batch, new_control_batch
from metadata_log.records.frame import ControlRecordType
from metadata_log.records.record import encode_record

SIZES = (4, 5, 40, 60, 61, 62, 63, 64, 200, 8_190, 8_200, 20_000)
"""Of values: the records around these have one, two and three bytes for their sizes."""
FALSE_COUNTS = (-1, 0, 1, 2, 1 << 20, (1 << 31) - 1)


def some_batches(rng: Random, count: int) -> list[RecordBatch]:
    found, offset = [], rng.choice([0, 1 << 40])
    for _ in range(count):
        if rng.random() < 0.2:
            kinds = [rng.choice([ControlRecordType.LEADER_CHANGE, ControlRecordType.SNAPSHOT_HEADER, 9])]
            batch = new_control_batch(offset, 3, 1_000, [(kind, rng.randbytes(rng.randrange(2, 90))) for kind in kinds])
        else:
            records = 1 if rng.random() < 0.6 else rng.randrange(2, 90)
            sizes = [rng.choice(SIZES[:9] if records > 9 else SIZES) for _ in range(records)]
            values = [b"\x01" + bytes([rng.randrange(27), 0]) + rng.randbytes(size - 3) for size in sizes]
            batch = new_batch(offset, 3, 1_000, values)
        found.append(batch)
        offset = batch.next_offset
    return found


def tampered(batch: RecordBatch, rng: Random) -> RecordBatch:
    """A batch with other bytes among its first records, or with a false number of records."""
    if rng.random() < 0.3:
        return replace(batch, record_count=rng.choice([*FALSE_COUNTS, batch.record_count - 1, batch.record_count + 1]))
    if rng.random() < 0.3:
        return short_control_batch(batch, rng.randbytes(rng.randrange(7)), rng.randbytes(rng.randrange(4)))
    data = bytearray(batch.data)
    for _ in range(rng.randrange(1, 3)):
        at = min(HEADER_BYTES + rng.randrange(24), len(data) - 1)
        data[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, rng.randrange(256)])
    return replace(batch, data=bytes(data))


def short_control_batch(batch: RecordBatch, key: bytes, value: bytes) -> RecordBatch:
    """A control batch in the place of another batch, with one record of this key and value."""
    data = batch.data[:HEADER_BYTES] + encode_record(0, 0, key, value, ())
    return replace(batch, attributes=CONTROL, record_count=1, size_bytes=len(data), data=data)


def same_frames(batches: list[RecordBatch]) -> None:
    (one, counts), (other, other_counts) = frames_numpy.frames(batches, "a log"), frames.frames(batches, "a log")
    one.validate(full=True)
    assert counts == other_counts
    assert one.equals(other)


@pytest.mark.parametrize("count", [1, 5, 47, 48, 49, 200])
def test_batches_as_controllers_write_them(count: int) -> None:
    seed = randrange(1 << 32)
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(5):
        batches = some_batches(rng, count)
        same_frames(batches)
        assert frames_numpy.frames(batches, "a log")[0].num_rows == sum(batch.record_count for batch in batches)


@pytest.mark.parametrize("count", [1, 60])
def test_tampered_batches_among_others(count: int) -> None:
    seed = randrange(1 << 32)
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(150):
        batches = some_batches(rng, count)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(count)
            batches[at] = tampered(batches[at], rng)
        same_frames(batches)


def test_a_batch_with_fewer_records_than_its_header_says() -> None:
    """Its records end where the batch ends, so only their number is wrong."""
    batches = [new_batch(number, 1, 0, [b"\x01\x14\x00\x00"]) for number in range(60)]
    batches[30] = replace(batches[30], record_count=2)
    same_frames(batches)
    found, counts = frames_numpy.frames(batches, "a log")
    assert found["damage"].drop_null().to_pylist()
    assert counts[30] == 2
