"""Snapshot files: their names, Kafka's own contents, and damage that is named."""

from __future__ import annotations

import pytest

from metadata_log.errors import CorruptBatch, IncompleteBatch
from metadata_log.log.snapshot import (
    encode_snapshot,
    list_snapshots,
    parse_snapshot_name,
    read_snapshot,
    read_snapshot_start,
    snapshot_name,
    sweep_snapshots,
)
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.control import VotersRecord, VotersRecordVoter
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch
from support.real_data import archive, real_files

REAL = "nodes/c1/__cluster_metadata-0/00000000000000005210-0000000008.checkpoint"


def disk_with(**contents: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("d")
    for name, content in contents.items():
        disk.open(f"d/{name}", create=True).append(content)
    return disk


def test_names() -> None:
    snapshot = OffsetAndEpoch(epoch=8, offset=5210)
    assert snapshot_name(snapshot) == "00000000000000005210-0000000008.checkpoint"
    assert parse_snapshot_name(snapshot_name(snapshot)) == snapshot
    for other in (
        "bootstrap.checkpoint",
        "00000000000000005210-0000000008.checkpoint.part",
        "00000000000000005210-8.checkpoint",
        "0000000000000005210_0000000008.checkpoint",
        "00000000000000005210.log",
        "-0000000000000005210-000000008.checkpoint",
        "09223372036854775808-0000000008.checkpoint",
        "00000000000000005210-2147483648.checkpoint",
        "0000000000000000521\u0660-0000000008.checkpoint",
    ):
        assert parse_snapshot_name(other) is None


def test_listing_and_sweeping() -> None:
    """The order is by epoch, then offset; what is unfinished, half deleted or before the log goes."""
    ids = [OffsetAndEpoch(epoch=3, offset=5), OffsetAndEpoch(epoch=2, offset=90), OffsetAndEpoch(epoch=2, offset=7)]
    leftovers = (f"{snapshot_name(ids[0])}.part", f"{snapshot_name(ids[0])}.deleted")
    disk = disk_with(**dict.fromkeys((*map(snapshot_name, ids), *leftovers, "quorum-state"), b""))
    assert list_snapshots(disk, "d") == (ids[2], ids[1], ids[0])
    assert sweep_snapshots(disk, "d", 7) == (snapshot_name(ids[0]), *sorted(leftovers))
    assert list_snapshots(disk, "d") == (ids[2], ids[1])
    assert disk.exists("d/quorum-state")


def test_real_snapshots() -> None:
    """Every snapshot that a real cluster wrote is read whole, with its header's time and kraft.version."""
    seen = set()
    for path, content, expected in real_files():
        if not path.endswith(".checkpoint"):
            continue
        disk = disk_with(snapshot=content)
        assert [batch.data for batch in read_snapshot(disk, "d/snapshot")] == [batch.data for batch in scan(content)]
        start = read_snapshot_start(disk, "d/snapshot")
        first = expected[0]["records"]
        assert start.header.last_contained_log_timestamp == first[0]["json"]["lastContainedLogTimestamp"]
        assert start.kraft_version == (first[1]["json"]["kRaftVersion"] if len(first) > 1 else 0)
        assert (start.voters is not None) == (start.kraft_version == 1)
        seen.add(start.kraft_version)
    assert seen == {0, 1}


def test_damage_is_named() -> None:
    real = archive("static3")[REAL]
    batches = list(scan(real))
    without_footer = real[: batches[-1].position]
    without_header = real[batches[0].size_bytes :]
    flipped = bytearray(real)
    flipped[-1] ^= 1
    for content, error, words in (
        (b"", CorruptBatch, "empty"),
        (without_footer, CorruptBatch, "without its footer"),
        (without_header, CorruptBatch, "does not begin with its header"),
        (real[:-10], IncompleteBatch, "ends after"),
        (bytes(flipped), CorruptBatch, "CRC"),
    ):
        with pytest.raises(error, match=words) as caught:
            list(read_snapshot(disk_with(snapshot=content), "d/snapshot"))
        assert caught.value.where == "d/snapshot"
        assert caught.value.position is not None


def test_writing() -> None:
    voters = VotersRecord(voters=(VotersRecordVoter(voter_id=3),))
    content = encode_snapshot([b"one", b"two"], epoch=4, timestamp_ms=99, kraft_version=1, voters=voters)
    disk = disk_with(snapshot=content)
    start = read_snapshot_start(disk, "d/snapshot")
    assert (start.kraft_version, start.voters) == (1, voters)
    first, data, last = read_snapshot(disk, "d/snapshot")
    assert (first.record_count, data.base_offset, last.base_offset) == (3, 3, 5)
    assert [record.value for record in records(data)] == [b"one", b"two"]
    assert {batch.epoch for batch in (first, data, last)} == {4}
    assert len(list(scan(encode_snapshot([], epoch=0, timestamp_ms=0)))) == 2
