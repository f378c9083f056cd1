"""Records of transactions wait for their coordinator, and its markers end them (KIP-98, KIP-890; B07 to B09)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kraft.access.authorizer import CLUSTER_NAME, AclOperation, AclResource, AuthorizerSettings
from kraft.coordinators.transactions import verification
from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import Answer, Send, Target
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.request_brokers import START_MS, Brokers, NewTopic, only_partition, rule, topic_id
from support.kraft.denials import taken
from transport.protocol.errors import Error
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

ORDERS: PartitionKey = topic_id(1), 0
STATE = topic_id(2)
LEADER, COORDINATOR = 101, 103
NAME = "in-turn"
PRODUCER = 4000
TV1, TV2 = 11, 12
"""Versions of Produce: with 12 a broker adds partitions to the transaction (transaction version 2)."""


def three(*, with_coordinator: bool = True, **settings: Any) -> Brokers:
    """Broker 101 leads both partitions of `orders`; broker 103 coordinates transactions."""
    topics = [NewTopic("orders", topic_id(1), ((101, 102), (101, 102)))]
    if with_coordinator:
        topics.append(NewTopic("__transaction_state", STATE, ((COORDINATOR,),)))
    return Brokers(topics, **settings)


def records(*values: bytes, sequence: int = 0, epoch: int = 0, producer: int = PRODUCER) -> bytes:
    contents = [Record(at, START_MS, 0, None, value) for at, value in enumerate(values)]
    return write_batch(
        contents, epoch=-1, transactional=True, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )


def produce(data: bytes, *, acks: int = 1, more: bytes | None = None) -> ProduceRequest:
    parts = [PartitionProduceData(0, data), *([] if more is None else [PartitionProduceData(1, more)])]
    topic = TopicProduceData(name="orders", partition_data=parts)
    return ProduceRequest(transactional_id=NAME, acks=acks, timeout_ms=5000, topic_data=[topic])


def sent_to_coordinator(brokers: Brokers) -> Send:
    """The one request that is due."""
    [send] = brokers.due(LEADER)
    assert send.target == Target(COORDINATOR, "127.0.0.1", 26000 + COORDINATOR)
    return send


def verdict(send: Send, error: Error) -> AddPartitionsToTxnResponse:
    """The coordinator's answer, with the same result for all partitions."""
    asked = send.message
    assert isinstance(asked, AddPartitionsToTxnRequest)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                one.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name, [AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions]
                    )
                    for topic in one.topics
                ],
            )
            for one in asked.transactions
        ]
    )


def decided(brokers: Brokers, error: Error = Error.NONE) -> list[Any]:
    """Let the coordinator answer what was asked; returns the responses to producers."""
    send = sent_to_coordinator(brokers)
    brokers.requests[LEADER].on_reply(send.reply_to.key, verdict(send, error), brokers.now_ms)
    return responses(brokers)


def responses(brokers: Brokers) -> list[Any]:
    return [each.message for each in brokers.poll(LEADER) if isinstance(each, Answer)]


def produced(brokers: Brokers, data: bytes, version: int = TV2) -> Any:
    """Produce with a verification that succeeds, if there is one; returns the partition of the answer."""
    _, outcome = brokers.send(LEADER, produce(data), version)
    if outcome is None:
        [response] = decided(brokers)
        return only_partition(response)
    assert isinstance(outcome, Answer)
    return only_partition(outcome.message)


def marker(*, commit: bool, epoch: int = 1, coordinator_epoch: int = 0, version: int = 2) -> WriteTxnMarkersRequest:
    topic = WritableTxnMarkerTopic("orders", [0])
    one = WritableTxnMarker(PRODUCER, epoch, commit, [topic], coordinator_epoch, transaction_version=version)
    return WriteTxnMarkersRequest(markers=[one])


def marked(brokers: Brokers, request: WriteTxnMarkersRequest) -> Error:
    """Send a marker, and let the followers fetch; returns the error of its one partition."""
    _, outcome = brokers.send(LEADER, request, 2)
    if outcome is None:
        brokers.replicate(ORDERS)
        [outcome] = brokers.poll(LEADER)
    assert isinstance(outcome, Answer)
    message: Any = outcome.message
    return Error(message.markers[0].topics[0].partitions[0].error_code)


# Verification


