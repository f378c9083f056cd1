"""Brokers of ours and of each release of Kafka in one cluster, under idempotent producers of every codec: kills,
restarts, leaders that move from one make to the other, and brokers that are replaced by those of the other make.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from rolled_brokers import Loads, restart
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.our_nodes import told
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION, OLDER_VERSION
from support.scenarios.scenario_cluster import BrokerMake, scenario_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
TWO_OF_EACH: tuple[BrokerMake, ...] = ("ours", "kafka", "ours", "kafka")
PER_SECOND = 60


@pytest.mark.parametrize("version", [KAFKA_VERSION, NEWER_VERSION])
def test_each_broker_of_a_mixed_cluster_is_killed_and_restarted_in_turn(version: str, tmp_path: Path) -> None:
    kafka = found_or_skipped(version)
    with scenario_cluster(tmp_path, TWO_OF_EACH, kafka, release=version) as cluster:
        with ExitStack() as running:
            loads = Loads(cluster, running, per_second=PER_SECOND)
            for broker in cluster.order:
                restart(cluster, broker, loads, "kill")
                assert {cluster.makes[one] for one in loads.let_first_replicas_lead()} == {"ours", "kafka"}
            for broker in cluster.order:
                restart(cluster, broker, loads, "stop")
                loads.let_first_replicas_lead()
        assert loads.check() > 0


@pytest.mark.parametrize(
    ("before", "after"),
    [(KAFKA_VERSION, KAFKA_VERSION), (OLDER_VERSION, NEWER_VERSION), (KAFKA_VERSION, NEWER_VERSION)],
)
def test_brokers_are_replaced_by_ours_and_then_by_kafkas_again(before: str, after: str, tmp_path: Path) -> None:
    """With a controller of ours where the release changes. Once all brokers know it, its level is finalised."""
    all_of_kafka: tuple[BrokerMake, ...] = ("kafka", "kafka", "kafka")
    controllers: BrokerMake = "kafka" if before == after else "ours"
    of_before = found_or_skipped(before)
    with scenario_cluster(tmp_path, all_of_kafka, of_before, release=before, controllers=controllers) as cluster:
        with ExitStack() as running:
            loads = Loads(cluster, running, per_second=PER_SECOND)
            rounds: tuple[BrokerMake, ...] = ("ours", "kafka")
            for make in rounds:
                for broker in cluster.order:
                    restart(cluster, broker, loads, "stop", make)
                loads.let_first_replicas_lead()
                assert set(cluster.makes.values()) == {make}
                cluster.kafka = found_or_skipped(after)
            if before != after:
                where = ("--bootstrap-controller", cluster.layout.bootstrap)
                told("features", "upgrade", *where, "--release-version", after)
                loads.wait_for_more()
        assert loads.check() > 0
