"""A case for each check of compacted partitions, to the violation."""

from __future__ import annotations

from msgspec.structs import replace

from check_sites import Cases
from kraft.invariants.compaction import CompactionLedger
from kraft.invariants.records import Replica
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from record_cases import ThreeReplicas
from scripted_node import uuid

CASES = Cases()
KEY = (uuid(79), 0)
NOW_MS = 1_795_390_000_000


def content(*values: tuple[bytes, bytes | None]) -> bytes:
    """A log with one batch: the records of these keys and values, from offset 0 on."""
    records = [Record(at, NOW_MS, 0, key, value) for at, (key, value) in enumerate(values)]
    return write_batch(records, epoch=1, producer_id=-1, producer_epoch=-1, base_sequence=-1) if records else b""


def replica(broker_id: int, end: int, *, committed: int | None = None, epoch: int = 1, leader: int = 1) -> Replica:
    """A replica with everything committed, by default."""
    return Replica(
        broker_id=broker_id,
        key=KEY,
        name="compacted-0",
        start_offset=0,
        end_offset=end,
        high_watermark=end if committed is None else committed,
        leader_epoch=epoch,
        is_leader=broker_id == leader,
    )


FULL = content((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
"""The record at offset 0 may go: a later one has its key."""


class TwoReplicas:
    """Two replicas in the ISR with the committed records of `FULL`, in epoch 1."""

    def __init__(self) -> None:
        metadata = ThreeReplicas()
        metadata.partition = replace(metadata.partition, replicas=(1, 2), isr=(1, 2))
        self.ledger = CompactionLedger(metadata)
        for one in (1, 2):
            self.ledger.looked(replica(one, 0), b"", is_start=True)
            self.ledger.looked(replica(one, 3, committed=0), FULL)
            self.ledger.looked(replica(one, 3), FULL)

    def restart(self, broker_id: int, *, power: bool) -> None:
        """A broker starts again without any record."""
        self.ledger.looked(replica(broker_id, 0, leader=0), b"", is_start=True, may_lose=power)

    def lead(self, broker_id: int, end: int) -> None:
        """A broker leads in epoch 2 from this offset on."""
        data = FULL if end else b""
        self.ledger.looked(replica(broker_id, end, committed=0, epoch=2, leader=broker_id), data)


@CASES("the last values of \\['a'\\] in compacted-0 differ on the brokers 1 and 2")
def last_values_differ_at_the_end() -> None:
    ledger = CompactionLedger(ThreeReplicas())
    ledger.looked(replica(1, 3), FULL)
    ledger.looked(replica(2, 3), content((b"a", b"1"), (b"b", b"2")))
    ledger.concluded(KEY, "compacted-0", [1, 2])


@CASES("broker 2 has cut compacted-0 to offset 0, below the high watermark 3; neither a power failure nor an unclean")
def a_restart_loses_committed_records() -> None:
    TwoReplicas().restart(2, power=False)


@CASES(
    r"broker 2 leads compacted-0 in epoch 2 from offset 0 on, and all below 3 was .* took that from \[2\] of \[1, 2\]"
)
def a_leader_lacks_committed_records_that_another_member_has() -> None:
    run = TwoReplicas()
    run.restart(2, power=True)
    run.lead(2, 0)
