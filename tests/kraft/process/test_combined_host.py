"""Controllers with a broker in the same process: both parts see the log, and each gets its own requests and answers."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from hosted_applications import wire
from hosted_decisions import batch
from kraft.access.authorizer import AuthorizerSettings
from kraft.broker import BrokerOptions, LifecycleState
from kraft.broker.registered import RegisteredBroker
from kraft.calls import LeaveCluster, Left
from kraft.controller.decision.request_context import AdminSettings
from kraft.controller.server import ControllerServer
from kraft.process.hosting import controller_of, host_combined, registered_broker_of
from kraft.process.parts import ControllerAndBroker, Opening
from kraft.process.process import Process
from kraft.quorum.events import BeginShutdown, Tick
from kraft.quorum.values import Endpoints, ListenerAddress
from kraft.replica.interface.actions import ForRequest
from kraft.replica.interface.events import Submit
from kraft.replica.interface.leading import Leading
from kraft.sim.nodes.broker_without_data import BrokerWithoutData, host_broker_without_data
from kraft.supported_features import SUPPORTED_FEATURES
from kraft.wire import Answer
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import BeginTransactionRecord, FeatureLevelRecord, NoOpRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from support.differential.controller_sides import InProcess
from support.kraft.broker_agents import new_agent
from support.kraft.known_quorum import KnownQuorum, served
from support.kraft.replica_net import CLUSTER_ID, START_MS, Net, options, voter_set
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


def node(opening: Opening) -> ControllerAndBroker:
    """A node of both roles; the broker's listener has the host `b` and the id."""
    role = opening.options
    own = structs.replace(
        role,
        broker=BrokerOptions(directories=(Uuid(bytes([7, role.replica.node_id] * 8)),)),
        client_endpoints=Endpoints((ListenerAddress("PLAINTEXT", f"b{role.replica.node_id}", 9092),)),
    )
    host = host_combined(host_broker_without_data)(structs.replace(opening, options=own))
    assert isinstance(host, ControllerAndBroker), host
    return host


def combined() -> ControllerAndBroker:
    """Both parts of node 1, which has opened no log."""
    return node(Opening(options(1, voter_set(1)), CLUSTER_ID, (), Random(1)))


def active() -> ControllerAndBroker:
    """An active controller with a broker that has not begun."""
    parts = served(InProcess().controller), BrokerWithoutData(new_agent())
    return ControllerAndBroker(*parts, client_listeners=frozenset({"PLAINTEXT"}))


def parts() -> tuple[ControllerServer, BrokerWithoutData]:
    """The parts of a node that has opened no log."""
    host = combined()
    assert isinstance(host.controller, ControllerServer)
    assert isinstance(host.broker, BrokerWithoutData)
    return host.controller, host.broker


def parts_of(process: Process) -> ControllerAndBroker:
    host = process.application
    assert isinstance(host, ControllerAndBroker), host
    return host


def broker_at(net: Net, at: int) -> RegisteredBroker:
    host = registered_broker_of(net.processes[at].application)
    assert host is not None
    return host


def image_of(net: Net, at: int) -> MetadataImage:
    """The metadata by which the broker of a node acts."""
    return broker_at(net, at).agent.image


def running(count: int) -> Net:
    """A cluster in which each broker of a node was unfenced."""
    net = Net(count, application=node)
    net.elect()
    states = [broker_at(net, one).agent.lifecycle for one in net.processes]
    net.until(lambda: all(one.state is LifecycleState.RUNNING for one in states))
    return net


# A whole cluster


