"""Decisions that take time: a simulated owner is as late as a real one, and a fence must not cost the leadership."""

from __future__ import annotations

import re

import pytest

from kraft.limits import DECISION_STEPS_PER_TURN
from kraft.quorum.values import QuorumConfig
from kraft.sim import Scenario, Simulator
from kraft.sim.runs.loaded import RECORD_US, run_loaded
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.actions import Act, Crash, SlowDown, Submit, Tick

FAULTS = (
    "crash",
    "crash-leader",
    "isolate-leader",
    "wrong-clock",
    "slow-disk",
    "pause",
    "shut-down",
    "long-decisions",
    "refused-connections",
    "drop",
    "delay",
)


def settled_simulator(kind: str) -> Simulator:
    """A quorum with a leader and some records, to which nothing bad happens by itself."""
    simulator = Simulator(Scenario.drawn(kind, 3, 1, config=QuorumConfig()), faults=())
    simulator.begin()
    simulator.run_until(20_000, lambda: simulator.world.has_settled(10))
    assert simulator.world.has_settled(10)
    return simulator


@pytest.mark.parametrize("kind", ["replica", "controller"])
def test_a_busy_node_delays_events_and_answers(kind: str) -> None:
    simulator = settled_simulator(kind)
    world, leader = simulator.world, simulator.leaders()[0]
    host = world.hosts[leader]
    assert world.perform(SlowDown(simulator.now_ms, leader, 400_000))
    acknowledged = world.acknowledged
    assert world.perform(Submit(simulator.now_ms, leader, 10**6, "late"))
    simulator.run_until(simulator.now_ms + 5000, lambda: host.held is not None)
    assert host.held is not None
    busy_since_ms = simulator.now_ms
    assert not world.perform(Tick(simulator.now_ms, leader)), "it works"
    simulator.run_until(simulator.now_ms + 5000, lambda: host.held is None)
    assert simulator.now_ms >= busy_since_ms + 400
    simulator.run_until(simulator.now_ms + 5000, lambda: world.acknowledged > acknowledged)
    assert world.acknowledged > acknowledged


def test_work_of_a_crashed_node_is_lost() -> None:
    simulator = settled_simulator("controller")
    world, leader = simulator.world, simulator.leaders()[0]
    assert world.perform(SlowDown(simulator.now_ms, leader, 400_000))
    assert world.perform(Submit(simulator.now_ms, leader, 10**6, "lost"))
    simulator.run_until(simulator.now_ms + 5000, lambda: world.hosts[leader].held is not None)
    assert world.hosts[leader].held is not None
    assert world.perform(Crash(simulator.now_ms, leader, 1))
    assert not world.perform(Act(simulator.now_ms, leader))


def test_records_take_no_time_by_default() -> None:
    simulator = settled_simulator("controller")
    simulator.run_until(simulator.now_ms + 3000)
    assert "of work" not in simulator.world.trace.text


@pytest.mark.parametrize("seed", range(2))
def test_a_record_costs_each_node_one_turn(seed: int) -> None:
    """A leader has no work with a commit of what it decided, and a follower none with the end of what it replayed."""
    result = run_loaded(seed, faults=(), keep_trace=True)
    assert len(result.leaders) == 1, "a turn was so long that it has cost the leadership"
    work_ms: dict[str, list[int]] = {}
    for node, ms in re.findall(r"^\d+ (\d+) .*: (\d+) ms of work$", result.trace, re.MULTILINE):
        work_ms.setdefault(node, []).append(int(ms))
    assert set(work_ms) == {"1", "2", "3"}
    for turns_ms in work_ms.values():
        assert max(turns_ms) <= 2 * DECISION_STEPS_PER_TURN * RECORD_US // 1000
        assert sum(turns_ms) <= result.committed * RECORD_US // 1000


def test_a_fence_in_one_turn_costs_each_leader_its_leadership() -> None:
    """A broker in 20,000 ISRs falls silent, and controllers that decide on all of them at once never fence it."""
    found = SeedSearch(members="loaded", mutant="decisions-in-one-turn", faults=()).run(1)
    assert isinstance(found, Schedule)
    assert "leaders were elected since all faults ended" in found.message


@pytest.mark.parametrize("seed", [*range(3), 55, 61, 101])
def test_a_fence_in_turns_keeps_the_leader(seed: int) -> None:
    assert isinstance(SeedSearch(members="loaded", faults=FAULTS).run(seed), Result)


def test_a_due_deadline_does_not_wait_behind_the_events_of_a_busy_node() -> None:
    """An owner looks at its deadlines after each turn. Without this, an overloaded leader leads on without voters."""
    simulator = settled_simulator("controller")
    world, leader = simulator.world, simulator.leaders()[0]
    assert world.perform(SlowDown(simulator.now_ms, leader, 100_000))
    for node_id in world.node_ids:
        if node_id != leader:
            simulator.crash(node_id, 60_000)
    for number in range(200):
        simulator.queue.plan(Submit(simulator.now_ms, leader, 10**6 + number, f"value-{number}"))
    simulator.run_until(simulator.now_ms + 10_000, lambda: not simulator.leaders())
    assert not simulator.leaders(), "the leader has heard no voter for ten seconds"


def test_the_end_of_all_faults_ends_the_work_of_a_slow_node() -> None:
    simulator = settled_simulator("replica")
    world, leader = simulator.world, simulator.leaders()[0]
    host = world.hosts[leader]
    assert world.perform(SlowDown(simulator.now_ms, leader, 100_000_000))
    assert world.perform(Submit(simulator.now_ms, leader, 10**6, "slow"))
    simulator.run_until(simulator.now_ms + 5000, lambda: host.held is not None)
    assert host.held is not None
    assert simulator.queue.times[leader].busy_until_ms > simulator.now_ms + 60_000
    simulator.calm(10_000)
    assert host.held is None
