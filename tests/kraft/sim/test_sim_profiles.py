"""The profiles of runs: which one a seed has, and that the situation of its name happens in its runs."""

from __future__ import annotations

from collections import Counter

import pytest

from kraft.quorum.states import LeaderState
from kraft.quorum.values import QuorumConfig
from kraft.sim import Result, Scenario, Simulator
from kraft.sim.faults.nemesis import FAULTS, MESSAGE_FAULTS
from kraft.sim.faults.profiles import (
    BROAD,
    FULL_BATCHES,
    PARTITIONS,
    SLOW_DISK,
    VOTERS,
    Profile,
    profiles_of,
    rare_profiles_of,
)
from kraft.sim.nodes.log_batches import values_in
from kraft.sim.runs.seeded_run import DOCUMENTED
from kraft.sim.runs.voter_change_run import run_dynamic
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.actions import Action, DamageDisk, Start
from kraft.sim.world.disk_damage import Damage


@pytest.mark.parametrize("seed", range(20))
def test_a_broad_run_has_the_settings_of_its_seed_alone(seed: int) -> None:
    """Saved seeds keep their meaning: no draw of a profile changes the others."""
    assert Scenario.drawn("core", 3, seed).config == Scenario.drawn("core", 3, seed, profile=SLOW_DISK).config
    assert Scenario.drawn("core", 3, seed).config.max_batch_bytes == QuorumConfig().max_batch_bytes


@pytest.mark.parametrize("profile", [SLOW_DISK, PARTITIONS], ids=lambda profile: profile.name)
def test_a_focused_run_has_all_faults_of_its_profile(profile: Profile) -> None:
    struck: Counter[str] = Counter()
    for seed in range(12):
        simulator = Simulator(Scenario.drawn("core", 3, seed, profile=profile), profile=profile, keep_trace=True)
        simulator.chaos(8_000)
        lines = simulator.world.trace.text.splitlines()
        struck.update({line.split()[2] for line in lines if line.split()[1] == "0"})
    assert set(struck) == set(profile.faults) - set(MESSAGE_FAULTS)
    assert set(profile.faults) <= set(FAULTS)


def test_a_leader_that_counts_its_own_fetch_is_found_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three voters do not notice: one fetch of another voter is a majority with the leader, counted once or twice."""

    def count_voters(leader: LeaderState) -> None:
        leader.is_voter = leader.voters.contains(leader.local)
        leader.contacts_wanted = leader.voters.majority - 2 * leader.is_voter

    monkeypatch.setattr(LeaderState, "_count_voters", count_voters)
    found = next(
        outcome for seed in range(200) if isinstance(outcome := SeedSearch(members="core").run(seed), Schedule)
    )
    assert found.scenario.nodes > 3
    assert found.violated in ("InvariantViolated by CheckQuorum.led", "InvariantViolated by ReadWatch.answered")


def test_batches_fill_in_the_profile_of_full_batches() -> None:
    """Two batches with one drain of the leader: the first one has no room for the first record of the second one."""
    full = 0
    for seed in range(4):
        scenario = Scenario.drawn("replica", 3, seed, profile=FULL_BATCHES)
        simulator = Simulator(scenario, profile=FULL_BATCHES)
        simulator.chaos(4_000)
        batches = simulator.world.invariants.commits.batches
        assert all(len(batch.content) <= scenario.config.max_batch_bytes for batch in batches)
        full += sum(len(values_in(batch)) > 15 for batch in batches)
    assert full > 10


@pytest.mark.parametrize("members", ["replica", "controller", "state-machine", "cluster"])
def test_the_profile_of_snapshots_makes_snapshots_and_damages_disks(members: str) -> None:
    snapshots, damaged = 0, 0
    for seed in range(3):
        actions: list[Action] = []
        result = SeedSearch(members=members, profile="snapshots-and-rot", chaos_ms=5_000).run(seed, actions)
        assert isinstance(result, Result), result.message
        snapshots += result.snapshots
        damaged += sum(isinstance(action, DamageDisk) for action in actions)
    assert snapshots > 3
    assert damaged > 3


def test_disks_of_dynamic_quorums_are_damaged() -> None:
    """A damaged voter returns with its directory id, or with an empty disk as another voter."""
    damage: Counter[Damage] = Counter()
    returns = 0
    for seed in range(6):
        actions: list[Action] = []
        run_dynamic(seed, 4, profile=VOTERS, chaos_ms=10_000, recorded=actions)
        damaged: set[int] = set()
        for action in actions:
            match action:
                case DamageDisk(node=node, what=what):
                    damage[what] += 1
                    damaged.add(node)
                case Start(node=node):
                    returns += node in damaged
                    damaged.discard(node)
    assert set(damage) > {Damage.ROT, Damage.WIPED}, damage
    assert returns > 1


@pytest.mark.parametrize(
    ("members", "profile"),
    [
        (members, profile.name)
        for members in ("core", "replica", "dynamic")
        for profile in (*profiles_of(members), *rare_profiles_of(members))
        if profile is not BROAD
    ],
)
def test_the_schedule_of_a_focused_run_replays_with_the_same_digest(members: str, profile: str) -> None:
    actions: list[Action] = []
    search = SeedSearch(members=members, profile=profile, chaos_ms=3000)
    result = search.run(3, actions)
    assert isinstance(result, Result), result.message
    schedule = Schedule(scenario=search.scenario(3), actions=tuple(actions))
    replayed = replay(decode_schedule(encode_schedule(schedule), "memory"))
    assert replayed.failure is None
    assert replayed.digest == result.digest
    assert replayed.performed == schedule.actions


def test_only_documented_violations_end_a_run_with_a_careless_operator() -> None:
    """A static voter that returns with an empty disk votes and acknowledges again, and nothing else goes wrong."""
    outcomes = [SeedSearch(members="core", profile="wiped-static-voters").run(seed) for seed in range(60)]
    assert [outcome.message for outcome in outcomes if isinstance(outcome, Schedule)] == []
    broken = Counter(outcome.documented for outcome in outcomes if isinstance(outcome, Result))
    assert len(broken) > 2, broken
    assert set(broken) <= {"", *DOCUMENTED.values()}


def test_a_careless_operator_excuses_no_other_bug() -> None:
    search = SeedSearch(members="core", profile="wiped-static-voters", mutant="fetch-before-flush")
    assert any(isinstance(search.run(seed), Schedule) for seed in range(20))