@pytest.mark.parametrize("count", [1, 3])
def test_the_active_controller_registers_and_unfences_the_broker_of_each_node(count: int) -> None:
    net = running(count)
    net.advance(1000)
    for one in net.processes:
        brokers = image_of(net, one).brokers.by_id
        assert {number: broker.fenced for number, broker in brokers.items()} == dict.fromkeys(net.processes, False)
        assert [(end.host, end.port) for end in brokers[1].endpoints] == [("b1", 9092)]
        assert parts_of(net.processes[one]).committed_image().brokers == image_of(net, one).brokers


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
    agent = broker_at(net, leaving).agent
    assert agent.lifecycle.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN
    assert net.noted == []
    net.advance(5000)
    assert agent.may_stop
    assert net.noted == [(leaving, Left())]
    others = next(one for one in net.processes if one != leaving)
    assert not image_of(net, others).brokers.by_id[leaving].is_active


def test_a_broker_that_has_stopped_by_itself_has_not_left_for_the_node() -> None:
    net = running(1)
    net.noted.clear()
    broker_at(net, 1).on_begin_shutdown(net.now_ms)
    net.advance(5000)
    assert broker_at(net, 1).may_stop
    assert net.noted == []


# The log


@pytest.mark.parametrize("is_snapshot", [False, True])
@pytest.mark.parametrize(("of_controller", "of_broker"), [(2, 2), (2, 9), (9, 2), (9, 9)])
def test_both_parts_apply_all_records_whichever_is_quicker(
    of_controller: int, of_broker: int, is_snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControllerServer, "records_per_turn", of_controller)
    monkeypatch.setattr(RegisteredBroker, "records_per_turn", of_broker)
    process = Net(1, application=node).processes[1]
    controller, broker, commits = (
        controller_of(process.application),
        registered_broker_of(process.application),
        process.replica.commits,
    )
    assert controller is not None
    assert broker is not None
    level = FeatureLevelRecord(name="metadata.version", feature_level=20)
    contents = batch([level, *[NoOpRecord()] * 6])
    if is_snapshot:
        monkeypatch.setattr(process.replica.storage.snapshots, "values", lambda _: iter(contents.values))
        commits.load_snapshot(OffsetAndEpoch(epoch=1, offset=7))
    else:
        commits.applier.remember(contents)
        commits._apply_batches(7)
    turns = 1
    while commits.is_applying:
        commits.apply_more()
        turns += 1
    assert turns == (4 if 2 in (of_controller, of_broker) else 1)
    assert controller.committed_image().end.offset == broker.committed_image().end.offset == 7
    assert dict(controller.finalized_features()[0]) == {"metadata.version": 20}
    commits.applier.remember(batch([NoOpRecord()], 7))
    commits._apply_batches(8)
    assert controller.committed_image().end.offset == broker.committed_image().end.offset == 8


def test_records_that_no_part_can_read_are_refused() -> None:
    for part in parts():
        part.check(batch([NoOpRecord()]).values)
        with pytest.raises(MetadataLogError):
            part.check([b"\x01\xff\x7f\x00"])


def test_a_node_makes_no_snapshot_within_a_transaction() -> None:
    for part in parts():
        part.on_committed(batch([NoOpRecord()]))
        made = part.snapshot()
        assert made is not None
        assert [one for one in made() if one is not None] == []
        part.on_committed(batch([BeginTransactionRecord(name="t")], 1))
        assert part.snapshot() is None


# What only the controller does


def test_a_node_supports_what_its_controller_supports() -> None:
    process = Net(1, application=node).processes[1]
    assert process.served.supported_features() == SUPPORTED_FEATURES
    assert process.served.apis == parts_of(process).controller.apis
    assert ApiKey.CREATE_TOPICS in process.served.apis
    assert ApiKey.CREATE_TOPICS not in parts_of(process).broker.apis


def test_a_node_takes_no_values_of_its_host_and_needs_no_confirmations() -> None:
    net = Net(1, application=node)
    net.step(1, Submit(3, [b"value"]))
    assert net.done[3].error is Error.INVALID_REQUEST
    with pytest.raises(AssertionError, match="not asked for a confirmation"):
        net.processes[1].replica.commits.tell_confirmed(1, is_leader=True)


