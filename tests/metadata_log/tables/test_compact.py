"""Small files are merged: the rows stay, whatever write a crash prevents."""

from __future__ import annotations

from random import Random

import pytest

from killed_jobs import CLUSTER, FEW, Killed, copy_of, job, kill_after, materialize
from metadata_log.log.segment import file_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.tables.cluster import Status
from metadata_log.tables.commit import KEPT_STEPS
from metadata_log.tables.compact import Compacted, compact_cluster
from nightly_logs import Night, pieces
from table_rows import everything, files, table_rows


def many_steps() -> tuple[MemoryDisk, Night]:
    """Tables of 13 steps, five of which can no longer be taken back."""
    log = pieces("dynamic3")
    disk = MemoryDisk()
    for end in range(60, len(log), (len(log) - 60) // 12):
        night = Night({file_name(0): b"".join(piece.data for piece in log[:end])}, False, False)
        materialize(night, disk, views=FEW, run=f"run-{end}")
    return disk, night


def test_files_of_old_steps_become_one_in_each_partition() -> None:
    disk, night = many_steps()
    before, count = table_rows(disk), len(list(files(disk)))
    done = compact_cluster(CLUSTER, disk, job(views=FEW))
    assert done.merged > 2 * done.made > 0
    assert table_rows(disk) == before
    assert len(list(files(disk))) == count - done.merged + done.made
    content = everything(disk)
    assert compact_cluster(CLUSTER, disk, job(views=FEW)) == Compacted()
    assert everything(disk) == content
    assert materialize(night, disk, views=FEW).status is Status.NOTHING
    large = compact_cluster(CLUSTER, many_steps()[0], job(views=FEW), large=1)
    assert large == Compacted()


def test_steps_can_be_taken_back_after_a_compaction() -> None:
    """The log loses the last batches that were read: the tables are those of the other log."""
    log = pieces("dynamic3")
    disk, _ = many_steps()
    compact_cluster(CLUSTER, disk, job(views=FEW))
    half = len(log) * 2 // 3
    other = [*log[:half], *(piece.raised(1) for piece in log[half:])]
    night = Night({file_name(0): b"".join(piece.data for piece in other)}, False, False)
    outcome = materialize(night, disk, views=FEW)
    assert 0 < outcome.taken_back < KEPT_STEPS
    fresh = MemoryDisk()
    materialize(night, fresh, views=FEW)
    assert table_rows(disk) == table_rows(fresh)


def check_crashes(*, every: int, is_power_cut: bool) -> int:
    """Crash a compaction at its operations, and go on with another compaction or another run."""
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    rng = Random(seed)
    before, night = many_steps()
    wanted = table_rows(before)
    at, crashes = rng.randrange(every), 0
    while True:
        disk = copy_of(before)
        kill_after(disk, at)
        try:
            compact_cluster(CLUSTER, disk, job(views=FEW))
        except Killed:
            pass
        else:
            break
        disk.on_operation = None
        disk.crash(rng) if is_power_cut else disk.kill()
        if crashes % 2:
            compact_cluster(CLUSTER, disk, job(views=FEW))
        else:
            assert materialize(night, disk, views=FEW).status is Status.NOTHING
        assert table_rows(disk) == wanted, f"killed in front of operation {at}"
        assert not [path for path in everything(disk) if path.endswith((".part", "journal"))], at
        crashes += 1
        at += every
    return crashes


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_compaction_that_was_killed_at_some_write_doubles_and_loses_no_row(is_power_cut: bool) -> None:
    assert check_crashes(every=67, is_power_cut=is_power_cut) > 2


@pytest.mark.soak
@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_compaction_that_was_killed_at_any_write_doubles_and_loses_no_row(is_power_cut: bool) -> None:
    assert check_crashes(every=1, is_power_cut=is_power_cut) > 200
