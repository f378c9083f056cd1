"""A case for each check of the records of partitions: what replicas hold and clients are told, to the violation."""

from __future__ import annotations

from msgspec.structs import replace

from check_sites import Cases
from kraft.invariants.cluster_model import PartitionKey, PartitionModel
from kraft.invariants.records import RecordLedger, Replica
from kraft.invariants.stored_batches import StoredBatch, stored_batches
from kraft.partitions.log.transaction_markers import TransactionMarker
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from scripted_node import uuid

CASES = Cases()
KEY = (uuid(78), 0)
NOW_MS = 1_795_390_000_000


def sent(value: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    """A batch of one record, as a producer sends it."""
    epoch = -1 if producer_id < 0 else 0
    record = Record(0, NOW_MS, 0, None, value)
    return write_batch([record], epoch=-1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def stored(offset: int, value: bytes, *, epoch: int = 1, producer_id: int = -1, sequence: int = -1) -> StoredBatch:
    """The same as a leader stores the batch."""
    return _at(offset, sent(value, producer_id, sequence), epoch)


def in_transaction(offset: int, value: bytes, producer_id: int = 5, sequence: int = 0) -> StoredBatch:
    """A batch of one record of a transaction, as a leader stores the batch."""
    record = Record(0, NOW_MS, 0, None, value)
    data = write_batch(
        [record], epoch=-1, transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return _at(offset, data, 1)


def marker(offset: int, *, is_commit: bool, producer_id: int = 5) -> StoredBatch:
    """The marker that ends a transaction."""
    ending = TransactionMarker(producer_id=producer_id, producer_epoch=1, is_commit=is_commit, coordinator_epoch=0)
    return _at(offset, ending.batch(NOW_MS), 1)


def _at(offset: int, sent_bytes: bytes, epoch: int) -> StoredBatch:
    data = bytearray(sent_bytes)
    data[:8], data[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    (batch,) = stored_batches(bytes(data))
    return batch


class ThreeReplicas:
    """Three replicas that lead and follow in epoch 1, all in the ISR."""

    def __init__(self, flush_messages: int | None = None) -> None:
        self.partition = PartitionModel(
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            removing_replicas=(),
            adding_replicas=(),
            leader=1,
            leader_recovery_state=0,
            leader_epoch=1,
            partition_epoch=0,
            directories=(),
            elr=(),
            last_known_elr=(),
        )
        self.min_isr = 1
        self.ledger = RecordLedger(self, flush_messages)
        self.replicas = {one: self.replica(one) for one in (1, 2, 3)}
        for one in (1, 2, 3):
            self.load(one)

    def partition_of(self, key: PartitionKey) -> PartitionModel | None:
        return self.partition

    def least_min_isr(self, key: PartitionKey) -> int:
        return self.min_isr

    def replica(self, broker_id: int) -> Replica:
        return Replica(
            broker_id=broker_id,
            key=KEY,
            name="orders-0",
            start_offset=0,
            end_offset=0,
            high_watermark=0,
            leader_epoch=1,
            is_leader=broker_id == 1,
        )

    def load(
        self, broker_id: int, *batches: StoredBatch, power: bool = False, clean: bool = False, start: int = 0
    ) -> None:
        end = batches[-1].next_offset if batches else 0
        replica = replace(self.replica(broker_id), start_offset=start, end_offset=end, is_leader=False)
        self.replicas[broker_id] = replica
        self.ledger.loaded(replica, batches, lost_power=power, was_clean=clean, was_failing=False)

    def move(
        self,
        broker_id: int,
        *added: StoredBatch,
        kept: int | None = None,
        watermark: int | None = None,
        epoch: int | None = None,
        leads: bool | None = None,
        start: int | None = None,
    ) -> None:
        """A step of a broker. What is not named stays as it is; broker 1 leads."""
        held = self.ledger.held_by(broker_id, KEY)
        kept = len(held) if kept is None else kept
        batches = (*held[:kept], *added)
        before = self.replicas[broker_id]
        now = replace(
            before,
            end_offset=batches[-1].next_offset if batches else 0,
            high_watermark=before.high_watermark if watermark is None else watermark,
            leader_epoch=before.leader_epoch if epoch is None else epoch,
            is_leader=broker_id == 1 if leads is None else leads,
            start_offset=before.start_offset if start is None else start,
        )
        self.replicas[broker_id] = now
        self.ledger.moved(now, kept, added)

    def commit(self, *batches: StoredBatch) -> None:
        """All replicas get these batches, and all of them know that the batches are committed."""
        for one in (2, 3, 1):
            self.move(one, *batches)
        for one in (1, 2, 3):
            self.move(one, watermark=batches[-1].next_offset)

    def lead(self, broker_id: int, *isr: int, epoch: int = 2) -> None:
        """The controller elects a leader."""
        self.partition = replace(self.partition, leader=broker_id, leader_epoch=epoch, isr=isr)


FIRST, SECOND = stored(0, b"first"), stored(1, b"second")


@CASES("has lost the committed batch of offsets 0 to 0 .* in a restart without a power failure")
def a_restart_loses_records() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.load(2)


@CASES("has stopped cleanly, and begins orders-0 at offset 0 again, though it had begun at offset 1")
def a_clean_stop_forgets_a_deletion() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.move(2, start=1)
    run.load(2, FIRST, clean=True)


@CASES("the high watermark of orders-0 falls from 1 to 0 on broker 2 in leader epoch 1")
def a_watermark_falls() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.move(2, watermark=0)


@CASES("to a consumer at offset 0; before, other bytes were committed there: the batch of offsets 0 to 0")
def a_consumer_reads_other_bytes() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.ledger.consumed_by_client(run.replicas[2], 0, stored(0, b"other").content)


@CASES("that the transaction of producer 5 has ended in orders-0, and no marker of epoch 1 is below its high watermark")
def a_marker_is_acknowledged_too_early() -> None:
    run = ThreeReplicas()
    run.commit(in_transaction(0, b"first"))
    run.move(1, marker(1, is_commit=True))
    run.ledger.marked(run.replicas[1], 5, 1, is_committed=True)


@CASES("broker 1 begins orders-0 at offset 1, above its high watermark 0: records are gone that were never committed")
def retention_takes_what_is_not_committed() -> None:
    run = ThreeReplicas()
    run.move(1, FIRST)
    run.move(1, kept=0, start=1)


@CASES("the logs of orders-0 differ at the end")
def logs_differ_at_the_end() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.move(2, SECOND)
    run.ledger.concluded(KEY, "orders-0", list(run.replicas.values()))


@CASES("broker 1 lacks the acknowledged batch of offsets 0 to 0 .* of orders-0 at the end")
def a_record_is_missing_at_the_end() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.ledger.answered(run.replicas[1], 0, sent(b"first"), is_for_all=True)
    for one in (1, 2, 3):
        run.load(one, power=True)
    run.ledger.concluded(KEY, "orders-0", list(run.replicas.values()))
