"""A cluster of Apache Kafka becomes one of ours, one controller after the other, and Kafka's again, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.interop.broker_cluster import BROKERS, BrokerCluster, broker_cluster
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.load import ANSWER_LOST, Load
from support.interop.mixed_quorum import TERMINATED, Make
from support.interop.our_nodes import kraft, told
from support.interop.real_kafka import eventually
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION, OLDER_VERSION, VERSIONS

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
MAKES: tuple[Make, ...] = ("ours", "kafka")
KNOWN = {OLDER_VERSION: "1-21", KAFKA_VERSION: "7-30"}
"""The levels of metadata.version that brokers of a release know."""
SYNC_SECONDS = 180


def replace(cluster: BrokerCluster, node: int, make: Make, load: Load) -> None:
    """Stop a controller gracefully, and let one of the other make go on with its directory.

    Each leader that stops may lose the answer to one change: the administrator has one request under way, and a leader
    of Kafka's stops without an answer although the change is in the log. The broker repeats the request at the next
    leader, where the change is done already. A leader of ours answers before it stops. Controllers get no Produce
    requests.
    """
    controllers, was = cluster.controllers, cluster.controllers.makes[node]
    before, seen = controllers.quorum(), load.seen.count
    controllers.end(node, "stop")
    controllers.makes[node] = make
    controllers.start(node)
    controllers.wait_until_listening()
    load.wait_for_progress()
    after, lost = controllers.quorum(), load.seen.count - seen
    went = after.leader_epoch - before.leader_epoch
    print(f"{was} {node} is {make}; led by {before.leader_id}, then {after.leader_id}, {went} epochs on; {lost} lost")
    assert lost <= went
    if was == "ours" and went == 1 and before.leader_id == node:
        assert lost == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_controllers_are_replaced_one_at_a_time(version: str, tmp_path: Path) -> None:
    """All of Kafka's by ours, and back: no produce fails, no change is lost, and all logs are the same."""
    with broker_cluster(found_or_skipped(version), tmp_path, "kafka", release=version) as cluster:
        load = Load(cluster, "rolling")
        with load.running():
            for make in MAKES:
                for node in cluster.layout.ports:
                    replace(cluster, node, make, load)
                assert set(cluster.controllers.makes.values()) == {make}
        print(
            f"{len(load.writing.acknowledged)} messages, {load.administering.acknowledged} changes, {load.seen.errors}"
        )
        assert load.seen.errors.keys() <= ANSWER_LOST
        cluster.controllers.end_all()


def restart_broker(cluster: BrokerCluster, broker: int, load: Load) -> None:
    """Stop a broker gracefully, start it with the release that the cluster names now, and wait for its replicas."""
    assert cluster.brokers.pop(broker).stop() == TERMINATED
    cluster.start_broker(broker)
    cluster.wait_until_started(broker)

    def is_in_sync() -> bool:
        topics = cluster.image().topics
        partitions = [one for name in (load.numbers, load.transactions) for one in topics[name].partitions]
        return all(set(one.isr) >= set(one.replicas) for one in partitions)

    eventually(is_in_sync, f"all replicas are in sync after broker {broker}", SYNC_SECONDS)
    load.wait_for_progress()


def refused(cluster: BrokerCluster, how: str, level: int, *more: str) -> str:
    """Why metadata.version is not changed to a level."""
    done = kraft("features", how, *cluster.controllers.where, "--feature", f"metadata.version={level}", *more)
    assert done.returncode != 0, done.stdout
    return done.stderr


def set_level(cluster: BrokerCluster, how: str, level: int, load: Load) -> None:
    """Change metadata.version, and let the clients work at that level."""
    told("features", how, *cluster.controllers.where, "--feature", f"metadata.version={level}")
    eventually(lambda: cluster.image().features.metadata_version == level, f"level {level} is finalised")
    load.wait_for_progress()


@pytest.mark.parametrize("version", [OLDER_VERSION, KAFKA_VERSION])
def test_a_cluster_comes_to_the_newest_release_through_ours(version: str, tmp_path: Path) -> None:
    """Controllers of Kafka become ours, then the newest release's, then the brokers follow; each member that is left
    holds the level back by name. Then 31, down to 30, 33, and no way back from there but for other features.
    """
    newest = found_or_skipped(NEWER_VERSION)
    with broker_cluster(found_or_skipped(version), tmp_path, "kafka", release=version) as cluster:
        controllers, last = cluster.controllers, KNOWN[version]
        load = Load(cluster, "rolling")
        with load.running():
            for node in cluster.layout.ports:
                replace(cluster, node, "ours", load)
            cluster.kafka = controllers.kafka = newest
            for node in cluster.layout.ports:
                replace(cluster, node, "kafka", load)
            assert load.seen.errors.keys() <= ANSWER_LOST
            for at, broker in enumerate(BROKERS):
                why = refused(cluster, "upgrade", 33)
                assert any(f"Broker {each} only supports versions {last}" in why for each in BROKERS[at:]), why
                restart_broker(cluster, broker, load)
            set_level(cluster, "upgrade", 31, load)
            set_level(cluster, "downgrade", 30, load)
            told("features", "upgrade", *controllers.where, "--release-version", NEWER_VERSION)
            load.wait_for_progress()
            for level in (32, 31, 30):
                assert "might delete metadata information" in refused(cluster, "downgrade", level)
                assert "is not supported in this version" in refused(cluster, "downgrade", level, "--unsafe")
            told("features", "downgrade", *controllers.where, "--feature", "share.version=1")
            load.wait_for_progress()
        print(f"{len(load.writing.acknowledged)} messages, {load.administering.acknowledged} changes")
        print(load.seen.errors)
        controllers.end_all()
