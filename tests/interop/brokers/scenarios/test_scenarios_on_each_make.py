"""All scenarios of the test plan on brokers of ours, on both makes in one cluster, and on Kafka's alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from every_scenario import SCENARIOS, Scenario
from real_kafka import KafkaInstallation
from scenario_cluster import MAKES, Cluster, scenario_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.soak]


@pytest.fixture(scope="module", params=MAKES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka: KafkaInstallation
) -> Iterator[Cluster]:
    make: str = request.param
    with scenario_cluster(tmp_path_factory.mktemp(make), MAKES[make], kafka) as cluster:
        yield cluster


@pytest.mark.parametrize("first", range(2), ids=("101-leads", "102-leads"))
@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_holds_on_each_make(cluster: Cluster, one: Scenario, first: int):
    """In the mixed cluster ours leads first, and then Kafka's; in the others the second order says nothing new."""
    brokers = tuple(cluster.makes)
    if first and len(set(cluster.makes.values())) == 1:
        pytest.skip("all brokers are of one make")
    cluster.restore()
    cluster.order = (*brokers[first:], *brokers[:first])
    one.run(cluster)
