"""Seeded runs with data in which processes have both roles, or the voters change."""

from __future__ import annotations

import pytest

from kraft.sim.nodes.cluster import COMBINED_CLUSTER, DATA_CLUSTER, DYNAMIC_DATA_CLUSTER, draw_combined
from kraft.sim.nodes.combined_node import CombinedNode
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.runs.brokers import cluster_simulator
from kraft.sim.runs.seeded_run import CALM_MS, Result, whole_run
from kraft.sim.runs.simulator import Simulator
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.record_watch import RecordWatch
from kraft.sim.world.disk_damage import Damage
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE

ALL_COMBINED = 1
"""A seed of a combined cluster without separate brokers."""
TWO_ABSENT = 0
"""Such a seed in which two brokers or more would stay down until they are fenced."""


def _run(kind: str, seed: int, chaos_ms: int) -> tuple[Result, RecordWatch]:
    print(f"seed {seed} of {kind}")
    simulator = cluster_simulator(seed, kind=kind)
    result = whole_run(simulator, chaos_ms, CALM_MS, again=f"run_cluster({seed}, kind={kind!r}, chaos_ms={chaos_ms})")
    watch = simulator.world.watch
    assert isinstance(watch, RecordWatch), watch
    return result, watch


def _running(seed: int = ALL_COMBINED) -> Simulator:
    """A combined cluster without faults, in which all brokers are loaded and unfenced, and there is a topic."""
    simulator = cluster_simulator(seed, kind=COMBINED_CLUSTER, faults=())
    watch = simulator.world.watch
    assert isinstance(watch, RecordWatch), watch
    simulator.begin()
    simulator.run_until(30_000, lambda: len(watch.not_fenced((1, 2, 3))) == 3 and len(watch.ledger.image.topics) > 0)
    assert watch.not_fenced((1, 2, 3)) == [1, 2, 3]
    return simulator


def _member(simulator: Simulator, node_id: int) -> CombinedNode:
    member = simulator.world.hosts[node_id].member
    assert isinstance(member, CombinedNode), member
    return member


def _roles(member: CombinedNode) -> tuple[object, object]:
    """The running controller and the replicas of the running broker."""
    return member.controller, member.manager


@pytest.mark.parametrize("kind", [COMBINED_CLUSTER, DYNAMIC_DATA_CLUSTER])
def test_records_survive_under_faults(kind: str) -> None:
    results = [_run(kind, seed, 10_000) for seed in (2, 5)]
    assert sum(watch.records.acknowledgements for _, watch in results) > 30, "nothing is written"
    assert sum(watch.records.consumed for _, watch in results) > 30, "nothing is read"
    if kind == DYNAMIC_DATA_CLUSTER:
        assert sum(result.voter_sets for result, _ in results) > 2, "the voters stay"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 1100, 20))
@pytest.mark.parametrize("kind", [COMBINED_CLUSTER, DYNAMIC_DATA_CLUSTER])
def test_records_survive_under_faults_in_a_hundred_runs(kind: str, first: int) -> None:
    search = SeedSearch(members=kind)
    outcomes = [search.run(seed) for seed in range(first, first + 20)]
    assert [one for one in outcomes if not hasattr(one, "digest")] == []


def test_a_crash_within_the_step_that_deletes_segments_is_no_loss() -> None:
    """In the run of this seed the broker starts twice before it opens the log again."""
    assert isinstance(SeedSearch(members=COMBINED_CLUSTER).run(62), Result)


def test_half_of_the_combined_clusters_have_separate_nodes_too() -> None:
    counts = [draw_combined(COMBINED_CLUSTER, seed, 3, 3) for seed in range(100)]
    assert {1, 2, 3} == set(counts)
    assert 50 < counts.count(3) < 85
    assert draw_combined(DATA_CLUSTER, 0, 3, 3) == draw_combined(COMBINED_CLUSTER, 0, 3, 0) == 0
    mixed = next(seed for seed, count in enumerate(counts) if count == 1)
    nodes = cluster_simulator(mixed, kind=COMBINED_CLUSTER).world.hosts
    assert list(nodes) == [1, 2, 3, 101, 102]
    brokers = [one for one, host in nodes.items() if isinstance(host.member, DataBroker)]
    assert brokers == [1, 101, 102]


def test_a_crash_ends_both_roles() -> None:
    simulator = _running()
    member = _member(simulator, 1)
    assert None not in _roles(member)
    simulator.crash(1, 500)
    assert _roles(member) == (None, None)
    assert simulator.world.running() == [2, 3]


def test_a_graceful_shutdown_ends_the_broker_before_the_controller() -> None:
    simulator = _running()
    member = _member(simulator, 2)
    agent = member.agent
    assert agent is not None
    simulator.shut_down(2, 20_000, 1_000_000)
    simulator.run_until(simulator.now_ms + 19_000, lambda: agent.may_stop)
    assert agent.may_stop
    simulator.run_until(simulator.now_ms + 20_000, lambda: 2 not in simulator.world.running())
    assert 2 not in simulator.world.running()
    assert member.disk.files.exists(f"/log/{CLEAN_SHUTDOWN_FILE}")


def test_the_disk_of_a_broker_that_votes_is_never_damaged() -> None:
    """The ledger of records would take the loss for one of the cluster."""
    mixed = next(seed for seed in range(100) if draw_combined(COMBINED_CLUSTER, seed, 3, 3) == 1)
    losses = cluster_simulator(mixed, kind=COMBINED_CLUSTER).world.disk_losses
    assert [losses.is_bearable(one) for one in (1, 2, 3, 101)] == [False, True, True, False]
    simulator = cluster_simulator(ALL_COMBINED, kind=COMBINED_CLUSTER)
    simulator.damage_disk(1, Damage.WIPED, 1)
    assert not simulator.world.disk_losses.is_damaged(1)


def test_no_majority_of_the_voters_stays_down_until_it_is_fenced() -> None:
    """Such brokers would wait for ever: only a quorum fences a broker. The seed draws several absent brokers."""
    simulator = _running(TWO_ABSENT)
    work = simulator._work
    assert work is not None
    work.end()
    assert len(simulator.world.kept_down) == 1
    simulator.run_until(simulator.now_ms + 30_000, lambda: not simulator.world.kept_down)
    assert not simulator.world.kept_down
