"""A request with much inside takes many turns, in which other requests are answered; what changed meanwhile counts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kraft.broker import requests as module
from kraft.broker.request import fetch as fetch_module
from kraft.handling import purgatory
from kraft.handling.api import Api
from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, WireRequest
from metadata_log.compression import Compression
from metadata_log.records import metadata as records
from metadata_log.records import record as record_module
from metadata_log.types import NEVER_MS
from support.bombs import batch as raw_batch
from support.bombs import in_order, record, zstd
from support.broker.data_brokers import append_to
from support.broker.request_brokers import START_MS, Brokers, NewTopic, batch, fetch, only_partition, produce, topic_id
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

MANY = 60_000
KEY: PartitionKey = (topic_id(1), 0)
TOPIC = NewTopic("t", topic_id(1), ((101,), (101,)))


def bomb(count: int = MANY) -> bytes:
    """Many records in a few kilobytes, each of which the leader has to look at."""
    return raw_batch(zstd(in_order(count)), count, codec=Compression.ZSTD, base_time=START_MS)


def ended(brokers: Brokers, broker: int = 101) -> tuple[int, list[Outcome]]:
    """Let time pass until an outcome comes; returns the number of turns before."""
    for turns in range(10_000):
        due_ms = brokers.due_ms(broker)
        if not turns:
            # A change before may have woken somebody.
            due_ms = max(due_ms, brokers.now_ms)
        else:
            assert due_ms > brokers.now_ms, "a node that finds a deadline in the past again and again ends"
        assert due_ms < NEVER_MS
        found = brokers.poll(broker, after_ms=due_ms - brokers.now_ms)
        if found:
            return turns, found
    raise AssertionError("no outcome")


def error_of(outcome: Outcome | None) -> Error:
    assert isinstance(outcome, Answer), outcome
    return Error.of(only_partition(outcome.message).error_code)


def test_others_are_answered_while_many_records_are_checked() -> None:
    brokers = Brokers([TOPIC])
    request_id, outcome = brokers.send(101, produce(KEY, bomb()))
    assert outcome is None
    _, small = brokers.send(101, produce(KEY, batch(b"small")))
    assert error_of(small) is Error.NONE
    turns, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert found.request_id == request_id
    assert only_partition(found.message).base_offset == 1
    assert turns >= MANY // 512 // 20 - 1
    assert brokers.requests[101].waiting == 0
    assert brokers.due_ms(101) == NEVER_MS


def test_a_leader_that_is_one_no_more_appends_nothing() -> None:
    brokers = Brokers([NewTopic("t", topic_id(1), ((101, 102),))])
    brokers.send(101, produce(KEY, bomb(), acks=1))
    change = records.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=102)
    brokers.change(change)
    _, [found] = ended(brokers)
    assert error_of(found) is Error.NOT_LEADER_OR_FOLLOWER
    assert brokers.part(101, KEY).log.end_offset == 0


def test_a_record_that_was_lost_while_others_were_checked_is_not_acknowledged() -> None:
    """The watermark passes its offset, but another leader has put another record there."""
    brokers = Brokers([NewTopic("t", topic_id(1), ((101, 102), (101,)))])
    parts = [PartitionProduceData(0, batch(b"lost")), PartitionProduceData(1, bomb())]
    message = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData("", topic_id(1), parts)])
    _, outcome = brokers.send(101, message)
    assert outcome is None
    assert brokers.part(101, KEY).log.end_offset == 1
    lead_again(brokers)
    _, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert isinstance(found.message, ProduceResponse)
    [topic] = found.message.responses
    assert [each.error_code for each in topic.partition_responses] == [Error.NOT_LEADER_OR_FOLLOWER, Error.NONE]


def test_a_record_that_another_leader_has_kept_is_acknowledged() -> None:
    brokers = Brokers([NewTopic("t", topic_id(1), ((101, 102), (101,)))])
    parts = [PartitionProduceData(0, batch(b"kept")), PartitionProduceData(1, bomb())]
    message = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData("", topic_id(1), parts)])
    brokers.send(101, message)
    brokers.replicate(KEY)
    lead_again(brokers, cut=1)
    _, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert isinstance(found.message, ProduceResponse)
    [topic] = found.message.responses
    assert [each.error_code for each in topic.partition_responses] == [Error.NONE, Error.NONE]


def lead_again(brokers: Brokers, *, cut: int = 0) -> None:
    """Broker 102 leads for a moment and writes a record, and 101 leads again."""
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=102))
    brokers.ask(102, produce(KEY, batch(b"other"), acks=1))
    brokers.part(101, KEY).log.truncate(cut, now_ms=brokers.now_ms)
    brokers.replicate(KEY)
    brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=101))
    brokers.replicate(KEY)
    assert brokers.part(101, KEY).log.high_watermark == cut + 1


def test_two_requests_at_a_time_have_their_records_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, however many connections send a bomb; all are answered."""
    brokers = Brokers([TOPIC])
    sent = [brokers.send(101, produce(KEY, bomb())) for _ in range(5)]
    assert [outcome for _, outcome in sent] == [None] * 5
    stepped = set[int]()
    advance = module.Requests._advance

    def counted(
        requests: module.Requests, api: Api[Any], request: WireRequest, work: Any, now_ms: int
    ) -> Outcome | None:
        stepped.add(request.request_id)
        return advance(requests, api, request, work, now_ms)

    monkeypatch.setattr(module.Requests, "_advance", counted)
    brokers.poll(101, after_ms=1)
    brokers.poll(101, after_ms=1)
    assert stepped == {sent[0][0], sent[1][0]}
    answered: list[int] = []
    while len(answered) < 5:
        answered += [each.request_id for each in ended(brokers)[1]]
    assert sorted(answered) == [request_id for request_id, _ in sent]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_producer_that_closes_its_connection_has_sent_its_records(acks: int) -> None:
    brokers = Brokers([TOPIC])
    request_id, outcome = brokers.send(101, produce(KEY, bomb(), acks=acks))
    assert outcome is None
    brokers.requests[101].forget(request_id)
    _, [found] = ended(brokers)
    assert isinstance(found, Answer if acks else LeaveUnanswered)
    assert brokers.part(101, KEY).log.end_offset == MANY


