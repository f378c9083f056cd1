"""The table of a broker with data: each request reaches its room, and each answer its request."""

from __future__ import annotations

from random import Random

import pytest

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.broker import BrokerAgent
from kraft.broker.requests import Requests
from kraft.broker.server import BrokerServer, Unfenced
from kraft.committed import Noted
from kraft.handling.reply_keys import Channel, Forwarded
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.sim.nodes.broker_without_data import BrokerWithoutData
from kraft.supported_features import SUPPORTED_FEATURES as FEATURES
from kraft.wire import Answer, Drop, LeaveUnanswered, Part, ReplyTo, Send, Target, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.metadata import PartitionRecord, TopicRecord
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.data_brokers import KEY, NOW_MS, batch, cluster, new_topic, replayed, started
from support.kraft.broker_agents import new_agent
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    EnvelopeRequest,
    EnvelopeResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from transport.protocol.messages.fetch import FetchPartition, FetchTopic
from transport.protocol.messages.produce import PartitionProduceData, TopicProduceData

IMAGE = replayed(cluster(101), *new_topic((101,)))


class Broker:
    """Broker 101 with one partition in memory, as its replica sees the broker."""

    def __init__(self, image: MetadataImage = IMAGE) -> None:
        self.manager = started(101, image)
        self.agent = BrokerAgent(new_agent().settings, self.manager)
        self.agent.image = image
        settings = RequestSettings(broker_id=101, cluster_id="c")
        self.services = BrokerServer(self.agent, Requests(self.manager, settings, Random(1)), self.manager)
        self.registration = self.agent.poll(NOW_MS)


def asked(message: Message, version: int, request_id: int = 1) -> WireRequest:
    api_key = message.__schema__.api_key
    assert api_key is not None
    return WireRequest(
        request_id=request_id,
        api_key=api_key,
        version=version,
        message=message,
        listener="PLAINTEXT",
        client_id="c",
        peer="127.0.0.1:4711",
    )


def produce(acks: int, *, to: int = 0) -> ProduceRequest:
    partition = PartitionProduceData(index=to, records=batch(b"v"))
    topic = TopicProduceData(topic_id=KEY[0], partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def fetch(offset: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topic = FetchTopic(topic_id=KEY[0], partitions=[partition])
    return FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1000, topics=[topic])


def test_a_broker_with_data_serves_the_apis_of_both_rooms():
    apis = Broker().services.apis
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.CREATE_TOPICS} <= set(apis)
    assert list(apis) == sorted(set(apis))


def test_a_produce_without_acknowledgement_has_no_answer_and_ends_the_connection_on_an_error():
    broker = Broker()
    assert broker.services.on_request(asked(produce(0), 13), NOW_MS) == LeaveUnanswered(1)
    assert broker.services.on_request(asked(produce(0), 13, 2), NOW_MS) == LeaveUnanswered(2)
    failed = broker.services.on_request(asked(produce(0, to=9), 13, 3), NOW_MS)
    assert isinstance(failed, Drop)
    assert isinstance(broker.services.on_request(asked(produce(0, to=9), 13, 4), NOW_MS), Drop)
    part = broker.manager.partitions.get(KEY)
    assert part is not None
    assert part.log.end_offset == 2


def test_a_waiting_fetch_is_answered_by_the_next_append():
    broker = Broker()
    assert broker.services.on_request(asked(fetch(0), 13), NOW_MS) is None
    assert list(broker.services.on_tick(NOW_MS)) == []
    assert broker.services.deadline_ms() > NOW_MS
    done = broker.services.on_request(asked(produce(1), 13, 2), NOW_MS)
    assert isinstance(done, Answer)
    assert isinstance(done.message, ProduceResponse)
    assert broker.services.deadline_ms() == 0
    [answer] = broker.services.on_tick(NOW_MS)
    assert list(broker.services.on_tick(NOW_MS)) == []
    assert broker.services.deadline_ms() > NOW_MS
    assert isinstance(answer, Answer)
    assert answer.request_id == 1
    assert isinstance(answer.message, FetchResponse)
    assert answer.message.responses[0].partitions[0].high_watermark == 1


def test_a_fetch_without_records_is_answered_when_its_time_is_over():
    broker = Broker()
    assert broker.services.on_request(asked(fetch(0), 13), NOW_MS) is None
    assert list(broker.services.on_tick(NOW_MS)) == []
    assert broker.services.deadline_ms() == NOW_MS + 500
    [answer] = broker.services.on_tick(NOW_MS + 500)
    assert isinstance(answer, Answer)


def test_a_fetch_waits_no_longer_when_its_connection_is_closed():
    broker = Broker()
    assert broker.services.on_request(asked(fetch(0), 13), NOW_MS) is None
    assert list(broker.services.on_tick(NOW_MS)) == []
    broker.services.on_gone(1)
    assert broker.services.deadline_ms() > NOW_MS + 500
    assert list(broker.services.on_tick(NOW_MS + 500)) == []


