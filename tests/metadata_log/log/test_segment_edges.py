"""The neighbours of a cut, the indexes of a closed segment, and a segment in a directory with a new name."""

from __future__ import annotations

from struct import pack

import pytest

from metadata_log.errors import CorruptBatch
from metadata_log.log.log import MetadataLog
from metadata_log.log.segment import Segment, file_name, scan_file
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch


def segment_of(disk: MemoryDisk, *offsets: int, interval: int = 1 << 20) -> Segment:
    """A segment with a batch of one record at each of these offsets; batch N has the timestamp 10 N."""
    if not disk.exists("d"):
        disk.mkdir("d")
    segment = Segment.create(disk, "d", 0, index_interval_bytes=interval)
    for number, offset in enumerate(offsets):
        scratch = MemoryDisk()
        file = scratch.open("f", create=True)
        file.append(build_batch(offset, 1, 10 * number, [b"value"]))
        (batch,) = scan_file(file)
        segment.append(batch.data, [batch])
    return segment


def test_only_a_compacted_segment_may_have_gaps_before_a_cut() -> None:
    segment = segment_of(MemoryDisk(), 0, 1, 4, 7)
    with pytest.raises(CorruptBatch, match="where offset 2 follows"):
        segment.truncate(7, is_dense=True)
    segment.truncate(7, is_dense=False)
    assert segment.end_offset == 5
    dense = segment_of(MemoryDisk(), 0, 1, 2)
    dense.truncate(2, is_dense=True)
    assert dense.end_offset == 2


@pytest.mark.parametrize("is_dense", [False, True])
def test_no_segment_has_batches_that_overlap_before_a_cut(is_dense: bool) -> None:
    disk = MemoryDisk()
    segment = segment_of(disk, 0, 1, 2, 3)
    size = segment.size_bytes // 4
    disk.overwrite(f"d/{file_name(0)}", size, (0).to_bytes(8, "big"))
    with pytest.raises(CorruptBatch, match="where offset 1 follows"):
        segment.truncate(3, is_dense=is_dense)


def test_a_cut_looks_at_headers_from_one_index_entry_before_it_on() -> None:
    disk = MemoryDisk()
    segment = segment_of(disk, *range(8), interval=1)
    size = segment.size_bytes // 8
    disk.overwrite(f"d/{file_name(0)}", 4 * size, (99).to_bytes(8, "big"))
    segment.truncate(6, is_dense=True)
    assert segment.end_offset == 6
    with pytest.raises(CorruptBatch):
        segment.truncate(4, is_dense=True)


@pytest.mark.parametrize("interval", [1, 100, 1 << 20])
def test_the_sizes_of_closed_indexes_are_those_of_their_content(interval: int) -> None:
    """The time index ends with the largest timestamp, whether it has an entry or not."""
    for count in range(1, 6):
        disk = MemoryDisk()
        segment = segment_of(disk, *range(count), interval=interval)
        offsets, times = segment.closed_indexes()
        assert segment.closed_index_bytes == (len(offsets), len(times))
        assert times[-12:-4] == (10 * (count - 1)).to_bytes(8, "big") or count == 1
        segment.write_indexes()
        assert disk.read(f"d/{file_name(0, '.index')}") == offsets
        assert disk.read(f"d/{file_name(0, '.timeindex')}") == times


def test_a_segment_follows_the_new_name_of_its_directory() -> None:
    disk = MemoryDisk()
    segment = segment_of(disk, 0, 1)
    disk.rename_directory("d", "e")
    before = sum(disk._open.values())
    segment.relocate("e")
    assert sum(disk._open.values()) == before
    assert segment.file.path == f"e/{file_name(0)}"
    segment.write_indexes()
    assert disk.exists(f"e/{file_name(0, '.index')}")


def test_a_log_whose_offsets_have_a_gap_is_not_cut() -> None:
    disk = MemoryDisk()
    disk.mkdir("d")
    log = MetadataLog.open(disk, "d")
    for offset in range(4):
        log.append(build_batch(offset, 1, 5, [b"value"]))
    log.flush()
    size = log.size_bytes // 4
    disk.overwrite(f"d/{file_name(0)}", 2 * size, (9).to_bytes(8, "big"))
    with pytest.raises(CorruptBatch, match="where offset 2 follows"):
        log.truncate(3)


def test_a_log_forgets_the_batches_that_it_has_cut() -> None:
    disk = MemoryDisk()
    disk.mkdir("d")
    log = MetadataLog.open(disk, "d")
    for offset in range(3):
        log.append(build_batch(offset, 1, 5, [b"old"]))
    log.truncate(1)
    assert log.batch_in_memory(1) is None
    new = build_batch(1, 2, 5, [b"new"])
    log.append(new)
    assert log.read(1, 10**6) == new
    assert log.read(0, 10**6) == disk.read(f"d/{file_name(0)}")


@pytest.mark.parametrize(
    ("entries", "refused"),
    [
        ([(0, 0)], None),
        ([(1, 0)], None),
        ([(0, 1), (1, 2)], None),
        ([(-1, 1)], "out of order"),
        ([(1, -1)], "out of order"),
        ([(1, 1), (1, 2)], "out of order"),
        ([(1, 1), (2, 1)], "out of order"),
        ([(2, 1), (1, 2)], "out of order"),
        ([(1, 2), (2, 1)], "out of order"),
        ([(0, 1), (1, 4)], None),
        ([(0, 1), (1, 5)], "behind the end of the segment"),
    ],
)
def test_an_offset_index_is_in_order_and_within_the_segment(
    entries: list[tuple[int, int]], refused: str | None
) -> None:
    """An entry is an offset in the segment and a batch's number, which stands for its position."""
    disk = MemoryDisk()
    written = segment_of(disk, *range(4))
    size = written.size_bytes // 4
    content = b"".join(pack(">ii", offset, number * size) for offset, number in entries)
    disk.open(f"d/{file_name(0, '.index')}", create=True).append(content)
    loaded = Segment.open(disk, "d", 0, index_interval_bytes=1)
    if refused is None:
        loaded.load_indexes()
        assert loaded.size_bytes == written.size_bytes
        return
    with pytest.raises(CorruptBatch, match=refused) as found:
        loaded.load_indexes()
    assert found.value.where == f"d/{file_name(0, '.index')}"
