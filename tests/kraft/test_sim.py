"""Seeded runs of whole quorums in virtual time; a failure names its seed and how to replay it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest

from kraft.quorum import core, elections, replication
from kraft.quorum.effects import SendReply
from kraft.quorum.events import Received
from kraft.quorum.leadership import known_leader
from kraft.quorum.log_view import LogView, Position, PositionCheck
from kraft.quorum.messages import Vote, VoteReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState, ResignedState, UnattachedState, VotedState
from kraft.quorum.values import QuorumConfig, ReplicaKey
from kraft.replica import storage
from kraft.replica.application import ForRequest, ForSubmit
from kraft.replica.applier import Applier
from kraft.replica.events import CommittedBatch, FlushDone, Input, Output
from kraft.replica.replica import Replica
from kraft.sim import (
    InvariantViolated,
    MakeMember,
    Result,
    Scenario,
    Simulator,
    controller_member,
    core_member,
    replica_member,
    run,
)
from metadata_log.disk import Disk
from metadata_log.log import FlushHandle
from metadata_log.quorum_state_file import StoredElection, format_quorum_state
from metadata_log.types import OffsetAndEpoch
from transport.faults import NO_FAULTS
from transport.protocol.errors import Error

SLICE = 25


def _run_slice(first: int, count: int, nodes: int, make_member: MakeMember = replica_member) -> list[Result]:
    print(f"seeds {first} to {first + count - 1}, {nodes} nodes")
    return [run(seed, nodes, make_member=make_member) for seed in range(first, first + count)]


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(0, 250, SLICE))
def test_a_quorum_keeps_its_promises_under_faults(first: int, nodes: int) -> None:
    """One leader per epoch, one vote, nothing committed is lost or changed, and calm brings progress."""
    results = _run_slice(first, SLICE, nodes)
    assert sum(result.acknowledged for result in results) > 10 * SLICE, (
        "a simulation that commits nothing shows nothing"
    )
    assert sum(len(result.leaders) for result in results) > 2 * SLICE, "without elections nothing is at stake"


def test_a_quorum_of_controllers_keeps_its_promises_under_faults() -> None:
    """What the controller answers for is in the log, whoever leads by then."""
    results = _run_slice(0, 2 * SLICE, 3, controller_member)
    assert sum(result.acknowledged for result in results) > 10 * SLICE


@pytest.mark.parametrize("nodes", [1, 2, 4, 7])
def test_a_quorum_of_another_size_keeps_its_promises(nodes: int) -> None:
    """Majorities of even numbers, and of one, are where arithmetic goes wrong."""
    _run_slice(0, 10, nodes, core_member)


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_a_quorum_keeps_its_promises_in_ten_thousand_runs(first: int, nodes: int) -> None:
    _run_slice(first, 200, nodes)
    _run_slice(first + 200, 50, nodes, controller_member)


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(6000, 16000, 500))
def test_bare_cores_keep_their_promises_in_twenty_thousand_runs(first: int, nodes: int) -> None:
    _run_slice(first, 500, nodes, core_member)


def _digest_in_process(hash_seed: str) -> str:
    script = "from kraft.sim import run; print([run(seed, 3 + seed % 2 * 2).digest for seed in range(3)])"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    digests = {_digest_in_process(hash_seed) for hash_seed in ("0", "1", "random")}
    assert len(digests) == 1


def test_seeds_differ() -> None:
    assert len({run(seed).digest for seed in range(5)}) == 5


# Symmetric candidates


def _elect(seed: int) -> int:
    """Start five nodes at one moment on a network without faults; the virtual ms until they settle."""
    simulator = Simulator(Scenario.drawn("core", 5, seed))
    simulator.calm(60_000, records=1)
    return simulator.now_ms


def test_symmetric_candidates_converge() -> None:
    """Nodes that start together must not split the votes for ever: each draws its timers from a `Random` of its own."""
    elapsed = [_elect(seed) for seed in range(30)]
    assert max(elapsed) < 10_000, elapsed


def test_without_random_timers_symmetric_candidates_stay_in_each_others_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with one timer for all, every pre-vote is won by all and every vote by nobody."""
    monkeypatch.setattr(QuorumState, "random_election_timeout_ms", lambda quorum: quorum.config.election_timeout_ms)
    with pytest.raises(AssertionError, match="no progress"):
        _elect(0)


