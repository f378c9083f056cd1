from __future__ import annotations

from random import Random

from kraft.process.hosting import host_controller, host_raw_log
from kraft.process.opening import open_process
from kraft.quorum.effects import HighWatermarkMoved, PeerFault
from kraft.quorum.events import BeginShutdown, Tick
from kraft.quorum.leadership import STAY_MS
from kraft.replica.interface.actions import Proposal, Unit
from kraft.replica.interface.events import FlushDone, Trace
from kraft.replica.proposals import FINISH_MS
from kraft.sim.state.forking import forked
from metadata_log.image import ResourceType
from support.kraft.replica_net import START_MS, Net, formatted_disk, options, voter_set
from transport.protocol.errors import Error
from transport.protocol.messages import IncrementalAlterConfigsRequest
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource


def test_the_only_voter_commits_by_itself() -> None:
    net = Net(1)
    submit = net.submit(net.elect(), b"alone")
    net.settle()
    assert net.done[submit].error == Error.NONE
    assert net.values_of(1) == [b"alone"]


def test_inline_flush_never_hands_out_a_flush() -> None:
    net = Net(3, inline_flush=True)
    submit = net.submit(net.elect(), b"x")
    net.settle()
    assert net.done[submit].error == Error.NONE
    assert all(one.replica.outstanding_flush is None for one in net.processes.values())


def test_a_follower_refuses_a_submit_with_the_leaders_id() -> None:
    net = Net()
    leader = net.elect()
    follower = next(node for node in net.processes if node != leader)
    refused = net.done[net.submit(follower, b"x")]
    assert refused.error == Error.NOT_LEADER_OR_FOLLOWER
    assert not refused.is_uncertain
    assert refused.leader == net.processes[leader].replica.core.leader


def test_a_stopping_leader_waits_to_vote_for_its_successor() -> None:
    """Here the successors stop, too, so no candidate asks for the leader's vote."""
    net = Net()
    old = net.elect()
    for node in (*(net.processes.keys() - {old}), old):
        net.step(node, BeginShutdown())
    net.settle()
    core = net.processes[old].replica.core
    assert core.state_name == "Resigned"
    net.advance(STAY_MS - 1)
    assert not core.may_stop
    net.advance(1)
    assert core.may_stop


def test_a_graceful_shutdown_commits_pending_records_and_refuses_new_ones() -> None:
    net = Net()
    old = net.elect()
    written = net.submit(old, b"written")
    net.step(old, BeginShutdown())
    assert net.processes[old].replica.core.is_leader
    refused = net.submit(old, b"refused")
    assert (net.done[refused].error, net.done[refused].is_uncertain) == (Error.NOT_LEADER_OR_FOLLOWER, False)
    net.until(lambda: net.leader not in (0, old) and net.processes[net.leader].replica.is_active)
    assert net.done[written].error == Error.NONE
    assert net.values_of(net.leader) == [b"written"]


def test_a_graceful_shutdown_without_a_majority_is_bounded_in_time() -> None:
    net = Net()
    old = net.elect()
    written = net.submit(old, b"written")
    net.cut = {old}
    net.step(old, BeginShutdown())
    net.advance(FINISH_MS - 1)
    assert net.processes[old].replica.core.is_leader
    net.advance(1)
    assert net.processes[old].replica.core.state_name == "Resigned"
    assert net.done[written].is_uncertain


def until_elected(net: Net) -> int:
    """A graceful shutdown, up to the moment at which the next leader has begun its epoch and committed nothing."""
    old = net.elect()
    net.step(old, BeginShutdown())
    while net.leader in (0, old):
        if not net.once():
            net.advance(1)
    assert not net.processes[net.leader].replica.is_active
    return net.leader


def ask_now(net: Net, node: int) -> int:
    """A write that arrives at once."""
    wanted = AlterableConfig(name="metrics", config_operation=0, value="x")
    resource = AlterConfigsResource(resource_type=ResourceType.CLIENT_METRICS, resource_name="m", configs=[wanted])
    request_id = net.request(node, IncrementalAlterConfigsRequest(resources=[resource]))
    net.queue.pop()()
    return request_id


def test_requests_at_a_leader_without_a_commit_get_not_controller() -> None:
    net = Net(application=host_controller)
    new = until_elected(net)
    early = ask_now(net, new)
    net.cut = {new}
    net.until(lambda: early in net.answers)
    assert [one.error_code for one in net.answers[early].responses] == [Error.NOT_CONTROLLER]


def test_a_fork_completes_its_own_pending_flush() -> None:
    net = Net()
    leader = net.elect()
    net.submit(leader, b"x")
    net.step(leader, Tick())
    replica = net.processes[leader]
    fork = forked(replica)
    flush = fork.replica.outstanding_flush
    assert flush is not None
    flush.run()
    end = fork.replica.core.log.end_offset
    fork.step(FlushDone(flush.ticket), net.now_ms)
    assert fork.replica.core.log.flushed_offset == end
    assert replica.replica.core.log.flushed_offset == end - 1


def test_a_node_reports_each_rise_of_the_high_watermark() -> None:
    net = Net(1)
    leader = net.elect()
    net.submit(leader, b"value")
    net.settle()
    risen = [effect.offset for _, effect in net.traces if isinstance(effect, HighWatermarkMoved)]
    assert risen == [1, 2]


def test_a_leader_reports_records_of_its_own_that_fit_into_no_batch() -> None:
    """No client waits for them that could hear of the error."""
    net = Net(1)
    replica = net.processes[net.elect()]
    before = replica.replica.log.end_offset
    replica._perform(Proposal((Unit((bytes(9 << 20),)),)), net.now_ms)
    told = [one.effect for one in replica._outbox.outputs if isinstance(one, Trace)]
    assert [fault.peer_id for fault in told if isinstance(fault, PeerFault)] == [1]
    assert replica.replica.log.end_offset == before


def test_the_only_voter_that_flushes_within_its_steps_has_committed_when_it_is_open() -> None:
    voters = voter_set(1)
    replica, _ = open_process(
        options=options(1, voters, inline_flush=True),
        disk=formatted_disk(1),
        rng=Random(1),
        application=host_raw_log,
        now_ms=START_MS,
    )
    assert replica.replica.core.is_leader
    assert replica.replica.status().high_watermark == replica.replica.status().log_end_offset == 1
