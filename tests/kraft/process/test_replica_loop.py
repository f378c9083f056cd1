"""One replica, with a test in place of its disk and peers: what leaves with a step, what waits, what is due next."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.msgpack import encode

from hosted_applications import Count
from hosted_decisions import work
from kraft.access.authorizer import AuthorizerSettings, Denial
from kraft.broker import BrokerOptions, LifecycleState
from kraft.broker.registered import RegisteredBroker
from kraft.committed import CommittedBatch
from kraft.controller.decision.request_context import AdminSettings
from kraft.controller.decision.slots import Slot
from kraft.controller.server import ControllerServer
from kraft.limits import DECISION_STEPS_PER_TURN, EARLY_PER_TURN
from kraft.process.hosting import host_controller, host_raw_log, host_state_machine
from kraft.process.parts import ApplicationFactory
from kraft.quorum.effects import AppendDownload, BeginDownload, InstallSnapshot
from kraft.quorum.events import BeginShutdown, FailureCause, Resign, SnapshotChecked, Tick
from kraft.quorum.messages import Fetch
from kraft.quorum.values import ReplicaKey
from kraft.replica import commits, proposals
from kraft.replica import replica as module
from kraft.replica.interface.actions import Confirm, ForSubmit, Proposal, Unit
from kraft.replica.interface.events import FlushDone, PeerRequest, StartFlush
from kraft.replica.interface.options import SnapshotOptions
from kraft.replica.peer_replies import HeldReply
from kraft.replica.rpc.rpc import Rpc
from kraft.sim.nodes.broker_without_data import host_broker_without_data
from kraft.state_machine import server as state_machine_host
from kraft.state_machine.calls import SubmitCall
from kraft.state_machine.reads import Reader
from kraft.state_machine.server import ReadReady, StateMachineServer
from kraft.wire import WireFailed, WireGone, WireReply
from metadata_log.log.log import MetadataLog
from metadata_log.log.retention import REMOVE_AFTER_MS, Retention
from metadata_log.log.snapshot import encode_snapshot
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import NEVER_MS, OffsetAndEpoch, Uuid
from support.kraft.replica_net import CLUSTER_ID, Net, formatted_disk, voter_set
from support.kraft.simulated_quorum import controller_of
from transport.protocol.errors import Error
from transport.protocol.messages import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchResponse,
    IncrementalAlterConfigsRequest,
)
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

RPC = Rpc(cluster_id=CLUSTER_ID, listener="CONTROLLER")


def alter(value: str, name: str) -> IncrementalAlterConfigsRequest:
    """Set the interval of a subscription of clients to metrics."""
    config = AlterableConfig(name="interval.ms", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=16, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


class HeldFlush(Net):
    """One node, which leads. Each flush waits until the test lets it go."""

    def __init__(self, application: ApplicationFactory = host_raw_log, **changes: Any) -> None:
        self.held: list[StartFlush] = []
        super().__init__(1, application=application, **changes)

    def _flush(self, node: int, flush: StartFlush) -> None:
        self.held.append(flush)

    def let_go(self) -> None:
        """Complete the flush that is under way."""
        flush = self.held.pop(0)
        flush.run()
        self.step(1, FlushDone(flush.ticket))
        self.settle()


def leading(application: ApplicationFactory = host_raw_log, **changes: Any) -> HeldFlush:
    """A leader with a commit of its epoch."""
    net = HeldFlush(application, **changes)
    net.settle()
    net.let_go()
    return net


# Before and after commits


def test_requests_before_the_first_commit_are_decided_some_in_each_millisecond_after_it() -> None:
    net = HeldFlush(host_controller, max_idle_interval_ms=0)
    asked = [net.request(1, DescribeClusterRequest()) for _ in range(2 * EARLY_PER_TURN + 5)]
    net.advance(100)
    assert not net.answers
    net.let_go()
    answered = [len(net.answers)]
    for _ in range(3):
        net.advance(1)
        answered.append(len(net.answers))
    assert answered == [EARLY_PER_TURN, 2 * EARLY_PER_TURN, len(asked), len(asked)]
    assert list(net.answers) == asked


def test_a_commit_of_one_record_leaves_nothing_to_tell_about_the_next_one() -> None:
    net = leading()
    first = net.submit(1, b"one")
    net.settle()
    second = net.submit(1, b"two")
    net.settle()
    net.let_go()
    assert (first in net.done, second in net.done) == (True, False)
    assert net.processes[1].may_stop, "no answer waits for a turn"
    net.let_go()
    assert net.done[second].error is Error.NONE


def test_a_decision_without_records_waits_for_the_last_record_before_it() -> None:
    """One record is not committed: the decision may depend on that record."""
    net = leading()
    process = net.processes[1]
    process._perform(Proposal((Unit((b"x",)),)), net.now_ms)
    net.settle()
    process._perform(Proposal((), ForSubmit(9)), net.now_ms)
    net.step(1, Tick())
    assert 9 not in net.done
    net.let_go()
    assert net.done[9].error is Error.NONE
    process._perform(Proposal((), ForSubmit(10)), net.now_ms)
    net.step(1, Tick())
    assert 10 in net.done, "at once where everything is committed"


def test_a_leader_with_too_many_uncommitted_bytes_refuses_more_until_a_commit() -> None:
    net = leading(max_uncommitted_bytes=1000)
    submits = []
    for _ in range(3):
        submits.append(net.submit(1, bytes(600)))
        net.settle()
    assert [end for end, _ in net.processes[1].replica.proposals.backlog._batches] == [2, 3]
    assert [net.done[one].error if one in net.done else None for one in submits] == [
        None,
        None,
        Error.REQUEST_TIMED_OUT,
    ]
    while net.held:
        net.let_go()
    assert [net.done[one].error for one in submits[:2]] == [Error.NONE, Error.NONE]
    again = net.submit(1, bytes(600))
    net.settle()
    net.let_go()
    assert net.done[again].error is Error.NONE


def test_a_leader_applies_its_own_records_without_reading_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: object, **named: object) -> None:
        raise AssertionError((arguments, named))

    monkeypatch.setattr(MetadataLog, "read_batches", read)
    net = Net(1, application=host_controller, max_idle_interval_ms=0)
    net.elect()
    net.ask(1, alter("1000", "one"))
    net.settle()
    assert (16, "one") in controller_of(net, 1).history.committed.configs.by_resource
    assert net.processes[1].replica.status().applied_offset == net.processes[1].replica.log.end_offset


# Fetches of others


def fetch(net: Net, replica_id: int, max_bytes: int = 1000) -> int:
    """A fetch at the end of the leader's log, which waits there."""
    core = net.processes[1].replica.core
    end, epoch = core.log.end_offset, core.epoch
    asked = Fetch(epoch=epoch, replica=ReplicaKey(replica_id), offset=end, last_epoch=epoch, max_bytes=max_bytes)
    request_id = net.request(1, RPC.request_to_wire(asked))
    net.settle()
    assert request_id not in net.answers
    return request_id


