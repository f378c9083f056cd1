"""A broker with data beside the controller of its process: clients write and read, and the broker asks for them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec import structs

from kraft.access.authorizer import AclOperation, AuthorizerSettings, Denial
from kraft.access.caller import Caller
from kraft.broker import BrokerOptions, LifecycleState
from kraft.broker.opening import ServingOptions
from kraft.broker.server import BrokerServer, Found, Unfenced
from kraft.controller.decision.request_context import AdminSettings
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.process.hosting import broker_of, host_combined, host_serving_broker
from kraft.process.parts import Application, ApplicationFactory, Opening
from kraft.quorum.values import Endpoints, ListenerAddress
from kraft.replica.interface.events import Output, StartFlush, Trace
from kraft.wire import Answer, Drop, LeaveUnanswered, WireGone, WireRequest
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.kraft.denials import taken
from support.kraft.replica_net import CLUSTER_ID, Net, options, voter_set
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.inbound import ANONYMOUS, Principal
from transport.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FetchRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    SaslHandshakeRequest,
)
from transport.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.fetch import FetchPartition, FetchTopic
from transport.protocol.messages.produce import PartitionProduceData, TopicProduceData

CLIENTS = "PLAINTEXT"
FIRST, SECOND = (Uuid(bytes([7, number] * 8)) for number in (1, 2))
SERVING = ServingOptions(
    log_dirs=("d", "e"),
    data=DataSettings(broker_id=1, directories=()),
    requests=RequestSettings(broker_id=1),
)


def broker(*clean: Uuid) -> BrokerOptions:
    return BrokerOptions(directories=(FIRST, SECOND), clean_directories=clean)


def node(disk: MemoryDisk) -> ApplicationFactory:
    """Node 1 with both roles; the records of its broker are on the disk."""

    def host(opening: Opening) -> Application:
        own = structs.replace(
            opening.options, broker=broker(), client_endpoints=Endpoints((ListenerAddress(CLIENTS, "b1", 9092),))
        )
        return host_combined(host_serving_broker(disk, SERVING))(structs.replace(opening, options=own))

    return host


def running(**changes: Any) -> Net:
    """The node after its broker was unfenced."""
    net = Net(1, application=node(MemoryDisk()), **changes)
    net.elect()
    net.until(lambda: host_of(net).agent.lifecycle.state is LifecycleState.RUNNING)
    net.settle()
    return net


def host_of(net: Net) -> BrokerServer:
    found = broker_of(net.processes[1].application)
    assert found is not None
    return found


def ask(net: Net, message: Message, version: int | None = None) -> Any:
    """The answer at the listener of the broker."""
    return net.ask(1, message, version, CLIENTS)


def with_topic(**changes: Any) -> tuple[Net, Uuid]:
    """The node after a client has created topic `t`, and the id of the topic."""
    net = running(**changes)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    [created] = ask(net, CreateTopicsRequest(topics=[topic], timeout_ms=1000)).topics
    assert created.error_code == Error.NONE
    net.advance(1000)
    return net, created.topic_id


def produce(topic_id: Uuid, value: bytes) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=build_batch(0, -1, 0, [value]))
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[part])]
    )


def fetch(topic_id: Uuid, offset: int, wait_ms: int = 500) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic_id=topic_id, partitions=[part])],
    )


def test_a_client_creates_a_topic_writes_and_reads_through_one_listener() -> None:
    net, topic_id = with_topic()
    [written] = ask(net, produce(topic_id, b"value")).responses
    assert (written.partition_responses[0].error_code, written.partition_responses[0].base_offset) == (Error.NONE, 0)
    [read] = ask(net, fetch(topic_id, 0)).responses
    assert read.partitions[0].high_watermark == 1
    assert b"value" in read.partitions[0].records


def test_a_producer_gets_an_id_of_the_block_that_the_controller_gives() -> None:
    net = running()
    first, second = (ask(net, InitProducerIdRequest(transactional_id=None)) for _ in range(2))
    assert (first.error_code, second.error_code) == (Error.NONE, Error.NONE)
    assert second.producer_id == first.producer_id + 1


def test_a_waiting_fetch_ends_at_its_time_or_with_its_connection() -> None:
    net, topic_id = with_topic()
    first = net.request(1, fetch(topic_id, 0, 300), listener=CLIENTS)
    second = net.request(1, fetch(topic_id, 0, 300), listener=CLIENTS)
    net.advance(200)
    assert net.answers == {}
    net.step(1, WireGone(second))
    net.advance(200)
    assert list(net.answers) == [first]


def test_a_replica_moves_to_the_directory_that_an_administrator_names() -> None:
    """The controller learns of the move before the replica is there for good."""
    net, topic_id = with_topic()
    image = host_of(net).agent.image
    place = {FIRST: "d", SECOND: "e"}
    before = image.topics["t"].partitions[0].directories[0]
    target = SECOND if before == FIRST else FIRST
    topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
    moved = ask(net, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=place[target], topics=[topic])]))
    assert moved.results[0].partitions[0].error_code == Error.NONE
    net.until(lambda: host_of(net).agent.image.topics["t"].partitions[0].directories == (target,))
    store = host_of(net)._manager
    assert isinstance(store, ReplicaManager), store
    net.until(lambda: store.directory_of((topic_id, 0)) == target)


@pytest.mark.parametrize("number", [0, 1])
def test_a_replica_is_made_in_the_directory_that_was_named_before_it_was_there(number: int) -> None:
    """KIP-113: whichever directory is named, and only for that partition."""
    net = running()
    path, wanted = (("d", FIRST), ("e", SECOND))[number]
    topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
    named = ask(net, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])]))
    assert named.results[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    ask(net, CreateTopicsRequest(topics=[CreatableTopic("t", 2, 1)], timeout_ms=1000))
    net.advance(1000)
    store = host_of(net)._manager
    assert isinstance(store, ReplicaManager), store
    topic_id = host_of(net).agent.image.topics["t"].id
    assert [store.directory_of((topic_id, one)) for one in (0, 1)] == [wanted, SECOND if wanted == FIRST else FIRST]
    assert host_of(net).agent.image.topics["t"].partitions[0].directories == (wanted,)
    assert not store.moves.preferred


def test_the_node_learns_once_that_its_broker_is_unfenced() -> None:
    net = running()
    net.advance(10_000)
    assert [what for _, what in net.noted if isinstance(what, Unfenced)] == [Unfenced()]
    assert [what for _, what in net.noted if isinstance(what, Found)] == []


def test_the_node_logs_once_what_its_broker_has_found_in_a_directory() -> None:
    net = running()
    net.noted.clear()
    host_of(net)._manager.hosting.report("d is damaged")
    net.advance(5000)
    assert net.noted == [(1, Found(("d is damaged",)))]


def test_a_broker_denies_what_no_rule_allows_and_reports_the_denials() -> None:
    net = running(admin=AdminSettings(authorizer=AuthorizerSettings(frozenset({"User:ANONYMOUS"}))))
    stranger = Caller("User", "mallory", False, "10.0.0.1", CLIENTS)
    services = host_of(net).requests
    assert services is not None
    assert not services.may(AclOperation.ALTER, stranger)
    assert services.may(AclOperation.ALTER, Caller("User", "ANONYMOUS", False, "10.0.0.1", CLIENTS))
    [denial] = taken(host_of(net).audited)
    assert isinstance(denial, Denial)
    assert denial.caller == stranger
    assert list(taken(host_of(net).audited)) == []


def made(role: BrokerOptions, serving: ServingOptions = SERVING) -> BrokerServer:
    """A broker without a controller, from its options."""
    found = host_serving_broker(MemoryDisk(), serving)(
        Opening(options(1, voter_set(1), broker=role), CLUSTER_ID, (), Random(1))
    )
    assert isinstance(found, BrokerServer)
    return found


def test_only_a_directory_with_proof_of_a_clean_shutdown_counts_as_clean() -> None:
    store = made(broker(SECOND))._manager
    assert isinstance(store, ReplicaManager)
    found = [(one.path, one.id, one.is_clean) for one in store.settings.directories]
    assert found == [("d", FIRST, False), ("e", SECOND, True)]


def test_each_log_directory_has_an_id() -> None:
    with pytest.raises(ValueError, match="zip"):
        made(broker(), structs.replace(SERVING, log_dirs=("d",)))


def outputs(net: Net, message: Message, principal: Principal = ANONYMOUS, version: int = 13) -> list[Output]:
    """The immediate outputs of the node for a request of a client."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    request = WireRequest(
        request_id=1 << 40,
        api_key=api_key,
        version=version,
        message=message,
        listener=CLIENTS,
        principal=principal,
    )
    return net.processes[1].step(request, net.now_ms)


