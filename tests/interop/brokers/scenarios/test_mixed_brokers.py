"""Brokers of ours and of Kafka 4.3.1 in one cluster, under idempotent producers of every codec: kills, restarts,
leaders that move from one make to the other, and brokers that are replaced by those of the other make.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from real_kafka import KafkaInstallation
from rolling import Loads, restart
from scenario_cluster import BrokerMake, scenario_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
TWO_OF_EACH: tuple[BrokerMake, ...] = ("ours", "kafka", "ours", "kafka")
PER_SECOND = 60


def test_each_broker_of_a_mixed_cluster_is_killed_and_restarted_in_turn(kafka: KafkaInstallation, tmp_path: Path):
    with scenario_cluster(tmp_path, TWO_OF_EACH, kafka) as cluster:
        with ExitStack() as running:
            loads = Loads(cluster, running, per_second=PER_SECOND)
            for broker in cluster.order:
                restart(cluster, broker, loads, "kill")
                assert {cluster.makes[one] for one in loads.let_first_replicas_lead()} == {"ours", "kafka"}
            for broker in cluster.order:
                restart(cluster, broker, loads, "stop")
                loads.let_first_replicas_lead()
        assert loads.check() > 0


def test_brokers_are_replaced_by_ours_and_then_by_kafkas_again(kafka: KafkaInstallation, tmp_path: Path):
    with scenario_cluster(tmp_path, ("kafka", "kafka", "kafka"), kafka) as cluster:
        with ExitStack() as running:
            loads = Loads(cluster, running, per_second=PER_SECOND)
            rounds: tuple[BrokerMake, ...] = ("ours", "kafka")
            for make in rounds:
                for broker in cluster.order:
                    restart(cluster, broker, loads, "stop", make)
                loads.let_first_replicas_lead()
                assert set(cluster.makes.values()) == {make}
        assert loads.check() > 0
