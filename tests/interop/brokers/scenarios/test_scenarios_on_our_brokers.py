"""The quick scenarios of the test plan on three brokers of ours in processes; one cluster serves all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from every_scenario import SCENARIOS, Scenario
from scenario_cluster import MAKES, Cluster, scenario_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with scenario_cluster(tmp_path_factory.mktemp("ours"), MAKES["ours"]) as cluster:
        yield cluster


@pytest.mark.parametrize("one", [one for one in SCENARIOS if one.by_default], ids=lambda one: one.name)
def test_a_scenario_holds_on_our_brokers(cluster: Cluster, one: Scenario):
    cluster.restore()
    one.run(cluster)
