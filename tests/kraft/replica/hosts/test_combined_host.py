"""Controllers with a broker in the same process: both parts see the log, and each gets its own requests and answers."""

from __future__ import annotations

from random import Random

import pytest
from broker_agents import new_agent
from controller_sides import InProcess
from msgspec import structs
from replica_net import CLUSTER_ID, Net, options, voter_set
from test_host_answers import batch
from test_machine_host import LEADER, wire

from kraft.access.authorizer import AuthorizerSettings
from kraft.broker import BrokerOptions, LifecycleState, server
from kraft.controller.decision.request_context import AdminSettings
from kraft.quorum.values import Endpoints, ListenerAddress
from kraft.replica.hosts import controller_host
from kraft.replica.hosts.broker_host import LeaveCluster, Left, broker_of
from kraft.replica.hosts.combined_host import CombinedHost, controller_of, host_combined
from kraft.replica.hosts.controller_host import ControllerHost
from kraft.replica.interface.application import ForRequest, RefuseSubmit
from kraft.replica.interface.events import Submit
from kraft.replica.interface.options import ReplicaOptions
from kraft.sim.nodes.broker_without_data import host_broker_without_data
from kraft.sim.nodes.broker_without_data import host_of as host_without_data
from kraft.supported_features import SUPPORTED_FEATURES
from kraft.wire import Answer, Target
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import BeginTransactionRecord, FeatureLevelRecord, NoOpRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal
from transport.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    FetchRequest,
    FetchResponse,
)
from transport.protocol.messages.create_topics import CreatableTopic

OWN = Target(1, "n1", 9093)


def node(role: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random) -> CombinedHost:
    """A node of both roles; the broker's listener has the host `b` and the id."""
    own = structs.replace(
        role,
        broker=BrokerOptions(directories=(Uuid(bytes([7, role.node_id] * 8)),)),
        client_endpoints=Endpoints((ListenerAddress("PLAINTEXT", f"b{role.node_id}", 9092),)),
    )
    host = host_combined(host_broker_without_data)(own, cluster_id, bootstrap, rng)
    assert isinstance(host, CombinedHost), host
    return host


def combined() -> CombinedHost:
    """Both parts of node 1, which has opened no log."""
    return node(options(1, voter_set(1)), CLUSTER_ID, (), Random(1))


def active() -> CombinedHost:
    """An active controller with a broker that has not begun."""
    parts = ControllerHost(InProcess().controller), host_without_data(new_agent())
    return CombinedHost(*parts, own=OWN, client_listeners=frozenset({"PLAINTEXT"}))


def host_of(net: Net, at: int) -> CombinedHost:
    host = net.replicas[at].application
    assert isinstance(host, CombinedHost), host
    return host


def image_of(net: Net, at: int) -> MetadataImage:
    """The metadata by which the broker of a node acts."""
    return host_of(net, at).broker.agent.image


def running(count: int) -> Net:
    """A cluster in which each broker of a node was unfenced."""
    net = Net(count, application=node)
    net.elect()
    states = [host_of(net, one).broker.agent.lifecycle for one in net.replicas]
    net.until(lambda: all(one.state is LifecycleState.RUNNING for one in states))
    return net


# A whole cluster


@pytest.mark.parametrize("count", [1, 3])
def test_the_active_controller_registers_and_unfences_the_broker_of_each_node(count: int) -> None:
    net = running(count)
    net.advance(1000)
    for one in net.replicas:
        brokers = image_of(net, one).brokers.by_id
        assert {number: broker.fenced for number, broker in brokers.items()} == dict.fromkeys(net.replicas, False)
        assert [(end.host, end.port) for end in brokers[1].endpoints] == [("b1", 9092)]
        assert host_of(net, one).controller.committed_image().brokers == image_of(net, one).brokers


def test_a_broker_stays_unfenced_while_the_controllers_elect_another_leader() -> None:
    net = running(3)
    former = net.leader
    net.cut = {former}
    net.advance(5000)
    net.cut = set()
    net.elect()
    assert net.leader != former
    net.advance(30_000)
    fenced = {number: broker.fenced for number, broker in image_of(net, former).brokers.by_id.items()}
    assert fenced == {1: False, 2: False, 3: False}


