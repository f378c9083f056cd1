"""Rules of the log's files at their very limits and at the edges of segments."""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack
from typing import Any

import pytest
from google_crc32c import value as crc32c

from metadata_log.disk import make_directory
from metadata_log.errors import CorruptBatch, DecodeError
from metadata_log.log import segment as segment_module
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.log import MetadataLog
from metadata_log.log.producer_snapshot import StoredProducer, decode_producer_snapshot, encode_producer_snapshot
from metadata_log.log.segment import Segment, file_name, next_sound_batch, scan_file
from metadata_log.log.snapshot import snapshot_name
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.log.torn_write import refuse_damage
from metadata_log.memory_disk import MemoryDisk, MemoryFile
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import OffsetAndEpoch

# Epochs


def test_an_epoch_that_is_known_already_changes_nothing() -> None:
    """The log writes its epochs only if the object is another one."""
    history = EpochHistory((OffsetAndEpoch(epoch=5, offset=10),))
    assert history.assign(5, 10) is history
    assert history.assign(5, 11) is history
    assert history.assign(5, 9) is not history


# Producer snapshots


def test_a_producer_snapshot_with_fewer_entries_than_announced_is_refused() -> None:
    """The checksum is right: another program has written the number."""
    checked = (2).to_bytes(4, "big") + encode_producer_snapshot([StoredProducer(1, 0, 0, 0, 0, 0, -1, -1)])[10:]
    content = bytes([0, 1]) + int(crc32c(checked)).to_bytes(4, "big") + checked
    with pytest.raises(DecodeError, match="ends before its 2 entries"):
        decode_producer_snapshot(content, "f")


# Segments


def file_with(content: bytes) -> MemoryFile:
    file = MemoryDisk().open("f", create=True)
    file.append(content)
    return file


def test_a_length_that_no_batch_has_is_named() -> None:
    size = 0x01000000 + 12
    header = bytes(8) + (size - 12).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(200)
    file = file_with(header + bytes(size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_module, "MOST_BATCH_BYTES", size - 1)
        with pytest.raises(CorruptBatch, match=f"no batch has {size} bytes"):
            list(scan_file(file, chunk_bytes=100))


def test_a_batch_of_the_greatest_size_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch(0, 3, 5, [b"x" * 500])
    monkeypatch.setattr(segment_module, "MOST_BATCH_BYTES", len(batch))
    assert [one.data for one in scan_file(file_with(batch), chunk_bytes=100)] == [batch]


def test_a_new_segment_survives_a_power_failure_at_once() -> None:
    disk = MemoryDisk()
    make_directory(disk, "d")
    made = Segment.create(disk, "d", 0, index_interval_bytes=4096)
    disk.crash()
    assert disk.list("d") == [made.file.path.rpartition("/")[2]]


def segment_with_a_damaged_batch() -> Segment:
    """Three batches; a bit of the records of the first one is wrong."""
    disk = MemoryDisk()
    make_directory(disk, "d")
    made = Segment.create(disk, "d", 0, index_interval_bytes=1 << 20)
    data = [build_batch(offset, 3, 5, [b"x" * 50]) for offset in range(3)]
    for one in data:
        made.append(one, tuple(scan_file(file_with(one))))
    disk.overwrite(made.file.path, len(data[0]) - 5, b"y")
    return made


def test_a_truncation_does_not_check_the_batches_that_stay() -> None:
    """The broker has checked these, and a reader will."""
    segment = segment_with_a_damaged_batch()
    segment.truncate(2, is_dense=True)
    assert segment.end_offset == 2


def test_batches_are_listed_without_a_check_of_their_records() -> None:
    assert [batch.base_offset for batch in segment_with_a_damaged_batch().batches(0)] == [0, 1, 2]


@dataclass
class _FileWithHole:
    """A file with zeros that go on after the part that is searched."""

    path: str = "f"

    def pread(self, size: int, position: int) -> bytes:
        assert size >= 0, (size, position)
        return bytes(size)

    def next_data(self, position: int) -> int:
        return 546


def test_the_search_for_a_sound_batch_ends_at_a_hole_that_goes_beyond_its_end() -> None:
    file: Any = _FileWithHole()
    assert next_sound_batch(file, 0, end=500) is None


# The log and its snapshots


def test_a_segment_is_rolled_by_the_newest_time_of_its_records() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d", segment_bytes=1 << 20, segment_ms=1000)
    log.append(build_batch(0, 1, 5000, [b"one"]))
    log.append(build_batch(1, 1, 6000, [b"two"]))
    assert [name for name in disk.list("d") if name.endswith(".log")] == ["00000000000000000000.log"]
    log.append(build_batch(2, 1, 6001, [b"three"]))
    assert [name for name in disk.list("d") if name.endswith(".log")][-1] == "00000000000000000002.log"


def test_a_snapshot_without_its_header_is_wrong_from_its_first_byte() -> None:
    disk = MemoryDisk()
    make_directory(disk, "d")
    received = SnapshotReceiver(disk, "d", OffsetAndEpoch(epoch=3, offset=70))
    with pytest.raises(CorruptBatch, match="does not begin with its header") as refused:
        received.append(build_batch(0, 3, 5, [b"x" * 10]))
    assert refused.value.position == 0


@pytest.mark.parametrize(("offset", "is_proof"), [(8, False), (9, True)])
def test_a_snapshot_proves_that_the_log_was_on_the_disk_up_to_its_end_only(offset: int, is_proof: bool) -> None:
    file: Any = file_with(b"\x01" * 40)
    damage = CorruptBatch("torn", where="f", position=0)
    snapshot, end = OffsetAndEpoch(epoch=3, offset=offset), OffsetAndEpoch(epoch=3, offset=8)
    if is_proof:
        with pytest.raises(CorruptBatch, match=snapshot_name(snapshot)):
            refuse_damage(file, damage, end, (), (snapshot,))
    else:
        refuse_damage(file, damage, end, (), (snapshot,))


# The neighbours of a cut, the indexes of a closed segment, and a segment in a directory with a new name.


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
