"""Damage that a power failure may leave is truncated, as by Kafka; damage that only a disk can cause is refused."""

from __future__ import annotations

import pytest

from metadata_log.disk import replace_file
from metadata_log.errors import CorruptBatch
from metadata_log.log.log import MetadataLog
from metadata_log.log.snapshot import encode_snapshot, snapshot_name
from metadata_log.log.torn_write import SECTOR_BYTES
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import OffsetAndEpoch

LAST = "d/00000000000000000008.log"


def open_log(disk: MemoryDisk) -> MetadataLog:
    return MetadataLog.open(disk, "d", segment_bytes=8 * 1100, segment_ms=10**12)


def written_disk(count: int = 16) -> tuple[MemoryDisk, list[bytes]]:
    """A log of batches of some 1100 bytes, eight of them in each segment."""
    disk, batches = MemoryDisk(), []
    log = open_log(disk)
    for offset in range(count):
        batches.append(build_batch(offset, 1 + offset // 4, 5, [b"%04d" % offset * 256]))
        log.append(batches[-1])
    log.close()
    return disk, batches


def files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: disk.peek(path) for path in disk.files()}


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    disk.overwrite(path, position, bytes([disk.peek(path)[position] ^ 1]))


def refusal(disk: MemoryDisk) -> CorruptBatch:
    """Opening refuses, and leaves every file as it was."""
    before = files(disk)
    with pytest.raises(CorruptBatch) as refused:
        open_log(disk)
    assert files(disk) == before
    assert disk._open == {}, "no file stays open"
    assert refused.value.hint is not None
    assert "docs/howto/damaged-disk.md" in refused.value.hint
    return refused.value


def positions(batches: list[bytes]) -> list[int]:
    """Where each batch of a segment begins."""
    return [sum(map(len, batches[:number])) for number in range(len(batches))]


@pytest.mark.parametrize("inside", [8, 11, 30, 61, 500, 1090])
@pytest.mark.parametrize("number", range(16))
def test_a_flipped_bit_loses_nothing_but_the_last_batch(number: int, inside: int) -> None:
    """Only the end of the log may be a torn write: nothing is behind it."""
    disk, batches = written_disk()
    path = LAST if number >= 8 else "d/00000000000000000000.log"
    position = positions(batches[number // 8 * 8 :])[number % 8]
    flip(disk, path, position + inside)
    if number == 15:
        assert open_log(disk).end_offset == 15
    else:
        refused = refusal(disk)
        assert (refused.where, refused.position) == (path, position)
        assert "no torn write" in refused.what


@pytest.mark.parametrize("hole", [(0, 1), (0, 2), (1, 2), (2, 5), (1, 9)])
def test_sectors_that_were_never_written_are_a_torn_write(hole: tuple[int, int]) -> None:
    """The pages of what was not flushed reach the disk in any order; a page that did not reads as zeros."""
    disk, batches = written_disk()
    flushed = len(batches[8])
    first = flushed // SECTOR_BYTES
    start, end = max((first + hole[0]) * SECTOR_BYTES, flushed), (first + hole[1]) * SECTOR_BYTES
    disk.overwrite(LAST, start, bytes(end - start))
    log = open_log(disk)
    assert log.end_offset in {9, 10}
    assert "truncated the log" in log.recovered[0]
    assert [batch.data for batch in scan(log.read(8, 10**6))] == batches[8 : log.end_offset]


@pytest.mark.parametrize("is_whole_tail", [False, True])
def test_damage_below_a_snapshot_is_refused(is_whole_tail: bool) -> None:
    """A snapshot is made of what is on the disk; so nothing below its offset can be torn, nor cut without a loss."""
    disk, batches = written_disk()
    snapshot = OffsetAndEpoch(epoch=4, offset=14)
    replace_file(disk, "d", snapshot_name(snapshot), encode_snapshot([], epoch=4, timestamp_ms=5))
    start = positions(batches[8:])[5]
    end = sum(map(len, batches[8:])) if is_whole_tail else start + 2 * SECTOR_BYTES
    disk.overwrite(LAST, start, bytes(end - start))
    assert snapshot_name(snapshot) in refusal(disk).what


def test_a_torn_write_behind_a_snapshot_is_cut() -> None:
    disk, batches = written_disk()
    snapshot = OffsetAndEpoch(epoch=4, offset=14)
    replace_file(disk, "d", snapshot_name(snapshot), encode_snapshot([], epoch=4, timestamp_ms=5))
    start = positions(batches[8:])[7]
    disk.open(LAST).truncate(start + 70)
    assert open_log(disk).end_offset == 15


def test_a_batch_embedded_in_a_value_is_not_taken_for_a_batch_of_the_log() -> None:
    """A value of a torn batch may be a batch itself, of another log."""
    disk, log = MemoryDisk(), None
    log = open_log(disk)
    log.append(build_batch(0, 3, 5, [b"first"]))
    torn = build_batch(1, 3, 5, [b"x" * 600 + build_batch(0, 9, 5, [b"earlier"]) + build_batch(7, 2, 5, [b"older"])])
    log.append(torn[:-1] + b"!")
    log.close()
    assert open_log(disk).end_offset == 1