def test_without_verification_records_are_appended_at_once() -> None:
    brokers = three(verifies_transactions=False)
    _, outcome = brokers.send(LEADER, produce(records(b"a")), TV2)
    assert isinstance(outcome, Answer)
    assert brokers.part(LEADER, ORDERS).log.end_offset == 1


@pytest.mark.parametrize(
    ("found", "version", "answered"),
    [
        (Error.TRANSACTION_ABORTABLE, 10, Error.INVALID_TXN_STATE),
        (Error.TRANSACTION_ABORTABLE, 11, Error.TRANSACTION_ABORTABLE),
        (Error.PRODUCER_FENCED, 11, Error.INVALID_PRODUCER_EPOCH),
        (Error.INVALID_PRODUCER_EPOCH, 12, Error.INVALID_PRODUCER_EPOCH),
        (Error.INVALID_PRODUCER_ID_MAPPING, 12, Error.INVALID_PRODUCER_ID_MAPPING),
        (Error.INVALID_TXN_STATE, 11, Error.INVALID_TXN_STATE),
        (Error.CONCURRENT_TRANSACTIONS, 11, Error.NOT_ENOUGH_REPLICAS),
        (Error.NOT_COORDINATOR, 12, Error.NOT_ENOUGH_REPLICAS),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, 11, Error.NOT_ENOUGH_REPLICAS),
        (Error.COORDINATOR_NOT_AVAILABLE, 12, Error.NOT_ENOUGH_REPLICAS),
    ],
)
def test_each_error_of_the_coordinator_is_one_that_producers_of_the_version_know(
    found: Error, version: int, answered: Error
) -> None:
    brokers = three()
    assert brokers.send(LEADER, produce(records(b"a")), version)[1] is None
    [response] = decided(brokers, found)
    part = only_partition(response)
    assert (Error(part.error_code), part.base_offset) == (answered, -1)
    assert brokers.part(LEADER, ORDERS).log.end_offset == 0


@pytest.mark.parametrize(
    ("response", "answered"),
    [
        (None, Error.NOT_ENOUGH_REPLICAS),
        (AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED), Error.INVALID_TXN_STATE),
        (AddPartitionsToTxnResponse(), Error.NOT_ENOUGH_REPLICAS),
    ],
    ids=["unreachable", "without-the-right", "answer-about-nothing"],
)
def test_a_coordinator_that_does_not_answer_the_question_has_verified_nothing(
    response: Message | None, answered: Error
) -> None:
    brokers = three()
    brokers.send(LEADER, produce(records(b"a")), TV1)
    send = sent_to_coordinator(brokers)
    brokers.requests[LEADER].on_reply(send.reply_to.key, response, brokers.now_ms)
    [found] = responses(brokers)
    assert only_partition(found).error_code == answered
    assert brokers.part(LEADER, ORDERS).log.end_offset == 0


def test_without_a_coordinator_a_producer_is_to_try_again() -> None:
    brokers = three(with_coordinator=False)
    assert brokers.send(LEADER, produce(records(b"a")), TV1)[1] is None
    assert brokers.due_ms(LEADER) == 0
    [found] = responses(brokers)
    assert only_partition(found).error_code == Error.NOT_ENOUGH_REPLICAS


def test_a_coordinator_has_one_request_at_a_time_and_the_next_one_has_all_that_waits() -> None:
    brokers = three()
    brokers.send(LEADER, produce(records(b"a")), TV1)
    send = sent_to_coordinator(brokers)
    for number in (1, 2):
        data = records(b"b", producer=PRODUCER + number)
        request = ProduceRequest(
            transactional_id=f"other-{number}",
            acks=1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(0, data)])],
        )
        assert brokers.send(LEADER, request, TV1)[1] is None
    assert brokers.due(LEADER) == []
    brokers.requests[LEADER].on_reply(send.reply_to.key, verdict(send, Error.NONE), brokers.now_ms)
    assert len(responses(brokers)) == 1
    following = sent_to_coordinator(brokers)
    assert isinstance(following.message, AddPartitionsToTxnRequest)
    assert [one.transactional_id for one in following.message.transactions] == ["other-1", "other-2"]


