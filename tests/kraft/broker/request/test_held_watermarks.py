"""Writes with acks=all that a follower outside of the ISR holds back: whatever the watermark waits for has an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft.wire import Answer
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from support.broker.request_brokers import (
    BROKERS,
    Brokers,
    NewTopic,
    batch,
    directory_of,
    epoch_of,
    fetch,
    only_partition,
    produce,
)
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from transport.protocol.messages.fetch import ReplicaState

ORDERS = (Uuid(bytes([9, 1] * 8)), 0)
LAG_MS = 5000


def isr_of(*isr: int) -> Message:
    return records.PartitionChangeRecord(partition_id=0, topic_id=ORDERS[0], isr=isr)


def changed(*, fenced: int = 0, in_controlled_shutdown: int = 0, log_dirs: tuple[Uuid, ...] = ()) -> Message:
    """A change of the registration of broker 103."""
    return records.BrokerRegistrationChangeRecord(
        broker_id=103,
        broker_epoch=epoch_of(103),
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs,
    )


def held_back(**configs: str) -> tuple[Brokers, bytes]:
    """A write with acks=all that is on every member of the ISR. Broker 103 has left the ISR, but was caught up a moment
    ago, and might return. Returns the write, too.
    """
    configs = {name.replace("_", "."): value for name, value in configs.items()}
    brokers = Brokers([NewTopic("orders", ORDERS[0], (BROKERS,), configs)], lag_ms=LAG_MS)
    brokers.send(101, produce(ORDERS, batch(b"first", producer_id=7, sequence=0)))
    brokers.replicate(ORDERS)
    assert len(brokers.poll(101)) == 1
    brokers.change(isr_of(101, 102))
    sent = batch(b"second", producer_id=7, sequence=1)
    assert brokers.send(101, produce(ORDERS, sent, timeout_ms=60_000))[1] is None
    brokers.replicate(ORDERS, by=(102,))
    assert brokers.poll(101) == []
    assert brokers.part(101, ORDERS).log.high_watermark == 1, "a follower that is about to return holds it back"
    return brokers, sent


def owner_turn(brokers: Brokers, *, after_ms: int = 0) -> list[int]:
    """A turn of the leader's owner; returns the error codes of the answers."""
    brokers.now_ms += after_ms
    if brokers.managers[101].deadline_ms() <= brokers.now_ms:
        brokers.managers[101].shrink(brokers.now_ms)
    outcomes = brokers.poll(101)
    assert all(isinstance(each, Answer) for each in outcomes), outcomes
    return [only_partition(each.message).error_code for each in outcomes if isinstance(each, Answer)]


def test_a_follower_outside_of_the_isr_is_waited_for_no_longer_than_the_lag_time() -> None:
    """In Kafka the watermark moves with the next append only: a topic without one never acknowledges."""
    brokers, _ = held_back()
    assert brokers.managers[101].deadline_ms() <= brokers.now_ms + LAG_MS // 2, "the ISRs are looked at"
    assert owner_turn(brokers, after_ms=LAG_MS // 2) == []
    assert owner_turn(brokers, after_ms=LAG_MS // 2) == []
    assert brokers.managers[101].deadline_ms() <= brokers.now_ms + 1
    assert owner_turn(brokers, after_ms=1) == [0]
    assert brokers.part(101, ORDERS).log.high_watermark == 2


def test_a_repeated_batch_moves_the_watermark_as_each_append_does() -> None:
    """The producer repeats its batch after a time-out; Kafka calls `maybeIncrementLeaderHW` for a duplicate, too."""
    brokers, sent = held_back()
    brokers.now_ms += LAG_MS + 1
    answer = only_partition(brokers.ask(101, produce(ORDERS, sent)))
    assert (answer.error_code, answer.base_offset) == (0, 1)
    assert len(brokers.poll(101)) == 1, "the first attempt"
    assert brokers.part(101, ORDERS).log.end_offset == 2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: changed(log_dirs=(Uuid(bytes([1] * 16)),)), id="its log directory has failed"),
        pytest.param(lambda: changed(fenced=1), id="it is fenced"),
        pytest.param(lambda: changed(in_controlled_shutdown=1), id="it shuts down"),
        pytest.param(lambda: records.UnregisterBrokerRecord(103, epoch_of(103)), id="it is gone"),
    ],
)
def test_a_follower_that_cannot_return_is_not_waited_for(change: Callable[[], Message]) -> None:
    brokers, _ = held_back()
    brokers.change(change())
    assert owner_turn(brokers) == [0]


def test_another_change_of_the_brokers_lets_the_watermark_wait_on() -> None:
    brokers, _ = held_back()
    other = directory_of(103), Uuid(bytes([1] * 16))
    brokers.change(changed(log_dirs=other))
    assert owner_turn(brokers) == []
    assert owner_turn(brokers, after_ms=LAG_MS + 1) == [0]


def test_a_follower_that_fetches_on_moves_the_watermark_at_once() -> None:
    brokers, _ = held_back()
    state = ReplicaState(103, epoch_of(103))
    brokers.ask(101, fetch((ORDERS, 2), replica_state=state))
    assert owner_turn(brokers) == [0]


def test_a_lower_min_isr_moves_the_watermark_without_another_append() -> None:
    brokers = Brokers([NewTopic("orders", ORDERS[0], (BROKERS,), {"min.insync.replicas": "2"})], lag_ms=LAG_MS)
    brokers.change(isr_of(101))
    brokers.now_ms += LAG_MS + 1
    brokers.ask(101, produce(ORDERS, batch(b"a"), acks=1))
    assert brokers.part(101, ORDERS).log.high_watermark == 0
    assert owner_turn(brokers) == []
    brokers.change(records.ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value="1"))
    owner_turn(brokers)
    assert brokers.part(101, ORDERS).log.high_watermark == 1


def test_nothing_is_due_for_a_watermark_that_no_follower_holds_back() -> None:
    brokers, _ = held_back()
    owner_turn(brokers, after_ms=LAG_MS + 1)
    leaders = brokers.managers[101].leaders
    assert (leaders._held, leaders._held_ms) == ({}, NEVER_MS)
    brokers.change(records.RemoveTopicRecord(topic_id=ORDERS[0]))
    owner_turn(brokers, after_ms=LAG_MS)
    assert leaders.deadline_ms() == NEVER_MS


def test_a_deletion_of_records_does_not_wait_for_a_failed_log_directory() -> None:
    """Its replica cannot fetch, and so cannot tell that its log begins later now. Kafka's leader waits for that."""
    brokers = Brokers([NewTopic("orders", ORDERS[0], (BROKERS,))], lag_ms=LAG_MS)
    brokers.ask(101, produce(ORDERS, batch(b"a", b"b"), acks=1))
    brokers.replicate(ORDERS)
    part = DeleteRecordsPartition(0, 1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic("orders", [part])], timeout_ms=60_000)
    request_id, outcome = brokers.send(101, request)
    assert outcome is None
    brokers.replicate(ORDERS, by=(102,))
    assert brokers.poll(101) == []
    brokers.change(changed(log_dirs=(Uuid(bytes([1] * 16)),)), isr_of(101, 102))
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, DeleteRecordsResponse)
    assert (answer.request_id, answer.message.topics[0].partitions[0].low_watermark) == (request_id, 1)
