"""A cluster of Apache Kafka becomes one of ours, one controller after the other, and Kafka's again, under load."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_cluster import BrokerCluster, broker_cluster
from kafka_jars import KAFKA_VERSION, OLDER_VERSION
from kafka_or_skip import found_or_skipped
from load import ANSWER_LOST, Load
from mixed_quorum import Make

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
MAKES: tuple[Make, ...] = ("ours", "kafka")


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


@pytest.mark.parametrize(
    ("version", "release"),
    [pytest.param(KAFKA_VERSION, None, id="same"), pytest.param(OLDER_VERSION, "3.9-IV0", id="older")],
)
def test_controllers_are_replaced_one_at_a_time(version: str, release: str | None, tmp_path: Path) -> None:
    """All of Kafka's by ours, and back: no produce fails, no change is lost, and all logs are the same."""
    with broker_cluster(found_or_skipped(version), tmp_path, "kafka", release=release) as cluster:
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
