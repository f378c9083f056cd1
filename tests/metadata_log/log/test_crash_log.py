"""The power fails between each pair of disk operations: what was flushed is there, what is there is a prefix."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from metadata_log.log.log import MetadataLog
from metadata_log.log.quorum_state_file import StoredElection, read_quorum_state, write_quorum_state
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from support.power import failing_after

SEGMENT_BYTES = 400
RANDOM_CRASHES = 12


class CrashScenario:
    """The work of a writer: every batch that it appended, and what it knew to be on the disk."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.flushed = 0
        self.truncating_to: int | None = None


def open_log(disk: MemoryDisk) -> MetadataLog:
    return MetadataLog.open(disk, "d/p", segment_bytes=SEGMENT_BYTES, segment_ms=10**12, index_interval_bytes=100)


def append(log: MetadataLog, scenario: CrashScenario, count: int, epoch: int) -> None:
    for _ in range(count):
        batch = build_batch(log.end_offset, epoch, 0, [b"%03d" % log.end_offset, b"%d" % epoch])
        scenario.batches.append(batch)
        log.append(batch)
        scenario.flushed = max(scenario.flushed, log.flushed_offset)


def flush(log: MetadataLog, scenario: CrashScenario) -> None:
    log.flush()
    scenario.flushed = log.flushed_offset


def appending(disk: MemoryDisk, scenario: CrashScenario) -> None:
    """Two epochs over several segments, flushed now and then."""
    log = open_log(disk)
    append(log, scenario, 3, epoch=1)
    flush(log, scenario)
    append(log, scenario, 5, epoch=1)
    append(log, scenario, 6, epoch=2)
    flush(log, scenario)
    append(log, scenario, 1, epoch=4)
    log.close()


def truncating(disk: MemoryDisk, scenario: CrashScenario) -> None:
    """A diverged follower: cuts across segments, then takes another leader's records."""
    log = open_log(disk)
    append(log, scenario, 12, epoch=1)
    flush(log, scenario)
    scenario.truncating_to = scenario.flushed = 8
    assert log.truncate(8) == 8
    del scenario.batches[4:]
    scenario.truncating_to = None
    append(log, scenario, 4, epoch=3)
    flush(log, scenario)


