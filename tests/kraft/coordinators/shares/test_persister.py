"""Brokers keep the state of share partitions at the share coordinators of the cluster, wherever these are."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.coordinators.shares.persister import PersistedState, Persister, ShareKey, StateBatch, Summary
from kraft.coordinators.shares.state_sender import PATIENCE_MS, TOPIC_PATIENCE_MS, Call
from kraft.handling.coordinators import partition_of
from kraft.handling.reply_keys import StatesAsked
from kraft.limits import STATES_PLACED_PER_TURN
from kraft.wire import Send
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.types import Uuid
from support.broker.coordinated_brokers import Coordinated
from support.broker.request_brokers import Brokers, NewTopic
from support.broker.share_brokers import STATES, WORK, Caller, change, key, share_brokers
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import CreateTopicsRequest
from transport.protocol.messages.initialize_share_group_state import InitializeShareGroupStateResponse
from transport.protocol.messages.write_share_group_state import WriteShareGroupStateRequest

LEADERS: Final = (101, 102, 103)


def keys_at(broker: int, group: str = "g") -> list[ShareKey]:
    """The share partitions of a group that a broker coordinates at first."""
    keys = [key(number, group) for number in range(30)]
    return [one for one in keys if LEADERS[partition_of(one.name, 3)] == broker]


def requests_under_way(cluster: Coordinated) -> list[Any]:
    cluster.turn()
    return [send.message for _, send in cluster.sends]


@pytest.mark.parametrize("coordinator", LEADERS)
def test_a_state_goes_its_way(coordinator: int) -> None:
    caller, of = Caller(share_brokers()), keys_at(coordinator)[0]
    persister: Persister = caller.persister
    assert persister is caller.cluster.brokers.requests[101].load_shares().persister
    assert caller.read(of) is Error.INVALID_REQUEST
    assert caller.summary(of) == Summary(0, 0, -1, -1)
    assert caller.initialize(of, 2, -1) is Error.NONE
    assert caller.summary(of) == Summary(2, 0, -1, -1)
    assert caller.read(of, 5) == PersistedState(2, -1, ())
    assert caller.write(of, change((0, 3, 2, 1), start=0, state_epoch=2, leader_epoch=5, count=4)) is Error.NONE
    assert caller.write(of, change((4, 6, 0, 1), start=4, state_epoch=2, leader_epoch=5, count=0)) is Error.NONE
    assert caller.read(of, 5) == PersistedState(2, 4, (StateBatch(4, 6, 0, 1),))
    assert caller.summary(of) == Summary(2, 5, 4, 0)
    assert caller.read(of, 4) is Error.FENCED_LEADER_EPOCH
    assert caller.write(of, change(start=4, state_epoch=2, leader_epoch=4)) is Error.FENCED_LEADER_EPOCH
    assert caller.write(of, change(start=4, state_epoch=1, leader_epoch=5)) is Error.FENCED_STATE_EPOCH
    assert caller.initialize(of, 1, 0) is Error.FENCED_STATE_EPOCH
    assert caller.delete(of) is Error.NONE
    assert caller.summary(of) == Summary(0, 0, -1, -1)


def test_no_message_goes_to_the_own_coordinator() -> None:
    cluster = share_brokers()
    caller, of = Caller(cluster), keys_at(101)[0]
    caller.persister.initialize(of, 0, 0, caller.now_ms, caller.then)
    assert requests_under_way(cluster) == []
    cluster.settle()
    assert caller.answers == [Error.NONE]


def test_calls_share_the_next_request() -> None:
    cluster = share_brokers()
    caller, keys = Caller(cluster), keys_at(102)
    assert len(keys) > 5
    for of in keys:
        caller.persister.initialize(of, 0, 0, caller.now_ms, caller.then)
    cluster.settle()
    assert caller.answers == [Error.NONE] * len(keys)
    caller.persister.write(keys[0], change((1, 1, 2, 1)), caller.now_ms, caller.then)
    [first] = requests_under_way(cluster)
    for of in keys[1:]:
        caller.persister.write(of, change((1, 1, 2, 1)), caller.now_ms, caller.then)
    assert requests_under_way(cluster) == [first], "one request of the kind is under way"
    assert isinstance(first, WriteShareGroupStateRequest)
    assert [len(topic.partitions) for topic in first.topics] == [1]
    sent: list[Any] = []
    deliver = cluster._deliver

    def seen(asker: int, send: Send) -> None:
        sent.append(send.message)
        deliver(asker, send)

    cluster._deliver = seen  # type: ignore[method-assign]
    cluster.settle()
    assert [[len(topic.partitions) for topic in one.topics] for one in sent] == [[1], [len(keys) - 1]]
    assert caller.answers == [Error.NONE] * 2 * len(keys)


@pytest.mark.parametrize("coordinator", [101, 102])
def test_writes_of_a_share_partition_are_carried_out_in_their_order(coordinator: int) -> None:
    cluster = share_brokers()
    caller, of = Caller(cluster), keys_at(coordinator)[0]
    caller.initialize(of)
    for at in range(5):
        caller.persister.write(of, change((at, at, 0, at + 1), start=at), caller.now_ms, caller.then)
    caller.persister.read(of, 0, caller.now_ms, caller.then)
    caller.settle(7)
    assert caller.answers[1:] == [Error.NONE] * 5 + [PersistedState(0, 4, (StateBatch(4, 4, 0, 5),))]


def test_a_call_finds_the_next_coordinator() -> None:
    """The coordinator dies with a request under way. The next one has what was answered, and the fence of leaders."""
    cluster = share_brokers()
    caller, of = Caller(cluster), keys_at(102)[0]
    caller.initialize(of, 1)
    caller.read(of, 7)
    caller.write(of, change((0, 1, 2, 1), state_epoch=1, leader_epoch=7))
    caller.persister.write(of, change((2, 3, 2, 1), state_epoch=1, leader_epoch=7), caller.now_ms, caller.then)
    cluster.dead.add(102)
    cluster.settle()
    assert len(caller.answers) == 3
    cluster.brokers.change(PartitionChangeRecord(partition_id=1, topic_id=STATES, isr=(103,), leader=103))
    for _ in range(5):
        cluster.settle(after_ms=1000)
    assert caller.answers[3:] == [Error.NONE]
    assert caller.read(of, 7) == PersistedState(1, 0, (StateBatch(0, 3, 2, 1),))
    assert caller.read(of, 6) is Error.FENCED_LEADER_EPOCH
    assert caller.initialize(of, 0) is Error.FENCED_STATE_EPOCH


def test_a_call_without_any_coordinator_is_answered_in_the_end() -> None:
    cluster = share_brokers(states=((101,), (102,), (103,)))
    caller, of = Caller(cluster), keys_at(102)[0]
    cluster.brokers.change(PartitionChangeRecord(partition_id=1, topic_id=STATES, isr=(), leader=-1))
    caller.persister.initialize(of, 0, 0, caller.now_ms, caller.then)
    for _ in range(PATIENCE_MS // 1000 - 6):
        cluster.settle(after_ms=1000)
    assert caller.answers == []
    for _ in range(6):
        cluster.settle(after_ms=1000)
    assert caller.answers == [Error.COORDINATOR_NOT_AVAILABLE]
    assert len(caller.persister) == 0


def test_a_call_about_a_topic_that_nobody_knows_ends_at_once() -> None:
    caller = Caller(share_brokers())
    for topic, number in ((Uuid(bytes([77]) * 16), 0), (WORK, 99)):
        assert caller.initialize(key(number, topic=topic)) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_the_topic_is_made_with_the_first_call() -> None:
    brokers = Brokers([NewTopic("work", WORK, ((101,),))])
    answers: list[Error] = []
    of = key(0)
    brokers.poll(101)
    brokers.requests[101].persister.initialize(of, 0, 0, brokers.now_ms, lambda error, _: answers.append(error))
    [send] = brokers.due(101)
    assert isinstance(send.message, CreateTopicsRequest)
    [topic] = send.message.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("__share_group_state", 50, 3)
    assert {one.name: one.value for one in topic.configs} == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "compression.type": "producer",
        "segment.bytes": "104857600",
        "min.insync.replicas": "2",
    }
    assert answers == []


def test_calls_that_wait_for_the_topic_share_one_wait_and_are_refused_together() -> None:
    """However many they are, the topic is asked for a few times; and who comes later does not wait again."""
    brokers = Brokers([NewTopic("work", WORK, ((101,),))])
    answers: list[Error] = []
    asked: list[int] = []
    brokers.poll(101)
    persister = brokers.requests[101].persister
    persister._create = lambda: asked.append(brokers.now_ms)
    began_ms = brokers.now_ms

    def call(number: int) -> None:
        persister.initialize(key(number), 0, 0, brokers.now_ms, lambda error, _: answers.append(error))

    for number in range(1000):
        call(number)
    while brokers.now_ms < began_ms + TOPIC_PATIENCE_MS:
        assert answers == []
        brokers.now_ms += 10
        brokers.due(101)
    for _ in range(1000 // STATES_PLACED_PER_TURN + 1):
        brokers.due(101)
    assert answers == [Error.COORDINATOR_NOT_AVAILABLE] * 1000
    assert 5 <= len(asked) <= 10, asked
    assert len(persister) == 0
    call(1)
    brokers.due(101)
    assert len(answers) == 1001, "it is known that the topic is not made"
    brokers.now_ms += 60_000
    call(2)
    brokers.due(101)
    assert len(answers) == 1001, "nobody has asked for a while"
    assert asked[-1] == brokers.now_ms


def test_a_call_without_a_leader_is_tried_with_new_metadata_alone() -> None:
    cluster = share_brokers(states=((101,), (102,), (103,)))
    caller, of = Caller(cluster), keys_at(102)[0]
    cluster.brokers.change(PartitionChangeRecord(partition_id=1, topic_id=STATES, isr=(), leader=-1))
    caller.persister.initialize(of, 0, 0, caller.now_ms, caller.then)
    cluster.settle()
    placed: list[ShareKey] = []
    place = caller.persister._place

    def noted(call: Call, now_ms: int) -> None:
        placed.append(call.key)
        place(call, now_ms)

    caller.persister._place = noted  # type: ignore[method-assign]
    for _ in range(10):
        cluster.settle(after_ms=1000)
    assert placed == []
    cluster.brokers.change(PartitionChangeRecord(partition_id=1, topic_id=STATES, isr=(102,), leader=102))
    caller.settle(1)
    assert caller.answers == [Error.NONE]


def test_what_was_asked_for_during_an_answer_comes_later() -> None:
    """A caller may call again when it gets its answer."""
    cluster = share_brokers()
    caller, of = Caller(cluster), keys_at(101)[0]
    told: list[Any] = []

    def write(error: Error, now_ms: int) -> None:
        told.append(error)
        caller.persister.write(of, change((0, 0, 2, 1)), now_ms, read)

    def read(error: Error, now_ms: int) -> None:
        told.append(error)
        caller.persister.read(of, 0, now_ms, lambda found, _: told.append(found))

    caller.persister.initialize(of, 0, 0, caller.now_ms, write)
    cluster.settle()
    assert told == [Error.NONE, Error.NONE, PersistedState(0, 0, (StateBatch(0, 0, 2, 1),))]


def test_an_answer_that_lacks_the_share_partition_is_none() -> None:
    cluster = share_brokers()
    caller, of = Caller(cluster), keys_at(102)[0]
    caller.persister.initialize(of, 0, 0, caller.now_ms, caller.then)
    assert len(requests_under_way(cluster)) == 1
    [(_, send)] = cluster.sends
    cluster.sends.clear()
    assert isinstance(send.reply_to.key, StatesAsked)
    caller.persister.on_reply(send.reply_to.key, InitializeShareGroupStateResponse(), caller.now_ms)
    cluster.settle()
    assert caller.answers == []
    cluster.settle(after_ms=100)
    assert caller.answers == [Error.NONE], "it was asked again"
