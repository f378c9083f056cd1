"""Snapshots: names and contents, how they are written, and how they arrive in pieces."""

from __future__ import annotations

import stat
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metadata_log.disk import OsDisk, make_directory
from metadata_log.errors import CorruptBatch, IncompleteBatch, UnsupportedVersion
from metadata_log.log import snapshot_receiver
from metadata_log.log.snapshot import (
    encode_snapshot,
    list_snapshots,
    parse_snapshot_name,
    read_snapshot,
    read_snapshot_start,
    snapshot_name,
    sweep_snapshots,
)
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.log.snapshot_writer import MAX_BATCH_BYTES, SnapshotWriter
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


# Writing snapshots: Kafka's own come out again byte for byte, and one is there whole or not at all.


ID = OffsetAndEpoch(epoch=3, offset=1234)
NAME = f"d/{snapshot_name(ID)}"


def made() -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("d")
    disk.fsync_dir("")
    return disk


def writer(disk: MemoryDisk, **changes: Any) -> SnapshotWriter:
    usual: dict[str, Any] = {"timestamp_ms": 7, "last_contained_log_timestamp": 5}
    return SnapshotWriter(disk, "d", ID, **(usual | changes))


def test_writing_kafkas_snapshots_gives_the_same_bytes() -> None:
    """From the records, the times and the voters of each, in pieces of Kafka's size; bootstrap files, too."""
    count = 0
    for path, content, _ in real_files():
        if not path.endswith(".checkpoint"):
            continue
        batches = list(scan(content))
        disk = made()
        disk.open("d/theirs", create=True).append(content)
        start = read_snapshot_start(disk, "d/theirs")
        ours = SnapshotWriter(
            disk,
            "d",
            OffsetAndEpoch(epoch=batches[0].epoch, offset=9),
            timestamp_ms=batches[0].base_timestamp,
            last_contained_log_timestamp=start.header.last_contained_log_timestamp,
            kraft_version=start.kraft_version,
            voters=start.voters,
        )
        for batch in batches[1:-1]:
            values = [record.value or b"" for record in records(batch)]
            for begin in range(0, len(values), 1024):
                ours.append(values[begin : begin + 1024], batch.base_timestamp + begin)
        ours.freeze(batches[-1].base_timestamp)
        assert disk.read(f"d/{snapshot_name(ours.snapshot)}") == content, path
        assert ours.size_bytes == len(content)
        count += 1
    assert count > 40


@given(
    units=st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=70), max_size=12),
    limit=st.sampled_from((25_000, 40_000)),
)
def test_batches_are_as_large_as_they_may_be(units: list[list[bytes]], limit: int) -> None:
    """No batch is larger than the limit, none could have taken the next unit, none tears a unit apart."""
    disk = made()
    ours = writer(disk, max_batch_bytes=limit)
    for at, unit in enumerate(units):
        ours.append(unit, 100 + at)
    ours.freeze(999)
    _, *data, _ = read_snapshot(disk, NAME)
    found = [[record.value for record in records(batch)] for batch in data]
    assert list(chain(*found)) == list(chain(*units))
    assert [batch.base_offset for batch in data] == [1 + sum(map(len, found[:at])) for at in range(len(data))]
    ends = {sum(map(len, units[:at])): at for at in range(len(units))}
    before = 0
    for at, batch in enumerate(data):
        assert batch.size_bytes <= limit
        assert batch.max_timestamp == 100 + ends[before]
        before += batch.record_count
        if at + 1 < len(data):
            unit = units[ends[before]]
            assert batch.size_bytes + sum(map(len, unit)) + 12 * len(unit) > limit


def test_units_that_are_too_large() -> None:
    with pytest.raises(AssertionError, match="do not fit"):
        writer(made(), max_batch_bytes=100).append([b"x" * 100], 0)


def test_a_snapshot_is_not_visible_before_it_is_whole() -> None:
    disk = made()
    ours = writer(disk)
    ours.append([b"one"], 8)
    assert list_snapshots(disk, "d") == ()
    assert sweep_snapshots(disk.fork(), "d", 0) == (f"{snapshot_name(ID)}.part",)
    ours.freeze(9)
    assert disk.list("d") == [snapshot_name(ID)]
    ours.abandon()
    assert disk.list("d") == [snapshot_name(ID)]


def test_abandoning() -> None:
    """Nothing is left; a leftover of an earlier attempt is not in the way."""
    disk = made()
    ours = writer(disk)
    ours.append([b"one"], 8)
    ours.abandon()
    ours.abandon()
    assert disk.list("d") == []
    disk.open(f"{NAME}.part", create=True).append(b"leftover")
    again = writer(disk)
    again.freeze(9)
    assert [batch.record_count for batch in read_snapshot(disk, NAME)] == [1, 1]


def test_power_failures() -> None:
    """Whenever the power fails, the snapshot is absent or whole; once `freeze` has returned, it is there."""
    for seed in range(60):
        rng = Random(seed)
        disk = made()
        stop_at = rng.randrange(12)
        count = 0

        def fail(operation: str, path: str, stop_at: int = stop_at) -> None:
            nonlocal count
            count += 1
            if count > stop_at:
                raise OSError("the power fails")

        disk.on_operation = fail
        frozen = False
        try:
            ours = writer(disk, max_batch_bytes=100)
            for value in (b"one", b"two", b"x" * 25):
                ours.append([value], 8)
            ours.freeze(9)
            frozen = True
        except OSError:
            pass
        disk.on_operation = None
        disk.crash(rng)
        there = list_snapshots(disk, "d")
        assert there == ((ID,) if frozen else there), f"seed {seed}"
        if there:
            values = [r.value for b in read_snapshot(disk, NAME) if not b.is_control for r in records(b)]
            assert values == [b"one", b"two", b"x" * 25], f"seed {seed}"


def test_published_files_are_read_only(tmp_path: Path) -> None:
    ours = SnapshotWriter(OsDisk(), str(tmp_path), ID, timestamp_ms=1, last_contained_log_timestamp=0)
    ours.freeze(2)
    assert stat.S_IMODE((tmp_path / snapshot_name(ID)).stat().st_mode) & 0o222 == 0


def test_voters_need_a_version() -> None:
    with pytest.raises(AssertionError, match=r"kraft.version 1"):
        SnapshotWriter(made(), "d", ID, timestamp_ms=1, last_contained_log_timestamp=0, voters=VotersRecord())


# Snapshots that arrive in pieces: those of Apache Kafka in any pieces, and damaged ones never.


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
