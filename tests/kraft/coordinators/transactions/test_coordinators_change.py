"""The next coordinator loads in short steps and completes what one left; time ends what producers leave open."""

from __future__ import annotations

from typing import cast

import pytest

from kraft.coordinators.runtime.loading import Lacking, loading
from kraft.coordinators.runtime.shard import Record, Shard
from kraft.coordinators.transactions import coordinator, shard
from kraft.limits import COORDINATOR_RECORDS_PER_STEP
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.settings import DataDirectory, DataSettings
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import batch_of
from metadata_log.records.coordinator import TRANSACTION_STATE, encode_key, encode_value
from metadata_log.records.metadata import PartitionChangeRecord, RemoveTopicRecord
from metadata_log.records.record import encode_record
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from metadata_log.types import Uuid
from support.broker.coordinated_brokers import GROUPS, OUT, STATE, Coordinated
from support.broker.transactional_producers import (
    FIRST,
    NAME,
    NEXT,
    Producer,
    committed,
    fail_over,
    markers,
    offset_of,
    state_of,
)
from transport.protocol.errors import Error
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest


def test_the_next_coordinator_sends_no_marker_before_the_decision_is_committed() -> None:
    """The end of its log has a decision that is not replicated: the one after it may lack that, and decide otherwise.
    Kafka's sends the markers at once.
    """
    cluster = Coordinated(state=((101, 102, 103),))
    producer = Producer(cluster)
    assert producer.produce(1, b"x") is Error.NONE
    # 103 is in sync, and does not fetch any more.
    cluster.dead.add(103)
    cluster.brokers.send(FIRST, EndTxnRequest(NAME, producer.id, producer.epoch, True), 5)
    cluster.settle()
    cluster.dead = {FIRST, 103}
    moved = PartitionChangeRecord(partition_id=0, topic_id=STATE, isr=(NEXT, 103), leader=NEXT)
    led = PartitionChangeRecord(partition_id=1, topic_id=OUT, isr=(NEXT, 103), leader=103)
    cluster.brokers.change(moved, led)
    cluster.settle()
    assert state_of(cluster, NEXT).transaction_state in ("Ongoing", "PrepareCommit")
    assert len(cluster.brokers.requests[NEXT].markers) == 0
    cluster.dead = {FIRST}
    for _ in range(3):
        cluster.settle(after_ms=100)
    assert state_of(cluster, NEXT).transaction_state == "CompleteCommit"
    assert markers(cluster, 1) == [(1, 1, False)]


def test_an_open_transaction_with_offsets_goes_on_at_the_next_coordinator() -> None:
    cluster = Coordinated(groups=((102, 103),))
    producer = Producer(cluster)
    assert producer.produce(1, b"x") is Error.NONE
    assert producer.commit_offset(7) is Error.NONE
    assert offset_of(cluster) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
    fail_over(cluster)
    assert offset_of(cluster) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
    assert state_of(cluster, NEXT).transaction_state == "Ongoing"
    producer.coordinator = NEXT
    assert producer.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"x"]
    assert offset_of(cluster) == (Error.NONE, 7)


def test_a_group_joins_a_transaction_before_its_topic_is_made() -> None:
    cluster = Coordinated()
    cluster.brokers.change(RemoveTopicRecord(topic_id=GROUPS))
    cluster.settle()
    producer = Producer(cluster)
    request = AddOffsetsToTxnRequest(NAME, producer.id, producer.epoch, "g")
    assert cluster.ask(FIRST, request, 4).error_code == Error.NONE
    state = state_of(cluster, FIRST)
    assert state.transaction_state == "Ongoing"
    assert [one.topic for one in state.topics] == ["__consumer_offsets"]


def test_strangers_cannot_fill_the_memory_of_a_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Coordinated()
    producer = Producer(cluster)
    monkeypatch.setattr(coordinator, "TRANSACTION_STATE_BYTES", 100)
    refused = cluster.ask(FIRST, InitProducerIdRequest("another", 1000), 5)
    assert (refused.error_code, refused.producer_id) == (Error.POLICY_VIOLATION, -1)
    monkeypatch.setattr(shard, "TRANSACTION_PARTITIONS", 2)
    assert [producer.produce(number, b"x") for number in range(3)] == [Error.NONE, Error.NONE, Error.POLICY_VIOLATION]
    assert producer.end(commit=True) is Error.NONE
    assert [committed(cluster, number) for number in range(3)] == [[b"x"], [b"x"], []]
    assert producer.initialize(producer.id, producer.epoch).error_code == Error.NONE


# A coordinator loads in short steps, however few records a batch has: those of transactions have one each.


RECORDS = 5 * COORDINATOR_RECORDS_PER_STEP
DIRECTORY = Uuid(bytes(range(16)))


class Counting:
    """A coordinator that counts what it replays."""

    kinds = TRANSACTION_STATE
    replayed = 0

    def empty(self) -> int:
        return 0

    def lacking(self, state: int, record: Record) -> str:
        return ""

    def replay(self, state: int, record: Record, offset: int, producer_id: int) -> int:
        self.replayed += 1
        return state + 1


@pytest.mark.parametrize("per_batch", [1, 7, RECORDS])
def test_a_step_of_a_load_replays_few_records(per_batch: int) -> None:
    disk, name = MemoryDisk(), "__transaction_state-0"
    log = PartitionLog.open(disk, name, LogOptions(is_compacted=True), now_ms=0)
    body = encode_key(TransactionLogKey("tx")), encode_value(TransactionLogValue(transaction_partitions=None))
    while log.end_offset < RECORDS:
        bodies = [encode_record(0, at, *body, ()) for at in range(min(per_batch, RECORDS - log.end_offset))]
        batch = batch_of(bodies, base_offset=log.end_offset, epoch=0, timestamps=(0, 0))
        log.append_as_leader(batch, epoch=0, now_ms=0, is_client=False)
    log.raise_high_watermark(log.end_offset)
    hosting = Hosting(disk, DataSettings(broker_id=1, directories=(DataDirectory(DIRECTORY, ".", is_clean=True),)))
    part = HostedPartition((DIRECTORY, 0), "__transaction_state", DIRECTORY, log, 1)
    hosting.partitions[part.key] = part
    shard, before, most = Counting(), 0, 0
    for _ in loading(hosting, part, cast(Shard[int], shard), Lacking()):
        most, before = max(most, shard.replayed - before), shard.replayed
    assert shard.replayed == RECORDS
    assert shard.replayed - before <= most <= COORDINATOR_RECORDS_PER_STEP