@pytest.mark.parametrize(
    ("later_epoch", "first_error", "later_error"),
    [
        (1, Error.INVALID_PRODUCER_EPOCH, None),
        (0, Error.NOT_ENOUGH_REPLICAS, None),
        (-1, None, Error.INVALID_PRODUCER_EPOCH),
    ],
)
def test_of_two_requests_for_a_transaction_that_wait_the_newer_one_is_asked_for(
    later_epoch: int, first_error: Error | None, later_error: Error | None
) -> None:
    brokers = three()
    ids = [brokers.send(LEADER, produce(records(b"a", epoch=epoch)), TV1)[0] for epoch in (1, 1 + later_epoch)]
    found = {
        each.request_id: only_partition(each.message).error_code
        for each in brokers.poll(LEADER)
        if isinstance(each, Answer)
    }
    assert (found.get(ids[0]), found.get(ids[1])) == (first_error, later_error)
    assert len(found) == 1
    assert len(decided(brokers)) == 1


def test_records_behind_the_marker_of_their_transaction_begin_no_other_one() -> None:
    brokers = three()
    assert produced(brokers, records(b"a"), TV1).error_code == Error.NONE
    assert marked(brokers, marker(commit=False, epoch=0, version=1)) is Error.NONE
    # Sent before the abort, verified before it, and here after it.
    brokers.send(LEADER, produce(records(b"late", sequence=1)), TV1)
    send = sent_to_coordinator(brokers)
    assert marked(brokers, marker(commit=False, epoch=0, version=1)) is Error.NONE
    brokers.requests[LEADER].on_reply(send.reply_to.key, verdict(send, Error.NONE), brokers.now_ms)
    assert [only_partition(each).error_code for each in responses(brokers)] == [Error.INVALID_TXN_STATE]
    assert brokers.part(LEADER, ORDERS).log.producers.states.open_transactions == {}


def test_the_next_transaction_may_begin_before_the_marker_of_the_last_one_is_here() -> None:
    """With transaction version 2 the epoch tells the records of the next transaction from late ones of the last."""
    brokers = three()
    assert produced(brokers, records(b"a")).error_code == Error.NONE
    brokers.send(LEADER, produce(records(b"next", epoch=1)), TV2)
    assert decided(brokers, Error.CONCURRENT_TRANSACTIONS) == []
    assert marked(brokers, marker(commit=True)) is Error.NONE
    brokers.now_ms += 20
    [response] = decided(brokers)
    assert only_partition(response).error_code == Error.NONE
    assert brokers.part(LEADER, ORDERS).log.producers.states.open_transactions == {2: PRODUCER}


def test_two_transactional_producers_in_one_request_are_refused() -> None:
    brokers = three()
    request = produce(records(b"a"), more=records(b"b", producer=PRODUCER + 1))
    _, outcome = brokers.send(LEADER, request, TV1)
    assert isinstance(outcome, Answer)
    message: Any = outcome.message
    errors = [part.error_code for part in message.responses[0].partition_responses]
    assert errors == [Error.INVALID_PRODUCER_ID_MAPPING] * 2


def test_records_without_a_leader_here_are_refused_without_the_coordinator() -> None:
    brokers = three()
    brokers.change(PartitionChangeRecord(partition_id=0, topic_id=ORDERS[0], leader=102))
    _, outcome = brokers.send(LEADER, produce(records(b"a")), TV1)
    assert isinstance(outcome, Answer)
    assert only_partition(outcome.message).error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert brokers.due(LEADER) == []


# Markers


def test_the_bytes_of_a_marker_are_those_of_kafka() -> None:
    """Captured from a broker of Kafka 4.3.1: key and value of a control record (`EndTransactionMarker`)."""
    brokers = three()
    produced(brokers, records(b"a"))
    assert marked(brokers, marker(commit=True, coordinator_epoch=7)) is Error.NONE
    data = brokers.part(LEADER, ORDERS).log.read(0, 1 << 20)
    assert isinstance(data, bytes)
    [_, control] = scan(data)
    assert control.data.endswith(bytes.fromhex("20 00 00 00 08 0000 0001 0c 0000 00000007 00"))
    assert control.attributes == 0x30


def test_a_marker_without_a_transaction_is_appended_all_the_same() -> None:
    brokers = three()
    assert marked(brokers, marker(commit=True, epoch=0)) is Error.NONE
    assert brokers.part(LEADER, ORDERS).log.end_offset == 1


def test_the_marker_of_the_last_epoch_has_no_higher_one() -> None:
    brokers = three()
    assert produced(brokers, records(b"a", epoch=32767)).error_code == Error.NONE
    assert marked(brokers, marker(commit=True, epoch=32767)) is Error.NONE


