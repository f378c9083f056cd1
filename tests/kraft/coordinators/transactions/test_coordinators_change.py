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
