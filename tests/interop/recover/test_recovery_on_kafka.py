"""Apache Kafka loses controllers' disks, and boots again from what `kraft recover` made of the copies that survive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recovery_cluster import CONTROLLERS, RecoveryCluster, recovery_cluster
from support.interop.our_nodes import told as printed
from support.interop.real_kafka import KafkaInstallation
from support.loopback import free_ports

pytestmark = pytest.mark.kafka


def check_everything_is_back(cluster: RecoveryCluster, topics: list[str], before: list[str]) -> None:
    """The broker serves, every acknowledged message is there once, no directory was renamed, and writing goes on."""
    cluster.start_brokers()
    assert cluster.topics() == topics
    assert cluster.consumed() == cluster.acknowledged
    assert [name for name in before if name not in cluster.partition_dirs()] == []
    assert [path.name for path in cluster.broker_dir().iterdir() if path.name.endswith("-stray")] == []
    for topic in topics:
        cluster.produce(topic, 50)
    cluster.create("afterwards")
    cluster.produce("afterwards", 50)
    assert cluster.consumed() == cluster.acknowledged


def test_a_dynamic_quorum_boots_from_its_only_surviving_controller(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Procedure P2, and the way back to three voters."""
    with recovery_cluster(kafka, tmp_path, dynamic=True) as cluster:
        ports = dict(cluster.layout.ports)
        before = cluster.partition_dirs()
        cluster.lose(2, 3)
        plan = cluster.plan([1])
        assert plan["quorumPossibleWithoutRecovery"] is False
        assert plan["strayPartitions"] == []
        told = cluster.apply(*(["--voters", f"1=127.0.0.1:{ports[1]}"] if plan["best"] != "c1" else []))
        assert {"start: epoch", "start of Kafka: epoch", "start of Kafka: topics"} <= set(cluster.verify_on_kafka())
        cluster.take_over({1: ports[1]})
        cluster.controllers.start(1)
        cluster.controllers.wait_until_listening()
        status = cluster.leader()
        assert status["leaderEpoch"] > told["epoch"]
        check_everything_is_back(cluster, ["early"], before)
        assert cluster.verify_running() == []
        seen = json.loads(printed("top", "--once", "--json", "--bootstrap-server", cluster.bootstrap))
        assert seen["leaderId"] == 1, "the broker names the recovered controller"
        for node in (2, 3):
            cluster.add(node, ports[node])
        assert cluster.voters() == set(CONTROLLERS)
        assert cluster.verify_running() == []
        assert cluster.consumed() == cluster.acknowledged