# Partial partitions: who asks beforehand does not disturb


def _leaders_with_cut_links(seed: int, links: list[tuple[int, int]]) -> tuple[tuple[int, ...], int]:
    """Who led within 20 virtual seconds in which these links never worked, and how much was committed."""
    print(f"seed {seed}")
    simulator = Simulator(Scenario.drawn("core", 5, seed, config=QuorumConfig()))
    simulator.faults.faults = NO_FAULTS
    for one, other in links:
        simulator.faults.partition([one], [other])
    simulator.begin()
    simulator.run_until(simulator.now_ms + 20_000)
    return simulator.world.invariants.leaders, simulator.world.invariants.committed_end


@pytest.mark.parametrize("seed", range(4))
def test_two_nodes_that_cannot_see_each_other_do_not_take_turns_in_leading(seed: int) -> None:
    """Node 2 never hears of leader 1, or the other way round; its pre-votes must fail at those that do (KIP-996)."""
    leaders, committed = _leaders_with_cut_links(seed, [(1, 2)])
    assert len(leaders) == 1, leaders
    assert committed > 20


@pytest.mark.parametrize("seed", range(4))
def test_only_a_node_that_sees_a_majority_leads(seed: int) -> None:
    """Of a chain 1-2-3-4-5 with 2, 3 and 4 seeing two others each, one of these leads, once and for all."""
    chain = [(1, 3), (1, 4), (1, 5), (2, 4), (2, 5), (3, 5)]
    leaders, committed = _leaders_with_cut_links(seed, chain)
    assert len(leaders) == 1, leaders
    assert leaders[0] in (2, 3, 4)
    assert committed > 20


# Forks