def test_each_listener_has_the_requests_of_its_own_part() -> None:
    net = running(1)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    created = net.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    assert isinstance(created, CreateTopicsResponse)
    assert [one.error_code for one in created.topics] == [Error.NONE]
    assert "t" in image_of(net, 1).topics
    net.request(1, CreateTopicsRequest(), listener="PLAINTEXT")
    net.settle()
    assert len(net.dropped) == 1, "a broker without clients serves fetches only"
    assert isinstance(net.ask(1, FetchRequest(), listener="PLAINTEXT"), FetchResponse)


def test_the_broker_of_a_node_that_ends_leaves_first_and_reports_that_once() -> None:
    net = running(3)
    leaving = net.leader
    net.noted.clear()
    net.call(leaving, LeaveCluster())
    agent = host_of(net, leaving).broker.agent
    assert agent.lifecycle.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN
    assert net.noted == []
    net.advance(5000)
    assert agent.may_stop
    assert net.noted == [(leaving, Left())]
    others = next(one for one in net.replicas if one != leaving)
    assert not image_of(net, others).brokers.by_id[leaving].is_active


def test_a_broker_that_has_stopped_by_itself_has_not_left_for_the_node() -> None:
    net = running(1)
    net.noted.clear()
    host_of(net, 1).broker.on_begin_shutdown(net.now_ms)
    net.advance(5000)
    assert host_of(net, 1).broker.may_stop
    assert net.noted == []


# The log


@pytest.mark.parametrize("is_snapshot", [False, True])
@pytest.mark.parametrize(("of_controller", "of_broker"), [(2, 2), (2, 9), (9, 2), (9, 9)])
def test_both_parts_apply_all_records_whichever_is_quicker(
    of_controller: int, of_broker: int, is_snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_host, "REPLAYED_RECORDS_PER_TURN", of_controller)
    monkeypatch.setattr(server, "REPLAYED_RECORDS_PER_TURN", of_broker)
    host = combined()
    level = FeatureLevelRecord(name="metadata.version", feature_level=20)
    contents = batch([level, *[NoOpRecord()] * 6])
    if is_snapshot:
        host.on_snapshot(iter(contents.values), OffsetAndEpoch(epoch=1, offset=7))
    else:
        assert host.on_committed(contents) == ()
    turns = 1
    while host.is_applying:
        assert host.apply_more() == ()
        turns += 1
    assert turns == (4 if 2 in (of_controller, of_broker) else 1)
    assert host.controller.committed_image().end.offset == host.committed_image().end.offset == 7
    assert host.broker.committed_image().end.offset == 7
    assert dict(host.finalized_features()[0]) == {"metadata.version": 20}
    host.on_committed(batch([NoOpRecord()], 7))
    assert host.broker.committed_image().end.offset == 8


def test_records_that_no_part_can_read_are_refused() -> None:
    host = combined()
    host.check(batch([NoOpRecord()]).values)
    with pytest.raises(MetadataLogError):
        host.check([b"\x01\xff\x7f\x00"])


def test_a_node_makes_no_snapshot_within_a_transaction() -> None:
    host = combined()
    host.on_committed(batch([NoOpRecord()]))
    made = host.snapshot()
    assert made is not None
    assert [one for one in made() if one is not None] == []
    host.on_committed(batch([BeginTransactionRecord(name="t")], 1))
    assert host.snapshot() is None


def test_the_rules_of_the_controller_are_complete_once_the_node_has_caught_up() -> None:
    host = combined()
    assert not host.controller.controller._is_loaded
    host.on_caught_up()
    assert host.controller.controller._is_loaded


# What only the controller does


def test_a_node_supports_what_its_controller_supports() -> None:
    host = combined()
    assert host.supported_features() == SUPPORTED_FEATURES
    assert host.apis == host.controller.apis
    assert ApiKey.CREATE_TOPICS in host.apis
    assert ApiKey.CREATE_TOPICS not in host.clients.apis


def test_a_node_takes_no_values_of_its_host_and_needs_no_confirmations() -> None:
    host = combined()
    assert host.on_submit(Submit(3, (b"value",))) == RefuseSubmit(3, Error.INVALID_REQUEST)
    with pytest.raises(AssertionError, match="whether it leads"):
        host.on_confirmed(1, is_leader=True)