@pytest.mark.soak
def test_a_static_quorum_boots_from_its_only_surviving_controller(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Procedure P1 with clones: the three controllers start at once from equal logs."""
    with recovery_cluster(kafka, tmp_path, dynamic=False) as cluster:
        ports = dict(cluster.layout.ports)
        before = cluster.partition_dirs()
        cluster.lose(1, 3)
        assert cluster.plan([2])["quorumPossibleWithoutRecovery"] is False
        cluster.apply("--voters", ",".join(f"{node}=127.0.0.1:{port}" for node, port in ports.items()))
        cluster.take_over(ports)
        cluster.controllers.start()
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early"], before)
        assert cluster.voters() == set(CONTROLLERS)


@pytest.mark.soak
@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
def test_a_survivor_that_is_behind_boots_with_the_rescued_topics(
    kafka: KafkaInstallation, tmp_path: Path, dynamic: bool
) -> None:
    """Procedure P6: without the rescue the broker would rename the directories of the newer topic."""
    with recovery_cluster(kafka, tmp_path, dynamic=dynamic) as cluster:
        ports = dict(cluster.layout.ports)
        cluster.controllers.processes.pop(3).kill()
        cluster.create("late")
        cluster.produce("late", 300)
        before = cluster.partition_dirs()
        cluster.lose(1, 2)
        plan = cluster.plan([3], "--observers", "no")
        assert sorted(stray["dir"] for stray in plan["strayPartitions"]) == ["late-0", "late-1"]
        assert plan["brokersAhead"]
        told = cluster.apply("--voters", f"3=127.0.0.1:{ports[3]}", "--rescue-topics", "late")
        assert told["acceptedStrays"] == []
        cluster.take_over({3: ports[3]})
        cluster.controllers.start(3)
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early", "late"], before)


@pytest.mark.soak
@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
def test_all_controllers_are_lost_and_a_brokers_copy_is_enough(
    kafka: KafkaInstallation, tmp_path: Path, dynamic: bool
) -> None:
    """Procedure P3, with three new controllers at once."""
    with recovery_cluster(kafka, tmp_path, dynamic=dynamic) as cluster:
        before = cluster.partition_dirs()
        cluster.lose(*CONTROLLERS)
        ports = dict(zip((7, 8, 9), free_ports(3), strict=True))
        assert cluster.plan([])["best"] == "b101"
        cluster.apply("--voters", ",".join(f"{node}=127.0.0.1:{port}" for node, port in ports.items()))
        cluster.take_over(ports)
        cluster.controllers.start()
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early"], before)
        assert cluster.voters() == set(ports)


@pytest.mark.soak
def test_a_static_quorum_boots_as_a_dynamic_one(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Procedure P8: kraft.version rises within the recovery."""
    with recovery_cluster(kafka, tmp_path, dynamic=False) as cluster:
        ports = dict(cluster.layout.ports)
        before = cluster.partition_dirs()
        cluster.lose(2, 3)
        cluster.plan([1])
        cluster.apply("--kraft-version", "1", "--voters", f"1=127.0.0.1:{ports[1]}")
        cluster.take_over({1: ports[1]})
        cluster.become_dynamic()
        cluster.controllers.start(1)
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early"], before)
        cluster.add(2, ports[2])
        assert cluster.voters() == {1, 2}


@pytest.mark.soak
def test_a_dynamic_quorum_boots_from_an_image_alone(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with recovery_cluster(kafka, tmp_path, dynamic=True) as cluster:
        ports = dict(cluster.layout.ports)
        before = cluster.partition_dirs()
        cluster.lose(2, 3)
        cluster.plan([1])
        cluster.apply("--from-image", "--voters", f"1=127.0.0.1:{ports[1]}")
        cluster.take_over({1: ports[1]})
        cluster.controllers.start(1)
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early"], before)


@pytest.mark.soak
def test_voters_boot_under_new_addresses(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Procedure P5: all disks are there, and no voter can reach another one at the recorded address."""
    with recovery_cluster(kafka, tmp_path, dynamic=True) as cluster:
        before = cluster.partition_dirs()
        cluster.lose()
        ports = dict(zip(CONTROLLERS, free_ports(3), strict=True))
        assert cluster.plan(CONTROLLERS)["quorumPossibleWithoutRecovery"] is True
        moved = [word for node, port in ports.items() for word in ("--endpoint", f"{node}=127.0.0.1:{port}")]
        cluster.apply(*moved)
        cluster.take_over(ports)
        cluster.controllers.start()
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early"], before)
        assert cluster.voters() == set(CONTROLLERS)


@pytest.mark.soak
def test_a_broker_is_lost_together_with_the_controllers(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Procedure P9: the surviving broker leads every partition at once, and all messages are there."""
    with recovery_cluster(kafka, tmp_path, dynamic=True, brokers=(101, 102)) as cluster:
        ports = dict(cluster.layout.ports)
        before = cluster.partition_dirs()
        cluster.lose(2, 3)
        cluster.lose_broker(102)
        plan = cluster.plan([1], "--brokers-gone", "102")
        assert {one["leader"] for one in plan["partitionsOfBrokersGone"] if one["topic"] == "early"} == {101}
        cluster.apply("--voters", f"1=127.0.0.1:{ports[1]}")
        cluster.take_over({1: ports[1]})
        cluster.controllers.start(1)
        cluster.controllers.wait_until_listening()
        check_everything_is_back(cluster, ["early"], before)