RECORD_BYTES = len(build_batch(1, 1, 5, [b"value"]))


@pytest.mark.parametrize(
    ("most_bytes", "served"), [(1, 1), (RECORD_BYTES, 1), (RECORD_BYTES + 1, 2), (10 * RECORD_BYTES, 3)]
)
def test_fetches_that_waited_together_get_records_up_to_so_many_bytes(
    most_bytes: int, served: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others fetch again at once, each with a turn of its own."""
    monkeypatch.setattr(module, "SERVED_AT_ONCE_BYTES", most_bytes)
    net = leading()
    asked = [fetch(net, replica_id) for replica_id in (50, 51, 52)]
    net.submit(1, b"value")
    net.settle()
    sizes = []
    for one in asked:
        answer = net.answers[one]
        assert isinstance(answer, FetchResponse)
        ((part,),) = (topic.partitions for topic in answer.responses)
        sizes.append(len(part.records or b""))
    assert sizes == [RECORD_BYTES] * served + [0] * (3 - served)


def test_a_fetch_of_a_closed_connection_is_forgotten() -> None:
    net = leading()
    gone, stays = fetch(net, 50), fetch(net, 51)
    for _ in range(2):
        net.step(1, WireGone(gone))
        assert list(net.processes[1].replica.requests.received) == [stays]
    net.submit(1, b"value")
    net.settle()
    assert (gone in net.answers, stays in net.answers) == (False, True)


# Snapshots


def test_files_below_the_newest_snapshot_are_removed_in_rounds() -> None:
    snapshots = SnapshotOptions(max_bytes=400, retention=Retention(max_bytes=1, max_ms=-1), clean_every_ms=500)
    net = Net(1, application=host_controller, snapshots=snapshots, segment_bytes=300, max_idle_interval_ms=0)
    net.elect()
    for number in range(20):
        net.ask(1, alter(str(1000 + number), f"s{number}"))
    net.advance(50)
    log = net.processes[1].replica.log
    assert log.start_offset == 0
    net.advance(500)
    assert log.start_offset > 0
    names = net.disks[1].list(log.directory)
    assert sum(name.endswith(".checkpoint") for name in names) == 1
    assert sum(name.endswith(".deleted") for name in names) > 2
    net.advance(REMOVE_AFTER_MS)
    assert not [name for name in net.disks[1].list(log.directory) if name.endswith(".deleted")]


def test_a_replica_goes_on_a_millisecond_after_it_has_installed_a_snapshot() -> None:
    net = Net(3, application=host_controller)
    snapshot = OffsetAndEpoch(epoch=3, offset=70)
    content = encode_snapshot([], epoch=3, timestamp_ms=5)
    replica = net.processes[1]
    maker = replica.replica.snapshots.maker
    maker.note(CommittedBatch(0, 10, 2, 5, (b"",) * 10, 100))
    replica.replica.snapshots.begin(net.now_ms)
    assert maker.deadline_ms == net.now_ms
    replica.replica.carry_out([BeginDownload(snapshot), AppendDownload(snapshot, content)], net.now_ms)
    maker.note(CommittedBatch(10, 20, 2, 5, (b"",) * 10, 100))
    replica.replica.carry_out([InstallSnapshot(snapshot)], net.now_ms)
    assert not maker.is_due(net.now_ms + 10**9), "everything is in the installed snapshot"
    assert replica.replica.commits.deadline_ms == net.now_ms + 1
    assert maker.deadline_ms == NEVER_MS, "the snapshot that was being written is obsolete"
    assert not [name for name in net.disks[1].list(replica.replica.log.directory) if name.endswith(".part")]
    assert (replica.replica.log.start_offset, replica.replica.log.end_offset) == (70, 70)
    assert controller_of(net, 1).history.committed.end == snapshot


# Beside the log


def test_a_request_of_the_quorum_without_permission_is_refused_and_reported() -> None:
    strict = AdminSettings(authorizer=AuthorizerSettings(frozenset(("User:admin",))))
    net = Net(1, application=host_controller, admin=strict)
    net.elect()
    answer = net.ask(1, DescribeQuorumRequest())
    assert isinstance(answer, DescribeQuorumResponse)
    assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
    assert [node for node, trace in net.traces if isinstance(trace, Denial)] == [1]


def test_an_inline_flush_is_done_with_its_step() -> None:
    net = Net(1, inline_flush=True)
    net.elect()
    submitted = net.submit(1, b"value")
    net.settle()
    assert net.done[submitted].error is Error.NONE
    net.kill(1)
    net.start(1)
    net.elect()
    net.settle()
    assert net.values_of(1) == [b"value"]


def test_early_requests_wait_as_long_as_the_claim_goes_on() -> None:
    net = HeldFlush(host_controller, max_idle_interval_ms=0)
    net.request(1, DescribeClusterRequest())
    net.settle()
    activation = net.processes[1].replica.activation
    activation.take_early(net.now_ms)
    assert (len(activation.early), activation.deadline_ms) == (1, NEVER_MS)


def test_a_broker_begins_its_controlled_shutdown_with_that_of_its_node() -> None:
    options = BrokerOptions(directories=(Uuid(b"d" * 16),))
    net = Net(
        disks={101: formatted_disk(101)}, voters=voter_set(1), application=host_broker_without_data, broker=options
    )
    host = net.processes[101].application
    assert isinstance(host, RegisteredBroker)
    before = host.agent.lifecycle.state
    net.step(101, BeginShutdown())
    assert host.agent.lifecycle.state is not before
    assert host.agent.lifecycle.state in {LifecycleState.SHUTTING_DOWN, LifecycleState.PENDING_CONTROLLED_SHUTDOWN}


def test_a_reply_counts_as_judged_from_its_arrival_to_its_last_record() -> None:
    net = Net(3, judged_per_turn=1)
    leader = net.elect()
    follower = next(node for node in net.processes if node != leader)
    replica = net.processes[follower]
    net.submit(leader, *[b"value"] * 20)
    while not replica.replica.replies.held:
        assert net.once()
    held = replica.replica.replies.held[0]
    assert isinstance(held, HeldReply)
    assert held.taken > 0
    request_id = held.event.request_id
    assert (replica.replica.is_judging(request_id), replica.replica.is_judging(request_id + 1)) == (True, False)
    fresh = HeldReply(WireReply(1, FetchResponse()), PeerRequest(1, leader), held._begin)
    assert (fresh.taken, fresh.has_begun) == (0, False)
    net.advance(100)
    assert not replica.replica.is_judging(request_id)
    assert len(net.values_of(follower)) == 20


def test_a_standby_knows_when_it_has_caught_up() -> None:
    net = Net(3, application=host_controller)
    assert [controller_of(net, node)._is_loaded for node in net.processes] == [False, False, False]
    net.elect()
    net.advance(1000)
    assert [controller_of(net, node)._is_loaded for node in net.processes] == [True, True, True]


# Portions


def test_answers_after_a_commit_leave_some_in_each_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "ANSWERS_PER_TURN", 2)
    net = leading()
    for at in range(5):
        net.submit(1, b"%d" % at)
    net.settle()
    net.let_go()
    answered = [len(net.done)]
    for _ in range(3):
        net.advance(1)
        answered.append(len(net.done))
    assert answered == [2, 4, 5, 5]


def test_batches_are_applied_until_a_turn_has_so_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "COMMITTED_RECORDS_PER_TURN", 3)
    net = leading()
    for _ in range(5):
        net.submit(1, b"one", b"two")
        net.settle()
    while net.held:
        net.let_go()
    applied = [len(net.committed[1])]
    for _ in range(3):
        net.advance(1)
        applied.append(len(net.committed[1]))
    assert applied == [3, 5, 5, 5], "one with the first flush, and of the other four two in a turn"


def test_a_failed_request_of_the_quorum_ends_once() -> None:
    net = Net(3)
    leader = net.elect()
    node = next(node for node in net.processes if node != leader)
    replica = net.processes[node]
    in_flight = replica._in_flight.reply_to
    ((request_id, reply_to),) = in_flight.items()
    asked = reply_to.key
    assert isinstance(asked, PeerRequest)
    assert replica.replica.core.awaits(asked.peer_id, asked.request_id)
    net.step(node, WireFailed(request_id, FailureCause.TIMEOUT))
    assert not replica.replica.core.awaits(asked.peer_id, asked.request_id)
    assert request_id not in in_flight
    before = dict(in_flight)
    net.step(node, WireFailed(request_id, FailureCause.TIMEOUT))
    assert in_flight == before


def test_a_replica_that_has_resigned_is_not_active() -> None:
    net = leading()
    replica = net.processes[1]
    assert replica.replica.is_active
    net.step(1, Resign(replica.replica.core.epoch, "test"))
    assert not replica.replica.is_active
    refused = net.submit(1, b"value")
    assert net.done[refused].error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_confirmed_read_waits_for_the_records_before_it() -> None:
    """The commit is known, and the application applies the record in a Tick of its own."""
    net = leading(host_state_machine(Count))
    net.call(1, SubmitCall(encode(5), 0, 1))
    net.settle()
    (flush,) = net.held
    net.held.clear()
    flush.run()
    net.step(1, FlushDone(flush.ticket))
    replica = net.processes[1]
    host = replica.application
    assert isinstance(host, StateMachineServer)
    assert replica.replica.status().applied_offset < replica.replica.core.log.high_watermark
    replica._perform(Confirm(host._reads.ask_for(Reader(99))), net.now_ms)
    assert 99 not in net.returned
    net.settle()
    assert replica.replica.status().applied_offset == replica.replica.core.log.high_watermark
    assert net.returned[99] == ReadReady()


def test_a_batch_of_many_commands_is_applied_in_turns_a_millisecond_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine_host, "COMMANDS_PER_TURN", 2)
    net = leading(host_state_machine(Count))
    for number in range(1, 6):
        net.call(1, SubmitCall(encode(5), 0, number))
    net.settle()
    net.let_go()
    replica = net.processes[1]
    turns = 0
    while replica.replica.commits.is_applying:
        assert replica.replica.commits.deadline_ms == net.now_ms + 1
        net.advance(1)
        turns += 1
    assert turns == 2
    assert replica.replica.status().applied_offset == replica.replica.core.log.high_watermark


def test_damage_of_a_piece_is_told_to_the_core_in_the_same_step() -> None:
    net = Net(3, application=host_controller)
    effects = net.processes[1].replica
    snapshot = OffsetAndEpoch(epoch=3, offset=70)
    content = encode_snapshot([], epoch=3, timestamp_ms=5)
    effects.carry_out([BeginDownload(snapshot), AppendDownload(snapshot, content[:-1] + b"!")], net.now_ms)
    (told,) = effects.outbox.follow_ups
    assert isinstance(told, SnapshotChecked)
    assert (told.snapshot, told.problem is not None) == (snapshot, True)


def test_a_denial_of_a_request_that_has_waited_is_reported_with_its_decision() -> None:
    strict = AdminSettings(authorizer=AuthorizerSettings(frozenset(("User:admin",))))
    net = Net(1, application=host_controller, admin=strict, max_idle_interval_ms=0)
    net.elect()
    net.advance(10)
    hosted = net.processes[1].application
    assert isinstance(hosted, ControllerServer)
    hosted._decisions.decide(work(steps=2 * DECISION_STEPS_PER_TURN), hosted.controller, net.now_ms)
    asked = net.request(1, alter("1000", "one"))
    net.queue.popleft()()
    assert (asked in net.answers, sum(isinstance(trace, Denial) for _, trace in net.traces)) == (False, 0)
    hosted._decisions._current = None
    hosted.agenda.at(Slot.DECISIONS, net.now_ms)
    net.advance(10)
    assert (asked in net.answers, sum(isinstance(trace, Denial) for _, trace in net.traces)) == (True, 1)
