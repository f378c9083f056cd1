"""Seeded runs of whole quorums in virtual time; a failure names its seed and how to replay it."""

from __future__ import annotations

from random import Random

import pytest

from kraft.process.parts import Input
from kraft.process.process import Process
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.values import QuorumConfig
from kraft.replica.interface.events import FlushDone, Output
from kraft.sim import (
    MakeMember,
    Result,
    Scenario,
    Simulator,
    controller_member,
    core_member,
    replica_member,
    run,
)
from kraft.sim.state.fingerprints import fingerprint
from kraft.sim.state.forking import forked
from support.kraft.hash_seeds import outputs_of
from transport.faults import NO_FAULTS

SLICE = 25
DOZEN = 12


def _run_slice(first: int, count: int, nodes: int, make_member: MakeMember = replica_member) -> list[Result]:
    print(f"seeds {first} to {first + count - 1}, {nodes} nodes")
    return [run(seed, nodes, make_member=make_member) for seed in range(first, first + count)]


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(0, 125, SLICE))
def test_invariants_of_replicas_hold_under_faults(first: int, nodes: int) -> None:
    """One leader per epoch, one vote, nothing committed is lost or changed, and calm brings progress."""
    results = _run_slice(first, SLICE, nodes)
    assert sum(result.acknowledged for result in results) > 10 * SLICE, (
        "a simulation that commits nothing shows nothing"
    )
    assert sum(len(result.leaders) for result in results) > 2 * SLICE, "without elections nothing is at stake"


@pytest.mark.parametrize("first", range(0, 4 * DOZEN, DOZEN))
def test_invariants_of_controllers_hold_under_faults(first: int) -> None:
    """Every acknowledged change is in the log, also under a later leader."""
    results = _run_slice(first, DOZEN, 3, controller_member)
    assert sum(result.acknowledged for result in results) > 5 * DOZEN


@pytest.mark.parametrize("nodes", [1, 2, 4, 7])
def test_invariants_hold_with_other_numbers_of_voters(nodes: int) -> None:
    """Majorities of even numbers, and of one, are where arithmetic goes wrong."""
    _run_slice(0, 10, nodes, core_member)


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_invariants_of_replicas_hold_in_ten_thousand_runs(first: int, nodes: int) -> None:
    _run_slice(first, 200, nodes)
    _run_slice(first + 200, 50, nodes, controller_member)


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(6000, 16000, 500))
def test_invariants_of_bare_cores_hold_in_twenty_thousand_runs(first: int, nodes: int) -> None:
    _run_slice(first, 500, nodes, core_member)


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = "from kraft.sim import run; print([run(seed, 3 + seed % 2 * 2).digest for seed in range(3)])"
    assert len(outputs_of(script, seeds=("0", "1", "random"))) == 1


def test_different_seeds_give_different_runs() -> None:
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


def test_without_random_timers_symmetric_candidates_split_votes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with one timer for all, every node wins its pre-votes and no node wins a vote."""
    monkeypatch.setattr(QuorumState, "random_election_timeout_ms", lambda quorum: quorum.config.election_timeout_ms)
    with pytest.raises(AssertionError, match="no progress"):
        _elect(0)


# Partial partitions: pre-votes keep a node from disturbing the leader


def _leaders_with_cut_links(seed: int, links: list[tuple[int, int]]) -> tuple[tuple[int, ...], int]:
    """The leaders within 20 virtual seconds in which these links never worked, and how much was committed."""
    print(f"seed {seed}")
    simulator = Simulator(Scenario.drawn("core", 5, seed, config=QuorumConfig()))
    simulator.faults.faults = NO_FAULTS
    for one, other in links:
        simulator.faults.partition([one], [other])
    simulator.begin()
    simulator.run_until(simulator.now_ms + 20_000)
    return simulator.world.invariants.votes.leaders, simulator.world.invariants.commits.end_offset


@pytest.mark.parametrize("seed", range(4))
def test_two_mutually_partitioned_nodes_do_not_alternate_in_leading(seed: int) -> None:
    """Node 2 never hears of leader 1, or the other way round; its pre-votes must fail at those that do (KIP-996)."""
    leaders, committed = _leaders_with_cut_links(seed, [(1, 2)])
    assert len(leaders) == 1, leaders
    assert committed > 20


@pytest.mark.parametrize("seed", range(4))
def test_only_a_node_connected_to_a_majority_leads(seed: int) -> None:
    """Of a chain 1-2-3-4-5 with 2, 3 and 4 seeing two others each, one of these leads, once and for all."""
    chain = [(1, 3), (1, 4), (1, 5), (2, 4), (2, 5), (3, 5)]
    leaders, committed = _leaders_with_cut_links(seed, chain)
    assert len(leaders) == 1, leaders
    assert leaders[0] in (2, 3, 4)
    assert committed > 20


# Forks


def test_a_fork_of_a_simulation_behaves_as_its_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exploring what could happen next is worthless if a fork behaves otherwise, or if it can touch its original."""
    step, rng, compared = Process.step, Random(1), 0

    def step_beside_a_fork(replica: Process, event: Input, now_ms: int) -> list[Output]:
        nonlocal compared
        if rng.random() > 0.2:
            return step(replica, event, now_ms)
        fork = forked(replica)
        assert fingerprint(fork) == fingerprint(replica), event
        if isinstance(event, FlushDone):
            assert fork.replica.outstanding_flush is not None, "the disk of the fork has what the fsync covered, too"
        step(fork, event, now_ms)
        outputs = step(replica, event, now_ms)
        assert fingerprint(fork) == fingerprint(replica), event
        compared += 1
        return outputs

    monkeypatch.setattr(Process, "step", step_beside_a_fork)
    for seed in range(4):
        run(seed, 3, make_member=controller_member if seed % 2 else replica_member)
    assert compared > 500