def test_a_broker_registers_each_feature_once():
    names = [name for name, _, _ in FEATURES]
    assert "kraft.version" in names
    assert len(set(names)) == len(names)


def test_answers_of_the_controller_find_the_request_they_belong_to():
    """Blocks of producer ids and forwarded requests share the numbers of requests to the controller."""
    broker = Broker()
    services = broker.services
    assert services.on_request(asked(InitProducerIdRequest(transactional_id=None), 5, 1), NOW_MS) is None
    assert services.on_request(asked(CreateTopicsRequest(), 7, 2), NOW_MS) is None
    first, second = services.on_tick(NOW_MS)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert isinstance(first.message, AllocateProducerIdsRequest)
    assert isinstance(second.message, EnvelopeRequest)
    services.on_reply(second.reply_to, EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION), NOW_MS)
    assert [one for one in services.on_tick(NOW_MS) if isinstance(one, Drop) and one.request_id == 2]
    block = AllocateProducerIdsResponse(producer_id_start=4000, producer_id_len=1000)
    services.on_reply(first.reply_to, block, NOW_MS)
    assert services.deadline_ms() == 0
    [answer] = services.on_tick(NOW_MS)
    assert isinstance(answer, Answer)
    assert answer.request_id == 1
    assert isinstance(answer.message, InitProducerIdResponse)
    assert (answer.message.producer_id, answer.message.error_code) == (4000, 0)


def test_requests_for_clients_have_keys_that_no_request_of_the_agent_has():
    broker = Broker()
    broker.services.on_request(asked(CreateTopicsRequest(), 7, 2), NOW_MS)
    sent = [*broker.registration, *(one for one in broker.services.on_tick(NOW_MS) if isinstance(one, Send))]
    keys = {type(one.message).__name__: one.reply_to.key for one in sent}
    assert keys["EnvelopeRequest"] == Forwarded(1)
    assert keys["BrokerRegistrationRequest"] is Channel.HEARTBEATS
    refused = EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION)
    broker.services.on_reply(ReplyTo(Part.BROKER, Forwarded(1)), refused, NOW_MS)
    assert [one for one in broker.services.on_tick(NOW_MS) if isinstance(one, Drop)]


def test_a_request_for_metadata_is_answered_at_once():
    found = Broker().services.on_request(asked(MetadataRequest(topics=None), 13), NOW_MS)
    assert isinstance(found, Answer)
    assert isinstance(found.message, MetadataResponse)
    assert [one.name for one in found.message.topics] == ["t"]


def test_closing_the_data_leaves_proof_of_a_clean_shutdown():
    broker = Broker()
    disk = broker.manager.hosting.store._disk
    assert not disk.exists("d/.kafka_cleanshutdown")
    broker.services.close_data()
    assert disk.exists("d/.kafka_cleanshutdown")


STATE = Uuid(bytes([0, 8] * 8))
COORDINATED = replayed(
    cluster(101, 103),
    *new_topic((101,)),
    TopicRecord(name="__transaction_state", topic_id=STATE),
    PartitionRecord(
        partition_id=0, topic_id=STATE, replicas=(103,), isr=(103,), leader=103, leader_epoch=0, partition_epoch=0
    ),
)
"""The metadata of a cluster in which broker 103 coordinates transactions."""


def in_a_transaction() -> ProduceRequest:
    """One record, for which the broker asks the coordinator."""
    contents = [Record(0, NOW_MS, 0, None, b"v")]
    data = write_batch(contents, epoch=-1, transactional=True, producer_id=4000, producer_epoch=0, base_sequence=0)
    topic = TopicProduceData(topic_id=KEY[0], partition_data=[PartitionProduceData(0, data)])
    return ProduceRequest(transactional_id="in-turn", acks=1, timeout_ms=1000, topic_data=[topic])


def asked_coordinator(broker: Broker) -> Send:
    """The request to the coordinator, after the record waits."""
    assert broker.services.on_request(asked(in_a_transaction(), 13, 7), NOW_MS) is None
    [sent] = [
        one
        for one in broker.services.on_tick(NOW_MS)
        if isinstance(one, Send) and isinstance(one.message, AddPartitionsToTxnRequest)
    ]
    assert list(broker.services.on_tick(NOW_MS)) == []
    assert broker.services.deadline_ms() > NOW_MS
    return sent


def verdict(error: Error) -> AddPartitionsToTxnResponse:
    """The answer of the coordinator."""
    of_topic = AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(0, error)])
    return AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult("in-turn", [of_topic])])


