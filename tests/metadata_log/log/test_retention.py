"""Finding records by time and letting go of the past: what is kept is what Kafka would keep, and a crash loses none."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.sim.state.forking import forked
from metadata_log.disk import OsDisk
from metadata_log.log.log import MetadataLog
from metadata_log.log.retention import Cleaned, Retention, clean, remove_files
from metadata_log.log.snapshot import list_snapshots, snapshot_name, sweep_snapshots
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch, write_batch
from metadata_log.records.record import Record, records
from metadata_log.types import OffsetAndEpoch
from support.real_data import unpack

PARTITION = "__cluster_metadata-0"
NODES = [("static3", "nodes/c1"), ("clusters", "dynamic3/nodes/c1"), ("clusters", "failover/nodes/c1")]


def new_log(disk: MemoryDisk, **options: Any) -> MetadataLog:
    arguments = {"segment_bytes": 500, "segment_ms": 10**12, "index_interval_bytes": 200} | options
    return MetadataLog.open(disk, "d", **arguments)


def filled(disk: MemoryDisk, count: int = 40) -> MetadataLog:
    """One record a batch, 100 ms apart, six to a segment; a new epoch every ten."""
    log = new_log(disk)
    for offset in range(count):
        log.append(build_batch(offset, 1 + offset // 10, offset * 100, [b"x" * 10]))
    log.flush()
    return log


def snapshot_at(disk: MemoryDisk, offset: int, size: int = 50) -> OffsetAndEpoch:
    snapshot = OffsetAndEpoch(epoch=1 + (offset - 1) // 10, offset=offset)
    time = (offset - 1) * 100
    writer = SnapshotWriter(disk, "d", snapshot, timestamp_ms=time, last_contained_log_timestamp=time)
    writer.append([b"s" * size], time)
    writer.freeze(time)
    return snapshot


# ------------------------------------------------------------------------------------------------- headers and times


@pytest.mark.parametrize(("name", "node"), NODES)
def test_times_in_real_logs(name: str, node: str, tmp_path: Path) -> None:
    """For any time a search through the indexes finds what reading everything finds."""
    unpack(name, f"{node}/{PARTITION}", tmp_path)
    log = MetadataLog.open(OsDisk(), str(tmp_path), index_interval_bytes=1000)
    everything = [
        record
        for path in sorted(tmp_path.glob("*.log"))
        for batch in scan(path.read_bytes())
        for record in records(batch)
    ]
    times = sorted({record.timestamp for record in everything})
    rng = Random(4)
    print("seed 4")
    for time in [times[0] - 1, times[0], times[-1], times[-1] + 1, *rng.sample(times, 60), *rng.sample(times, 60)]:
        for wanted in (time, time + 1):
            expected = next((record for record in everything if record.timestamp >= wanted), None)
            assert log.find_time(wanted) == expected, wanted


@settings(max_examples=60)
@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=40),
    wanted=st.integers(-1, 55),
    data=st.data(),
)
def test_time_index_survives_clocks_that_go_back(times: list[list[int]], wanted: int, data: st.DataObject) -> None:
    """Clocks go backwards, between batches and within; the log may begin later, and may have been cut."""
    log = new_log(MemoryDisk(), index_interval_bytes=100)
    everything: list[Record] = []
    for stamps in times:
        batch = [Record(len(everything) + at, stamp, 0, None, b"value") for at, stamp in enumerate(stamps)]
        log.append(write_batch(batch, epoch=1))
        everything += batch
    end = log.truncate(data.draw(st.integers(0, len(everything))))
    log.flush()
    start = data.draw(st.integers(0, end))
    log.raise_start(start)
    expected = [(r.offset, r.timestamp) for r in everything[start:end] if r.timestamp >= wanted]
    found = log.find_time(wanted)
    assert (None if found is None else (found.offset, found.timestamp)) == (expected[0] if expected else None)


# -------------------------------------------------------------------------------------------------- the log's start


def test_segments_below_the_new_log_start_are_removed() -> None:
    """Whole segments before the new start get other names; reading begins at the start, epochs, too."""
    disk = MemoryDisk()
    log = filled(disk)
    before = [name for name in disk.list("d") if name.endswith(".log")]
    files = log.raise_start(15)
    bases = [int(name[:20]) for name in before]
    kept = [base for base, following in zip(bases, [*bases[1:], 10**9], strict=True) if following > 15]
    assert kept[0] < 15
    assert [int(name[:20]) for name in disk.list("d") if name.endswith(".log")] == kept
    assert sorted(files) == [f"d/{name}" for name in disk.list("d") if name.endswith(".deleted")]
    assert {name.split(".")[1] for name in files} == {"log", "index", "timeindex"}
    assert (log.start_offset, log.end_offset) == (15, 40)
    assert [(entry.epoch, entry.offset) for entry in log.epochs.entries] == [(2, 15), (3, 20), (4, 30)]
    assert next(scan(log.read(15, 1))).base_offset == 15
    with pytest.raises(AssertionError):
        log.read(14, 1)
    assert log.raise_start(15) == ()
    assert forked(log).start_offset == 15
    remove_files(disk, "d", files)
    remove_files(disk, "d", files)
    assert not [name for name in disk.list("d") if name.endswith(".deleted")]


def test_the_last_segment_stays() -> None:
    """A log may begin at its end, and goes on from there."""
    disk = MemoryDisk()
    log = filled(disk)
    log.raise_start(40)
    assert len([name for name in disk.list("d") if name.endswith(".log")]) == 1
    assert log.read(40, 1) == b""
    log.append(build_batch(40, 4, 5000, [b"more"]))
    assert next(scan(log.read(40, 1))).base_offset == 40


def test_the_log_start_after_a_restart_is_a_segment_start() -> None:
    """As with Kafka; the files that were on their way out are gone then."""
    disk = MemoryDisk()
    log = filled(disk)
    log.raise_start(15)
    log.close()
    again = new_log(disk)
    assert again.recovered == ()
    assert 10 <= again.start_offset < 15
    assert again.end_offset == 40
    assert not [name for name in disk.list("d") if name.endswith(".deleted")]


def test_readers_in_flight() -> None:
    """A flush under way in another thread keeps its file open until it is done."""
    disk = MemoryDisk()
    log = filled(disk)
    handle = log.flush_handle()
    log.raise_start(40)
    handle.run()
    log.flush_done()
    assert log.flushed_offset == 40


# ------------------------------------------------------------------------------------------------------- the cleaner


def sizes(disk: MemoryDisk, log: MetadataLog) -> int:
    return log.size_bytes + sum(len(disk.read(f"d/{snapshot_name(one)}")) for one in list_snapshots(disk, "d"))


def test_nothing_to_clean() -> None:
    """The newest snapshot stays whatever the limits; no snapshot, no cleaning; negative limits are none."""
    disk = MemoryDisk()
    log = filled(disk)
    nothing = Retention(max_bytes=0, max_ms=0)
    assert clean(log, disk, nothing, 10**9) == Cleaned()
    snapshot_at(disk, 12)
    assert clean(log, disk, nothing, 10**9) == Cleaned()
    snapshot_at(disk, 24)
    assert clean(log, disk, Retention(max_bytes=-1, max_ms=-1), 10**15) == Cleaned()
    assert clean(log, disk, Retention(), 0) == Cleaned()
    assert (log.start_offset, len(list_snapshots(disk, "d"))) == (0, 2)


def test_cleaning_by_size() -> None:
    """Cleaning goes on, oldest segment first, only until the rest is small enough."""
    disk = MemoryDisk()
    log = filled(disk)
    ids = [snapshot_at(disk, offset) for offset in (8, 16, 24, 32, 40)]
    total = sizes(disk, log)
    assert clean(log, disk, Retention(max_bytes=total, max_ms=-1), 0) == Cleaned()
    cleaned = clean(log, disk, Retention(max_bytes=total - 1, max_ms=-1), 0)
    assert cleaned.snapshots == (ids[0],)
    assert log.start_offset == 16
    assert list_snapshots(disk, "d") == tuple(ids[1:])
    assert f"d/{snapshot_name(ids[0])}.deleted" in cleaned.files
    everything = clean(log, disk, Retention(max_bytes=0, max_ms=-1), 0)
    assert everything.snapshots == tuple(ids[1:-1])
    assert (log.start_offset, list_snapshots(disk, "d")) == (40, (ids[-1],))
    for cleaning in (cleaned, everything):
        remove_files(disk, "d", cleaning.files)
    assert not [name for name in disk.list("d") if name.endswith(".deleted")]


def test_a_snapshot_ahead_of_the_disk_waits() -> None:
    """A follower knows what is committed, and makes a snapshot of it, before its own fsync is done."""
    disk = MemoryDisk()
    log = filled(disk, 20)
    snapshot_at(disk, 10)
    log.append(build_batch(20, 3, 2000, [b"x" * 10]))
    ahead = snapshot_at(disk, 21)
    assert clean(log, disk, Retention(max_bytes=1), 0) == Cleaned()
    log.flush()
    assert clean(log, disk, Retention(max_bytes=1), 0).snapshots
    assert log.start_offset == ahead.offset


def test_cleaning_by_age() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    ids = [snapshot_at(disk, offset) for offset in (8, 16, 24)]
    limits = Retention(max_bytes=-1, max_ms=1000)
    assert clean(log, disk, limits, 700 + 1000) == Cleaned()
    assert clean(log, disk, limits, 700 + 1001).snapshots == (ids[0],)
    assert clean(log, disk, limits, 10**9).snapshots == (ids[1],)
    assert (log.start_offset, list_snapshots(disk, "d")) == (24, (ids[2],))


@settings(max_examples=60)
@given(
    offsets=st.sets(st.integers(1, 40), min_size=1, max_size=8),
    max_bytes=st.integers(-1, 6000),
    max_ms=st.integers(-1, 5000),
    now=st.integers(0, 8000),
)
def test_retention_keeps_the_limits_and_one_snapshot(offsets: set[int], max_bytes: int, max_ms: int, now: int) -> None:
    """Afterwards: within the limits or one snapshot, none too many gone, and the log begins where a snapshot ends."""
    disk = MemoryDisk()
    log = filled(disk)
    ids = [snapshot_at(disk, offset) for offset in sorted(offsets)]
    cleaned = clean(log, disk, Retention(max_bytes=max_bytes, max_ms=max_ms), now)
    kept = list_snapshots(disk, "d")
    assert (*cleaned.snapshots, *kept) == tuple(ids)
    assert kept
    if len(kept) > 1:
        assert max_bytes < 0 or sizes(disk, log) <= max_bytes
        assert max_ms < 0 or now - (kept[0].offset - 1) * 100 <= max_ms
    assert log.start_offset == (kept[0].offset if cleaned.snapshots else 0)
    assert clean(log, disk, Retention(max_bytes=max_bytes, max_ms=max_ms), now) == Cleaned()


def test_power_failures_while_cleaning() -> None:
    """Whenever the power fails, the directory opens again and its snapshots reach its log."""
    for seed in range(80):
        rng = Random(seed)
        disk = MemoryDisk()
        log = filled(disk)
        ids = [snapshot_at(disk, offset) for offset in (9, 17, 30)]
        left = rng.randrange(30)

        def fail(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("the power fails")

        disk.on_operation = fail
        try:
            cleaned = clean(log, disk, Retention(max_bytes=0), 0)
            remove_files(disk, "d", cleaned.files)
        except OSError:
            pass
        disk.on_operation = None
        disk.crash(rng)
        again = new_log(disk)
        sweep_snapshots(disk, "d", again.start_offset)
        there = list_snapshots(disk, "d")
        assert there[-1] == ids[-1], f"seed {seed}"
        assert again.start_offset == 0 or any(one.offset >= again.start_offset for one in there), f"seed {seed}"
        assert again.end_offset == 40, f"seed {seed}"
