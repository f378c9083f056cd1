"""A run without progress says which node waits for which other node, and for what."""

from __future__ import annotations

import pytest

from kraft.sim import Scenario, Simulator
from kraft.sim.world.actions import WORLD, Conclude, Start, Tick
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import NoProgress, World

FAR = 10**6


def failure_of(world: World, target: int) -> list[str]:
    """The lines of the failure of a quorum that has not come to this offset."""
    with pytest.raises(NoProgress) as raised:
        world.perform(Conclude(world.now_ms, WORLD, target))
    head, _, waits = str(raised.value).partition(" ms: ")
    assert head == f"no progress to offset {target} by {world.now_ms}"
    return waits.split("; ")


def settled() -> tuple[Simulator, int, list[int]]:
    """A quorum of bare cores after some seconds without faults: its leader and its followers."""
    simulator = Simulator(Scenario.drawn("core", 3, 1), faults=())
    simulator.chaos(6000)
    leader_id = simulator.leaders()[0]
    return simulator, leader_id, [one for one in simulator.node_ids if one != leader_id]


def test_a_campaigning_node_waits_for_the_votes_of_the_nodes_that_are_down() -> None:
    world = Scenario.drawn("core", 3, 1).make_world(Trace())
    world.perform(Start(0, 1, 0, 0))
    world.perform(Tick(world.deadline_ms(1), 1))
    waits = failure_of(world, 5)
    assert waits[0].startswith("node 1 (Prospective in epoch 0) waits for pre-votes of the voters 2, 3 and has")
    assert "requests without an answer: " in waits[0]
    assert "to node 2" in waits[0]
    assert waits[1:] == ["node 2 is down", "node 3 is down"]


def test_a_leader_waits_for_the_voters_that_lack_its_records() -> None:
    simulator, leader_id, others = settled()
    for node_id in others:
        simulator.crash(node_id, FAR)
    world = simulator.world
    view = world.hosts[leader_id].view
    assert view is not None
    end = view.log_end_offset
    simulator.run_until(simulator.now_ms + 400)
    view = world.hosts[leader_id].view
    assert view is not None
    assert view.log_end_offset > end, "no submission has come meanwhile"
    waits = failure_of(world, end + 1)
    behind = ", ".join(f"{one} (flushed to {world.invariants.observed(one).flushed_offset})" for one in others)
    known = f"node {leader_id} has the high watermark {view.high_watermark}, below {end + 1}"
    assert waits[leader_id - 1].startswith(f"{known}, and waits for the voters {behind}")


def test_a_follower_waits_for_a_leader_that_is_down() -> None:
    simulator, leader_id, others = settled()
    simulator.crash(leader_id, FAR)
    waits = failure_of(simulator.world, FAR)
    assert waits[leader_id - 1] == f"node {leader_id} is down"
    for node_id in others:
        assert f"waits for its leader, node {leader_id}, which is down" in waits[node_id - 1]


def test_a_submission_without_a_decision_waits_for_its_node() -> None:
    simulator, leader_id, (other_id, _) = settled()
    simulator.world.hosts[leader_id].submitted |= {1001: 0, 1002: 0}
    simulator.world.hosts[other_id].submitted |= {1003: 0, 1004: simulator.now_ms}
    waits = failure_of(simulator.world, simulator.world.invariants.commits.end_offset)
    expected = [
        (leader_id, f"submissions 1001, 1002 wait for node {leader_id} since more than 5000 ms"),
        (other_id, f"submission 1003 waits for node {other_id} since more than 5000 ms"),
    ]
    assert waits == [text for _, text in sorted(expected)]