@pytest.mark.parametrize("error", [Error.NONE, Error.INVALID_PRODUCER_ID_MAPPING])
def test_records_of_a_transaction_wait_for_the_word_of_their_coordinator(error: Error):
    broker = Broker(COORDINATED)
    sent = asked_coordinator(broker)
    assert sent.target == Target(103, "h103", 9092)
    broker.services.on_reply(sent.reply_to, verdict(error), NOW_MS)
    assert broker.services.deadline_ms() == 0
    [answer] = [one for one in broker.services.on_tick(NOW_MS) if isinstance(one, Answer)]
    assert answer.request_id == 7
    assert isinstance(answer.message, ProduceResponse)
    assert [one.error_code for one in answer.message.responses[0].partition_responses] == [error]
    part = broker.manager.partitions.get(KEY)
    assert part is not None
    assert part.log.end_offset == (error is Error.NONE)


def test_a_broker_asks_itself_without_the_network():
    """It coordinates the transaction, too: the record is refused in the turn after, and nothing was sent."""
    state = PartitionRecord(
        partition_id=0, topic_id=STATE, replicas=(101,), isr=(101,), leader=101, leader_epoch=0, partition_epoch=0
    )
    topic = TopicRecord(name="__transaction_state", topic_id=STATE)
    broker = Broker(replayed(cluster(101), *new_topic((101,)), topic, state))
    assert broker.services.on_request(asked(in_a_transaction(), 13, 7), NOW_MS) is None
    found = [*broker.services.on_tick(NOW_MS)]
    while not any(isinstance(one, Answer) for one in found):
        assert broker.services.deadline_ms() <= NOW_MS, "the broker waits for somebody"
        found += broker.services.on_tick(NOW_MS)
    assert not [one for one in found if isinstance(one, Send) and isinstance(one.message, AddPartitionsToTxnRequest)]
    [answer] = [one for one in found if isinstance(one, Answer)]
    assert answer.request_id == 7
    assert isinstance(answer.message, ProduceResponse)
    [part] = answer.message.responses[0].partition_responses
    assert part.error_code in (Error.INVALID_PRODUCER_ID_MAPPING, Error.NOT_ENOUGH_REPLICAS), part


def test_a_broker_needs_no_right_to_ask_itself():
    rights = Rights(AuthorizerSettings())
    own, foreign = asked(AddPartitionsToTxnRequest(), 4, -1), asked(AddPartitionsToTxnRequest(), 4, 1)
    assert rights(own, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
    assert not rights(foreign, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)


def test_an_answer_to_the_agent_lets_the_requests_of_clients_look_again():
    """Replicas may have moved: a fetch that waits may have its records."""
    broker = Broker()
    [registration] = broker.registration
    assert list(broker.services.on_tick(NOW_MS)) == []
    assert broker.services.deadline_ms() > NOW_MS
    broker.services.on_reply(registration.reply_to, BrokerRegistrationResponse(broker_epoch=7), NOW_MS)
    assert broker.services.deadline_ms() == 0


def test_listeners_do_not_open_before_the_broker_would_name_itself_to_a_client():
    """librdkafka waits for minutes if the first broker that it asks names none."""
    broker = Broker(MetadataImage())
    [registration] = broker.registration
    heartbeat = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    broker.services.on_reply(registration.reply_to, BrokerRegistrationResponse(broker_epoch=7), NOW_MS)
    broker.services.on_reply(registration.reply_to, heartbeat, NOW_MS)
    assert Noted(Unfenced()) not in broker.services.on_tick(NOW_MS)
    broker.agent.image = IMAGE
    broker.services.on_reply(registration.reply_to, heartbeat, NOW_MS)
    assert broker.services.on_tick(NOW_MS).count(Noted(Unfenced())) == 1
    broker.services.on_reply(registration.reply_to, heartbeat, NOW_MS)
    assert Noted(Unfenced()) not in broker.services.on_tick(NOW_MS)


def test_the_agent_answers_the_fetches_to_a_broker_without_data():
    agent = new_agent()
    broker = BrokerWithoutData(agent)
    assert ApiKey.FETCH in broker.apis
    found = broker.on_request(asked(FetchRequest(), 17), NOW_MS)
    assert isinstance(found, Answer)
    assert isinstance(found.message, FetchResponse)


def test_a_coordinator_that_is_busy_stops_no_request_of_another_client():
    """The coordinator is asked again later. Nobody waits for the records of the other client: nothing else is due."""
    broker = Broker(COORDINATED)
    sent = asked_coordinator(broker)
    assert isinstance(broker.services.on_request(asked(produce(1), 13, 8), NOW_MS), Answer)
    broker.services.on_reply(sent.reply_to, verdict(Error.CONCURRENT_TRANSACTIONS), NOW_MS)
    assert broker.services.deadline_ms() == NOW_MS + 20
