"""Snapshots that arrive in pieces: those of Apache Kafka in any pieces, and damaged ones never."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metadata_log.disk import make_directory
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.log import snapshot_receiver
from metadata_log.log.snapshot import encode_snapshot, parse_snapshot_name, snapshot_name
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.log.snapshot_writer import MAX_BATCH_BYTES
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.types import OffsetAndEpoch
from support.real_data import archive

SNAPSHOT = OffsetAndEpoch(epoch=3, offset=70)
SMALL = encode_snapshot([b"one", b"two" * 40], epoch=3, timestamp_ms=5)
DATA_AT = 83
"""Where its second batch begins."""
MAGIC_AT = tuple(batch.position + 16 for batch in scan(SMALL))


@cache
def real_snapshots() -> list[tuple[OffsetAndEpoch, bytes]]:
    """Those of Kafka nodes with names that contain an epoch."""
    found = []
    for path, content in (*archive("clusters").items(), *archive("static3").items()):
        snapshot = parse_snapshot_name(path.rsplit("/", 1)[-1])
        if snapshot is not None and snapshot.offset > 0:
            found.append((snapshot, content))
    return found


def receiver(disk: MemoryDisk, snapshot: OffsetAndEpoch = SNAPSHOT) -> SnapshotReceiver:
    make_directory(disk, "d")
    return SnapshotReceiver(disk, "d", snapshot)


def receive(content: bytes, piece_bytes: int, snapshot: OffsetAndEpoch = SNAPSHOT) -> MemoryDisk:
    disk = MemoryDisk()
    arriving = receiver(disk, snapshot)
    for at in range(0, len(content), piece_bytes):
        assert disk.list("d") == [f"{snapshot_name(snapshot)}.part"]
        arriving.append(content[at : at + piece_bytes])
    arriving.check_end()
    arriving.publish()
    arriving.abandon()
    return disk


@pytest.mark.parametrize("piece_bytes", [1000, 1 << 20])
def test_every_snapshot_of_kafka_arrives(piece_bytes: int) -> None:
    assert len(real_snapshots()) >= 20
    for snapshot, content in real_snapshots():
        disk = receive(content, piece_bytes, snapshot)
        assert disk.list("d") == [snapshot_name(snapshot)]
        disk.crash()
        assert disk.read(f"d/{snapshot_name(snapshot)}") == content


@given(piece_bytes=st.integers(1, len(SMALL)))
def test_pieces_of_any_size(piece_bytes: int) -> None:
    assert receive(SMALL, piece_bytes).read(f"d/{snapshot_name(SNAPSHOT)}") == SMALL


@example(at=MAGIC_AT[1], bit=1, piece_bytes=1)
@given(at=st.integers(0, len(SMALL) - 1), bit=st.integers(0, 7), piece_bytes=st.integers(1, len(SMALL)))
def test_every_flipped_bit_of_a_snapshot_is_refused(at: int, bit: int, piece_bytes: int) -> None:
    damaged = bytearray(SMALL)
    damaged[at] ^= 1 << bit
    is_old_format = at in MAGIC_AT and damaged[at] == 0
    with pytest.raises(UnsupportedVersion if is_old_format else CorruptBatch):
        receive(bytes(damaged), piece_bytes)


@pytest.mark.parametrize("end", [0, 1, 60, 61, 83, 100, 283, len(SMALL) - 1])
def test_every_truncated_snapshot_is_refused(end: int) -> None:
    with pytest.raises(CorruptBatch):
        receive(SMALL[:end], 50)


def test_a_header_comes_first_and_the_epoch_is_that_of_the_name() -> None:
    with pytest.raises(CorruptBatch, match="header"):
        receive(SMALL[DATA_AT:], 5000)
    with pytest.raises(CorruptBatch, match="epoch 3 is in a snapshot of epoch 4"):
        receive(SMALL, 5000, OffsetAndEpoch(epoch=4, offset=70))


def test_a_batch_that_never_ends_is_not_kept_in_memory() -> None:
    disk = MemoryDisk()
    arriving = receiver(disk)
    arriving.append(SMALL[:8] + (2**31 - 1).to_bytes(4, "big") + SMALL[12:61])
    piece = bytes(1 << 20)
    for _ in range(2 * MAX_BATCH_BYTES // len(piece) - 1):
        arriving.append(piece)
    with pytest.raises(CorruptBatch, match="larger than any"):
        arriving.append(piece)


def test_an_abandoned_download_leaves_no_file() -> None:
    disk = MemoryDisk()
    arriving = receiver(disk)
    arriving.append(SMALL[:20])
    arriving.abandon()
    assert disk.list("d") == []


def test_a_download_is_flushed_whenever_it_has_grown_by_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, the flush at the end of a large download would take long."""
    monkeypatch.setattr(snapshot_receiver, "FSYNC_BYTES", 100)
    disk = MemoryDisk()
    arriving = receiver(disk)
    flushed: list[int] = []

    def note(operation: str, path: str) -> None:
        if operation == "fsync":
            flushed.append(arriving.size_bytes)

    disk.on_operation = note
    for position in range(0, 300, 50):
        arriving.append(SMALL[position : position + 50])
    assert flushed == [100, 200, 300]
