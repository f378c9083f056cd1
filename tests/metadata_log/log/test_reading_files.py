"""Files of logs and snapshots are read in bounded work; those of real clusters are written again the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from metadata_log.disk import make_directory
from metadata_log.errors import CorruptBatch, DecodeError, IncompleteBatch
from metadata_log.log import segment as segment_module
from metadata_log.log import snapshot_receiver
from metadata_log.log.log import MetadataLog
from metadata_log.log.quorum_state_file import parse_quorum_state
from metadata_log.log.segment import Segment, file_name, next_sound_batch, parse_file_name, scan_file, scan_headers
from metadata_log.log.snapshot import encode_snapshot, read_snapshot
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch, build_control_batch, rebuild_batch, write_batch
from metadata_log.records.control import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from metadata_log.records.frame import decode_control, decode_record, encode_control, encode_record
from metadata_log.records.record import Record, records
from metadata_log.types import OffsetAndEpoch
from support.real_data import real_files

CONTENT = encode_snapshot([b"one", b"two"], epoch=3, timestamp_ms=5)


def directory() -> MemoryDisk:
    disk = MemoryDisk()
    make_directory(disk, "d")
    return disk


def test_a_file_that_shrinks_while_it_is_read_ends_with_an_error() -> None:
    disk = directory()
    file = disk.open("d/f", create=True)
    for offset in range(4):
        file.append(build_batch(offset, 1, 5, [b"x" * 100]))
    batches = scan_file(file, chunk_bytes=200)
    assert next(batches).base_offset == 0
    file.truncate(file.size() // 4)
    with pytest.raises(IncompleteBatch, match="was truncated while a reader read it"):
        next(batches)


def test_many_small_headers_take_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = directory()
    file = disk.open("d/f", create=True)
    for offset in range(300):
        file.append(build_batch(offset, 1, 5, [b"x" * 30]))
    reads = 0
    read = type(file).pread

    def counted(self: Any, size: int, position: int) -> bytes:
        nonlocal reads
        reads += 1
        return read(self, size, position)

    monkeypatch.setattr(type(file), "pread", counted)
    assert [batch.base_offset for batch in scan_headers(file)] == list(range(300))
    assert reads <= 2 + file.size() // (segment_module._LOOK_BYTES - 200)


@pytest.mark.parametrize("epoch", [2, 0x0202, 0x02020202])
def test_a_sound_batch_is_found_behind_bytes_that_look_like_its_format(epoch: int) -> None:
    """The format is the byte 2, and so may be the bytes of the epoch before it."""
    batch = build_batch(0, epoch, 5, [b"x"])
    for junk in (b"", b"\2", b"\2\2", b"x", b"x\2x"):
        file = directory().open("d/f", create=True)
        file.append(junk + batch)
        found = next_sound_batch(file, 0, end=file.size())
        assert found is not None
        assert found.position == len(junk)


@pytest.mark.parametrize("taken", [0, 1, 10])
def test_a_reader_of_a_snapshot_leaves_no_file_open(taken: int) -> None:
    disk = directory()
    file = disk.open("d/s", create=True)
    file.append(CONTENT)
    file.close()
    batches = read_snapshot(disk, "d/s")
    for _ in zip(range(taken), batches, strict=False):
        pass
    del batches
    assert disk._open == {}


def test_a_header_that_is_not_the_first_record_is_no_header() -> None:
    disk = directory()
    records = [KRaftVersionRecord(kraft_version=1), SnapshotHeaderRecord()]
    first, last = ([encode_control(one) for one in some] for some in (records, [SnapshotFooterRecord()]))
    file = disk.open("d/s", create=True)
    for base_offset, encoded in ((0, first), (2, last)):
        file.append(build_control_batch(base_offset, 3, 5, [(kind, value) for kind, _, value in encoded]))
    with pytest.raises(CorruptBatch, match="does not begin with its header"):
        list(read_snapshot(disk, "d/s"))


def test_a_batch_that_never_ends_is_named_by_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_receiver, "MAX_BATCH_BYTES", 100)
    second = list(scan(CONTENT))[1]
    arriving = SnapshotReceiver(directory(), "d", OffsetAndEpoch(epoch=3, offset=70))
    front = CONTENT[: second.position + 8] + (10**6).to_bytes(4, "big") + CONTENT[second.position + 12 :]
    with pytest.raises(CorruptBatch, match="larger than any") as refused:
        arriving.append(front + bytes(300))
    assert refused.value.position == second.position


# Logs


def test_a_cut_removes_the_index_files_of_the_segment_that_grows_again() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d", segment_bytes=300, index_interval_bytes=50)
    for offset in range(8):
        log.append(build_batch(offset, 1, 5, [b"x" * 20]))
    log.flush()
    assert [name for name in disk.list("d") if name.endswith("index")]
    log.truncate(1)
    assert not [name for name in disk.list("d") if name.endswith("index")]
    assert (log.end_offset, sum(name.endswith(".log") for name in disk.list("d"))) == (1, 1)


def test_an_empty_segment_is_not_followed_by_another() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.roll()
    log.append(build_batch(0, 1, 5, [b"x"]))
    for _ in range(2):
        log.roll()
    assert sum(name.endswith(".log") for name in disk.list("d")) == 2
    assert [segment.base_offset for segment in log._segments] == [0, 1]


def test_damage_before_sound_batches_of_epoch_0_is_refused() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    first = build_batch(0, 0, 5, [b"x" * 20])
    log.append(first)
    log.append(build_batch(1, 0, 5, [b"y" * 20]))
    log.close()
    disk.overwrite("d/00000000000000000000.log", len(first) - 3, b"!")
    with pytest.raises(CorruptBatch, match="the batch of offset 1 at byte"):
        MetadataLog.open(disk, "d")


@pytest.mark.parametrize(
    ("leader_id", "voted_id", "is_valid"),
    [(-1, -1, True), (0, 0, True), (-2, -1, False), (-1, -2, False), (7, -2, False)],
)
def test_quorum_state_names_nodes_or_none(leader_id: int, voted_id: int, is_valid: bool) -> None:
    ids = f'"leaderId":{leader_id},"leaderEpoch":3,"votedId":{voted_id}'
    text = f'{{{ids},"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}}'.encode()
    if is_valid:
        stored = parse_quorum_state(text)
        assert (stored.leader_id, stored.voted_id) == (leader_id, voted_id)
    else:
        with pytest.raises(DecodeError, match="no node has an id below 0"):
            parse_quorum_state(text)


def test_a_batch_larger_than_any_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "MOST_BATCH_BYTES", 1000)
    file = directory().open("d/f", create=True)
    file.append(build_batch(0, 1, 5, [bytes(800)]) + build_batch(1, 1, 5, [bytes(2000)]))
    batches = scan_file(file, chunk_bytes=100)
    assert next(batches).base_offset == 0
    with pytest.raises(CorruptBatch, match="no batch has"):
        next(batches)


def test_a_segment_may_be_exactly_as_large_as_its_limit() -> None:
    size = len(build_batch(0, 1, 5, [b"x"]))
    for limit, counts in ((2 * size, [0, 2]), (2 * size - 1, [0, 1, 2, 3])):
        disk = MemoryDisk()
        log = MetadataLog.open(disk, "d", segment_bytes=limit)
        for offset in range(4):
            log.append(build_batch(offset, 1, 5, [b"x"]))
        assert [int(name[:20]) for name in disk.list("d") if name.endswith(".log")] == counts


def test_index_files_that_are_right_are_not_written_again() -> None:
    disk = MemoryDisk()
    log = MetadataLog.open(disk, "d")
    log.append(build_batch(0, 1, 5, [b"x"]))
    segment = log._segments[0]
    segment.write_indexes()
    operations: list[str] = []
    disk.on_operation = lambda operation, path: operations.append(operation)
    segment.write_indexes()
    assert operations == []


def test_a_missing_segment_cannot_be_opened() -> None:
    disk = directory()
    with pytest.raises(FileNotFoundError):
        Segment.open(disk, "d", 7, index_interval_bytes=100)
    assert disk.list("d") == []


# The logs and snapshots of real clusters, taken apart into fields and written again by us, are the same files.


_CONTROL_KEY_BYTES = 4


def fields_again(record: Record, *, control: bool) -> Record:
    """The record with its value encoded anew from the message that it decodes to."""
    key, value = record.key, record.value or b""
    if control:
        _, message = decode_control(key or b"", value)
        assert message is not None
        _, key, value = encode_control(message)
        assert len(key) == _CONTROL_KEY_BYTES
    else:
        frame = decode_record(value)
        assert frame.record is not None
        value = encode_record(frame.record, frame.version)
    return Record(record.offset, record.timestamp, record.timestamp_delta, key, value, record.headers)


def test_every_real_file_from_its_fields() -> None:
    """Kafka 3.9 and 4.3, controllers and brokers: header from its attributes, records from their messages."""
    count: Counter[str] = Counter()
    for path, content, _ in real_files():
        again = b""
        for batch in scan(content, where=path):
            found = [fields_again(record, control=batch.is_control) for record in records(batch)]
            assert rebuild_batch(batch, found) == batch.data, (path, batch.base_offset)
            again += write_batch(found, epoch=batch.epoch, control=batch.is_control)
            count["records"] += len(found)
        assert again == content, path
        count[path.rpartition(".")[2]] += 1
    assert count["records"] >= 29_803
    assert count["log"] >= 19
    assert count["checkpoint"] >= 50


def test_every_real_segment_through_the_log() -> None:
    """Appended batch by batch to an empty log that begins there, and read back in pieces."""
    count = 0
    for path, content, _ in real_files():
        base = parse_file_name(path.rpartition("/")[2])
        if base is None:
            continue
        disk = MemoryDisk()
        log = MetadataLog.open(disk, "d")
        log.reset_to(base)
        for batch in scan(content):
            log.append(batch.data)
        pieces = []
        offset = base
        while data := log.read(offset, 7000):
            pieces.append(data)
            *_, last = scan(data)
            offset = last.next_offset
        assert b"".join(pieces) == content, path
        log.close()
        assert disk.read(f"d/{file_name(base)}") == content, path
        count += 1
    assert count >= 19
