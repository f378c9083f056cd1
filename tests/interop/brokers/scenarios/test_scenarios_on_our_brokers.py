"""The quick scenarios of the test plan on three brokers of ours in processes; one cluster of a kind serves all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from every_scenario import SCENARIOS, Scenario
from support.scenarios.scenario_cluster import KINDS, MAKES, Cluster, Kind, scenario_cluster

CASES = [
    pytest.param(kind, one, id=one.name)
    for kind in KINDS
    for one in SCENARIOS
    if one.kind is kind and one.by_default and "ours" in one.makes
]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kind: Kind = request.param
    with scenario_cluster(tmp_path_factory.mktemp(f"ours-{kind.name}"), MAKES["ours"], kind=kind) as cluster:
        yield cluster


@pytest.mark.parametrize(("cluster", "one"), CASES, indirect=["cluster"], scope="module")
def test_a_scenario_holds_on_our_brokers(cluster: Cluster, one: Scenario):
    cluster.restore()
    one.run(cluster)
