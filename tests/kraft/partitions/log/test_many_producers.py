"""A client may write with a new producer id in each batch: what a partition does about all of them comes in steps."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from kraft.partitions.log import producer_files, producers
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.log.producer_snapshot import StoredProducer, encode_entries, encode_producer_snapshot
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record

NOW_MS = 1_795_390_000_000
MOST_AT_ONCE, ENTRIES_PER_STEP = 500, 100
"""A twentieth of what the product has."""
COUNT = 7 * ENTRIES_PER_STEP + 25
DIRECTORY = "d/orders-0"


def batch_of(producer_id: int) -> bytes:
    record = Record(0, NOW_MS, 0, None, b"v")
    return write_batch([record], epoch=-1, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def opened(disk: MemoryDisk, *, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, LogOptions(), now_ms=NOW_MS, recovery_point=recovery_point)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryDisk, PartitionLog]:
    """A log of batches of so many producers, with ids that share the places of the hash table."""
    monkeypatch.setattr(producer_files, "PRODUCERS_AT_ONCE", MOST_AT_ONCE)
    monkeypatch.setattr(producers, "PRODUCERS_PER_STEP", ENTRIES_PER_STEP)
    disk = MemoryDisk()
    log = opened(disk)
    rng = Random(7)
    for at in range(COUNT):
        log.append_as_leader(batch_of(at if at % 3 else rng.getrandbits(48)), epoch=0, now_ms=NOW_MS)
    assert len(log.producers.states.producers) == COUNT
    return disk, log


def test_a_snapshot_of_many_producers_is_written_in_steps(full: tuple[MemoryDisk, PartitionLog]) -> None:
    disk, log = full
    wanted = encode_producer_snapshot(log.producers.states.stored())
    log.roll(NOW_MS)
    assert log.producers.unwritten == COUNT
    assert COUNT not in log.producers.snapshots
    # What is appended meanwhile is not in the snapshot.
    log.append_as_leader(batch_of(5), epoch=0, now_ms=NOW_MS)
    log.append_as_leader(batch_of(1 << 50), epoch=0, now_ms=NOW_MS)
    steps = 0
    while log.producers.unwritten is not None:
        log.producers.write_more()
        steps += 1
    assert steps > 2 * COUNT // ENTRIES_PER_STEP
    assert disk.read(log.producers.path(COUNT)) == wanted
    assert log.producers.snapshots[-1] == COUNT


def test_no_step_encodes_more_than_its_part(
    full: tuple[MemoryDisk, PartitionLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, log = full
    sizes: list[int] = []

    def counted(some: Iterable[StoredProducer]) -> bytes:
        entries = list(some)
        sizes.append(len(entries))
        return encode_entries(entries)

    monkeypatch.setattr(producers, "encode_entries", counted)
    log.roll(NOW_MS)
    log.producers.finish_writing()
    assert sum(sizes) == COUNT
    assert max(sizes) < 2 * ENTRIES_PER_STEP


def test_a_flush_while_a_snapshot_is_written_leaves_it_for_the_next_one(full: tuple[MemoryDisk, PartitionLog]) -> None:
    disk, log = full
    log.roll(NOW_MS)
    log.producers.write_more()
    log.flush()
    log.producers.finish_writing()
    log.flush()
    disk.crash(Random(7))
    after = opened(disk, recovery_point=log.recovery_point)
    assert after.recovered == ()
    assert after.producers.states.producers.keys() == log.producers.states.producers.keys()
    assert COUNT in after.producers.snapshots


@pytest.mark.parametrize("steps", [0, 1, 3, 9, 14])
def test_a_crash_in_the_middle_of_a_snapshot_loses_no_producer(
    full: tuple[MemoryDisk, PartitionLog], steps: int
) -> None:
    disk, log = full
    log.roll(NOW_MS)
    for _ in range(steps):
        log.producers.write_more()
    log.flush()
    known = log.producers.states.stored()
    disk.crash(Random(steps))
    after = opened(disk, recovery_point=log.recovery_point)
    assert after.end_offset == COUNT
    assert after.producers.states.stored() == known


def test_a_clean_shutdown_finishes_the_snapshot(full: tuple[MemoryDisk, PartitionLog]) -> None:
    disk, log = full
    log.roll(NOW_MS)
    log.close()
    assert COUNT in opened(disk, recovery_point=COUNT).producers.snapshots


def test_a_truncation_abandons_the_snapshot(full: tuple[MemoryDisk, PartitionLog]) -> None:
    _, log = full
    log.roll(NOW_MS)
    log.producers.write_more()
    log.truncate(100, now_ms=NOW_MS)
    assert log.producers.unwritten is None
    assert len(log.producers.states.producers) == 100


@pytest.mark.parametrize("steps", [17, 20, 25, 26])
def test_what_is_abandoned_leaves_no_file(full: tuple[MemoryDisk, PartitionLog], steps: int) -> None:
    """The last one is complete, and would pass for a snapshot of the records that follow."""
    disk, log = full
    log.roll(NOW_MS)
    for _ in range(steps):
        log.producers.write_more()
    assert log.producers.unwritten == COUNT
    log.truncate(100, now_ms=NOW_MS)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")] == [f"{100:020}.snapshot"]


def test_a_snapshot_is_not_finished_when_its_segment_is_gone(
    full: tuple[MemoryDisk, PartitionLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, log = full
    log.roll(NOW_MS)
    log.producers.write_more()
    monkeypatch.setattr(producer_files, "PRODUCERS_AT_ONCE", 2 * COUNT)  # as when most of the producers have expired
    log.append_as_leader(batch_of(1 << 60), epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    assert log.producers.unwritten == COUNT
    log.raise_high_watermark(log.end_offset)
    log.delete_segments(2, now_ms=NOW_MS)
    log.producers.finish_writing()
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")] == [f"{COUNT + 1:020}.snapshot"]
