"""The tables of a cluster: night by night, through crashes between any two writes, and what stops them."""

from __future__ import annotations

import io
from collections import Counter
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from killed_jobs import CLUSTER, FEW, Killed, copy_of, job, kill_after, materialize
from metadata_log.disk import File
from metadata_log.history.views import DERIVED_VIEWS, HISTORY_VIEWS
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord, TopicRecord
from metadata_log.serde import Message
from metadata_log.tables.cluster import ClusterOutcome, Gate, Identity, Status, materialize_cluster
from metadata_log.tables.commit import ClusterTables, TablesError
from metadata_log.types import OffsetAndEpoch, Uuid
from nightly_logs import DIRECTORY, Night, nights, pieces, snapshots
from table_rows import ROOT, content, everything, files, rows_of_log, table_rows

SMALL = "dynamic3"


@pytest.fixture
def seed() -> int:
    found = Random().randrange(2**32)
    print(f"seed {found}")
    return found


def test_tables_of_nights_hold_the_rows_of_the_whole_log(seed: int) -> None:
    found, whole = nights(Random(seed), SMALL, 3)
    disk = MemoryDisk()
    for number, night in enumerate(found):
        outcome = materialize(night, disk, run=f"run-{number}")
        assert outcome.status in (Status.NEW, Status.NOTHING, Status.BEHIND)
        assert outcome.damage is None or night.is_late
    assert table_rows(disk) == rows_of_log(whole.disk(), DIRECTORY, CLUSTER)


def test_a_second_run_changes_no_byte(seed: int) -> None:
    _, whole = nights(Random(seed), SMALL, 2, with_snapshots=False)
    disk = MemoryDisk()
    first = materialize(whole, disk)
    assert (first.status, first.steps, first.from_offset) == (Status.NEW, 1, 0)
    assert first.records == first.to_offset
    before = everything(disk)
    second = materialize(whole, disk, run="run-2")
    assert (second.status, second.records, second.to_offset) == (Status.NOTHING, 0, first.to_offset)
    assert everything(disk) == before


def test_steps_of_few_records_give_the_same_tables(seed: int) -> None:
    _, whole = nights(Random(seed), SMALL, 2, with_snapshots=False)
    disk, other = MemoryDisk(), MemoryDisk()
    assert materialize(whole, disk, views=FEW).steps == 1
    assert materialize(whole, other, views=FEW, most_records=100).steps > 2
    assert table_rows(disk) == table_rows(other)


def grow(disk: MemoryDisk, *records: Message) -> None:
    """Add a batch to a log."""
    path = f"{DIRECTORY}/{max(name for name in disk.list(DIRECTORY) if name.endswith('.log'))}"
    last = list(scan(content(disk, path)))[-1]
    file = disk.open(path)
    file.append(
        build_batch(last.next_offset, last.epoch, 2_000_000_000_000, [encode_record(one, 0) for one in records])
    )
    file.close()


def test_a_night_writes_the_open_rows_that_changed_and_no_others(seed: int) -> None:
    _, whole = nights(Random(seed), SMALL, 2, with_snapshots=False)
    log, disk, views = whole.disk(), MemoryDisk(), (*HISTORY_VIEWS, *DERIVED_VIEWS)

    def night(run: str) -> tuple[ClusterOutcome, set[str]]:
        """The outcome of a night, and the views of which files came or went."""
        before = set(files(disk))
        outcome = materialize_cluster(log, DIRECTORY, CLUSTER, disk, job(run=run, views=views))
        return outcome, {path.split("/")[2] for path in before ^ set(files(disk))}

    night("run-1")
    grow(log, NoOpRecord())
    quiet, changed = night("run-2")
    assert (quiet.status, quiet.records) == (Status.NEW, 1)
    assert changed == {"churn", "config_drift", "controller_gaps", "retention"}, "only what tells the end of the log"
    open_files = [path for path in files(disk) if "-open-" in path]
    assert quiet.open_rows == sum(pq.read_metadata(io.BytesIO(content(disk, path))).num_rows for path in open_files)
    grow(log, TopicRecord(name="new", topic_id=Uuid(b"16 bytes long ok")))
    _, changed = night("run-3")
    assert "topic_history" in changed
    assert not changed & {"broker_history", "config_history", "leader_history", "acl_history"}
    assert table_rows(disk) == rows_of_log(log, DIRECTORY, CLUSTER, views)


