"""Members of a share group, leaders and coordinators are killed and paused: nothing is lost, what was accepted never
comes again, and no record is delivered more often than the limit says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from share_chaos import LOCK_MS, Chaos
from support.interop.real_kafka import KafkaInstallation
from support.scenarios.scenario_cluster import MAKES, scenario_cluster
from support.scenarios.share_scenarios import sharing_for

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
CASES = (
    ("ours", 100_000, 40),
    ("mixed", 100_000, 40),
    ("ours", 2000, 6),
)


@pytest.mark.parametrize(("make", "count", "faults"), CASES)
def test_nothing_is_lost_and_nothing_comes_again(
    make: str, count: int, faults: int, tmp_path: Path, newer_kafka: KafkaInstallation
) -> None:
    with scenario_cluster(
        tmp_path, MAKES[make], newer_kafka, sharing_for(LOCK_MS), release=newer_kafka.release
    ) as cluster:
        verdict = Chaos(cluster, count, faults, seed=57).run()
        print(verdict)
        assert (verdict.lost, verdict.again, verdict.beyond) == ([], [], []), verdict
        assert verdict.accepted + verdict.exhausted + verdict.untold == count
