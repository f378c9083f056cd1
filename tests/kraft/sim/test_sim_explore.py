"""Small scopes, walked to their end: sound code keeps every promise, and a planted bug has the shortest trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.sim.search.explore import Explored, Scope, explore
from kraft.sim.search.schedule import check_of, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.state.forking import forked
from kraft.sim.world.trace import Trace
from support.kraft.command_line import run

SHORTEST = {
    "vote-in-memory-only": 3,
    "minority-commits": 4,
    "fetch-before-flush": 4,
    "former-epochs-commit": 5,
    "vote-again": 6,
}
"""By mutant the steps of the shortest way to it among three nodes."""


def _walked(scope: Scope) -> Explored:
    found = explore(scope)
    assert found.schedule is None, found.schedule
    return found


def test_exploring_two_nodes_exhaustively_finds_no_violation() -> None:
    """An election, a commit, a crash and a change of the leader, in every order."""
    found = _walked(Scope(nodes=2))
    assert found.is_complete
    assert found.elections == 2
    assert found.committed == 3, "two leaders' first records, and one that was handed over"
    assert found.states > 3_000


@pytest.mark.soak
def test_exploring_three_nodes_for_twelve_steps_finds_no_violation() -> None:
    """Long enough for an election, a commit, a crash and another leader; a minute, and some 35,000 states."""
    found = _walked(Scope(nodes=3, submissions=0, depth=12))
    print(f"{found.states} states")
    assert found.depth == 12
    assert found.elections == 2
    assert found.committed >= 1


@pytest.mark.parametrize("mutant", SHORTEST)
def test_exploration_finds_a_bug_by_the_shortest_schedule(mutant: str) -> None:
    found = explore(Scope(nodes=3), mutant=mutant)
    assert found.schedule is not None
    assert found.depth == SHORTEST[mutant]
    replayed = replay(found.schedule)
    assert replayed.failure is not None
    assert check_of(replayed.failure) == found.schedule.violated
    assert replayed.performed == found.schedule.actions


def test_symmetric_states_are_explored_once() -> None:
    """Of two nodes that are alike, one loses its patience: it does not matter which."""
    found = _walked(Scope(nodes=2, depth=1, crashes=0))
    assert found.steps > 2
    assert found.states == 2


def test_a_forked_world_is_independent() -> None:
    world = SeedSearch(members="core").scenario(0).make_world(Trace())
    copy = forked(world.invariants)
    copy.observed(1).applied_offset = 7
    assert world.invariants.observed(1).applied_offset == 0


def test_explore_command_reports_violations(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sound = run(capsys, "sim", "explore", "--depth", "3", "--json")
    assert sound.code == 0
    assert json.loads(sound.out)["violation"] is None
    found = run(capsys, "sim", "explore", "--nodes", "3", "--mutant", "minority-commits", "--out", str(tmp_path))
    assert found.code == 1
    (file,) = tmp_path.iterdir()
    assert f"kraft sim replay {file}" in found.out
