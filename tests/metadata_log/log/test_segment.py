"""Batches in files: read in chunks, sought after damage, and found by their offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metadata_log.disk import File
from metadata_log.errors import CorruptBatch, IncompleteBatch
from metadata_log.log.log import MetadataLog
from metadata_log.log.segment import scan_file, scan_headers
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch

SIZES = (30, 400, 10, 90, 1000, 20)


def file_of(*pieces: bytes) -> tuple[MemoryDisk, File]:
    disk = MemoryDisk()
    file = disk.open("f", create=True)
    for piece in pieces:
        file.append(piece)
    return disk, file


def batches() -> list[bytes]:
    return [build_batch(offset, 3, 5, [b"x" * size]) for offset, size in enumerate(SIZES)]


@pytest.mark.parametrize("chunk_bytes", [61, 62, 100, 110, 500, 1 << 20])
def test_a_batch_may_be_larger_than_the_pieces_in_which_a_file_is_read(chunk_bytes: int) -> None:
    _, file = file_of(*batches())
    assert [batch.data for batch in scan_file(file, chunk_bytes=chunk_bytes)] == batches()


@pytest.mark.parametrize("chunk_bytes", [61, 100, 1 << 20])
@pytest.mark.parametrize("missing", [1, 20, 60, 80])
def test_a_file_that_ends_inside_a_batch_yields_the_batches_before(missing: int, chunk_bytes: int) -> None:
    content = b"".join(batches())
    _, file = file_of(content[:-missing])
    scan = scan_file(file, chunk_bytes=chunk_bytes)
    assert [next(scan).data for _ in SIZES[:-1]] == batches()[:-1]
    with pytest.raises(IncompleteBatch) as ended:
        next(scan)
    assert ended.value.position == len(content) - len(batches()[-1])


@pytest.mark.parametrize("scan", [scan_file, scan_headers])
@pytest.mark.parametrize("first", range(len(SIZES)))
def test_a_scan_begins_and_ends_where_it_is_told(scan: Callable[..., Any], first: int) -> None:
    content = batches()
    _, file = file_of(*content)
    starts = [sum(map(len, content[:count])) for count in range(len(content) + 1)]
    for last in range(first, len(content) + 1):
        found = [batch.base_offset for batch in scan(file, starts[first], end=starts[last])]
        assert found == list(range(first, last))


def test_the_stored_batches_begin_with_the_one_that_holds_the_offset() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d", segment_bytes=500, index_interval_bytes=200)
    for offset in range(0, 60, 3):
        log.append(build_batch(offset, 1, 5, [b"x" * 10] * 3))
    for offset in range(60):
        found = [(batch.base_offset, path) for batch, path in log.stored_batches(offset)]
        assert [base for base, _ in found] == list(range(offset // 3 * 3, 60, 3))
        assert found[-1][1] == max(f"d/{name}" for name in disk.list("d") if name.endswith(".log"))
    assert list(log.stored_batches(60)) == []


def test_a_log_has_in_memory_what_was_appended_since_the_start() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    for offset in (0, 3):
        log.append(build_batch(offset, 1, 5, [b"x"] * 3))
    log.close()
    log = MetadataLog.open(disk, "d")
    assert [log.batch_in_memory(offset) for offset in (0, 5, 6)] == [None, None, None]
    for offset in (6, 9):
        log.append(build_batch(offset, 1, 5, [b"x"] * 3))
    found = [log.batch_in_memory(offset) for offset in range(13)]
    assert [None if batch is None else batch.base_offset for batch in found] == [None] * 6 + [6] * 3 + [9] * 3 + [None]


def test_a_batch_one_byte_behind_damage_is_found() -> None:
    """One byte between two batches, and the second one is whole: no torn write leaves that."""
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 1, 5, [b"first"]))
    log.close()
    file = disk.open("d/00000000000000000000.log", create=False)
    file.append(b"!" + build_batch(2, 1, 5, [b"third"]))
    file.fsync()
    file.close()
    with pytest.raises(CorruptBatch, match="the batch of offset 2 at byte"):
        MetadataLog.open(disk, "d")