def test_each_partition_of_each_marker_has_its_own_error() -> None:
    brokers = three()
    topics = [WritableTxnMarkerTopic("orders", [0, 9]), WritableTxnMarkerTopic("gone", [0])]
    both = WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(1, 0, True, topics, 0), WritableTxnMarker(2, 0, False, topics[:1], 0)]
    )
    _, outcome = brokers.send(LEADER, both, 1)
    assert outcome is None
    brokers.replicate(ORDERS)
    [answer] = brokers.poll(LEADER)
    assert isinstance(answer, Answer)
    message: Any = answer.message
    found = [
        (one.producer_id, topic.name, part.partition_index, Error(part.error_code))
        for one in message.markers
        for topic in one.topics
        for part in topic.partitions
    ]
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [
        (1, "orders", 0, Error.NONE),
        (1, "orders", 9, unknown),
        (1, "gone", 0, unknown),
        (2, "orders", 0, Error.NONE),
        (2, "orders", 9, unknown),
    ]


def test_a_follower_refuses_a_marker_and_a_broker_without_the_partition_does_not_know_it() -> None:
    brokers = three()
    errors = []
    for broker in (102, 103):
        _, outcome = brokers.send(broker, marker(commit=True), 2)
        assert isinstance(outcome, Answer)
        message: Any = outcome.message
        errors.append(Error(message.markers[0].topics[0].partitions[0].error_code))
    assert errors == [Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("allowed", [AclOperation.CLUSTER_ACTION, AclOperation.ALTER, None])
def test_a_marker_needs_a_right_on_the_cluster(allowed: AclOperation | None) -> None:
    brokers = three(authorizer=AuthorizerSettings())
    if allowed is not None:
        brokers.change(rule(1, allowed, AclResource.CLUSTER, CLUSTER_NAME))
    _, outcome = brokers.send(LEADER, marker(commit=True), 2)
    if allowed is not None:
        assert outcome is None
        return
    assert isinstance(outcome, Answer)
    message: Any = outcome.message
    assert message.markers[0].topics[0].partitions[0].error_code == Error.CLUSTER_AUTHORIZATION_FAILED
    assert brokers.part(LEADER, ORDERS).log.end_offset == 0
    assert [each.operation for each in taken(brokers.rights[LEADER].audited)] == [AclOperation.CLUSTER_ACTION]


def test_an_unknown_topic_id_stays_an_error_of_the_request() -> None:
    brokers = three()
    topic = TopicProduceData(topic_id=Uuid(bytes([7] * 16)), partition_data=[PartitionProduceData(0, records(b"a"))])
    request = ProduceRequest(transactional_id=NAME, acks=1, timeout_ms=5000, topic_data=[topic])
    _, outcome = brokers.send(LEADER, request, 13)
    assert isinstance(outcome, Answer)
    assert only_partition(outcome.message).error_code == Error.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("most_waiting", [0, 20_000], ids=["too many wait", "connections close"])
def test_askers_that_do_not_wait_fill_no_memory(monkeypatch: pytest.MonkeyPatch, most_waiting: int) -> None:
    """Their coordinator is asked all the same, until very many are to be asked: then the producer tries again."""
    monkeypatch.setattr(verification, "VERIFICATIONS", 3)
    brokers = three(most_waiting=most_waiting)
    for number in range(10):
        data = records(b"a", producer=PRODUCER + number)
        request = structs.replace(produce(data), transactional_id=f"{NAME}-{number}")
        request_id, _ = brokers.send(LEADER, request, TV2)
        brokers.requests[LEADER].forget(request_id)
    asked = sent_to_coordinator(brokers)
    assert isinstance(asked.message, AddPartitionsToTxnRequest)
    assert [one.transactional_id for one in asked.message.transactions] == [f"{NAME}-{number}" for number in range(3)]
    refused_id, outcome = brokers.send(LEADER, produce(records(b"b")), TV2)
    ended = [outcome] if outcome is not None else brokers.poll(LEADER)
    [answer] = [one for one in ended if isinstance(one, Answer) and one.request_id == refused_id]
    assert only_partition(answer.message).error_code == Error.NOT_ENOUGH_REPLICAS
    brokers.requests[LEADER].on_reply(asked.reply_to.key, verdict(asked, Error.NONE), brokers.now_ms)
    brokers.poll(LEADER)
    brokers.send(LEADER, produce(records(b"c", producer=PRODUCER - 1)), TV2)
    assert sent_to_coordinator(brokers), "there is room again"
