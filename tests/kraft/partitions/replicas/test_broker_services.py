"""The table of a broker with data: each request reaches its room, and each answer its request."""

from __future__ import annotations

from random import Random

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.broker import BrokerAgent
from kraft.broker.requests import Requests
from kraft.broker.server import BrokerServer, Unfenced
from kraft.committed import Noted
from kraft.handling.reply_keys import Channel, Forwarded
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.sim.nodes.broker_without_data import BrokerWithoutData
from kraft.wire import Answer, Drop, Part, ReplyTo, Send, WireRequest
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
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    EnvelopeResponse,
    FetchRequest,
    FetchResponse,
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
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.CREATE_TOPICS} <= apis


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
    assert broker.services.agenda.deadline_ms > NOW_MS
    return sent


def verdict(error: Error) -> AddPartitionsToTxnResponse:
    """The answer of the coordinator."""
    of_topic = AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(0, error)])
    return AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult("in-turn", [of_topic])])


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
        assert broker.services.agenda.deadline_ms <= NOW_MS, "the broker waits for somebody"
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
    assert broker.services.agenda.deadline_ms > NOW_MS
    broker.services.on_reply(registration.reply_to, BrokerRegistrationResponse(broker_epoch=7), NOW_MS)
    assert broker.services.agenda.deadline_ms == 0


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
    assert broker.services.agenda.deadline_ms == NOW_MS + 20