def test_a_controller_that_is_full_or_has_lost_its_records_refuses_the_requests() -> None:
    host, request = active(), wire(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7)
    asked = ForRequest(5, request.message, CreateTopicsResponse())
    assert isinstance(host.controller, ControllerServer)
    host.controller.quorum = KnownQuorum(is_full=True)
    full = host.controller.on_request(request, 1_000_000)
    lost = host.controller.refuse(asked, Error.NOT_LEADER_OR_FOLLOWER, 1_000_000)
    errors = []
    for answer in (full, lost):
        assert isinstance(answer, Answer)
        assert isinstance(answer.message, CreateTopicsResponse)
        errors += [one.error_code for one in answer.message.topics]
    assert errors == [Error.REQUEST_TIMED_OUT, Error.NOT_CONTROLLER]


@pytest.mark.parametrize("starts_ms", [0, 2_000_000])
def test_a_node_is_due_with_the_first_of_its_parts(starts_ms: int) -> None:
    host = active()
    assert isinstance(host.broker, RegisteredBroker)
    list(host.broker.on_tick(starts_ms))
    due = host.controller.agenda.deadline_ms, host.broker.agenda.deadline_ms
    assert due == (1_000_500, starts_ms + 60_000)
    process = Net(1, application=lambda *_: host).processes[1]
    process.step(Tick(), min(due) - 1)
    assert (host.controller.agenda.deadline_ms, host.broker.agenda.deadline_ms) == due, "neither had its turn"
    assert process.deadline_ms() <= min(due)


def test_a_node_may_end_when_its_controller_may() -> None:
    process = Net(1, application=node).processes[1]
    assert process.may_stop is True
    process.step(BeginShutdown(), START_MS)
    assert process.may_stop is True


def test_the_parts_of_an_application() -> None:
    host = combined()
    assert controller_of(host) is host.controller
    assert isinstance(host.broker, RegisteredBroker)
    assert registered_broker_of(host) is host.broker
    assert controller_of(host.controller) is host.controller
    assert registered_broker_of(host.broker) is host.broker
    assert controller_of(host.broker) is None
    assert registered_broker_of(host.controller) is None


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
    follower = next(one for one in net.processes if one != net.leader)
    replica = net.processes[follower]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    net.request(net.leader, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    while replica.replica.commits.deadline_ms > net.now_ms:
        assert net.once()
    assert "t" not in image_of(net, follower).topics
    net.request(follower, request_, listener=listener)
    net.queue.rotate(1)
    net.queue.popleft()()
    assert "t" in image_of(net, follower).topics


def test_a_controller_knows_the_addresses_of_the_voters() -> None:
    controller = controller_of(combined())
    assert controller is not None
    assert controller.controller.settings.voters == ((1, "n1", 9093),)


@pytest.mark.parametrize(("text", "told"), [("not now", "not now"), (None, Error.INVALID_UPDATE_VERSION.message)])
def test_a_refusal_has_its_own_text_or_that_of_its_error(text: str | None, told: str) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t")])
    asked = ForRequest(5, request, CreateTopicsResponse())
    controller = active().controller
    assert isinstance(controller, Leading)
    answer = controller.refuse(asked, Error.INVALID_UPDATE_VERSION, 1_000_000, text)
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, CreateTopicsResponse)
    assert [one.error_message for one in answer.message.topics] == [told]


def test_the_authorizer_of_the_controller_judges_requests_of_the_quorum() -> None:
    admin = AdminSettings(authorizer=AuthorizerSettings(frozenset({"User:ANONYMOUS"})))
    host = node(Opening(options(1, voter_set(1), admin=admin), CLUSTER_ID, (), Random(1))).controller
    assert isinstance(host, ControllerServer)
    host.on_caught_up()
    request = wire(DescribeQuorumRequest())
    assert host.denial(request) is None
    refused = host.denial(structs.replace(request, principal=Principal("User", "mallory")))
    assert refused is not None
    assert refused.error is Error.CLUSTER_AUTHORIZATION_FAILED