def test_a_producer_that_has_closed_its_connection_waits_for_no_followers() -> None:
    """Its time-out may be of 24 days, and those that wait leave no room for others to wait."""
    brokers = Brokers([NewTopic("t", topic_id(1), ((101, 102),))])
    request_id, _ = brokers.send(101, produce(KEY, bomb(), timeout_ms=2**31 - 1))
    brokers.requests[101].forget(request_id)
    _, [found] = ended(brokers)
    assert isinstance(found, LeaveUnanswered)
    assert brokers.part(101, KEY).log.end_offset == MANY
    assert brokers.requests[101].waiting == 0


def test_connections_that_open_and_close_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory, "ORPHANED_PRODUCES", 3)
    brokers = Brokers([TOPIC])
    for _ in range(10):
        request_id, _ = brokers.send(101, produce(KEY, bomb()))
        brokers.requests[101].forget(request_id)
    assert brokers.requests[101].waiting == 3


def test_a_refusal_without_acknowledgement_closes_the_connection() -> None:
    brokers = Brokers([TOPIC])
    data = raw_batch(zstd(in_order(MANY) + b"more"), MANY, codec=Compression.ZSTD, base_time=START_MS)
    brokers.send(101, produce(KEY, data, acks=0))
    _, [found] = ended(brokers)
    assert isinstance(found, Drop)


def test_many_partitions_of_a_produce_have_turns() -> None:
    """30,000 entries took 0.95 s in one turn."""
    brokers = Brokers([TOPIC])
    small = batch(b"v")
    parts = [PartitionProduceData(index, small) for index in range(3000)]
    message = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData("", topic_id(1), parts)])
    _, outcome = brokers.send(101, message)
    assert outcome is None
    turns, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert isinstance(found.message, ProduceResponse)
    [topic] = found.message.responses
    codes = [each.error_code for each in topic.partition_responses]
    assert codes == [0, 0] + [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2998
    assert turns >= 2 * 3000 // 64 // 20


def test_a_partition_that_a_produce_names_often_has_turns() -> None:
    brokers = Brokers([TOPIC])
    parts = [PartitionProduceData(0, None)] * 3000 + [PartitionProduceData(0, batch(b"v"))]
    message = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData("", topic_id(1), parts)])
    _, outcome = brokers.send(101, message)
    assert outcome is None
    _, [found] = ended(brokers)
    assert error_of(found) is Error.NONE


