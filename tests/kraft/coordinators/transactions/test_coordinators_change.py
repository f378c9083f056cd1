"""The next coordinator completes what one left, and time ends what producers leave open: C36, C37, C38."""

from __future__ import annotations

import pytest

from kraft.coordinators.transactions import coordinator, shard
from metadata_log.records.metadata import PartitionChangeRecord, RemoveTopicRecord
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
