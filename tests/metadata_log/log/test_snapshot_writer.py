"""Writing snapshots: Kafka's own come out again byte for byte, and one is there whole or not at all."""

from __future__ import annotations

import stat
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.disk import OsDisk
from metadata_log.log.snapshot import list_snapshots, read_snapshot, read_snapshot_start, snapshot_name, sweep_snapshots
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.control import VotersRecord
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch
from support.real_data import real_files

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
