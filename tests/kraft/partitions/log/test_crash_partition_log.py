"""The power fails between each pair of disk operations of a partition log: what was flushed is there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kraft.partitions.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from kraft.partitions.log.log_directory import LogDirectory
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.log.partition_names import PartitionName
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from support.broker.broker_logs import NOW_MS
from support.kraft.plain_logs import stored
from support.power import failing_after

OPTIONS = LogOptions(segment_bytes=400, index_interval_bytes=100)
NAME = PartitionName("p", 0)
RANDOM_CRASHES = 3


class Written:
    """The batches that the leader appended, and those that it knew to be on the disk."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.flushed = 0


def opened(disk: MemoryDisk) -> tuple[LogDirectory, PartitionLog]:
    logs = LogDirectory.open(disk, "d", lambda _: OPTIONS, now_ms=NOW_MS)
    assert logs.failed == {}
    return logs, logs.logs[NAME] if NAME in logs.logs else logs.add(NAME, OPTIONS, now_ms=NOW_MS)


def append(log: PartitionLog, written: Written, count: int, epoch: int) -> None:
    for _ in range(count):
        at = log.end_offset
        known = log.producers.states.producers.get(7)
        values = [Record(index, NOW_MS + at, 0, b"k", b"%03d" % at) for index in range(2)]
        sent = write_batch(
            values,
            epoch=-1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
        )
        done = log.append_as_leader(sent, epoch=epoch, now_ms=NOW_MS + at)
        assert isinstance(done, Appended)
        written.batches.append(stored(log)[-1])


def flush(logs: LogDirectory, log: PartitionLog, written: Written) -> None:
    log.flush()
    written.flushed = log.recovery_point
    log.raise_high_watermark(log.recovery_point)
    logs.write(RECOVERY_POINTS, HIGH_WATERMARKS)


def appending(disk: MemoryDisk, written: Written) -> None:
    """Epochs over several segments, with and without records, flushed now and then, and a clean stop."""
    logs, log = opened(disk)
    append(log, written, 2, epoch=1)
    flush(logs, log, written)
    append(log, written, 5, epoch=1)
    append(log, written, 2, epoch=2)
    flush(logs, log, written)
    append(log, written, 1, epoch=4)
    log.assign_epoch(5)
    logs.close(broker_epoch=1)
    written.flushed = log.end_offset
    logs, log = opened(disk)
    # The file has epoch 5 still, which must not begin with this record.
    append(log, written, 1, epoch=4)


def truncating(disk: MemoryDisk, written: Written) -> None:
    """A follower cuts across segments, then takes other records."""
    logs, log = opened(disk)
    append(log, written, 9, epoch=1)
    flush(logs, log, written)
    written.flushed = 6
    log.truncate(6, now_ms=NOW_MS)
    # The recovery point in the checkpoint file is above the end until the file is written again, which takes a minute.
    del written.batches[3:]
    append(log, written, 3, epoch=3)
    flush(logs, log, written)


def crash_after(operations: int, work: Callable[[MemoryDisk, Written], None]) -> tuple[MemoryDisk, Written, bool]:
    """Let the power fail before disk operation number `operations` of `work`; whether it came to that."""
    disk, written = MemoryDisk(), Written()
    with failing_after(disk, operations) as power:
        work(disk, written)
    return disk, written, power.failed


@pytest.mark.parametrize("work", [appending, truncating], ids=lambda work: work.__name__)
def test_a_power_failure_keeps_a_prefix_with_all_flushed_records(work: Callable[[MemoryDisk, Written], None]) -> None:
    """After each disk operation, whatever of it made it to the disk; producers and indexes fit the records."""
    operations = 0
    while True:
        crashed = False
        for seed in range(RANDOM_CRASHES):
            disk, written, crashed = crash_after(operations, work)
            disk.crash(Random(seed) if seed else None)
            check_survivor(disk, written, f"operation {operations}, seed {seed}")
        if not crashed:
            break
        operations += 1
    assert operations > 40


def check_survivor(disk: MemoryDisk, written: Written, where: str) -> None:
    _, log = opened(disk)
    found = stored(log)
    # An append that was cut off by the power failure may be whole on the disk.
    assert found[: len(written.batches)] == written.batches[: len(found)], where
    assert len(found) <= len(written.batches) + 1, where
    assert log.end_offset == 2 * len(found) >= written.flushed, where
    assert log.high_watermark <= log.end_offset, where
    replayed = PartitionLog.open(MemoryDisk(), "d/p-0", OPTIONS, now_ms=NOW_MS)
    for batch in found:
        replayed.append_as_follower(batch, leader_epoch=9, now_ms=NOW_MS)
    assert log.epochs == replayed.epochs, where
    mine = [(each.producer_id, each.last_sequence) for each in log.producers.states.stored()]
    assert mine == [(each.producer_id, each.last_sequence) for each in replayed.producers.states.stored()], where
    for offset in range(0, log.end_offset, 2):
        assert log.read(offset, 1) == found[offset // 2], where
    # The survivor can be written to, and what it has flushed survives once more.
    more = Written()
    append(log, more, 3, epoch=50)
    log.flush()
    disk.crash()
    _, again = opened(disk)
    assert stored(again) == found + more.batches, where


@pytest.mark.parametrize("seed", range(RANDOM_CRASHES))
def test_a_power_failure_after_a_clean_stop_takes_no_byte_of_an_index(seed: int) -> None:
    """KAFKA-20979: the last size of an index was not flushed, and nobody looks for that after a clean stop."""
    disk, written = MemoryDisk(), Written()
    logs, log = opened(disk)
    append(log, written, 9, epoch=1)
    logs.close(broker_epoch=1)
    before = {name: disk.read(f"d/p-0/{name}") for name in disk.list("d/p-0")}
    assert sum(name.endswith("index") and len(content) > 0 for name, content in before.items()) > 4
    disk.crash(Random(seed) if seed else None)
    assert {name: disk.read(f"d/p-0/{name}") for name in disk.list("d/p-0")} == before
