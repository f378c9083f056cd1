"""The coordinators' scenarios on brokers of ours, on both makes in one cluster, and on Kafka's alone as the reference.

By default the quick ones run on ours, and a few on the two others; all that wait for time-outs are soak tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from every_coordinator_scenario import COORDINATOR_SCENARIOS, CoordinatorScenario
from support.interop.real_kafka import KafkaInstallation
from support.scenarios.coordinator_client import COORDINATED
from support.scenarios.scenario_cluster import MAKES, Cluster, scenario_cluster

pytestmark = pytest.mark.kafka
# With the make beside it, a scenario is no value that two clusters have in common, which pytest would run in turn.
CASES = [
    pytest.param(make, (make, one), id=f"{make}-{one.name}", marks=[] if make in one.by_default else [pytest.mark.soak])
    for make in MAKES
    for one in COORDINATOR_SCENARIOS
]


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka: KafkaInstallation
) -> Iterator[Cluster]:
    make: str = request.param
    with scenario_cluster(tmp_path_factory.mktemp(make), MAKES[make], kafka, COORDINATED) as cluster:
        yield cluster


@pytest.mark.parametrize(("cluster", "turn"), CASES, indirect=["cluster"], scope="module")
def test_a_coordinator_does_what_the_plan_says(cluster: Cluster, turn: tuple[str, CoordinatorScenario]):
    cluster.restore()
    turn[1].run(cluster)
