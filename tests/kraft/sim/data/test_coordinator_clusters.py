"""Seeded runs of brokers that coordinate groups and transactions."""

from __future__ import annotations

import pytest

from kraft.sim.faults.profiles import SMALL_LOGS
from kraft.sim.nodes.cluster import COORDINATOR_CLUSTER
from kraft.sim.runs.brokers import CHAOS_MS, cluster_simulator
from kraft.sim.runs.seeded_run import CALM_MS, whole_run
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.coordinator_watch import CoordinatorWatch
from support.kraft.hash_seeds import outputs_of


def _run(seed: int) -> CoordinatorWatch:
    print(f"seed {seed} of {COORDINATOR_CLUSTER}")
    search = SeedSearch(members=COORDINATOR_CLUSTER)
    profile = search.profile_of(seed)
    simulator = cluster_simulator(seed, search.nodes_of(seed), kind=COORDINATOR_CLUSTER, profile=profile)
    whole_run(simulator, CHAOS_MS, CALM_MS, again=f"run_cluster({seed}, kind={COORDINATOR_CLUSTER!r})")
    watch = simulator.world.watch
    assert isinstance(watch, CoordinatorWatch), watch
    assert not watch.is_void, "records were lost, and nothing is judged"
    return watch


def test_groups_and_transactions_go_on_under_faults() -> None:
    """Members are assigned partitions and commit, workers end transactions, and the invariants hold."""
    groups, both = _run(16), _run(10)
    assert groups.groups.assignments > 20, "no group has come together"
    assert groups.groups.commits > 10, "nothing is committed"
    assert both.groups.fetches > 20, "nobody looks"
    assert both.transactions.ended >= 3, "no transaction has ended"


def test_offsets_are_forgotten_in_some_runs() -> None:
    assert _run(25).groups.forgotten > 3, "nothing is forgotten"


def _cleaned(seed: int) -> CoordinatorWatch:
    print(f"seed {seed} of {COORDINATOR_CLUSTER}, profile {SMALL_LOGS.name}")
    simulator = cluster_simulator(seed, kind=COORDINATOR_CLUSTER, profile=SMALL_LOGS)
    whole_run(simulator, CHAOS_MS, CALM_MS, again=f"run_cluster({seed}, kind={COORDINATOR_CLUSTER!r}), SMALL_LOGS")
    watch = simulator.world.watch
    assert isinstance(watch, CoordinatorWatch), watch
    return watch


def test_coordinators_go_on_with_cleaned_logs() -> None:
    """Cleaners take what was replaced, while the ledgers judge the coordinators that load the rest."""
    watch = _cleaned(2)
    assert watch.compaction.cleaned > 50, "nothing was cleaned"
    assert watch.transactions.ended >= 3, "no transaction has ended"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_coordinators_go_on_with_cleaned_logs_in_two_hundred_runs(first: int) -> None:
    assert sum(_cleaned(seed).compaction.cleaned for seed in range(first, first + 20)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_groups_and_transactions_go_on_under_faults_in_four_hundred_runs(first: int) -> None:
    search = SeedSearch(members=COORDINATOR_CLUSTER)
    outcomes = [search.run(seed) for seed in range(first, first + 20)]
    assert [one for one in outcomes if not hasattr(one, "digest")] == []


@pytest.mark.soak
def test_a_seed_with_coordinators_gives_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = (
        "from kraft.sim import run_cluster; print(run_cluster(5, kind='coordinator-cluster', chaos_ms=9000)[0].digest)"
    )
    assert len(outputs_of(script)) == 1
