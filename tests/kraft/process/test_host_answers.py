"""Hosts of controllers, brokers and raw logs take, refuse and apply: submits, fetches, envelopes, feature levels."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from hosted_applications import state_machine, wire
from hosted_decisions import TOPIC, batch, configs, with_a_topic, work
from kraft.access.authorizer import AuthorizerSettings, Denial
from kraft.broker.registered import RegisteredBroker
from kraft.committed import CommittedBatch, FollowsLog
from kraft.controller import decisions as decisions_module
from kraft.controller import leftovers
from kraft.controller.decision.request_context import AdminSettings
from kraft.controller.decisions import NOTHING
from kraft.controller.envelope import refuse_envelope
from kraft.controller.server import ControllerServer
from kraft.limits import DECISION_STEPS_PER_TURN
from kraft.process.hosting import host_controller, host_silent_raw_log
from kraft.process.parts import Opening
from kraft.replica.interface.actions import Proposal, RefuseSubmit
from kraft.replica.interface.events import Submit, Trace
from kraft.replica.rpc.api_versions import describe_versions
from kraft.sim.nodes.broker_without_data import BrokerWithoutData
from kraft.sim.state.fingerprints import FactsOf
from kraft.sim.state.forking import forked
from kraft.state_machine.raw_log import RawLog
from kraft.state_machine.server import StateMachineServer
from kraft.supported_features import SUPPORTED_FEATURES
from kraft.wire import Answer
from metadata_log.errors import MetadataLogError
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RemoveTopicRecord,
)
from metadata_log.releases import LATEST_LEVEL
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from support.differential.controller_sides import InProcess, incarnation, registration
from support.kraft.broker_agents import new_agent, started
from support.kraft.known_quorum import served
from support.kraft.replica_net import CLUSTER_ID, Net, options, voter_set
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.inbound import Principal
from transport.protocol.messages import (
    ApiVersionsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.describe_quorum import DescribeQuorumRequestPartitionData as PartitionData
from transport.protocol.messages.describe_quorum import DescribeQuorumRequestTopicData as TopicData


@pytest.mark.parametrize(
    "host",
    [ControllerServer(InProcess().controller), BrokerWithoutData(new_agent()), state_machine()],
    ids=["controller", "broker", "state machine"],
)
def test_only_a_raw_log_takes_values_of_its_host(
    host: ControllerServer | BrokerWithoutData | StateMachineServer,
) -> None:
    net = Net(1, application=lambda *_: host)
    net.step(1, Submit(3, [b"value"]))
    assert net.done[3].error is Error.INVALID_REQUEST


def test_a_silent_raw_log_gets_no_batches() -> None:
    """Its host reads the log of the replica itself."""
    net = Net(1, application=host_silent_raw_log)
    submitted = net.submit(net.elect(), b"value")
    net.settle()
    assert net.done[submitted].error is Error.NONE
    assert net.committed[1] == []
    assert net.processes[1].replica.status().applied_offset == net.processes[1].replica.log.end_offset


# Brokers


def test_a_broker_answers_the_fetch_of_another_broker() -> None:
    answer = BrokerWithoutData(started()).on_request(wire(FetchRequest(), 17), 1000)
    assert isinstance(answer, Answer)
    assert answer.request_id == 5
    assert isinstance(answer.message, FetchResponse)


@pytest.mark.parametrize(("level", "is_supported"), [(7, True), (LATEST_LEVEL, True), (LATEST_LEVEL + 1, False)])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_broker_ends_at_a_level_that_its_software_does_not_support(
    is_snapshot: bool, level: int, is_supported: bool
) -> None:
    host = BrokerWithoutData(new_agent())
    changed = batch([FeatureLevelRecord(name="metadata.version", feature_level=level)])

    def apply() -> None:
        if is_snapshot:
            host.on_snapshot(changed.values, OffsetAndEpoch(epoch=1, offset=1))
        else:
            host.on_committed(changed)

    if is_supported:
        apply()
        assert not host.is_applying
    else:
        with pytest.raises(MetadataLogError, match=rf"metadata\.version {level}"):
            apply()


def turns_taken(host: BrokerWithoutData | ControllerServer, contents: CommittedBatch, snapshot: int | None) -> int:
    """How many turns a part takes for records, or for a snapshot that ends at an offset."""
    if snapshot is None:
        host.on_committed(contents)
    else:
        host.on_snapshot(contents.values, OffsetAndEpoch(epoch=1, offset=snapshot))
    turns = 1
    while host.is_applying:
        host.apply_more()
        turns += 1
    return turns


@pytest.mark.parametrize(("count", "turns"), [(3, 1), (4, 2), (7, 2), (8, 3)])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_broker_applies_so_many_records_in_a_turn(
    is_snapshot: bool, count: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegisteredBroker, "records_per_turn", 4)
    host = BrokerWithoutData(new_agent())
    contents = batch([NoOpRecord()] * count)
    assert turns_taken(host, contents, count if is_snapshot else None) == turns
    assert host.agent.image.end.offset == count


@pytest.mark.parametrize(("count", "turns"), [(3, 1), (4, 2), (7, 2), (8, 3)])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_standby_applies_so_many_records_in_a_turn(
    is_snapshot: bool, count: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControllerServer, "records_per_turn", 4)
    process = InProcess()
    process.controller.renounce()
    host, begin = served(process.controller), 0 if is_snapshot else process.end
    contents = batch([NoOpRecord()] * count, begin)
    assert turns_taken(host, contents, count if is_snapshot else None) == turns
    assert process.controller.history.committed.end.offset == begin + count


# Controllers


def test_a_heartbeat_that_a_full_controller_refuses_keeps_the_session_of_its_broker() -> None:
    """The broker is alive; a controller with too much to do must not fence it for that."""
    process = InProcess(max_idle_interval_ms=0)
    host = served(process.controller, is_full=True)
    process.ask(registration(101), 4)
    epoch = process.end - 1
    sessions = process.controller._sessions
    heartbeat = BrokerHeartbeatRequest(broker_id=101, broker_epoch=epoch, want_fence=False)
    later_ms = process.now_ms + 8000
    assert not sessions.keeps_out(101, epoch, later_ms + 8000)
    answer = host.on_request(wire(heartbeat), later_ms)
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, BrokerHeartbeatResponse)
    assert answer.message.error_code == Error.REQUEST_TIMED_OUT
    assert sessions.keeps_out(101, epoch, later_ms + 8000)
    assert incarnation(101) == process.controller.history.committed.brokers.by_id[101].incarnation_id


def test_a_broker_passes_requests_to_the_quorum_on_and_gets_the_answers_in_envelopes() -> None:
    net = Net(1, application=host_controller)
    net.elect()
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    question = encode_request(ApiKey.DESCRIBE_QUORUM, 2, 5, "client", DescribeQuorumRequest(topics=topics))
    anonymous = b"\0\0\5User\nANONYMOUS\0\0"
    envelope = EnvelopeRequest(request_data=question, request_principal=anonymous, client_host_address=b"\x7f\0\0\1")
    answer = net.ask(1, envelope)
    assert isinstance(answer, EnvelopeResponse)
    assert answer.error_code == Error.NONE
    assert answer.response_data is not None
    described = decode_response(ApiKey.DESCRIBE_QUORUM, 2, answer.response_data)[1]
    assert isinstance(described, DescribeQuorumResponse)
    assert [part.leader_id for topic in described.topics for part in topic.partitions] == [1]
    unreadable = EnvelopeRequest(request_data=question, request_principal=b"", client_host_address=b"\x7f\0\0\1")
    assert net.ask(1, unreadable) == refuse_envelope(Error.PRINCIPAL_DESERIALIZATION_FAILURE)


# Work in portions


@pytest.mark.parametrize("is_snapshot", [False, True])
@pytest.mark.parametrize("is_broker", [False, True])
def test_a_fork_in_the_middle_of_a_batch_applies_the_rest(
    is_broker: bool, is_snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FollowsLog, "records_per_turn", 2)
    if is_broker:
        host: RegisteredBroker | ControllerServer = BrokerWithoutData(new_agent())
    else:
        host = host_controller(Opening(options(1, voter_set(1)), CLUSTER_ID, (), Random(1)))
    contents = batch([FeatureLevelRecord(name="metadata.version", feature_level=level) for level in (7, 8, 9, 10, 11)])
    if is_snapshot:
        host.on_snapshot(contents.values, OffsetAndEpoch(epoch=1, offset=5))
    else:
        host.on_committed(contents)
    host.apply_more()
    applying = host._applying
    assert applying is not None
    assert applying.count == 4
    copy, facts_of = forked(host), FactsOf()
    assert facts_of(copy) == facts_of(host)
    for one in (host, copy):
        while one.is_applying:
            one.apply_more()
    assert facts_of(copy) == facts_of(host)
    assert dict(copy.finalized_features()[0]) == {"metadata.version": 11}


def test_removed_topics_are_freed_a_portion_in_each_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "PARTITIONS_FREED_PER_TURN", 10)
    process = with_a_topic()
    host = served(process.controller)
    host._decisions.decide(work(), process.controller, process.now_ms)
    removal = RemoveTopicRecord(topic_id=TOPIC)
    process.controller.on_appended((VersionedRecord(removal),), process.end)
    assert host.agenda.deadline_ms > process.now_ms
    host.on_committed(batch([removal], process.end))
    assert host.agenda.deadline_ms == 0
    now_ms = process.now_ms
    due: list[int] = []
    while not due or due[-1] == now_ms + 1:
        now_ms += 1
        assert list(host.on_tick(now_ms)) == []
        due.append(host.agenda.deadline_ms)
    assert len(due) == 5, "49 partitions and their topic"


@pytest.mark.parametrize("is_standby", [False, True])
def test_a_commit_frees_what_is_left_over_and_hastens_no_portion(
    is_standby: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "PARTITIONS_FREED_PER_TURN", 10)
    process = with_a_topic()
    host = served(process.controller)
    if is_standby:
        process.controller.renounce()
    else:
        process.controller.on_appended((VersionedRecord(RemoveTopicRecord(topic_id=TOPIC)),), process.end)
        host._decisions.decide(work(), process.controller, process.now_ms)
    host.on_committed(batch([RemoveTopicRecord(topic_id=TOPIC)], process.end))
    assert host.agenda.deadline_ms == 0
    list(host.on_tick(process.now_ms))
    next_ms = process.now_ms + 1
    assert host.agenda.deadline_ms == next_ms
    if not is_standby:
        process.controller.on_appended((VersionedRecord(NoOpRecord()),), process.end + 1)
    host.on_committed(batch([NoOpRecord()], process.end + 1))
    assert host.agenda.deadline_ms == next_ms


def test_a_commit_that_removes_nothing_frees_nothing() -> None:
    process = with_a_topic()
    host = served(process.controller)
    process.controller.on_appended((VersionedRecord(NoOpRecord()),), process.end)
    host.on_committed(batch([NoOpRecord()], process.end))
    assert host.agenda.deadline_ms > process.now_ms


def test_a_controller_with_a_decision_in_progress_begins_no_timed_work() -> None:
    """The decision would not see what the timed work changes."""
    process = InProcess()
    host = served(process.controller)
    later_ms = process.controller.agenda.deadline_ms
    begun = host._decisions.decide(work(steps=9 * DECISION_STEPS_PER_TURN), process.controller, process.now_ms)
    assert begun is NOTHING
    assert list(host.on_tick(later_ms)) == []
    assert (host._decisions.is_busy, len(host._decisions._waiting)) == (True, 0)
    assert host.agenda.deadline_ms == later_ms + 1


def test_a_request_waits_for_the_decision_in_progress() -> None:
    process = InProcess()
    host = served(process.controller)
    host._decisions.decide(work(steps=9 * DECISION_STEPS_PER_TURN), process.controller, process.now_ms)
    assert host.on_request(wire(IncrementalAlterConfigsRequest(), 1), process.now_ms) is NOTHING
    assert len(host._decisions._waiting) == 1


def test_the_rules_of_an_authorizer_are_complete_once_a_controller_has_caught_up() -> None:
    host = host_controller(Opening(options(1, voter_set(1)), CLUSTER_ID, (), Random(1)))
    assert not host.controller._is_loaded
    host.on_caught_up()
    assert host.controller._is_loaded


def test_a_broker_makes_no_snapshot_within_a_transaction() -> None:
    host = BrokerWithoutData(new_agent())
    host.on_committed(batch([NoOpRecord()]))
    assert host.snapshot() is not None
    host.on_committed(batch([BeginTransactionRecord(name="t")], 1))
    assert host.snapshot() is None
    host.on_committed(batch([EndTransactionRecord()], 2))
    assert host.snapshot() is not None


def test_a_raw_log_has_no_features() -> None:
    described = describe_versions(None, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4, 0)
    assert [one.name for one in described.supported_features] == ["kraft.version"]
    assert (described.finalized_features, described.finalized_features_epoch) == ([], -1)


def test_a_raw_log_takes_values_only_while_it_leads() -> None:
    host = RawLog(reads_batches=True)
    refused = RefuseSubmit(3, Error.NOT_LEADER_OR_FOLLOWER)
    assert host.on_call(Submit(3, [b"value"]), 0) == refused
    host.on_leader(1, 0, 0)
    assert isinstance(host.on_call(Submit(3, [b"value"]), 0), Proposal)
    assert host.on_call(Submit(3, []), 0) == RefuseSubmit(3, Error.INVALID_REQUEST)
    host.on_lost_leadership()
    assert host.on_call(Submit(3, [b"value"]), 0) == refused


def test_a_standby_sends_a_broker_with_a_question_about_the_quorum_to_the_leader() -> None:
    net = Net(3, application=host_controller)
    leader = net.elect()
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    question = encode_request(ApiKey.DESCRIBE_QUORUM, 2, 5, "client", DescribeQuorumRequest(topics=topics))
    envelope = EnvelopeRequest(
        request_data=question, request_principal=b"\0\0\5User\nANONYMOUS\0\0", client_host_address=b"\x7f\0\0\1"
    )
    standby = next(node for node in net.processes if node != leader)
    assert net.ask(standby, envelope) == refuse_envelope(Error.NOT_CONTROLLER)


def test_a_broker_supports_the_features_of_its_software_and_is_due_with_its_agent() -> None:
    host = BrokerWithoutData(started())
    assert host.supported_features() == SUPPORTED_FEATURES
    assert host.agenda.deadline_ms == host.agent.deadline_ms() > 1000


def test_a_raw_log_has_nothing_to_do_at_any_time() -> None:
    assert Net(1, application=host_silent_raw_log).processes[1].served.agenda.deadline_ms == NEVER_MS


def test_a_leader_reports_a_denial_in_the_step_of_the_request() -> None:
    admin = AdminSettings(authorizer=AuthorizerSettings(frozenset({"User:ANONYMOUS"})))
    net = Net(1, application=host_controller, admin=admin)
    leader = net.elect()
    request = structs.replace(wire(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7), request_id=1 << 40)
    mallory = structs.replace(request, principal=Principal("User", "mallory"))
    outputs = net.processes[leader].step(mallory, net.now_ms)
    denials = [one.effect for one in outputs if isinstance(one, Trace) and isinstance(one.effect, Denial)]
    assert {denial.caller.name for denial in denials} == {"mallory"}


def test_a_controller_that_is_deposed_refuses_the_requests_that_wait() -> None:
    process = InProcess()
    host = served(process.controller)
    host._decisions.decide(work(steps=9 * DECISION_STEPS_PER_TURN), process.controller, process.now_ms)
    assert host.on_request(wire(IncrementalAlterConfigsRequest(), 1), process.now_ms) is NOTHING
    host.on_lost_leadership()
    assert host.agenda.deadline_ms == 0
    answers = list(host.on_tick(process.now_ms))
    assert [one.request_id for one in answers if isinstance(one, Answer)] == [1, 5]


def test_a_decision_in_several_batches_leaves_its_image_to_be_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "PARTITIONS_FREED_PER_TURN", 10)
    monkeypatch.setattr(decisions_module, "RECORDS_PER_BATCH", 2)
    process = with_a_topic()
    host = served(process.controller)
    host._decisions.decide(work(*configs(3), is_atomic=False), process.controller, process.now_ms)
    now_ms = process.now_ms
    while host._decisions.is_busy:
        now_ms += 1
        for action in host.on_tick(now_ms):
            for unit in action.units if isinstance(action, Proposal) else ():
                host.on_appended(unit, process.end)
                process.end += len(unit.records)
                process.controller.on_committed(process.end)
    assert process.controller.leftovers.is_due(process.end)
    assert host.agenda.deadline_ms == now_ms + 1