def reopening(disk: MemoryDisk, scenario: CrashScenario) -> None:
    """Starting on a torn log, stopping, and starting again."""
    log = open_log(disk)
    append(log, scenario, 7, epoch=1)
    flush(log, scenario)
    append(log, scenario, 2, epoch=2)
    disk.crash(Random(5))
    log = open_log(disk)
    del scenario.batches[log.end_offset // 2 :]
    scenario.flushed = log.flushed_offset
    append(log, scenario, 2, epoch=3)
    log.close()
    scenario.flushed = log.end_offset
    open_log(disk).close()


def crash_after(
    operations: int, work: Callable[[MemoryDisk, CrashScenario], None]
) -> tuple[MemoryDisk, CrashScenario, bool]:
    """Let the power fail before disk operation number `operations` of `work`; whether it came to that."""
    disk, scenario = MemoryDisk(), CrashScenario()
    with failing_after(disk, operations) as power:
        work(disk, scenario)
    return disk, scenario, power.failed


@pytest.mark.parametrize("work", [appending, truncating, reopening], ids=lambda work: work.__name__)
def test_a_power_failure_keeps_a_prefix_with_all_flushed_records(
    work: Callable[[MemoryDisk, CrashScenario], None],
) -> None:
    """After each disk operation, whatever of it made it to the disk: a prefix is there, with all that was flushed."""
    operations = 0
    while True:
        crashed = False
        for seed in range(RANDOM_CRASHES):
            disk, scenario, crashed = crash_after(operations, work)
            disk.crash(Random(seed) if seed else None)
            check_survivor(disk, scenario, f"operation {operations}, seed {seed}")
        if not crashed:
            break
        operations += 1
    assert operations > 20


def check_survivor(disk: MemoryDisk, scenario: CrashScenario, where: str) -> None:
    log = open_log(disk)
    found = [batch.data for batch in read_batches(log)]
    assert found == scenario.batches[: len(found)], where
    assert log.end_offset >= scenario.flushed, where
    # Before the truncation is done the old records may still be there; the model holds them until then.
    assert log.flushed_offset == log.end_offset, where
    epochs = sorted({batch.epoch for batch in read_batches(log)})
    assert [entry.epoch for entry in log.epochs.entries] == epochs, where
    # The survivor can be written to, and what it says it has flushed survives once more.
    more = CrashScenario()
    append(log, more, 3, epoch=50)
    flush(log, more)
    disk.crash()
    again = open_log(disk)
    assert again.recovered == (), where
    assert [batch.data for batch in read_batches(again)] == found + more.batches, where


def read_batches(log: MetadataLog) -> list[Any]:
    found: list[Any] = []
    offset = log.start_offset
    while data := log.read(offset, 1 << 20):
        found += scan(data)
        offset = found[-1].next_offset
    return found


def test_power_failure_while_a_vote_is_written() -> None:
    """quorum-state says the old or the new vote, never nothing; the new one once the write has returned."""
    old, new = StoredElection(leader_epoch=3, voted_id=1), StoredElection(leader_epoch=4, voted_id=2)

    def vote(disk: MemoryDisk, scenario: CrashScenario) -> None:
        open_log(disk)
        write_quorum_state(disk, "d/p", old)
        scenario.flushed = 1
        write_quorum_state(disk, "d/p", new)
        scenario.flushed = 2

    operations, crashed = 0, True
    while crashed:
        for seed in range(RANDOM_CRASHES):
            disk, scenario, crashed = crash_after(operations, vote)
            disk.crash(Random(seed) if seed else None)
            found = read_quorum_state(disk, "d/p") if disk.exists("d/p") else None
            allowed = {0: (None, old), 1: (old, new), 2: (new,)}[scenario.flushed]
            assert found in allowed, (operations, seed)
        operations += 1
    assert operations > 10


def test_a_power_failure_while_a_snapshot_replaces_the_log() -> None:
    """The log is the old one or part of it, or empty, or begins at the snapshot: never old records after a gap."""

    def reset(disk: MemoryDisk, scenario: CrashScenario) -> None:
        log = open_log(disk)
        append(log, scenario, 12, epoch=1)
        flush(log, scenario)
        scenario.flushed = -1
        log.reset_to(100)
        scenario.flushed = 100

    operations, crashed = 0, True
    while crashed:
        for seed in range(RANDOM_CRASHES):
            disk, scenario, crashed = crash_after(operations, reset)
            disk.crash(Random(seed) if seed else None)
            log = open_log(disk)
            found = [batch.data for batch in read_batches(log)]
            assert found == scenario.batches[: len(found)]
            if scenario.flushed == 100:
                assert (log.start_offset, log.end_offset) == (100, 100)
            elif scenario.flushed >= 0:
                assert log.end_offset >= scenario.flushed
        operations += 1
    assert operations > 20


def test_a_start_flushes_the_writes_of_a_killed_process() -> None:
    """A process that dies loses nothing that it wrote; the next one says that it is flushed, so it must make it so."""
    disk = MemoryDisk()
    log, scenario = open_log(disk), CrashScenario()
    append(log, scenario, 5, epoch=1)
    again = open_log(disk)
    assert again.flushed_offset == again.end_offset == log.end_offset
    disk.crash()
    assert [batch.data for batch in read_batches(open_log(disk))] == scenario.batches


def test_power_failure_while_a_torn_write_is_cut() -> None:
    """Whatever the start was about to do: the next one cuts the same, and loses nothing before the tear."""

    def torn_start(disk: MemoryDisk, scenario: CrashScenario) -> None:
        log = open_log(disk)
        append(log, scenario, 14, epoch=1)
        log.close()
        *_, last = sorted(name for name in disk.list("d/p") if name.endswith(".log"))
        disk.open(f"d/p/{last}").append(build_batch(log.end_offset, 1, 0, [b"torn"])[:-3] + bytes(3))
        disk.kill()
        scenario.flushed = -1
        assert open_log(disk).recovered

    operations, crashed, met = 0, True, 0
    while crashed:
        for seed in range(RANDOM_CRASHES):
            disk, scenario, crashed = crash_after(operations, torn_start)
            disk.crash(Random(seed) if seed else None)
            if scenario.flushed == -1:
                met += 1
                assert [batch.data for batch in read_batches(open_log(disk))] == scenario.batches
        operations += 1
    assert met > 40
