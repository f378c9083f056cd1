"""The scenarios of share groups on brokers of ours, on both makes in one cluster, and on Kafka's as the reference.

By default some run on ours, and the first one and the moves on the others; the rest are soak tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from support.interop.real_kafka import KafkaInstallation
from support.scenarios.coordinator_client import CoordinatorScenario
from support.scenarios.scenario_cluster import MAKES, Cluster, scenario_cluster
from support.scenarios.share_scenarios import SHARE_SCENARIOS, SHARING

pytestmark = pytest.mark.kafka
KINDS: Final = {"ours": "ours", "mixed": "mixed", "mixed-4.4": "mixed", "jvm": "jvm"}
"""The brokers of each kind of cluster. Those of Kafka are of 4.3.1 in `mixed`, and of 4.4.0 elsewhere."""
CASES: Final = [
    pytest.param(kind, (kind, one), id=f"{kind}-{one.name}", marks=[] if kind in one.by_default else [pytest.mark.soak])
    for kind in KINDS
    for one in SHARE_SCENARIOS
]


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka: KafkaInstallation,
    newer_kafka: KafkaInstallation,
) -> Iterator[Cluster]:
    kind: str = request.param
    release = kafka if kind == "mixed" else newer_kafka
    with scenario_cluster(
        tmp_path_factory.mktemp(kind), MAKES[KINDS[kind]], release, SHARING, release=release.release
    ) as cluster:
        yield cluster


@pytest.mark.parametrize(("cluster", "turn"), CASES, indirect=["cluster"], scope="module")
def test_a_share_group_does_what_the_plan_says(cluster: Cluster, turn: tuple[str, CoordinatorScenario]) -> None:
    cluster.restore()
    turn[1].run(cluster)
