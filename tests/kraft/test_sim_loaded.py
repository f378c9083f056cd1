"""Decisions that take time: a simulated owner is as late as a real one, and a fence must not cost the leadership."""

from __future__ import annotations

import pytest

from kraft.quorum.values import QuorumConfig
from kraft.sim import Scenario, Simulator
from kraft.sim.actions import Act, Crash, SlowDown, Submit, Tick
from kraft.sim.hunt import Hunt
from kraft.sim.schedule import Schedule
from kraft.sim.simulator import Result

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
def test_a_node_that_works_takes_no_events_and_answers_late(kind: str) -> None:
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


def test_what_a_dead_node_was_working_on_is_gone() -> None:
    simulator = settled_simulator("controller")
    world, leader = simulator.world, simulator.leaders()[0]
    assert world.perform(SlowDown(simulator.now_ms, leader, 400_000))
    assert world.perform(Submit(simulator.now_ms, leader, 10**6, "lost"))
    simulator.run_until(simulator.now_ms + 5000, lambda: world.hosts[leader].held is not None)
    assert world.hosts[leader].held is not None
    assert world.perform(Crash(simulator.now_ms, leader, 1))
    assert not world.perform(Act(simulator.now_ms, leader))


def test_records_take_no_time_unless_that_was_asked_for() -> None:
    simulator = settled_simulator("controller")
    simulator.run_until(simulator.now_ms + 3000)
    assert "of work" not in simulator.world.trace.text


def test_a_fence_in_one_turn_costs_each_leader_its_leadership() -> None:
    """A broker in 20,000 ISRs falls silent, and controllers that decide on all of them at once never fence it."""
    found = Hunt(members="loaded", mutant="decisions-in-one-turn", faults=()).run(0)
    assert isinstance(found, Schedule)
    assert "leaders were elected since all faults ended" in found.message


@pytest.mark.parametrize("seed", range(3))
def test_a_fence_in_turns_keeps_the_leader(seed: int) -> None:
    assert isinstance(Hunt(members="loaded", faults=FAULTS).run(seed), Result)
