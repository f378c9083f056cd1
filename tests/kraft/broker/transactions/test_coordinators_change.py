"""The next coordinator completes what one left, and time ends what producers leave open: C36, C37, C38."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.log.producers import marker_of
from kraft.broker.partitions.key import PartitionKey
from kraft.broker.transactions import coordinator, shard
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.metadata import PartitionChangeRecord, RemoveTopicRecord
from metadata_log.records.record import Record, records
from support.broker.coordinated_brokers import GROUPS, IN, OUT, START_MS, STATE, Coordinated
from support.broker.request_brokers import fetch, only_partition
from transport.protocol.errors import Error
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NAME = "mover"
READ_COMMITTED = 1
FIRST, NEXT = 101, 102
"""The coordinator, and the one after it."""


class Producer:
    """A producer of version 2, at brokers in virtual time."""

    def __init__(self, cluster: Coordinated, coordinator: int = FIRST, timeout_ms: int = 60_000) -> None:
        self.cluster = cluster
        self.coordinator = coordinator
        self.timeout_ms = timeout_ms
        self.sequences: dict[int, int] = {}
        for _ in range(2):
            found = self.initialize()
        assert found.error_code == Error.NONE, found
        self.id, self.epoch = found.producer_id, found.producer_epoch

    def initialize(self, producer_id: int = -1, epoch: int = -1) -> Any:
        request = InitProducerIdRequest(NAME, self.timeout_ms, producer_id, epoch)
        return self.cluster.ask(self.coordinator, request, 5)

    def produce(self, number: int, value: bytes) -> Error:
        sequence = self.sequences.get(number, 0)
        data = write_batch(
            [Record(0, START_MS, 0, None, value)],
            epoch=-1,
            transactional=True,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        topic = TopicProduceData(topic_id=OUT, partition_data=[PartitionProduceData(number, data)])
        request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=5000, topic_data=[topic])
        leader = self.cluster.brokers.image.topics.by_id[OUT].partitions[number].leader
        error = Error(only_partition(self.cluster.ask(leader, request, 13)).error_code)
        if error is Error.NONE:
            self.sequences[number] = sequence + 1
        return error

    def commit_offset(self, offset: int) -> Error:
        topic = TxnOffsetCommitRequestTopic("in", partitions=[TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest(NAME, "g", self.id, self.epoch, topics=[topic])
        answer = self.cluster.ask(group_coordinator(self.cluster), request, 5)
        return Error(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool, markers: bool = True) -> Error:
        request = EndTxnRequest(NAME, self.id, self.epoch, commit)
        answer = self.cluster.ask(self.coordinator, request, 5, markers=markers)
        if answer.error_code == Error.NONE:
            self.id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return Error(answer.error_code)


def group_coordinator(cluster: Coordinated) -> int:
    runtime = cluster.brokers.requests[101].groups
    leader: int = cluster.brokers.image.topics.by_id[GROUPS].partitions[runtime.number_of("g")].leader
    return leader


def committed(cluster: Coordinated, number: int) -> list[bytes]:
    """The committed records of a partition of `out`, as a reader gets them."""
    leader = cluster.brokers.image.topics.by_id[OUT].partitions[number].leader
    key: PartitionKey = OUT, number
    data = only_partition(cluster.brokers.ask(leader, fetch((key, 0), isolation_level=READ_COMMITTED)))
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    found, ignored = list[bytes](), set[int]()
    for batch in scan(data.records or b""):
        while aborted and aborted[0][0] <= batch.base_offset:
            ignored.add(aborted.pop(0)[1])
        if batch.is_control:
            ignored.discard(batch.producer_id)
        elif batch.producer_id not in ignored:
            found += [one.value or b"" for one in records(batch)]
    return found


def markers(cluster: Coordinated, number: int) -> list[tuple[int, int, bool]]:
    """The markers in a partition: the epochs of producer and coordinator, and whether the transaction is aborted."""
    part = cluster.brokers.part(cluster.brokers.image.topics.by_id[OUT].partitions[number].leader, (OUT, number))
    data = part.log.read(0, 1 << 20)
    assert isinstance(data, bytes), data
    found = []
    for batch in scan(data):
        marker = marker_of(batch) if batch.is_control else None
        if marker is not None:
            found.append((batch.producer_epoch, marker.coordinator_epoch, marker.is_abort))
    return found


def state_of(cluster: Coordinated, coordinator: int) -> Any:
    answer = cluster.ask(coordinator, DescribeTransactionsRequest([NAME]), 0, markers=False)
    return answer.transaction_states[0]


def offset_of(cluster: Coordinated) -> tuple[Error, int]:
    """The offset of the group, as a consumer asks that waits for transactions."""
    topic = OffsetFetchRequestTopics("in", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[topic])], require_stable=True)
    answer = cluster.ask(group_coordinator(cluster), request, 9)
    part = answer.groups[0].topics[0].partitions[0]
    return Error(part.error_code), part.committed_offset


def fail_over(cluster: Coordinated) -> None:
    """The coordinator dies; the other replica leads in the next epoch."""
    cluster.dead.add(FIRST)
    moved = [PartitionChangeRecord(partition_id=0, topic_id=STATE, isr=(NEXT,), leader=NEXT)]
    topics = cluster.brokers.image.topics
    for topic_id in (GROUPS, OUT, IN):
        for number, part in enumerate(topics.by_id[topic_id].partitions):
            rest = tuple(one for one in part.isr if one != FIRST)
            if FIRST in part.isr and rest:
                moved.append(PartitionChangeRecord(partition_id=number, topic_id=topic_id, isr=rest, leader=rest[0]))
    cluster.brokers.change(*moved)
    cluster.settle()


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_sends_the_markers_of_a_decision(commit: bool) -> None:
    cluster = Coordinated()
    producer = Producer(cluster)
    assert [producer.produce(number, b"x") for number in range(3)] == [Error.NONE] * 3
    assert producer.end(commit=commit, markers=False) is Error.NONE
    assert state_of(cluster, FIRST).transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
    assert [committed(cluster, number) for number in range(3)] == [[], [], []]
    fail_over(cluster)
    assert state_of(cluster, NEXT).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert [committed(cluster, number) for number in range(3)] == [[b"x"] if commit else []] * 3
    # The epoch of the producer has risen with the decision, that of the coordinator with the change.
    assert [markers(cluster, number) for number in range(3)] == [[(1, 1, not commit)]] * 3
    producer.coordinator = NEXT
    assert producer.produce(1, b"y") is Error.NONE
    assert producer.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == ([b"x", b"y"] if commit else [b"y"])


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


def test_time_ends_a_transaction_and_its_producer_goes_on() -> None:
    cluster = Coordinated(abort_interval_ms=2000)
    producer = Producer(cluster, timeout_ms=1500)
    assert producer.produce(1, b"x") is Error.NONE
    cluster.settle(after_ms=1000)
    assert state_of(cluster, FIRST).transaction_state == "Ongoing"
    cluster.settle(after_ms=4000)
    cluster.settle()
    assert state_of(cluster, FIRST).transaction_state == "CompleteAbort"
    assert committed(cluster, 1) == []
    assert producer.produce(1, b"late") is Error.INVALID_PRODUCER_EPOCH
    # The abort of the producer itself is answered as if it came first, and tells the new epoch.
    assert producer.end(commit=False) is Error.NONE
    assert producer.epoch == 1
    assert producer.produce(1, b"y") is Error.NONE
    assert producer.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"y"]


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


def test_a_second_producer_fences_the_first() -> None:
    cluster = Coordinated()
    old = Producer(cluster)
    assert old.produce(1, b"old") is Error.NONE
    assert old.initialize().error_code == Error.CONCURRENT_TRANSACTIONS
    new = Producer(cluster)
    assert (new.id, new.epoch) == (old.id, old.epoch + 3), "each attempt raises the epoch, and one the abort"
    assert old.produce(1, b"late") is Error.INVALID_PRODUCER_EPOCH
    assert old.end(commit=True) is Error.PRODUCER_FENCED
    assert new.produce(1, b"new") is Error.NONE
    assert new.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"new"]


def test_a_deleted_topic_does_not_hold_up_the_end() -> None:
    cluster = Coordinated()
    producer = Producer(cluster)
    assert producer.produce(1, b"x") is Error.NONE
    assert producer.end(commit=True, markers=False) is Error.NONE
    cluster.brokers.change(RemoveTopicRecord(topic_id=OUT))
    cluster.settle(after_ms=100)
    cluster.settle(after_ms=100)
    assert state_of(cluster, FIRST).transaction_state == "CompleteCommit"


def test_a_leader_that_is_away_gets_its_marker_later() -> None:
    cluster = Coordinated()
    producer = Producer(cluster)
    assert [producer.produce(number, b"x") for number in range(3)] == [Error.NONE] * 3
    cluster.dead.add(103)  # leads partition 1 and follows partition 0
    assert producer.end(commit=True) is Error.NONE
    for _ in range(3):
        cluster.settle(after_ms=60)
    assert state_of(cluster, FIRST).transaction_state == "PrepareCommit"
    assert producer.initialize().error_code == Error.CONCURRENT_TRANSACTIONS
    cluster.dead.clear()
    for _ in range(3):
        cluster.settle(after_ms=60)
    assert state_of(cluster, FIRST).transaction_state == "CompleteCommit"
    assert [committed(cluster, number) for number in range(3)] == [[b"x"]] * 3


def test_an_unused_id_is_forgotten() -> None:
    cluster = Coordinated(expiry_ms=10_000, expiry_interval_ms=5000)
    producer = Producer(cluster)
    assert producer.produce(1, b"x") is Error.NONE
    cluster.settle(after_ms=20_000)
    assert state_of(cluster, FIRST).transaction_state == "Ongoing"
    assert producer.end(commit=True) is Error.NONE
    for _ in range(4):
        cluster.settle(after_ms=5000)
    assert state_of(cluster, FIRST).error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
    assert Producer(cluster).id != producer.id


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
