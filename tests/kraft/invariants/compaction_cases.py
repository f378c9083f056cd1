"""A case for each check of compacted partitions, to the violation."""

from __future__ import annotations

from check_sites import Cases
from scripted_node import uuid

from kraft.invariants.compaction import CompactionLedger
from kraft.invariants.records import Replica
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record

CASES = Cases()
KEY = (uuid(79), 0)
NOW_MS = 1_795_390_000_000


def content(*values: tuple[bytes, bytes | None]) -> bytes:
    """A log with one batch: the records of these keys and values, from offset 0 on."""
    records = [Record(at, NOW_MS, 0, key, value) for at, (key, value) in enumerate(values)]
    return write_batch(records, epoch=1, producer_id=-1, producer_epoch=-1, base_sequence=-1)


def replica(broker_id: int, end: int) -> Replica:
    """A replica with everything committed."""
    return Replica(
        broker_id=broker_id,
        key=KEY,
        name="compacted-0",
        start_offset=0,
        end_offset=end,
        high_watermark=end,
        leader_epoch=1,
        is_leader=broker_id == 1,
    )


FULL = content((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
"""The record at offset 0 may go: a later one has its key."""
EMPTY = content((b"c", b"9"))


@CASES("broker 1 has removed the last value of 'a' in compacted-0, which was at offset 2 below the high watermark 3")
def a_cleaner_removes_a_last_value() -> None:
    ledger = CompactionLedger()
    ledger.looked(replica(1, 3), FULL)
    ledger.looked(replica(1, 3), EMPTY)


@CASES("the last values of \\['a'\\] in compacted-0 differ on the brokers 1 and 2")
def last_values_differ_at_the_end() -> None:
    ledger = CompactionLedger()
    ledger.looked(replica(1, 3), FULL)
    ledger.looked(replica(2, 3), content((b"a", b"1"), (b"b", b"2")))
    ledger.concluded(KEY, "compacted-0", [1, 2])
