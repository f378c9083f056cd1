"""The power fails between each pair of disk operations of a cleaning: the log has every key, once or as before."""

from __future__ import annotations

from random import Random

from msgspec import structs

from cleaned_partitions import batches_in, clean, committed, latest, sequences
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.memory_disk import MemoryDisk
from support.broker.dirty_logs import OPTIONS, dirty_log
from support.power import failing_after

RANDOM_CRASHES = 2
SEED = 21
BATCHES = 20
SMALL = structs.replace(OPTIONS, segment_bytes=600)
"""The segments before the cleaning: each run of some becomes one."""


def prepared() -> tuple[MemoryDisk, PartitionLog, int]:
    """A dirty log that is on disk to its end."""
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(SEED), BATCHES, SMALL)
    producers.end_all()
    log.options = OPTIONS
    log.flush()
    return disk, log, producers.time_ms


def crashed_after(operations: int) -> tuple[MemoryDisk, bool]:
    """Let the power fail before a disk operation of the cleaning; whether it came to that."""
    disk, log, now_ms = prepared()
    with failing_after(disk, operations) as power:
        clean(log, disk, now_ms)
    return disk, power.failed


def test_a_power_failure_at_any_moment_leaves_the_log_cleaned_or_as_it_was() -> None:
    """Values, tombstones and the end of the log; and the next start leaves no file of the cleaner behind."""
    _, original, now_ms = prepared()
    committed_before, end_offset = committed(original), original.end_offset
    assert len(original.segments) > 3
    producers = sequences(original)
    shapes = set[tuple[int, ...]]()
    operations = 0
    while True:
        was_cut = False
        for seed in range(RANDOM_CRASHES):
            disk, was_cut = crashed_after(operations)
            disk.crash(Random(seed) if seed else None)
            where = f"operation {operations}, seed {seed}"
            log = PartitionLog.open(
                disk, "p-0", OPTIONS, now_ms=now_ms, recovery_point=end_offset, high_watermark=end_offset
            )
            assert log.end_offset == end_offset, where
            found = committed(log)
            assert set(found) <= set(committed_before), where
            assert latest(found) == latest(committed_before), where
            assert sequences(log) == producers, where
            offsets = [batch.base_offset for batch in batches_in(log)]
            assert offsets == sorted(set(offsets)), where
            left = [name for name in disk.list("p-0") if name.endswith((".cleaned", ".swap"))]
            assert left == [], where
            shapes.add(tuple(segment.base_offset for segment in log.segments))
            # The survivor can be cleaned, and then says the same.
            clean(log, disk, now_ms)
            assert latest(committed(log)) == latest(committed_before), where
        if not was_cut:
            break
        operations += 1
    assert operations > 30
    assert len(shapes) > 2, "the crashes have not hit before, between and behind the replacements"
