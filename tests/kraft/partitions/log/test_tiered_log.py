"""Logs of topics with tiered storage: a broker keeps what it cannot copy, and does not claim what it does not have."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from kraft.partitions.log.log_directory import LogDirectory
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.retention import delete_old_segments
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.partition_names import PartitionName
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.types import OffsetAndEpoch
from support.power import failing_after

NOW_MS = 1_700_000_000_000
MUCH_LATER_MS = NOW_MS + 10**12
TIERED = LogOptions(is_tiered=True, segment_bytes=300, retention_ms=1000, retention_bytes=500)
DIRECTORY = "/data/t-0"


def filled(disk: MemoryDisk, options: LogOptions = TIERED, *, count: int = 10) -> PartitionLog:
    """A log with a segment for each record, in two leader epochs."""
    log = PartitionLog.open(disk, DIRECTORY, options, now_ms=NOW_MS)
    for offset in range(count):
        record = Record(offset, NOW_MS + offset, 0, None, bytes(200))
        log.append_as_follower(write_batch([record], epoch=1 + offset // 5), leader_epoch=9, now_ms=NOW_MS)
    log.raise_high_watermark(count)
    return log


def with_a_tier(*, start: int = 1, local: int = 6) -> tuple[MemoryDisk, PartitionLog]:
    """A log as a broker of Kafka leaves it: the segments before `local` are in tiered storage alone."""
    disk = MemoryDisk()
    filled(disk).close()
    for name in disk.list(DIRECTORY):
        if name[0].isdigit() and int(name.partition(".")[0]) < local:
            disk.remove(f"{DIRECTORY}/{name}")
    opened = PartitionLog.open(
        disk,
        DIRECTORY,
        TIERED,
        now_ms=NOW_MS,
        start_checkpoint=start,
        recovery_point=10,
        high_watermark=10,
        is_clean=True,
    )
    return disk, opened


def test_a_log_goes_on_in_tiered_storage() -> None:
    _, log = with_a_tier()
    assert (log.start_offset, log.local_start, log.end_offset, log.high_watermark) == (1, 6, 10, 10)
    assert [(entry.epoch, entry.offset) for entry in log.epochs.entries] == [(1, 1), (2, 5)]
    for offset in (0, 1, 5, 11):
        assert isinstance(log.read(offset, 10_000), RefusedAppend), offset
    assert isinstance(log.read(6, 10_000), bytes)


def test_a_log_without_tiered_storage_begins_with_its_first_segment() -> None:
    disk, log = with_a_tier()
    log.close()
    log = PartitionLog.open(disk, DIRECTORY, LogOptions(), now_ms=NOW_MS, start_checkpoint=1, is_clean=True)
    assert (log.start_offset, log.local_start) == (6, 6)


def test_a_follower_deletes_nothing_by_itself() -> None:
    log = filled(MemoryDisk())
    assert delete_old_segments(log, now_ms=MUCH_LATER_MS, leads=False) == 0
    assert (log.start_offset, log.local_start) == (0, 0)
    log.raise_start(4)
    assert delete_old_segments(log, now_ms=MUCH_LATER_MS, leads=False) == 4, (
        "what a leader or a client has deleted goes"
    )
    assert (log.start_offset, log.local_start) == (4, 4)
    # The same log without tiered storage, or without copies to it (KIP-950).
    log.options = replace(TIERED, is_copy_disabled=True)
    assert delete_old_segments(log, now_ms=MUCH_LATER_MS, leads=False) == 6


@pytest.mark.parametrize("local", [0, 6])
def test_a_leader_deletes_by_the_retention_of_the_whole_log(local: int) -> None:
    """As a leader of Kafka that copies nothing: what it deletes is gone in tiered storage, too."""
    _, log = with_a_tier(start=0, local=local)
    log.options = replace(TIERED, retention_ms=-1, retention_bytes=600)
    assert delete_old_segments(log, now_ms=MUCH_LATER_MS) == 7 - local, "two segments have less than 600 bytes"
    assert (log.start_offset, log.local_start) == (7, 7)
    assert [(entry.epoch, entry.offset) for entry in log.epochs.entries] == [(2, 7)]
    log.options = replace(TIERED, retention_ms=MUCH_LATER_MS, retention_bytes=-1)
    assert delete_old_segments(log, now_ms=MUCH_LATER_MS) == 0
    log.options = TIERED
    assert delete_old_segments(log, now_ms=MUCH_LATER_MS) == 3
    assert (log.start_offset, log.local_start, log.end_offset) == (10, 10, 10)


def test_a_log_that_loses_its_tiered_storage_begins_with_its_first_segment() -> None:
    _, log = with_a_tier()
    log.options = LogOptions(segment_bytes=300, retention_ms=-1)
    assert delete_old_segments(log, now_ms=NOW_MS) == 0
    assert (log.start_offset, log.local_start) == (6, 6)


@pytest.mark.parametrize(("start", "local"), [(3, 6), (6, 6), (7, 7)])
def test_a_raised_log_start(start: int, local: int) -> None:
    _, log = with_a_tier()
    log.raise_start(start)
    assert (log.start_offset, log.local_start) == (start, local)


@pytest.mark.parametrize(
    ("offset", "expected"), [(8, (1, 6, 8)), (6, (1, 6, 6)), (4, (1, 4, 4)), (1, (1, 1, 1)), (0, (0, 0, 0))]
)
def test_a_truncation_to_each_side_of_the_local_start(offset: int, expected: tuple[int, int, int]) -> None:
    _, log = with_a_tier()
    log.truncate(offset, now_ms=NOW_MS)
    assert (log.start_offset, log.local_start, log.end_offset) == expected
    assert all(entry.offset < offset for entry in log.epochs.entries)
    assert log.epochs.entries or offset <= 1, "the epochs of what is in tiered storage stay"


def test_a_log_begins_anew_with_nothing_in_tiered_storage() -> None:
    _, log = with_a_tier()
    log.reset(20, now_ms=NOW_MS)
    assert (log.start_offset, log.local_start, log.end_offset) == (20, 20, 20)


def test_the_checkpoint_names_every_log_with_tiered_storage() -> None:
    """Kafka takes 0 for the log start of a tiered log that is not there."""
    disk = MemoryDisk()
    for name, options in (("t", TIERED), ("u", LogOptions())):
        PartitionLog.open(disk, f"/data/{name}-0", options, now_ms=NOW_MS).close()
    options_of = {"t": TIERED, "u": LogOptions()}
    directory = LogDirectory.open(disk, "/data", lambda name: options_of[name.topic], now_ms=NOW_MS)
    assert directory.log_starts() == {PartitionName("t", 0): 0}


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_crash_leaves_a_piece_of_the_old_log_or_the_whole_new_one(is_power_lost: bool) -> None:
    """A log that begins behind tiered storage knows the epochs and the producers before."""
    epochs = EpochHistory((OffsetAndEpoch(epoch=1, offset=2), OffsetAndEpoch(epoch=4, offset=11)))
    stored = [StoredProducer(7, 0, 3, 19, 0, NOW_MS, -1, -1)]
    ends = set()
    was_cut, operations = True, 0
    while was_cut:
        disk = MemoryDisk()
        log = filled(disk)
        log.flush()
        with failing_after(disk, operations) as power:
            log.begin_behind_tier(20, 2, epochs, stored, now_ms=NOW_MS)
            log.flush()
        was_cut, operations = power.failed, operations + 1
        if is_power_lost:
            disk.crash(Random(operations))
        else:
            disk.kill()
        opened = PartitionLog.open(disk, DIRECTORY, TIERED, now_ms=NOW_MS, start_checkpoint=2)
        ends.add(opened.end_offset)
        if opened.end_offset > 10:
            assert (opened.end_offset, opened.epochs) == (20, epochs), operations
            assert opened.producers.states.producers[7].last_sequence == 3, operations
    assert ends >= {10, 20}
