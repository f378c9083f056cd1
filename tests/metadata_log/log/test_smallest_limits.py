"""Rules of the log's files at their very limit: a change of one condition or number in the code fails a test here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from google_crc32c import value as crc32c

from metadata_log.disk import make_directory
from metadata_log.errors import CorruptBatch, DecodeError
from metadata_log.log import segment as segment_module
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.log import MetadataLog
from metadata_log.log.producer_snapshot import StoredProducer, decode_producer_snapshot, encode_producer_snapshot
from metadata_log.log.segment import Segment, next_sound_batch, scan_file
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
