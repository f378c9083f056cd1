"""Every record is copied exactly once, whoever is killed: coordinators, brokers, controllers, and the copiers.

`TRIO_SEED` gives another order of deaths.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exactly_once import EXACTLY_ONCE, copy_under_faults
from support.interop.real_kafka import KafkaInstallation
from support.scenarios.scenario_cluster import MAKES, scenario_cluster

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("make", "seconds", "away"),
    [
        # A broker that is back before others miss it: librdkafka may wait half a minute for one that they do.
        pytest.param("ours", 6, 0.5, id="ours"),
        pytest.param("ours", 600, 4, id="ours-at-length", marks=pytest.mark.soak),
        pytest.param("mixed", 600, 4, id="mixed-at-length", marks=pytest.mark.soak),
        pytest.param("jvm", 60, 4, id="jvm", marks=pytest.mark.soak),
    ],
)
def test_each_record_is_copied_exactly_once_whoever_is_killed(
    make: str, seconds: int, away: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kafka: KafkaInstallation | None = None if make == "ours" else request.getfixturevalue("kafka")
    seed = int(os.environ.get("TRIO_SEED", "42"))
    print(f"seed {seed}")
    with scenario_cluster(tmp_path, MAKES[make], kafka, EXACTLY_ONCE) as cluster:
        print(copy_under_faults(cluster, seconds, seed=seed, away=away))
