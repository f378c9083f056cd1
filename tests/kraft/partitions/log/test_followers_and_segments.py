"""What a log must know and give at the seams, where other brokers went wrong: followers that become leaders, the ends
of closed segments, full indexes.
"""

from __future__ import annotations

import pytest

from cleaned_partitions import clean, survivors
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record, records
from support.broker.broker_logs import NOW_MS
from transport.protocol.errors import Error

COMPACTED = LogOptions(is_compacted=True, is_deleted=False, min_dirty_ratio=0.0, delete_retention_ms=0)


def written(sequence: int, *, key: bytes = b"k", producer_id: int = 7, at_ms: int = NOW_MS) -> bytes:
    record = Record(0, at_ms, 0, key, b"v%d" % sequence)
    return write_batch([record], epoch=-1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def new_log(options: LogOptions, disk: MemoryDisk, name: str = "p-0") -> PartitionLog:
    return PartitionLog.open(disk, name, options, now_ms=NOW_MS)


def replicated(leader: PartitionLog, follower: PartitionLog) -> None:
    """Let a follower have what it lacks, in the portions of one segment that a fetch gets."""
    while follower.end_offset < leader.end_offset:
        data = leader.read(follower.end_offset, 1 << 20)
        assert isinstance(data, bytes)
        assert data, f"a fetch from offset {follower.end_offset} gets nothing"
        follower.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)


def told(log: PartitionLog, sequence: int, *, epoch: int = 1) -> Appended | Error:
    """What a leader says to a batch of the producer."""
    done = log.append_as_leader(written(sequence), epoch=epoch, now_ms=NOW_MS)
    return done.error if isinstance(done, RefusedAppend) else done


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_new_leader_knows_the_producers_that_it_replicated(*, is_reopened: bool) -> None:
    """Otherwise a batch that is sent again, because the old leader died before it answered, would be there twice."""
    disk = MemoryDisk()
    leader, follower = new_log(LogOptions(), disk), new_log(LogOptions(), disk, "p-1")
    for sequence in range(7):
        leader.append_as_leader(written(sequence), epoch=0, now_ms=NOW_MS)
    replicated(leader, follower)
    if is_reopened:
        follower.close()
        follower = new_log(LogOptions(), disk, "p-1")
    assert told(follower, 6) == Appended(6, 6, NOW_MS, is_duplicate=True)
    assert told(follower, 8) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert told(follower, 7) == Appended(7, 7)


def test_a_fetch_at_the_emptied_end_of_a_closed_segment_goes_on_in_the_next() -> None:
    """Compaction leaves a hole there. A follower that got nothing would never leave the place."""
    disk = MemoryDisk()
    leader, follower = new_log(COMPACTED, disk), new_log(COMPACTED, disk, "p-1")
    for sequence in range(8):
        leader.append_as_leader(written(sequence, key=b"same", producer_id=-1), epoch=0, now_ms=NOW_MS)
        if sequence == 3:
            leader.roll(NOW_MS)
    leader.append_as_leader(written(0, key=b"other", producer_id=-1), epoch=0, now_ms=NOW_MS)
    leader.roll(NOW_MS)
    leader.append_as_leader(written(0, key=b"last", producer_id=-1), epoch=0, now_ms=NOW_MS)
    leader.raise_high_watermark(leader.end_offset)
    clean(leader, disk, NOW_MS)
    offsets = [offset for offset, _, _ in survivors(leader)]
    assert offsets == [7, 8, 9]
    for offset in range(leader.start_offset, leader.end_offset):
        data = leader.read(offset, 1)
        assert isinstance(data, bytes)
        first = next(record.offset for record in records(next(scan(data))))
        assert first == min(one for one in offsets if one >= offset)
    replicated(leader, follower)
    assert survivors(follower) == survivors(leader)


def test_a_follower_that_compacts_keeps_the_sequence_of_each_producer() -> None:
    """Its last batch may hold no record any more and stays: as a leader it goes on from there, also after a start."""
    disk = MemoryDisk()
    leader, follower = new_log(COMPACTED, disk), new_log(COMPACTED, disk, "p-1")
    for sequence in range(5):
        leader.append_as_leader(written(sequence), epoch=0, now_ms=NOW_MS)
    leader.append_as_leader(written(0, producer_id=8), epoch=0, now_ms=NOW_MS)
    replicated(leader, follower)
    follower.roll(NOW_MS)
    follower.append_as_follower(_moved(6, written(1, producer_id=8)), leader_epoch=0, now_ms=NOW_MS)
    follower.raise_high_watermark(follower.end_offset)
    clean(follower, disk, NOW_MS)
    assert [offset for offset, _, _ in survivors(follower)] == [5, 6]
    # Without a snapshot the producers are read from the batches.
    follower.close()
    for name in disk.list("p-1"):
        if name.endswith(".snapshot"):
            disk.remove(f"p-1/{name}")
    again = PartitionLog.open(disk, "p-1", COMPACTED, now_ms=NOW_MS, recovery_point=0)
    assert told(again, 4) == Appended(4, 4, NOW_MS, is_duplicate=True)
    assert told(again, 6) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert told(again, 5) == Appended(7, 7)


def _moved(offset: int, data: bytes) -> bytes:
    return offset.to_bytes(8, "big") + data[8:12] + (0).to_bytes(4, "big") + data[16:]


@pytest.mark.parametrize(
    ("options", "at_ms", "segments"),
    [
        # An entry for each batch after the first, and one of the times for each new time: five, or two, fill an index.
        (LogOptions(index_interval_bytes=0, index_bytes=40), [NOW_MS] * 13, 3),
        (LogOptions(index_interval_bytes=0, index_bytes=36), [NOW_MS + at for at in range(7)], 3),
        # `log.roll.ms`: by the times of the records, not by the clock, once the first record has one.
        (LogOptions(segment_ms=1000), [NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1002, NOW_MS + 2002], 3),
        (LogOptions(segment_ms=1000), [NOW_MS] * 7, 1),
    ],
)
def test_a_segment_is_closed_when_an_index_is_full_or_its_time_is_over(
    options: LogOptions, at_ms: list[int], segments: int
) -> None:
    disk = MemoryDisk()
    log = new_log(options, disk)
    for sequence, time in enumerate(at_ms):
        done = log.append_as_leader(written(sequence, at_ms=time), epoch=0, now_ms=NOW_MS + 10_000)
        assert done == Appended(sequence, sequence)
    assert len(log.segments) == segments
    log.close()
    again = new_log(options, disk)
    assert [offset for offset, _, _ in survivors(again)] == list(range(len(at_ms)))
    assert len(again.segments) == segments
    for offset in range(len(at_ms)):
        data = again.read(offset, 1)
        assert isinstance(data, bytes)
        assert next(scan(data)).base_offset == offset
