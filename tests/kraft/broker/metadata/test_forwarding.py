"""Requests that only the active controller decides reach it as the client's, and their answers the client."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from broker_requests import asked, image_at, new_requests
from kraft.broker.apis import FORWARDED
from kraft.broker.requests import Requests
from kraft.config.data_settings import TopicDefaults
from kraft.config.described import described_settings
from kraft.controller.envelope import open_envelope, seal
from kraft.wire import Answer, Drop, Outcome, Send, WireRequest
from metadata_log.types import NEVER_MS
from support.broker.request_brokers import due_of
from transport.protocol.apis import ApiKey
from transport.protocol.broker_listener import AT_BROKERS, advertised
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal
from transport.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    MetadataRequest,
)
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult
from transport.protocol.messages.metadata import MetadataRequestTopic

CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
IMAGE = image_at(0)


def create(request_id: int = 1, peer: str = "127.0.0.1:4711") -> WireRequest:
    request = asked(CREATE, 7, ApiKey.CREATE_TOPICS, request_id)
    return replace(request, principal=Principal("User", "alice", is_token=True), peer=peer)


def sent(requests: Requests, now_ms: int) -> Send:
    """The one request that is due."""
    [one] = due_of(requests, now_ms)
    assert isinstance(one, Send), one
    return one


def only(outcomes: Iterable[Outcome | Send]) -> Outcome | Send:
    [one] = outcomes
    return one


def answered(requests: Requests, now_ms: int) -> Answer | Drop:
    [one] = due_of(requests, now_ms)
    assert isinstance(one, (Answer, Drop)), one
    return one


def envelope(one: Send) -> EnvelopeRequest:
    assert isinstance(one.message, EnvelopeRequest)
    return one.message


@pytest.mark.parametrize(("peer", "host"), [("127.0.0.1:4711", "127.0.0.1"), ("[::1]:4711", "0:0:0:0:0:0:0:1")])
def test_the_controller_sees_the_request_of_the_client_and_the_client_the_answer(peer: str, host: str):
    requests = new_requests()
    assert requests.on_request(create(peer=peer), IMAGE, 0) is None
    one = sent(requests, 0)
    forwarded = open_envelope(envelope(one))
    assert forwarded.message == CREATE
    assert (forwarded.caller.principal, forwarded.caller.is_token) == ("User:alice", True)
    assert forwarded.caller.host == host
    assert requests.agenda.deadline_ms == NEVER_MS
    result = CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", num_partitions=1, replication_factor=1)])
    requests.on_reply(one.reply_to.key, seal(forwarded, result), 5)
    assert answered(requests, 5) == Answer(1, result)


@pytest.mark.parametrize("failure", [None, EnvelopeResponse(error_code=Error.NOT_CONTROLLER)])
def test_without_an_active_controller_the_request_is_sent_again_until_its_time_is_over(
    failure: EnvelopeResponse | None,
):
    requests = new_requests(request_timeout_ms=1000)
    requests.on_request(create(), IMAGE, 0)
    attempts, now = 0, 0
    while isinstance(one := only(due_of(requests, now)), Send):
        attempts += 1
        requests.on_reply(one.reply_to.key, failure, now)
        assert not list(due_of(requests, now)), "there is a pause before the next attempt"
        assert now < requests.agenda.deadline_ms <= 1000
        now = requests.agenda.deadline_ms
    assert now == 1000
    assert attempts == 10
    assert isinstance(one, Answer)
    assert isinstance(one.message, CreateTopicsResponse)
    assert [topic.error_code for topic in one.message.topics] == [Error.REQUEST_TIMED_OUT]


def test_a_version_that_the_controller_does_not_know_closes_the_connection():
    requests = new_requests()
    requests.on_request(create(), IMAGE, 0)
    requests.on_reply(sent(requests, 0).reply_to.key, EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION), 0)
    closed = answered(requests, 0)
    assert isinstance(closed, Drop)
    assert "version 7 of CREATE_TOPICS" in closed.why


def test_another_error_of_the_envelope_is_a_server_error_for_the_client():
    requests = new_requests()
    requests.on_request(create(), IMAGE, 0)
    requests.on_reply(
        sent(requests, 0).reply_to.key, EnvelopeResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED), 0
    )
    answer = answered(requests, 0)
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, CreateTopicsResponse)
    assert [topic.error_code for topic in answer.message.topics] == [Error.UNKNOWN_SERVER_ERROR]


def test_bytes_that_are_no_answer_close_the_connection():
    requests = new_requests()
    requests.on_request(create(), IMAGE, 0)
    requests.on_reply(sent(requests, 0).reply_to.key, EnvelopeResponse(response_data=b"\x00"), 0)
    assert isinstance(answered(requests, 0), Drop)


def test_answers_in_another_order_go_to_their_own_requests():
    requests = new_requests()
    for request_id in (1, 2):
        requests.on_request(create(request_id), IMAGE, 0)
    first, second = due_of(requests, 0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    for one in (second, first):
        requests.on_reply(one.reply_to.key, seal(open_envelope(envelope(one)), CreateTopicsResponse()), 0)
    assert [one.request_id for one in due_of(requests, 0) if isinstance(one, Answer)] == [2, 1]


def named(*names: str, allows: bool = True, version: int = 13) -> WireRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=allows)
    return asked(request, version, ApiKey.METADATA)


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        ("__consumer_offsets", {"cleanup.policy": "compact", "compression.type": "producer"}),
        ("__transaction_state", {"cleanup.policy": "compact", "compression.type": "uncompressed"}),
    ],
)
def test_a_topic_of_coordinators_that_a_client_names_first_is_made_as_one(name: str, configs: dict[str, str]) -> None:
    """A consumer of it would have made a plain topic: one partition, whose records are deleted after a week (Kafka:
    `DefaultAutoTopicCreationManager.creatableTopic`).
    """
    own = tuple(described_settings({"num.partitions": "7", "default.replication.factor": "1"}))
    topics = TopicDefaults(num_partitions=7, replication_factor=1)
    requests = new_requests(auto_create_topics=True, topics=topics, own_settings=own)
    requests.on_request(named(name, "plain"), IMAGE, 0)
    message = open_envelope(envelope(sent(requests, 0))).message
    assert isinstance(message, CreateTopicsRequest)
    made, plain = message.topics
    assert (made.name, made.num_partitions, made.replication_factor) == (name, 50, 3)
    assert configs.items() <= {one.name: one.value for one in made.configs}.items()
    assert (plain.num_partitions, plain.replication_factor, plain.configs) == (7, 1, [])


@pytest.mark.parametrize("in_file", [(), ("num.partitions",), ("num.partitions", "default.replication.factor")])
def test_unknown_topics_are_created_once_with_what_the_file_of_the_broker_says(in_file: tuple[str, ...]):
    """What it leaves out is for the controller (-1), whose file may say something else."""
    own = tuple(described_settings(dict.fromkeys(in_file, "7")))
    requests = new_requests(
        auto_create_topics=True, topics=TopicDefaults(num_partitions=3, replication_factor=2), own_settings=own
    )
    assert requests.on_request(named("new", "bad name!"), IMAGE, 0) is not None
    assert requests.on_request(named("new"), IMAGE, 0) is not None
    one = sent(requests, 0)
    message = open_envelope(envelope(one)).message
    assert isinstance(message, CreateTopicsRequest)
    (made,) = message.topics
    assert made.name == "new"
    assert made.num_partitions == (3 if "num.partitions" in in_file else -1)
    assert made.replication_factor == (2 if "default.replication.factor" in in_file else -1)
    requests.on_reply(one.reply_to.key, None, 10)
    requests.on_request(named("new"), IMAGE, 20)
    assert sent(requests, 20).reply_to.key != one.reply_to.key, (
        "a failed creation is asked for again with the next request"
    )


@pytest.mark.parametrize(
    ("enabled", "request_"),
    [(False, named("new")), (True, named("new", allows=False)), (True, asked(MetadataRequest(topics=None), 13, 3))],
)
def test_no_topic_is_created_where_the_broker_or_the_client_does_not_allow_that(enabled: bool, request_: WireRequest):
    requests = new_requests(auto_create_topics=enabled)
    assert requests.on_request(request_, IMAGE, 0) is not None
    assert list(due_of(requests, 0)) == []


def test_every_api_of_the_metadata_room_has_the_versions_of_kafka():
    """Names and versions of docs: the section on offered versions; Produce and InitProducerId have exceptions."""
    assert len(FORWARDED) == 21
    for key in new_requests().apis:
        if key in (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID):
            continue
        assert advertised(ApiKey(key)) == AT_BROKERS[key].versions
    assert str(advertised(ApiKey.PRODUCE)) == "0-13"
    assert str(AT_BROKERS[ApiKey.PRODUCE].versions) == "3-13"
    assert str(AT_BROKERS[ApiKey.INIT_PRODUCER_ID].versions) == "0-5"
    assert ApiKey.ENVELOPE not in AT_BROKERS
