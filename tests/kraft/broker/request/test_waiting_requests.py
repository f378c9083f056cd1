"""Requests that wait: acks=all for followers, Fetch for data, DeleteRecords for log starts; and what ends the wait."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from kraft.limits import WAITING_PER_TURN
from kraft.wire import Answer, Outcome
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.request_brokers import (
    Brokers,
    NewTopic,
    batch,
    fetch,
    only_partition,
    produce,
    topic_id,
)
from support.real_data import json_lines
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response, encode_response
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest

ORDERS = (topic_id(1), 0)
ALL = (101, 102, 103)


def three(**configs: str) -> Brokers:
    """A topic `orders` with three replicas, led by 101; followers are slow after five seconds."""
    topic = NewTopic("orders", ORDERS[0], (ALL,), {name.replace("_", "."): value for name, value in configs.items()})
    return Brokers([topic], lag_ms=5000)


def parked(brokers: Brokers, broker_id: int, message: Message, version: int | None = None) -> int:
    """Send a request that has to wait; returns its id."""
    request_id, outcome = brokers.send(broker_id, message, version)
    assert outcome is None
    assert brokers.poll(broker_id) == []
    return request_id


def woken(outcomes: list[Outcome], request_id: int) -> Any:
    """The response of the only outcome."""
    [outcome] = outcomes
    assert isinstance(outcome, Answer), outcome
    assert outcome.request_id == request_id
    return outcome.message


def shrink(brokers: Brokers, key: tuple[Uuid, int], *isr: int) -> None:
    """The controller commits an ISR."""
    brokers.change(records.PartitionChangeRecord(partition_id=key[1], topic_id=key[0], isr=isr))


def elect(brokers: Brokers, key: tuple[Uuid, int], leader: int) -> None:
    """The controller elects a leader."""
    brokers.change(records.PartitionChangeRecord(partition_id=key[1], topic_id=key[0], leader=leader))


# Recorded at brokers of Kafka


class Recorded:
    """The recorded story of waiting requests: requests as they were sent, and the answers of Kafka."""

    def __init__(self) -> None:
        self.lines = {line["n"]: line for line in json_lines("data_requests", "parked.jsonl")}
        keys = {}
        for line in self.lines.values():
            if "request_hex" in line:
                _, message = decode_request(bytes.fromhex(line["request_hex"]), apis=ALL_APIS)
                if isinstance(message, ProduceRequest):
                    keys[line["n"]] = message.topic_data[0].topic_id
        self.orders, self.payments = (keys[0], 0), (keys[4], 0)
        self.brokers = Brokers(
            [
                NewTopic("orders", self.orders[0], (ALL,)),
                NewTopic("payments", self.payments[0], (ALL,), {"min.insync.replicas": "3"}),
            ],
            now_ms=self.lines[0]["t_ms"],
            lag_ms=4000,
        )

    def send(self, n: int) -> tuple[int, Outcome | None]:
        """Send a request; returns its id and the outcome."""
        line = self.lines[n]
        return self.brokers.frame(line["server"], bytes.fromhex(line["request_hex"]))

    def check(self, n: int, outcome: Outcome | None, *, answer: int | None = None) -> None:
        """Compare an outcome with the answer of Kafka, which may have come apart from the request."""
        assert isinstance(outcome, Answer), outcome
        line = self.lines[n if answer is None else answer]
        api_key = {"produce": 0, "fetch": 1, "listoffsets": 2}[line["api"].lower()]
        frame = encode_response(api_key, line["version"], 1, outcome.message, apis=ALL_APIS)
        _, ours = decode_response(api_key, line["version"], frame, apis=ALL_APIS)
        _, kafkas = decode_response(api_key, line["version"], bytes.fromhex(line["response_hex"]), apis=ALL_APIS)
        assert plain(ours) == plain(kafkas), line["label"]


def plain(message: Message) -> Any:
    """A response to compare: without the words of errors, and without racks, which the recorded cluster had not."""

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(each) for each in value]
        if isinstance(value, dict):
            return {name: without(each) for name, each in value.items() if name not in ("error_message", "rack")}
        return value

    return without(to_builtins(message, enc_hook=str))


def test_a_recorded_story_of_waiting_requests_has_the_answers_of_kafka() -> None:
    story = Recorded()
    brokers, orders, payments = story.brokers, story.orders, story.payments

    assert story.send(0)[1] is None
    brokers.replicate(orders)
    story.check(0, *brokers.poll(101))

    assert story.send(1)[1] is None  # waits for 103 until the ISR shrinks
    brokers.replicate(orders, by=(102,))
    assert brokers.poll(101, after_ms=4500) == []
    brokers.replicate(orders, by=(102,))
    shrink(brokers, orders, 101, 102)
    story.check(1, *brokers.poll(101))

    assert story.send(2)[1] is None  # times out
    assert brokers.poll(101, after_ms=999) == []
    story.check(2, *brokers.poll(101, after_ms=1))
    brokers.replicate(orders)
    shrink(brokers, orders, 101, 102, 103)
    story.check(3, story.send(3)[1])

    assert story.send(4)[1] is None  # the ISR shrinks below min.insync.replicas
    brokers.replicate(payments, by=(102,))
    assert brokers.poll(101, after_ms=6000) == []
    shrink(brokers, payments, 101, 102)
    assert brokers.poll(101, after_ms=8000) == []
    story.check(4, *brokers.poll(101, after_ms=1000))
    story.check(5, story.send(5)[1])
    story.check(6, story.send(6)[1])
    story.check(7, story.send(7)[1])
    brokers.replicate(payments)
    shrink(brokers, payments, 101, 102, 103)
    story.check(8, story.send(8)[1])

    assert story.send(9)[1] is None  # a consumer at the high watermark
    story.check(10, story.send(10)[1])
    brokers.replicate(orders, by=(102,))
    assert brokers.poll(101, after_ms=4500) == []
    brokers.replicate(orders, by=(102,))
    shrink(brokers, orders, 101, 102)
    story.check(9, *brokers.poll(101), answer=11)

    brokers.replicate(orders)
    shrink(brokers, orders, 101, 102, 103)
    assert [story.send(12)[1], story.send(13)[1]] == [None, None]  # leadership moves
    brokers.replicate(orders, by=(102,))
    assert brokers.poll(101) == []
    elect(brokers, orders, 102)
    [moved] = brokers.poll(101)
    story.check(12, moved, answer=14)
    brokers.replicate(orders)
    assert brokers.poll(101, after_ms=18_000) == []
    story.check(13, *brokers.poll(101, after_ms=2000), answer=15)
    for n in (16, 17, 18, 19):
        story.check(n, story.send(n)[1])


# Produce


def test_an_isr_that_shrinks_below_its_minimum_behind_the_watermark_is_told_to_the_producer() -> None:
    brokers = three(min_insync_replicas="2")
    waiting = parked(brokers, 101, produce(ORDERS, batch(b"a")))
    brokers.replicate(ORDERS)
    shrink(brokers, ORDERS, 101)
    part = only_partition(woken(brokers.poll(101), waiting))
    assert (part.error_code, part.base_offset) == (Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)


def test_one_of_two_partitions_that_fails_does_not_end_the_wait_for_the_other() -> None:
    brokers = Brokers([NewTopic("two", ORDERS[0], (ALL, (102, 101, 103)))])
    both = produce(ORDERS, batch(b"a"))
    both.topic_data[0].partition_data.append(PartitionProduceData(1, batch(b"b")))
    waiting = parked(brokers, 101, both)
    brokers.replicate(ORDERS)
    first, second = woken(brokers.poll(101), waiting).responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == (102, 0)


# Fetch


def test_the_timeouts_of_answered_requests_do_not_pile_up() -> None:
    brokers = Brokers([NewTopic("one", ORDERS[0], ((101,),))])
    slow = parked(brokers, 101, fetch((ORDERS, 0), wait_ms=10, min_bytes=1 << 20))
    for _ in range(500):
        request_id = parked(brokers, 101, fetch((ORDERS, 0), wait_ms=60_000, min_bytes=1 << 20))
        brokers.requests[101].forget(request_id)
    assert brokers.requests[101].waiting == 1
    assert len(brokers.requests[101]._waiting._deadlines) < 100
    woken(brokers.poll(101, after_ms=10), slow)


def test_a_turn_wakes_a_part_of_many_waiting_requests_and_the_next_turns_wake_the_rest() -> None:
    brokers = Brokers([NewTopic("one", ORDERS[0], ((101,),))])
    requests = brokers.requests[101]
    for _ in range(2 * WAITING_PER_TURN + 1):
        brokers.send(101, fetch((ORDERS, 0), wait_ms=60_000))
    brokers.ask(101, produce(ORDERS, batch(b"a")))
    counts = [len(brokers.poll(101))]
    while requests.agenda.deadline_ms <= brokers.now_ms:
        counts.append(len(brokers.poll(101)))
    assert counts == [WAITING_PER_TURN, WAITING_PER_TURN, 1]
    assert requests.waiting == 0


def test_no_more_requests_wait_than_allowed_and_one_more_is_answered_as_if_its_time_were_over() -> None:
    brokers = Brokers([NewTopic("orders", ORDERS[0], (ALL,))], most_waiting=2)
    for _ in range(2):
        parked(brokers, 101, fetch((ORDERS, 0), wait_ms=60_000))
    assert only_partition(brokers.ask(101, fetch((ORDERS, 0), wait_ms=60_000))).error_code == 0
    written = only_partition(brokers.ask(101, produce(ORDERS, batch(b"a"))))
    assert (written.error_code, written.base_offset) == (Error.REQUEST_TIMED_OUT, 0)
    no_id = brokers.ask(101, InitProducerIdRequest(transactional_id=None))
    assert no_id.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    assert brokers.requests[101].waiting == 2


# DeleteRecords
