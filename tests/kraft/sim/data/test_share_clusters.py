"""Seeded runs of brokers that serve share groups."""

from __future__ import annotations

import pytest

from kraft.sim.nodes.cluster import SHARE_CLUSTER
from kraft.sim.runs.brokers import CHAOS_MS, cluster_simulator
from kraft.sim.runs.seeded_run import CALM_MS, Result, whole_run
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.share_watch import ShareWatch
from support.kraft.hash_seeds import outputs_of


def _run(seed: int, chaos_ms: int = CHAOS_MS) -> ShareWatch:
    print(f"seed {seed} of {SHARE_CLUSTER}")
    search = SeedSearch(members=SHARE_CLUSTER)
    profile = search.profile_of(seed)
    simulator = cluster_simulator(seed, search.nodes_of(seed), kind=SHARE_CLUSTER, profile=profile)
    whole_run(simulator, chaos_ms, CALM_MS, again=f"run_cluster({seed}, kind={SHARE_CLUSTER!r}, chaos_ms={chaos_ms})")
    watch = simulator.world.watch
    assert isinstance(watch, ShareWatch), watch
    return watch


def test_share_groups_go_on_under_faults() -> None:
    """Members are given records, give some back and accept the others, leaders change, and the invariants hold."""
    watch = _run(0)
    assert not watch.is_void, "records were lost, and nothing is judged"
    shares = watch.shares
    assert shares.ended_records > 50, "nothing is accepted"
    assert shares.delivered_again > 10, "nothing is delivered again"
    assert shares.loads > 2, "no leader has changed"


@pytest.mark.parametrize("seed", range(1, 12))
def test_share_groups_go_on_in_short_runs(seed: int) -> None:
    assert _run(seed, chaos_ms=3000).logs.shown


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 2000, 20))
def test_share_groups_go_on_under_faults_in_two_thousand_runs(first: int) -> None:
    search = SeedSearch(members=SHARE_CLUSTER)
    outcomes = [search.run(seed) for seed in range(first, first + 20)]
    assert [one for one in outcomes if not isinstance(one, Result)] == []


@pytest.mark.soak
def test_a_seed_with_share_groups_gives_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = "from kraft.sim import run_cluster; print(run_cluster(5, kind='share-cluster', chaos_ms=9000)[0].digest)"
    assert len(outputs_of(script)) == 1
