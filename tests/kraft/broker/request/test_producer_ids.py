"""Producer ids come from blocks of the controller: no id twice, a wait with an end, and snapshots of very many."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from kraft.agenda import Agenda
from kraft.coordinators.transactions.producer_ids import ProducerIds
from kraft.handling.reply_keys import Channel
from kraft.partitions.log import producer_files, producers
from kraft.wire import Answer
from metadata_log.image import MetadataImage
from support.broker.request_brokers import Brokers, NewTopic, batch, produce, topic_id, wire_request
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest

IDEMPOTENT = InitProducerIdRequest(transactional_id=None)
EPOCH = 1101


def block(start: int, size: int = 1000) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=size)


def new_brokers() -> Brokers:
    return Brokers([NewTopic("t", topic_id(1), ((101,),))])


def response_of(outcome: Any) -> Any:
    assert isinstance(outcome, Answer), outcome
    return outcome.message


def test_producers_get_ids_in_the_order_of_their_arrival() -> None:
    """The ids of the requests do not say who came first."""
    brokers = new_brokers()
    requests, image = brokers.requests[101], brokers.image
    for request_id in (9, 3, 7):
        asked = wire_request(request_id, ApiKey.INIT_PRODUCER_ID, 5, IDEMPOTENT)
        assert requests.on_request(asked, image, brokers.now_ms) is None
    brokers.due(101)
    found = brokers.give_ids(101, block(5000))
    assert [(each.request_id, response_of(each).producer_id) for each in found] == [(9, 5000), (3, 5001), (7, 5002)]


def test_a_failed_request_for_a_block_is_repeated() -> None:
    brokers = new_brokers()
    requests = brokers.requests[101]
    brokers.send(101, IDEMPOTENT)
    for failure in (None, AllocateProducerIdsResponse(error_code=Error.STALE_BROKER_EPOCH)):
        assert len(brokers.due(101)) == 1
        assert brokers.give_ids(101, failure) == []
        assert brokers.due(101) == []
        brokers.now_ms = requests.agenda.deadline_ms
    assert len(brokers.due(101)) == 1
    assert len(brokers.give_ids(101, block(0))) == 1


def test_a_producer_that_gets_no_id_in_time_is_told_to_try_again() -> None:
    brokers = new_brokers()
    brokers.send(101, IDEMPOTENT)
    assert brokers.poll(101, after_ms=29_999) == []
    [outcome] = brokers.poll(101, after_ms=1)
    assert response_of(outcome).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    assert brokers.requests[101].waiting == 0


def test_the_next_block_is_requested_early_and_used_when_the_present_one_is_empty() -> None:
    ids = ProducerIds(Agenda(), list[Hashable]().append, 101, 30_000)
    assert ids.take() is None
    taken: list[int | None] = []
    asked_after = []
    for start in (100, 700, 300):
        assert len(list(ids.due(MetadataImage(), EPOCH, 0))) == 1
        ids.on_reply(Channel.PRODUCER_IDS, block(start, 10), 0)
        while not ids.needs_block:
            taken.append(ids.take())
        asked_after.append(len(taken))
    assert asked_after == [9, 19, 29]
    assert taken == [*range(100, 110), *range(700, 710), *range(300, 309)]
    assert (ids.take(), ids.take()) == (309, None)


def test_half_of_a_producer_identity_is_a_mistake() -> None:
    half = InitProducerIdRequest(transactional_id=None, producer_id=5)
    assert response_of(new_brokers().send(101, half)[1]).error_code == Error.INVALID_REQUEST


# A broker goes on with a snapshot of very many producers between other work, and stops asking for turns then.


COUNT = 60


def test_a_snapshot_of_many_producers_is_finished_by_later_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_files, "PRODUCERS_AT_ONCE", COUNT // 2)
    monkeypatch.setattr(producers, "PRODUCERS_PER_STEP", 10)
    configs = {"internal.segment.bytes": str(COUNT * 80), "file.delete.delay.ms": "1"}
    brokers = Brokers([NewTopic("many", topic_id(1), ((101,),), configs)])
    key = topic_id(1), 0
    log = brokers.part(101, key).log
    manager = brokers.managers[101]
    at = 0
    while log.producers.unwritten is None:
        brokers.ask(101, produce(key, batch(b"v", producer_id=at, sequence=0), acks=1))
        at += 1
        assert at < 10 * COUNT, "no segment was rolled"
    rolled = log.producers.unwritten
    turns = 0
    while log.producers.unwritten is not None:
        assert manager.deadline_ms() == 0
        manager.shrink(brokers.now_ms)
        turns += 1
    assert turns > rolled // 10
    assert rolled in log.producers.snapshots
    assert manager.deadline_ms() > brokers.now_ms