class NotingDisk:
    """A disk that notes the directories whose names are brought to disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.synced: list[str] = []

    def fsync_dir(self, path: str) -> None:
        self.synced.append(path)
        self._disk.fsync_dir(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def test_a_night_brings_to_disk_what_changed_and_nothing_twice() -> None:
    """A night of an idle cluster had brought all directories of the night before to disk again."""
    _, whole = nights(Random(1), SMALL, 2, with_snapshots=False)
    log, disk, views = whole.disk(), MemoryDisk(), (*HISTORY_VIEWS, *DERIVED_VIEWS)

    def synced(run: str) -> list[str]:
        noting: Any = NotingDisk(disk)
        materialize_cluster(log, DIRECTORY, CLUSTER, noting, job(run=run, views=views))
        found: list[str] = noting.synced
        return found

    assert len(synced("run-1")) > 40
    assert synced("run-2") == [], "nothing is new"
    grow(log, NoOpRecord())
    assert 0 < len(synced("run-3")) < 20, "four views change"


def few_rows(whole: Night) -> Counter[str]:
    """The rows of a whole log in the views `FEW`."""
    return rows_of_log(whole.disk(), DIRECTORY, CLUSTER, FEW)


def check_crashes(seed: int, *, every: int, is_power_cut: bool) -> int:
    """Crash the last of three nights at its operations, and run the night again: the tables are those of no crash."""
    rng = Random(seed)
    found, whole = nights(rng, SMALL, 3)
    wanted = few_rows(whole)
    crashes = 0
    at = rng.randrange(every)
    before = MemoryDisk()
    for night in found[:-1]:
        materialize(night, before, views=FEW)
    while True:
        disk = copy_of(before)
        kill_after(disk, at)
        try:
            materialize(found[-1], disk, views=FEW, run="crashed")
        except Killed:
            pass
        else:
            disk.on_operation = None
            break
        disk.on_operation = None
        disk.crash(rng) if is_power_cut else disk.kill()
        materialize(found[-1], disk, views=FEW, run="again")
        assert table_rows(disk) == wanted, f"killed in front of operation {at}"
        assert not [path for path in everything(disk) if path.endswith((".part", ".tmp", "journal"))], at
        crashes += 1
        at += every
    return crashes


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_run_that_was_killed_at_some_write_is_finished_by_the_next(seed: int, is_power_cut: bool) -> None:
    assert check_crashes(seed, every=9, is_power_cut=is_power_cut) > 2


@pytest.mark.soak
@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_run_that_was_killed_at_any_write_is_finished_by_the_next(seed: int, is_power_cut: bool) -> None:
    assert check_crashes(seed, every=1, is_power_cut=is_power_cut) > 40, "fewer writes than a night has"


def gapped(seed: int) -> tuple[Night, Night]:
    """A log without one of its segments, and the whole log."""
    for number in range(100):
        _, whole = nights(Random(seed + number), SMALL, 3, with_snapshots=False)
        if len(whole.files) > 3:
            missing = sorted(whole.files)[2]
            return Night({n: c for n, c in whole.files.items() if n != missing}, False, True), whole
    raise AssertionError("no log has four segments")


def test_a_gap_ends_the_tables_or_is_marked_until_its_segment_arrives(seed: int) -> None:
    gap, whole = gapped(seed)
    for gate in (Gate.FAIL, Gate.WARN):
        disk = MemoryDisk()
        first = materialize(gap, disk, views=FEW, gate=gate)
        assert "the log goes on at offset" in (first.damage or "")
        known = [row for row in table_rows(disk) if row.startswith("retention") and "'kind': 'damage'" in row]
        assert len(known) == (gate is Gate.WARN)
        before = everything(disk)
        assert materialize(gap, disk, views=FEW, gate=gate).status is Status.NOTHING
        assert everything(disk) == before
        assert materialize(whole, disk, views=FEW, gate=gate).damage is None
        assert table_rows(disk) == few_rows(whole)


def test_a_settled_gap_is_not_looked_at_again(seed: int) -> None:
    gap, whole = gapped(seed)
    disk = MemoryDisk()
    assert materialize(gap, disk, views=FEW, gate=Gate.SETTLE).damage is None
    marked = table_rows(disk)
    assert [row for row in marked if row.startswith("retention") and "'kind': 'damage'" in row]
    assert materialize(whole, disk, views=FEW, gate=Gate.SETTLE).status is Status.NOTHING
    assert table_rows(disk) == marked
    rebuilt = materialize(whole, disk, views=FEW, rebuild=True)
    assert (rebuilt.status, rebuilt.from_offset) == (Status.NEW, 0)
    assert not [row for row in table_rows(disk) if "'kind': 'damage'" in row]


def test_a_shorter_log_changes_nothing(seed: int) -> None:
    """It is another copy, or one that is still being copied."""
    _, whole = nights(Random(seed), SMALL, 2, with_snapshots=False)
    last = sorted(whole.files)[-1]
    short = Night({**whole.files, last: whole.files[last][:-1]}, False, False)
    disk = MemoryDisk()
    materialize(whole, disk, views=FEW)
    before = everything(disk)
    assert materialize(short, disk, views=FEW).status is Status.BEHIND
    assert everything(disk) == before


def test_a_log_that_begins_at_a_snapshot_is_read_again_from_there_and_not_from_a_later_one() -> None:
    log, known = pieces(SMALL), snapshots(SMALL)
    first, later = sorted(known)[0], sorted(known)[-1]

    def night(base: int, epochs: int = 0) -> Night:
        """The log after a snapshot, written again in later epochs."""
        name = snapshot_name(OffsetAndEpoch(epoch=log[base - 1].epoch, offset=log[base - 1].end))
        segment = b"".join(piece.raised(epochs).data for piece in log[base:])
        return Night({name: known[base], file_name(log[base].base): segment}, False, False)

    disk = MemoryDisk()
    assert materialize(night(first), disk, views=FEW).from_offset == 0
    rewritten = materialize(night(first, epochs=1), disk, views=FEW)
    assert (rewritten.status, rewritten.taken_back) == (Status.NEW, 1)
    assert table_rows(disk) == few_rows(night(first, epochs=1))
    before = everything(disk)
    stopped = materialize(night(later, epochs=2), disk, views=FEW)
    assert (stopped.status, stopped.change and stopped.change.kind) == (Status.STOPPED, Identity.ANOTHER_LOG)
    assert stopped.change is not None
    assert f"begins at {log[later - 1].end}, not at {log[first - 1].end}" in stopped.change.text
    assert everything(disk) == before


def test_two_runs_at_a_time_and_other_settings_are_refused(seed: int) -> None:
    _, whole = nights(Random(seed), SMALL, 2)
    disk = MemoryDisk()
    materialize(whole, disk, views=FEW)
    held = ClusterTables(disk, ROOT, CLUSTER, FEW, job().settings)
    with pytest.raises(TablesError, match=f"another run writes the tables of cluster {CLUSTER}"):
        materialize(whole, disk, views=FEW)
    held.close()
    with pytest.raises(TablesError, match="the tables were made with showSecrets=false"):
        materialize(whole, disk, views=FEW, show_secrets=True)


def test_rows_name_file_offset_run_and_version(seed: int) -> None:
    _, whole = nights(Random(seed), SMALL, 2)
    disk = MemoryDisk()
    outcome = materialize(whole, disk, views=FEW, run="night 7")
    for path in files(disk):
        for row in pq.read_table(io.BytesIO(content(disk, path))).to_pylist():
            assert (row["lineage_run"], row["lineage_version"]) == ("night 7", "1")
            assert row["lineage_file"].removeprefix(f"{DIRECTORY}/") in whole.files
            assert 0 < row["lineage_offset"] <= (outcome.to_offset or 0)


class CountedFile:
    """A file that counts the bytes that are read."""

    def __init__(self, file: File, disk: CountingDisk) -> None:
        self._file = file
        self._disk = disk

    def pread(self, size: int, position: int) -> bytes:
        data = self._file.pread(size, position)
        self._disk.read_bytes += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountingDisk:
    """A disk with files that count the bytes that are read."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.read_bytes = 0

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> Any:
        return CountedFile(self._disk.open(path, create=create, writable=writable), self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def test_a_night_reads_what_is_new_and_not_the_history() -> None:
    """In one segment of 341 KB with 560 batches: the bytes that are read do not grow with the batches before."""
    log = pieces("static3")
    disk = MemoryDisk()
    read = []
    for end in (200, 205, 550, 555):
        night = Night({file_name(0): b"".join(piece.data for piece in log[:end])}, False, False)
        counting: Any = CountingDisk(night.disk())
        outcome = materialize_cluster(counting, DIRECTORY, CLUSTER, disk, job(views=("broker_history",)))
        assert (outcome.to_offset, outcome.records > 0) == (log[end - 1].end, True)
        read.append(counting.read_bytes)
    assert max(read[1], read[3]) < 64_000 < read[2]