def test_a_controller_that_is_full_or_has_lost_its_records_refuses_the_requests() -> None:
    host, request = active(), wire(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7)
    asked = ForRequest(5, request.message, CreateTopicsResponse())
    full = host.on_full(request, LEADER, 1_000_000)
    lost = host.refuse(asked, Error.NOT_LEADER_OR_FOLLOWER, LEADER, 1_000_000)
    errors = []
    for answer in (full, lost):
        assert isinstance(answer, Answer)
        assert isinstance(answer.message, CreateTopicsResponse)
        errors += [one.error_code for one in answer.message.topics]
    assert errors == [Error.REQUEST_TIMED_OUT, Error.NOT_CONTROLLER]


@pytest.mark.parametrize("starts_ms", [0, 2_000_000])
def test_a_node_is_due_with_the_first_of_its_parts(starts_ms: int) -> None:
    host = active()
    host.broker.agent.poll(starts_ms)
    due = host.controller.deadline_ms(), host.broker.deadline_ms()
    assert due == (1_000_500, starts_ms + 60_000)
    assert host.deadline_ms() == min(due)
    assert list(host.on_tick(host.deadline_ms() - 1)) == []


def test_a_node_may_end_when_its_controller_may() -> None:
    host = combined()
    assert host.may_stop is True
    host.on_begin_shutdown(0)
    assert host.may_stop is True


def test_the_parts_of_an_application() -> None:
    host = combined()
    assert controller_of(host) is host.controller
    assert broker_of(host) is host.broker
    assert controller_of(host.controller) is host.controller
    assert broker_of(host.broker) is host.broker
    assert controller_of(host.broker) is None
    assert broker_of(host.controller) is None


def test_the_next_request_sees_the_decision_that_is_not_committed_yet() -> None:
    net = running(1)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    asked = [net.request(1, CreateTopicsRequest(topics=[topic], timeout_ms=1000)) for _ in range(2)]
    net.until(lambda: net.answers.keys() >= set(asked))
    answers = [net.answers[one] for one in asked]
    errors = [one.topics[0].error_code for one in answers if isinstance(one, CreateTopicsResponse)]
    assert errors == [Error.NONE, Error.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("request_", "listener"), [(FetchRequest(), "PLAINTEXT"), (DescribeClusterRequest(), "CONTROLLER")]
)
def test_an_answer_rests_on_all_that_is_committed_by_the_word_of_the_leader(request_: Message, listener: str) -> None:
    """The node applies what is due before it answers."""
    net = running(3)
    follower = next(one for one in net.replicas if one != net.leader)
    replica = net.replicas[follower]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    net.request(net.leader, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    while replica._commits.deadline_ms > net.now_ms:
        assert net.once()
    assert "t" not in image_of(net, follower).topics
    net.request(follower, request_, listener=listener)
    net.queue.rotate(1)
    net.queue.popleft()()
    assert "t" in image_of(net, follower).topics


def test_a_controller_knows_the_addresses_of_the_voters() -> None:
    settings = combined().controller.controller.settings
    assert settings.voters == ((1, "n1", 9093),)


@pytest.mark.parametrize(("text", "told"), [("not now", "not now"), (None, Error.INVALID_UPDATE_VERSION.message)])
def test_a_refusal_has_its_own_text_or_that_of_its_error(text: str | None, told: str) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t")])
    asked = ForRequest(5, request, CreateTopicsResponse())
    answer = active().refuse(asked, Error.INVALID_UPDATE_VERSION, LEADER, 1_000_000, text)
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, CreateTopicsResponse)
    assert [one.error_message for one in answer.message.topics] == [told]


def test_the_authorizer_of_the_controller_judges_requests_of_the_quorum() -> None:
    admin = AdminSettings(authorizer=AuthorizerSettings(frozenset({"User:ANONYMOUS"})))
    host = node(options(1, voter_set(1), admin=admin), CLUSTER_ID, (), Random(1))
    host.on_caught_up()
    request = wire(DescribeQuorumRequest())
    assert host.denial(request) is None
    refused = host.denial(structs.replace(request, principal=Principal("User", "mallory")))
    assert refused is not None
    assert refused.error is Error.CLUSTER_AUTHORIZATION_FAILED
