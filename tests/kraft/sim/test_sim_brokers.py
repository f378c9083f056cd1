"""Seeded runs of whole clusters, brokers and administration included; a failure names its seed and how to replay it."""

from __future__ import annotations

from random import Random

import pytest

from kraft.sim import Result, run_cluster
from kraft.sim.nodes import node_disk
from kraft.sim.nodes.cluster import CLUSTER, DYNAMIC_CLUSTER
from metadata_log.log.log_dir import read_bootstrap
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.releases import LATEST_LEVEL, LATEST_RELEASE
from support.kraft.hash_seeds import outputs_of


def _results(first: int, count: int, nodes: int, brokers: int, kind: str) -> list[tuple[Result, int]]:
    """The result of each run, and how many changes of partitions there were."""
    print(f"seeds {first} to {first + count - 1} of {kind}, {nodes} controllers, {brokers} brokers")
    runs = (run_cluster(seed, nodes, brokers, kind=kind) for seed in range(first, first + count))
    return [(result, ledger.changes) for result, ledger in runs]


def _run_slice(first: int, count: int, nodes: int = 3, brokers: int = 3, kind: str = CLUSTER) -> int:
    """How many changes of partitions there were."""
    return sum(changes for _, changes in _results(first, count, nodes, brokers, kind))


def test_invariants_of_clusters_with_brokers_hold_under_faults() -> None:
    """Leaders in their ISRs, epochs that rise, nothing that was acknowledged is led away, equal metadata everywhere;
    and in the end every partition is whole again.
    """
    assert _run_slice(0, 12) > 12 * 10, "a simulation in which nothing changes shows nothing"


def test_invariants_of_clusters_hold_while_voters_change() -> None:
    """Brokers find each new leader, and controllers and brokers start from snapshots."""
    done = _results(0, 8, 4, 3, DYNAMIC_CLUSTER)
    assert sum(changes for _, changes in done) > 8 * 10
    assert sum(result.voter_sets for result, _ in done) > 2 * 8, "the voters hardly change"
    assert sum(result.snapshots for result, _ in done) > 8


@pytest.mark.parametrize("kind", [CLUSTER, DYNAMIC_CLUSTER])
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.soak) for first in range(100, 1000, 100))]
)
def test_invariants_of_clusters_of_the_newest_release_hold(
    first: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds simulate clusters of one release (`node_disk.RELEASE`), so that each stays the run that it is; here the
    same seeds begin at the newest level, with first records in the snapshot of offset 0.
    """
    monkeypatch.setattr(node_disk, "RELEASE", LATEST_RELEASE)
    files = node_disk.NodeDisk(1, Random(0), None).files
    levels = [decode_record(value).record for _, value in read_bootstrap(files, node_disk.DIRECTORY)]
    assert FeatureLevelRecord(name="metadata.version", feature_level=LATEST_LEVEL) in levels
    assert _run_slice(first, 3 if first == 0 else 100, nodes=4, kind=kind) > 0


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 5000, 100))
def test_invariants_of_clusters_with_brokers_hold_in_four_thousand_runs(first: int) -> None:
    _run_slice(first, 70)
    _run_slice(first + 70, 20, nodes=1, brokers=4)
    _run_slice(first + 90, 10, nodes=5, brokers=2)
    _run_slice(first, 30, nodes=4, kind=DYNAMIC_CLUSTER)


def test_a_cluster_seed_gives_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = "from kraft.sim import run_cluster; print(run_cluster(1, chaos_ms=6000)[0].digest)"
    assert len(outputs_of(script)) == 1