def test_a_partition_that_is_named_often_begins_once_at_the_last_offset() -> None:
    """Each start of a log that rises is a file on the disk."""
    brokers = Brokers([TOPIC])
    for _ in range(30):
        brokers.ask(101, produce(KEY, batch(b"v")))
    parts = [DeleteRecordsPartition(0, at % 29) for at in range(3000)] + [DeleteRecordsPartition(0, 7)]
    _, outcome = brokers.send(101, DeleteRecordsRequest(topics=[DeleteRecordsTopic("t", parts)], timeout_ms=1000))
    assert outcome is None
    _, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert isinstance(found.message, DeleteRecordsResponse)
    [part] = found.message.topics[0].partitions
    assert (part.error_code, part.low_watermark) == (0, 7)
    assert brokers.part(101, KEY).log.start_offset == 7


def test_a_fetch_misses_nothing_that_comes_between_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first partitions were read before the step, and the last one after it."""
    brokers = Brokers([NewTopic("t", topic_id(1), ((101,),) * 64)])
    apis = brokers.requests[101].table
    apis[ApiKey.FETCH] = replace(apis[ApiKey.FETCH], steps=1)
    wanted_parts = [((topic_id(1), number), 0) for number in range(64)]
    # Two requests: what one waits for is told in the turn of the other.
    for _ in range(2):
        assert brokers.send(101, fetch(*wanted_parts, wait_ms=60_000))[1] is None
    look = fetch_module.FetchHandler._look
    appended: list[int] = []

    def append_behind(handler: fetch_module.FetchHandler, *args: Any, **kwargs: Any) -> Any:
        found = look(handler, *args, **kwargs)
        if args[1].key == (topic_id(1), 62) and not appended:
            appended.append(1)
            append_to(brokers.managers[101], KEY, batch(b"v"), acks=1, now_ms=brokers.now_ms)
        return found

    monkeypatch.setattr(fetch_module.FetchHandler, "_look", append_behind)
    found: list[Outcome] = []
    while len(found) < 2:
        found += ended(brokers)[1]
    assert brokers.now_ms < START_MS + 60_000


def wanted(*parts: int, time: int = START_MS + 1) -> ListOffsetsRequest:
    topic = ListOffsetsTopic("t", [ListOffsetsPartition(index, timestamp=time) for index in parts])
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def test_a_search_by_time_in_many_records_has_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers([TOPIC])
    last = record(MANY, time=5)
    data = raw_batch(zstd(in_order(MANY) + last), MANY + 1, codec=Compression.ZSTD, base_time=START_MS)
    brokers.send(101, produce(KEY, data))
    ended(brokers)
    monkeypatch.setattr(record_module, "Record", None)
    _, outcome = brokers.send(101, wanted(0))
    assert outcome is None
    turns, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert isinstance(found.message, ListOffsetsResponse)
    [part] = found.message.topics[0].partitions
    assert (part.offset, part.timestamp) == (MANY, START_MS + 5)
    assert turns >= MANY // 256 // 20 - 1


def test_partitions_that_are_asked_twice_have_one_answer_and_turns() -> None:
    """Each of them was compared with all that were answered before."""
    brokers = Brokers([TOPIC])
    _, outcome = brokers.send(101, wanted(*range(1, 2000), *range(1000, 3000)))
    assert outcome is None
    turns, [found] = ended(brokers)
    assert isinstance(found, Answer)
    assert isinstance(found.message, ListOffsetsResponse)
    parts = found.message.topics[0].partitions
    assert len(parts) == 2999
    assert sum(each.error_code == Error.INVALID_REQUEST for each in parts) == 1000
    assert turns >= 4000 // 20 - 1