def test_a_fork_goes_on_as_its_original_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exploring what could happen next is worthless if a fork behaves otherwise, or if it can touch its original."""
    step, rng, compared = Replica.step, Random(1), 0

    def step_beside_a_fork(replica: Replica, event: Input, now_ms: int) -> list[Output]:
        nonlocal compared
        if rng.random() > 0.2:
            return step(replica, event, now_ms)
        fork = replica.fork()
        assert fork.fingerprint() == replica.fingerprint(), event
        if isinstance(event, FlushDone):
            assert fork.outstanding_flush is not None
            fork.outstanding_flush.run()
        step(fork, event, now_ms)
        outputs = step(replica, event, now_ms)
        assert fork.fingerprint() == replica.fingerprint(), event
        compared += 1
        return outputs

    monkeypatch.setattr(Replica, "step", step_beside_a_fork)
    for seed in range(4):
        run(seed, 3, make_member=controller_member if seed % 2 else replica_member)
    assert compared > 500


# Broken cores


def _vote_without_looking_at_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_vote(quorum: QuorumState, event: Received, vote: Vote, now_ms: int) -> None:
        error = elections._consider(quorum, vote, now_ms)
        granted = error == 0 and quorum.state.can_grant(vote, up_to_date=True)
        if granted and not vote.pre_vote and quorum.state.voted is None:
            quorum.become_voted(vote.candidate, now_ms)
        leader_id, endpoints = known_leader(quorum)
        reply = VoteReply(epoch=quorum.epoch, leader_id=leader_id, endpoints=endpoints, error=error, granted=granted)
        quorum.emit(SendReply(event.request_id, reply))

    monkeypatch.setattr(elections, "on_vote", on_vote)


def _vote_in_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def become_voted(quorum: QuorumState, candidate: ReplicaKey, now_ms: int) -> None:
        deadline_ms = now_ms + quorum.random_election_timeout_ms()
        target = VotedState(quorum.epoch, quorum.leader_id, candidate, deadline_ms)
        quorum.transition_to(target, "vote", persist=False, keep_peers=True)

    monkeypatch.setattr(QuorumState, "become_voted", become_voted)


def _vote_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VotedState, "can_grant", lambda state, vote, *, up_to_date: up_to_date)


def _count_the_leader_before_its_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = replication.drain

    def drain_and_count(quorum: QuorumState, now_ms: int) -> None:
        drain(quorum, now_ms)
        if isinstance(quorum.state, LeaderState):
            quorum.state.progress[quorum.local.id].end_offset = quorum.log.end_offset
            replication.advance_high_watermark(quorum, quorum.state, now_ms)

    monkeypatch.setattr(replication, "drain", drain_and_count)


def _commit_records_of_former_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance_high_watermark(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        offset = sorted(one.end_offset for one in leader.progress.values())[-leader.voters.majority]
        if offset > leader.high_watermark:
            leader.high_watermark = offset
            quorum.move_high_watermark(offset)
            replication.answer_parked(quorum, now_ms)

    monkeypatch.setattr(replication, "advance_high_watermark", advance_high_watermark)


def _commit_what_a_minority_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def committable(leader: LeaderState) -> int | None:
        offset = max(one.end_offset for one in leader.progress.values())
        return offset if offset > max(leader.epoch_start_offset, leader.high_watermark) else None

    monkeypatch.setattr(LeaderState, "committable", committable)


def _acknowledge_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogView, "is_flushed", True)


def _overlook_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(log: LogView, offset: int, last_epoch: int) -> PositionCheck:
        return PositionCheck(Position.VALID, OffsetAndEpoch(epoch=last_epoch, offset=offset))

    monkeypatch.setattr(LogView, "check", check)


def _go_on_leading_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    first_state = core._first_state

    def lead_on(quorum: QuorumState, election: object, now_ms: int) -> object:
        state = first_state(quorum, election, now_ms)
        if not isinstance(state, ResignedState):
            return state
        quorum.state = UnattachedState(state.epoch - 1, -1, now_ms)
        quorum.become_prospective(now_ms, "lead-on")
        quorum.become_candidate(now_ms, "lead-on")
        leader = quorum.become_leader(now_ms)
        quorum.persisted = None
        quorum.effects.clear()
        leader.epoch_start_offset -= 1
        return leader

    monkeypatch.setattr(core, "_first_state", lead_on)


CORE_MUTANTS = [
    _vote_without_looking_at_the_log,
    _vote_in_memory_only,
    _vote_again,
    _count_the_leader_before_its_flush,
    _commit_records_of_former_epochs,
    _commit_what_a_minority_has,
    _acknowledge_before_the_flush,
    _overlook_divergence,
    _go_on_leading_after_a_restart,
]


def _hunt(make_member: MakeMember, seeds: int) -> None:
    for seed in range(seeds):
        try:
            run(seed, 3 + seed % 2 * 2, make_member=make_member)
        except InvariantViolated as found:
            print(f"found with seed {seed}: {found}")
            return
    pytest.fail(f"{seeds} seeds found nothing wrong")


@pytest.mark.parametrize("breaks", CORE_MUTANTS, ids=lambda breaks: breaks.__name__[1:])
def test_a_broken_core_is_found(breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation would be worth nothing if it let these pass."""
    breaks(monkeypatch)
    _hunt(core_member, 200)


# Broken replicas


def _flush_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlushHandle, "run", lambda handle: None)


def _rename_quorum_state_without_a_flush_of_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(disk: Disk, directory: str, state: StoredElection) -> None:
        file = disk.open(f"{directory}/quorum-state.tmp", create=True)
        file.truncate(0)
        file.append(format_quorum_state(state))
        file.fsync()
        file.close()
        disk.rename(f"{directory}/quorum-state.tmp", f"{directory}/quorum-state")

    monkeypatch.setattr(storage, "write_quorum_state", write)


def _apply_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Applier.advance

    def advance_and_repeat(applier: Applier, high_watermark: int) -> list[CommittedBatch]:
        batches = list(advance(applier, high_watermark))
        return batches + batches[-1:]

    monkeypatch.setattr(Applier, "advance", advance_and_repeat)


def _call_what_is_uncertain_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Replica._refused

    def surely_refused(
        replica: Replica, waiting: ForRequest | ForSubmit, error: Error, *, is_uncertain: bool
    ) -> Output:
        return refused(replica, waiting, error, is_uncertain=False)

    monkeypatch.setattr(Replica, "_refused", surely_refused)


@pytest.mark.parametrize(
    "breaks",
    [
        _call_what_is_uncertain_refused,
        _flush_nothing,
        _rename_quorum_state_without_a_flush_of_the_directory,
        _apply_twice,
    ],
    ids=lambda breaks: breaks.__name__[1:],
)
def test_a_broken_replica_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bare core does not have, the files and the application, must be watched as closely."""
    breaks(monkeypatch)
    _hunt(replica_member, 40)
