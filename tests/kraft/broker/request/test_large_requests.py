"""Requests about very many partitions: a turn does a bounded part of one, and what it leaves behind is bounded."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.access.failures import RequestFailures
from kraft.broker.request.fetch import FetchHandler
from kraft.broker.request.list_offsets import ListOffsetsHandler
from kraft.broker.requests import Requests
from kraft.handling.settings import RequestSettings
from kraft.limits import REPEATED_GROUPS
from kraft.wire import Answer
from metadata_log.serde import Message
from support.broker.request_brokers import Brokers, NewTopic, batch, epoch_of, fetch, only_partition, produce, topic_id
from support.work_counted import lines_run
from transport.protocol.errors import Error
from transport.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from transport.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from transport.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from transport.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from transport.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC = topic_id(1)
KEY = TOPIC, 0
COUNT = 6000
LINES_OF_A_TURN = 120_000
"""Some ten milliseconds: a line of Python takes 50 to 100 ns."""
NUMBERS = list(range(COUNT))


def one_broker(**settings: Any) -> Brokers:
    return Brokers([NewTopic("t", TOPIC, ((101,),) * 4)], **settings)


def asking_for(count: int, **fields: Any) -> FetchRequest:
    """A Fetch of so many partitions, most of which nobody knows."""
    parts = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(count)]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic(topic_id=TOPIC, partitions=parts)], **fields
    )


LARGE: dict[str, Message] = {
    "fetch": asking_for(COUNT, session_epoch=0),
    "fetch of a follower": asking_for(COUNT, replica_state=ReplicaState(102, epoch_of(102))),
    "list offsets": ListOffsetsRequest(
        -1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(one) for one in NUMBERS])]
    ),
    "list offsets, each twice": ListOffsetsRequest(
        -1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(one // 2) for one in NUMBERS])]
    ),
    "list offsets of topics": ListOffsetsRequest(
        -1, topics=[ListOffsetsTopic(f"x{one}", [ListOffsetsPartition(0)]) for one in NUMBERS]
    ),
    "leader epochs": OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(one) for one in NUMBERS])]
    ),
    "producers": DescribeProducersRequest([TopicRequest("t", NUMBERS)]),
    "delete records": DeleteRecordsRequest(
        [DeleteRecordsTopic("t", [DeleteRecordsPartition(one, -1) for one in NUMBERS])], 1000
    ),
    "log directories": DescribeLogDirsRequest([DescribableLogDirTopic(f"x{one}", [0]) for one in NUMBERS]),
    "markers": WriteTxnMarkersRequest(
        [WritableTxnMarker(1, 0, True, [WritableTxnMarkerTopic("x", NUMBERS)], 0)],
    ),
    "moves": AlterReplicaLogDirsRequest([AlterReplicaLogDir("/a", [AlterReplicaLogDirTopic("t", NUMBERS)])]),
}


@pytest.mark.parametrize("name", sorted(LARGE))
def test_no_turn_does_much_of_a_large_request(name: str) -> None:
    brokers = one_broker()
    message = LARGE[name]
    version = {WriteTxnMarkersRequest: 1, AlterReplicaLogDirsRequest: 2}.get(type(message))
    found: list[Any] = []
    most = lines_run(lambda: found.append(brokers.send(101, message, version)[1]))
    turns = 1
    while not isinstance(found[-1], Answer):
        most = max(most, lines_run(lambda: found.extend(brokers.poll(101, after_ms=1))))
        turns += 1
    assert turns > 2
    assert most < LINES_OF_A_TURN
    assert brokers.requests[101].waiting == 0


def test_a_large_request_of_a_connection_that_is_gone_is_given_up() -> None:
    brokers = one_broker()
    request_id, outcome = brokers.send(101, asking_for(COUNT))
    assert outcome is None
    brokers.requests[101].forget(request_id)
    assert brokers.requests[101].waiting == 0
    assert brokers.poll(101, after_ms=1) == []


def test_a_change_between_the_steps_of_a_large_fetch_ends_its_wait() -> None:
    """The request does not wait yet when its first partition gets a record."""
    brokers = Brokers([NewTopic("t", TOPIC, ((101,),) * 3000)])
    keys = [((TOPIC, number), 0) for number in range(3000)]
    _, outcome = brokers.send(101, fetch(*keys, wait_ms=60_000))
    assert outcome is None
    brokers.poll(101, after_ms=1)
    brokers.ask(101, produce(KEY, batch(b"a")))
    outcomes: list[Any] = []
    for _ in range(20):
        outcomes += brokers.poll(101, after_ms=1)
    [answer] = outcomes
    assert [
        part.partition_index for topic in answer.message.responses for part in topic.partitions if part.records
    ] == [0]


def test_few_partitions_that_are_named_again_are_described_again() -> None:
    """A partition may have a million producers, and four bytes name it."""
    brokers = one_broker()
    response = brokers.ask(101, DescribeProducersRequest([TopicRequest("t", [0, 0, 1, 0]), TopicRequest("t", [1])]))
    assert [[part.partition_index for part in topic.partitions] for topic in response.topics] == [[0, 0, 1, 0], [1]]
    response = brokers.ask(101, DescribeProducersRequest([TopicRequest("t", [0] * 500 + [1])]))
    assert [part.partition_index for part in response.topics[0].partitions] == [0] * (1 + REPEATED_GROUPS) + [1]


# Sessions


def whole(brokers: Brokers, message: Message) -> Any:
    """The response to a request, in as many turns as it takes."""
    _, outcome = brokers.send(101, message)
    while outcome is None:
        outcome = next(iter(brokers.poll(101, after_ms=1)), None)
    assert isinstance(outcome, Answer)
    return outcome.message


def test_no_session_holds_many_partitions_that_nobody_knows() -> None:
    """Each request of 43 bytes in such a session took half a second."""
    brokers = one_broker()
    sessions = brokers.requests[101].rooms.fetch.sessions
    answer = whole(brokers, asking_for(1500, session_epoch=0))
    assert (answer.session_id, answer.error_code) == (0, 0)
    assert sum(len(topic.partitions) for topic in answer.responses) == 1500
    small = whole(brokers, asking_for(900, session_epoch=0))
    assert small.session_id > 0
    grown = whole(brokers, asking_for(1500, session_id=small.session_id, session_epoch=1))
    assert grown.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.size_bytes) == (0, 0)


def test_topics_that_are_deleted_end_the_session_of_their_many_partitions() -> None:
    brokers = Brokers([NewTopic("t", TOPIC, ((101,),) * 1200)])
    first = whole(brokers, asking_for(1200, session_epoch=0))
    assert first.session_id > 0
    brokers.publish(Brokers([]).image)
    gone = whole(brokers, FetchRequest(max_wait_ms=0, session_id=first.session_id, session_epoch=1))
    assert gone.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert brokers.requests[101].rooms.fetch.sessions.size_bytes == 0


# Bugs


def surviving(monkeypatch: pytest.MonkeyPatch) -> tuple[Brokers, RequestFailures]:
    """A broker as `kraft serve` runs it, with a bug in reading."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    brokers, failures = one_broker(), RequestFailures(is_survived=True)
    made = Requests(brokers.managers[101], RequestSettings(broker_id=101), Random(1), None, failures)
    brokers.requests[101] = made
    monkeypatch.setattr(FetchHandler, "_look", broken)
    monkeypatch.setattr(ListOffsetsHandler, "_partition", broken)
    return brokers, failures


def test_a_bug_in_a_read_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, failures = surviving(monkeypatch)
    answer = brokers.ask(101, fetch((KEY, 0)))
    assert (answer.error_code, answer.responses) == (Error.UNKNOWN_SERVER_ERROR, [])
    listed = brokers.ask(101, ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0)])]))
    assert listed.topics[0].partitions[0].error_code == Error.UNKNOWN_SERVER_ERROR
    assert [one.request for one in failures.take()] == ["FetchRequest", "ListOffsetsRequest"]
    assert only_partition(brokers.ask(101, produce(KEY, batch(b"a")))).error_code == Error.NONE


def test_a_bug_where_state_may_be_half_changed_ends_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, _ = surviving(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        brokers.send(101, fetch((KEY, 0), replica_state=ReplicaState(102, epoch_of(102))))


def test_a_bug_ends_every_other_node(monkeypatch: pytest.MonkeyPatch) -> None:
    surviving(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        one_broker().send(101, fetch((KEY, 0)))
