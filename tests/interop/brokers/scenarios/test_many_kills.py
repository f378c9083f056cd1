"""B31 at its full size: a hundred kills under load, on brokers of ours and on both makes in one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from lifecycle_scenarios import kill_at_full_rate
from real_kafka import KafkaInstallation
from scenario_cluster import MAKES, scenario_cluster

KILLS = 100


@pytest.mark.kafka
@pytest.mark.soak
@pytest.mark.parametrize("make", ["ours", "mixed"])
def test_a_hundred_kills_lose_nothing_that_was_acknowledged(make: str, kafka: KafkaInstallation, tmp_path: Path):
    with scenario_cluster(tmp_path, MAKES[make], kafka) as cluster:
        kill_at_full_rate(cluster, "kills", KILLS)