def test_a_produce_without_acknowledgement_is_not_answered_and_its_failure_ends_the_connection() -> None:
    net, topic_id = with_topic()
    request = structs.replace(produce(topic_id, b"value"), acks=0)
    left = [one for one in outputs(net, request) if not isinstance(one, StartFlush)]
    assert left == [LeaveUnanswered(1 << 40, 0)]
    lost = structs.replace(produce(Uuid(b"x" * 16), b"value"), acks=0)
    assert [type(one) for one in outputs(net, lost)] == [Drop]


def test_the_listener_of_the_broker_names_the_apis_of_records() -> None:
    net = running()
    keys = [one.api_key for one in ask(net, ApiVersionsRequest("kraft", "1")).api_keys]
    assert {ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.CREATE_TOPICS} <= set(keys)
    assert keys == sorted(set(keys))
    assert ApiKey.VOTE not in keys


def test_a_denied_request_is_reported_in_the_step_that_refuses_it() -> None:
    net = running(admin=AdminSettings(authorizer=AuthorizerSettings(frozenset({"User:ANONYMOUS"}))))
    told = outputs(net, InitProducerIdRequest(transactional_id=None), Principal("User", "mallory"), 5)
    [denial] = [one.effect for one in told if isinstance(one, Trace) and isinstance(one.effect, Denial)]
    assert denial.caller.name == "mallory"
    [answer] = [one.message for one in told if isinstance(one, Answer)]
    assert isinstance(answer, InitProducerIdResponse)
    assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED


def test_the_listeners_open_after_the_broker_is_unfenced() -> None:
    net = Net(1, application=node(MemoryDisk()))
    lifecycle = host_of(net).agent.lifecycle
    while lifecycle.is_fenced:
        assert Unfenced() not in [what for _, what in net.noted]
        if not net.once():
            net.now_ms = net.processes[1].deadline_ms()
    net.advance(1000)
    assert Unfenced() in [what for _, what in net.noted]


def test_a_login_where_none_is_due_is_refused_with_an_answer() -> None:
    net = running()
    assert ask(net, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == Error.ILLEGAL_SASL_STATE
