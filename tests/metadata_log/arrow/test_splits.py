"""The ranges of long segments: at batch boundaries, complete, and with what their headers say."""

from __future__ import annotations

from random import Random, randrange

import pytest

from arrow_rows import disk_of
from metadata_log.arrow import plan_splits
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch

PATH = "d/__cluster_metadata-0/00000000000000000000.log"


def long_segment(rng: Random) -> bytes:
    """Some three megabytes of batches, short ones and a few longer than what a planner reads at a time."""
    content, offset, epoch = [], 0, 1
    for number in range(400):
        count = rng.choice([1, 1, 1, 20])
        size = 1_200_000 if number == 200 else rng.choice([4, 50, 300, 3_000])
        epoch += rng.random() < 0.05
        content.append(build_batch(offset, epoch, 1_000 + rng.randrange(9_000), [bytes(size)] * count))
        offset += count
    return b"".join(content)


@pytest.mark.parametrize("min_bytes", [1, 10_000, 1_000_000, 1 << 40])
def test_ranges_of_a_long_segment(min_bytes: int) -> None:
    seed = randrange(1 << 32)
    print(f"seed {seed}")
    content = long_segment(Random(seed))
    batches = list(scan(content))
    splits = plan_splits("d", disk=disk_of({PATH: content}), cluster="c", min_bytes=min_bytes)
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]
    assert (splits[0].start, splits[-1].end) == (0, len(content))
    assert all(split.end - split.start >= min_bytes for split in splits[:-1])
    epoch = 0
    for split in splits:
        inside = [batch for batch in batches if split.start <= batch.position < split.end]
        assert (split.expected_offset, split.end_offset) == (inside[0].base_offset, inside[-1].next_offset)
        assert inside[0].position == split.start
        assert (split.epoch, split.max_timestamp_ms) == (epoch, max(batch.max_timestamp for batch in inside))
        epoch = inside[-1].epoch
    if min_bytes == 1:
        assert len(splits) == len(batches)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_range_reaches_the_end_from_a_damaged_header_on(place: str) -> None:
    seed = randrange(1 << 32)
    print(f"seed {seed}")
    content = bytearray(long_segment(Random(seed)))
    batches = list(scan(bytes(content)))
    broken = batches[{"first": 0, "middle": len(batches) // 2, "last": -1}[place]]
    content[broken.position + 16] = 1  # the format of the batch
    splits = plan_splits("d", disk=disk_of({PATH: bytes(content)}), cluster="c", min_bytes=1)
    assert [split.start for split in splits] == [batch.position for batch in batches[: batches.index(broken)]] or [0]
    assert (splits[-1].end, splits[-1].end_offset) == (len(content), None)
