"""All scenarios of the test plan on brokers of ours, on both makes in one cluster, and on Kafka's alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from every_scenario import SCENARIOS, Scenario
from lifecycle_scenarios import kill_at_full_rate
from support.interop.real_kafka import KafkaInstallation
from support.scenarios.scenario_cluster import KINDS, MAKES, Cluster, Kind, scenario_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
CLUSTERS = [(make, kind) for make in MAKES for kind in KINDS]
CASES = [
    pytest.param(cluster, one, first, id=f"{make}-{kind.name}-{one.name}-{101 + first}-leads")
    for cluster in CLUSTERS
    for make, kind in (cluster,)
    for one in SCENARIOS
    for first in range(2 if len(set(MAKES[make])) > 1 else 1)
    if one.kind is kind and make in one.makes
]
"""In the mixed cluster ours leads first, and then Kafka's; in the others a second order would say nothing new."""


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka: KafkaInstallation
) -> Iterator[Cluster]:
    make: str
    kind: Kind
    make, kind = request.param
    with scenario_cluster(tmp_path_factory.mktemp(f"{make}-{kind.name}"), MAKES[make], kafka, kind) as cluster:
        yield cluster


@pytest.mark.parametrize(("cluster", "one", "first"), CASES, indirect=["cluster"], scope="module")
def test_a_scenario_holds_on_each_make(cluster: Cluster, one: Scenario, first: int):
    brokers = tuple(cluster.makes)
    cluster.restore()
    cluster.order = (*brokers[first:], *brokers[:first])
    one.run(cluster)


@pytest.mark.parametrize("make", ["ours", "mixed"])
def test_a_hundred_kills_lose_nothing_that_was_acknowledged(make: str, kafka: KafkaInstallation, tmp_path: Path):
    """B31 at its full size."""
    with scenario_cluster(tmp_path, MAKES[make], kafka) as cluster:
        kill_at_full_rate(cluster, "kills", 100)
