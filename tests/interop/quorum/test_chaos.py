"""The same drawn faults on our controllers and on Kafka's, under Kafka's brokers: no record is lost on either."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import SystemRandom

import pytest
from kafka.admin import KafkaAdminClient

from quorum_chaos import SETTINGS, TARGETS, WAYS, Report, draw_faults, survive
from support.interop.broker_cluster import BrokerCluster, broker_cluster
from support.interop.load import PARTITIONS, read_committed
from support.interop.mixed_quorum import Make
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka
FAULTS = 170
"""About half an hour of faults: 120 took 22 minutes on two cores, 11 s each with the healing before the next."""
SLICE = 10
"""What one turn of the soak has time for."""
TOPIC = "chaos"


def seed_of_this_run() -> int:
    """A new seed, or the one of CHAOS_SEED, which repeats the faults of a run."""
    seed = int(os.environ.get("CHAOS_SEED") or SystemRandom().getrandbits(32))
    print(f"CHAOS_SEED={seed}")
    return seed


def run(kafka: KafkaInstallation, root: Path, make: Make, seed: int, count: int) -> Report:
    """Live through the faults, and check that each acknowledged record is there exactly once, and none twice."""
    root.mkdir()
    with broker_cluster(kafka, root, make, SETTINGS) as cluster:
        make_topic(cluster)
        report, acknowledged = survive(cluster, draw_faults(seed, count), TOPIC)
        there = read_committed(cluster, TOPIC)
        print(report)
        assert_nothing_is_lost(acknowledged, there)
        if make == "ours":
            assert report.ended_by_themselves == 0, "a controller of ours ended by itself"
    return report


def make_topic(cluster: BrokerCluster) -> None:
    """Three partitions, each with a replica and a preferred leader on each broker."""
    made = {"num_partitions": PARTITIONS, "replication_factor": 3, "configs": {"min.insync.replicas": "2"}}
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))) as admin:
        admin.create_topics({TOPIC: made}, wait_for_metadata=True)


def assert_nothing_is_lost(acknowledged: list[int], there: Counter[int]) -> None:
    """Each acknowledged record is there, and no record is there twice."""
    lost = [number for number in acknowledged if number not in there]
    twice = [number for number, times in there.items() if times > 1]
    assert acknowledged
    assert not lost, f"{len(lost)} acknowledged records are lost, the first is {lost[0]}"
    assert not twice, f"{len(twice)} records are there twice, the first is {twice[0]}"


def test_faults_are_determined_by_the_seed() -> None:
    faults = draw_faults(7, FAULTS)
    assert faults == draw_faults(7, FAULTS)
    assert faults != draw_faults(8, FAULTS)
    assert {(one.target, one.way) for one in faults[: len(TARGETS) * len(WAYS)]} == {
        (target, way) for target in TARGETS for way in WAYS
    }


@pytest.mark.parametrize("count", [1, pytest.param(SLICE, marks=pytest.mark.soak)])
def test_a_few_faults_on_our_controllers(kafka: KafkaInstallation, tmp_path: Path, count: int) -> None:
    """A slice of the soak below; each run draws other faults."""
    run(kafka, tmp_path / "ours", "ours", seed_of_this_run(), count)


@pytest.fixture(scope="module")
def reports() -> dict[Make, Report]:
    """The results of the faults, by the make of the controllers."""
    return {}


@pytest.fixture(scope="module")
def seed() -> int:
    """One seed for both makes."""
    return seed_of_this_run()


@pytest.mark.soak
@pytest.mark.parametrize("make", ["kafka", "ours"])
def test_the_same_faults_on_our_and_on_kafkas_controllers(
    kafka: KafkaInstallation, tmp_path: Path, seed: int, reports: dict[Make, Report], make: Make
) -> None:
    """No record is lost on either, and no message waits longer with our controllers than with Kafka's.

    Both take an hour. Each can be run alone with the same CHAOS_SEED; the longest waits are then compared by hand.
    """
    reports[make] = run(kafka, tmp_path / make, make, seed, FAULTS)
    if len(reports) == 2:
        assert reports["ours"].longest <= reports["kafka"].longest
