"""A cluster of Apache Kafka becomes one of ours, one controller after the other, and Kafka's again, under load."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_cluster import BrokerCluster, broker_cluster
from load import ANSWER_LOST, Load
from mixed_quorum import Make
from real_kafka import KafkaInstallation

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
MAKES: tuple[Make, ...] = ("ours", "kafka")


def replace(cluster: BrokerCluster, node: int, make: Make) -> None:
    """End a controller politely, and let one of the other make go on with its directory."""
    cluster.controllers.end(node, "stop")
    cluster.controllers.makes[node] = make
    cluster.controllers.start(node)
    cluster.controllers.wait_until_listening()
    leader = cluster.leader()
    print(f"node {node} is {make}; {leader} leads, {cluster.controllers.makes[leader]}")


def test_controllers_are_replaced_one_at_a_time(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """All of Kafka's by ours, and back: no produce fails, no change is lost, and all logs are the same."""
    with broker_cluster(kafka, tmp_path, "kafka") as cluster:
        load = Load(cluster, "rolling")
        with load.running():
            for make in MAKES:
                for node in cluster.layout.ports:
                    replace(cluster, node, make)
                    load.wait_for_progress()
                assert set(cluster.controllers.makes.values()) == {make}
        print(
            f"{len(load.writing.acknowledged)} messages, {load.administering.acknowledged} changes, {load.seen.errors}"
        )
        assert load.seen.errors.keys() <= ANSWER_LOST
        cluster.controllers.end_all()
