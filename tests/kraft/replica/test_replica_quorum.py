from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from kraft.process.hosting import host_controller, host_raw_log
from kraft.process.process import Process
from kraft.quorum.effects import HighWatermarkMoved, PeerFault, StateChanged
from kraft.quorum.events import BeginShutdown, Resign, Tick
from kraft.quorum.leadership import STAY_MS
from kraft.replica import commits
from kraft.replica import proposals as proposals_module
from kraft.replica.interface.actions import Proposal, Unit
from kraft.replica.interface.events import FlushDone, Trace
from kraft.replica.outbox import Outbox
from kraft.replica.proposals import FINISH_MS, Proposals
from kraft.sim.state.fingerprints import fingerprint
from kraft.sim.state.forking import forked
from metadata_log.image import ResourceType
from support import ROOT, TESTS
from support.kraft.hash_seeds import outputs_of
from support.kraft.replica_net import START_MS, Net, formatted_disk, options, voter_set
from transport.protocol.errors import Error
from transport.protocol.messages import IncrementalAlterConfigsRequest
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource


def test_three_replicas_elect_and_commit() -> None:
    net = Net()
    leader = net.elect()
    first = net.submit(leader, b"one")
    second = net.submit(leader, b"two", b"three")
    net.settle()
    assert (net.done[first].error, net.done[first].base_offset) == (Error.NONE, 1)
    assert (net.done[second].base_offset, net.done[second].last_offset) == (2, 3)
    net.advance(1000)
    for node in net.processes:
        assert net.values_of(node) == [b"one", b"two", b"three"], node
        assert net.log_of(node) == net.log_of(leader)


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


def test_a_new_leader_takes_over_and_the_old_one_follows() -> None:
    net = Net()
    old = net.elect()
    kept = net.submit(old, b"kept")
    net.settle()
    assert net.done[kept].error == Error.NONE
    net.kill(old)
    new = net.elect()
    assert new != old
    more = net.submit(new, b"more")
    net.settle()
    assert net.done[more].error == Error.NONE
    net.start(old)
    net.elect()
    for node in net.processes:
        assert net.values_of(node)[-2:] == [b"kept", b"more"], node
        assert net.log_of(node) == net.log_of(new)


def test_submitters_of_a_truncated_tail_get_an_unknown_outcome() -> None:
    net = Net()
    old = net.elect()
    net.cut = {old}
    lost = net.submit(old, b"lost")
    net.settle()
    assert lost not in net.done
    new = net.elect()
    won = net.submit(new, b"won")
    net.settle()
    assert net.done[won].error == Error.NONE
    net.cut = set()
    net.elect()
    assert net.done[lost].error == Error.NOT_LEADER_OR_FOLLOWER
    assert net.done[lost].is_uncertain
    assert b"lost" not in net.log_of(old)
    assert net.log_of(old) == net.log_of(new)
    assert net.values_of(old) == [b"won"]


def test_a_follower_refuses_a_submit_with_the_leaders_id() -> None:
    net = Net()
    leader = net.elect()
    follower = next(node for node in net.processes if node != leader)
    refused = net.done[net.submit(follower, b"x")]
    assert refused.error == Error.NOT_LEADER_OR_FOLLOWER
    assert not refused.is_uncertain
    assert refused.leader == net.processes[leader].replica.core.leader


def test_a_value_too_large_for_a_batch_is_refused_and_harms_no_other() -> None:
    net = Net()
    leader = net.elect()
    refused = net.submit(leader, bytes(9 << 20))
    taken = net.submit(leader, b"small")
    net.settle()
    assert net.done[refused].error == Error.RECORD_LIST_TOO_LARGE
    assert not net.done[refused].is_uncertain
    assert net.done[taken].error == Error.NONE


def test_a_graceful_shutdown_hands_leadership_over_quickly() -> None:
    net = Net()
    old = net.elect()
    net.step(old, BeginShutdown())
    net.settle()
    assert any(isinstance(effect, StateChanged) and effect.target == "Resigned" for _, effect in net.traces)
    net.advance(50)
    assert net.processes[old].replica.core.may_stop
    assert net.leader not in (0, old)


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


def test_requests_before_the_leaders_first_commit_are_answered_after_the_commit() -> None:
    net = Net(application=host_controller)
    new = until_elected(net)
    early = ask_now(net, new)
    assert early not in net.answers
    net.settle()
    assert [one.error_code for one in net.answers[early].responses] == [Error.NONE]


def test_requests_at_a_leader_without_a_commit_get_not_controller() -> None:
    net = Net(application=host_controller)
    new = until_elected(net)
    early = ask_now(net, new)
    net.cut = {new}
    net.until(lambda: early in net.answers)
    assert [one.error_code for one in net.answers[early].responses] == [Error.NOT_CONTROLLER]


def test_acknowledged_records_survive_a_power_failure_of_all_nodes() -> None:
    """The prefix property end to end: crash everywhere at once, torn tails included."""
    for seed in range(20):
        rng = Random(seed)
        print("seed", seed)
        net = Net(seed=seed)
        acknowledged: list[bytes] = []
        for round_ in range(3):
            leader = net.elect()
            submits = {net.submit(leader, b"%d-%d" % (round_, n)): b"%d-%d" % (round_, n) for n in range(4)}
            for _ in range(rng.randrange(60)):
                if net.queue:
                    net.queue.popleft()()
                else:
                    for node in net.processes:
                        net.step(node, Tick())
            acknowledged += [value for id_, value in submits.items() if id_ in net.done and not net.done[id_].error]
            for node in list(net.processes):
                net.kill(node, torn=rng)
            net.queue.clear()
            for node in net.disks:
                net.start(node)
        leader = net.elect()
        assert [value for value in net.values_of(leader) if value in acknowledged] == acknowledged
        assert len({net.log_of(node) for node in net.processes}) == 1


def test_a_fork_has_its_originals_fingerprint_until_it_diverges() -> None:
    net = Net(3, application=host_controller, inline_flush=True)
    leader = net.elect()
    replica = net.processes[leader]
    fork = forked(replica)
    assert fingerprint(fork) == fingerprint(replica)
    before = fingerprint(replica)
    fork.step(BeginShutdown(), net.now_ms)
    assert fingerprint(fork) != before
    assert fingerprint(replica) == before
    assert replica.replica.core.is_leader


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


HISTORY = """
from support.kraft.replica_net import Net
from kraft.process.hosting import host_controller
from kraft.sim.state.fingerprints import fingerprint
from test_controller_quorum import alter
net = Net(3, application=host_controller, seed=5)
old = net.elect()
for number in range(20):
    net.request(old, alter(("interval.ms", 0, str(1000 + number)), ("metrics", 0, "m%d" % number), name="s%d" % number))
net.advance(700)
net.kill(old)
net.elect()
net.start(old)
net.elect()
for node in sorted(net.processes):
    print(node, fingerprint(net.processes[node]).hex(), hash(net.log_of(node)) != 0)
print(net.traces)
"""


def test_a_seed_gives_one_trace_under_any_hash_seed() -> None:
    path = os.pathsep.join(map(str, (Path(__file__).parent, TESTS, ROOT)))
    (life,) = outputs_of(HISTORY, PYTHONPATH=path)
    assert "Leader" in life


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
    replica, _ = Process.open(
        options=options(1, voters, inline_flush=True),
        disk=formatted_disk(1),
        rng=Random(1),
        application=host_raw_log,
        now_ms=START_MS,
    )
    assert replica.replica.core.is_leader
    assert replica.replica.status().high_watermark == replica.replica.status().log_end_offset == 1


def test_a_turn_ends_with_the_batch_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(1)
    leader = net.elect()
    for _ in range(3):
        net.submit(leader, b"one", b"two")
        net.settle()
    net.processes[leader].close()
    monkeypatch.setattr(commits, "COMMITTED_RECORDS_PER_TURN", 2)
    net.start(leader)
    grown = []
    while len(net.values_of(leader)) < 6:
        before = len(net.values_of(leader))
        if not net.once():
            net.now_ms = net.processes[leader].deadline_ms()
        grown.append(len(net.values_of(leader)) - before)
    assert sum(grown) == 6
    assert max(grown) == 2


@pytest.mark.parametrize(("written", "is_full"), [(99, False), (100, True)])
def test_a_leader_with_so_many_uncommitted_bytes_takes_no_more(written: int, is_full: bool) -> None:
    net = Net(1)
    core = net.processes[net.elect()].replica.core
    limits = options(1, voter_set(1), max_uncommitted_bytes=100).replica
    proposals = Proposals(
        limits, core, leading=None, refusing=None, outbox=Outbox(), step_core=lambda event, now_ms: None
    )
    proposals.backlog.written(9, written)
    assert proposals.is_full is is_full
    assert proposals.is_open is False


def test_refusals_of_a_former_leader_are_told_a_portion_in_each_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals_module, "ANSWERS_PER_TURN", 1)
    net = Net(3)
    leader = net.elect()
    net.cut = {node for node in net.processes if node != leader}
    for _ in range(3):
        net.submit(leader, b"value")
    net.settle()
    net.step(leader, Resign(net.processes[leader].replica.core.epoch))
    told = [len(net.done)]
    for _ in range(2):
        assert not net.processes[leader].may_stop
        net.now_ms += 1
        net.step(leader, Tick())
        told.append(len(net.done))
    assert (told, net.processes[leader].may_stop) == ([1, 2, 3], True)


def test_another_commit_sends_no_answer_before_the_turn_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals_module, "ANSWERS_PER_TURN", 1)
    net = Net(1)
    leader = net.elect()
    first = [net.submit(leader, b"value") for _ in range(3)]
    net.settle()
    told = [len(net.done)]
    last = net.submit(leader, b"another")
    net.settle()
    told.append(len(net.done))
    while len(net.done) < 4:
        net.now_ms += 1
        net.step(leader, Tick())
        told.append(len(net.done))
    assert told == [1, 1, 2, 3, 4]
    assert [*net.done] == [*first, last]
