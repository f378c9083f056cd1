"""Partitions of coordinators that brokers of Kafka wrote are led by a broker of ours, by one of Kafka, and by ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from metadata_log.image import Partition
from support.interop.real_kafka import KafkaInstallation
from support.real_data import archive
from support.scenarios.coordinator_client import (
    GROUP,
    TOPIC_OF,
    TRANSACTION,
    commit,
    committed,
    coordinate,
    coordinator_of,
    fresh,
)
from support.scenarios.scenario_cluster import FIRST, BrokerMake, Cluster, Kind, scenario_cluster
from takeover_scenarios import dumps
from transactions_by_hand import TV1, TV2, Producer
from transport.protocol.errors import Error
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from transport.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
FILES: Final = archive("coordinators")
FINAL: Final[dict[str, Any]] = json.loads(FILES["final.json"])
COUNTS: Final = {GROUP: 5, TRANSACTION: 4}
LATEST_EPOCH: Final = 11
"""Of the leaders that wrote the logs; the next one needs a later one."""
NEVER: Final = 2_147_483_647
ALONE: Final = Kind(
    "alone",
    settings=(
        f"offsets.topic.num.partitions={COUNTS[GROUP]}",
        "offsets.topic.replication.factor=1",
        f"offsets.retention.minutes={NEVER}",
        f"transaction.state.log.num.partitions={COUNTS[TRANSACTION]}",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        f"transactional.id.expiration.ms={NEVER}",
        f"transaction.abort.timed.out.transaction.cleanup.interval.ms={NEVER}",
    ),
)
"""A broker to which old offsets and transactions are as good as new ones."""


def segment(kind: int, number: int) -> str:
    """The path of a log in the archive."""
    return f"logs/{TOPIC_OF[kind]}-{number}/00000000000000000000.log"


def log_of(cluster: Cluster, kind: int, number: int) -> bytes:
    """The log of a partition as it is now."""
    return (cluster.log_dir(FIRST) / f"{TOPIC_OF[kind]}-{number}" / "00000000000000000000.log").read_bytes()


def partitions(cluster: Cluster, kind: int) -> tuple[Partition, ...]:
    """The partitions of a topic of coordinators, as the log of the controller has them."""
    return cluster.image().topics[TOPIC_OF[kind]].partitions


def restart(cluster: Cluster) -> None:
    """Stop the broker and start it, perhaps in another make."""
    cluster.stop(FIRST)
    cluster.start(FIRST)
    cluster.wait_until_active(FIRST)


def put_logs(cluster: Cluster) -> None:
    """Put the logs of Kafka in the place of those of a stopped broker; the ids of the topics stay."""
    for kind, count in COUNTS.items():
        for number in range(count):
            name = f"{TOPIC_OF[kind]}-{number}"
            directory = cluster.log_dir(FIRST) / name
            kept = (directory / "partition.metadata").read_bytes()
            shutil.rmtree(directory)
            directory.mkdir()
            for path, data in FILES.items():
                if path.startswith(f"logs/{name}/"):
                    (directory / Path(path).name).write_bytes(data)
            (directory / "partition.metadata").write_bytes(kept)


def offsets(cluster: Cluster, group: str) -> set[tuple[str, int, int, str]]:
    """All offsets of a group."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = coordinate(cluster, group, request, 9, OffsetFetchResponse, lambda answer: [answer.groups[0].error_code])
    return {
        (topic.name, one.partition_index, one.committed_offset, one.metadata or "")
        for topic in answer.groups[0].topics
        for one in topic.partitions
    }


def assert_as_kafka_left_it(cluster: Cluster) -> None:
    """Groups, offsets and transactions are those that Kafka's brokers told of when they wrote these logs."""
    for theirs in FINAL["offsets"]:
        wanted = {
            (topic["name"], one["partitionIndex"], one["committedOffset"], one["metadata"])
            for topic in theirs["topics"]
            for one in topic["partitions"]
        }
        assert offsets(cluster, theirs["groupId"]) == wanted, theirs["groupId"]
    listed = cluster.ask(FIRST, ListGroupsRequest(), 5, ListGroupsResponse)
    assert listed.error_code == Error.NONE
    # A broker of ours has no share groups; it keeps their records.
    found = {(one.group_id, one.group_type) for one in listed.groups if one.group_type != "share"}
    wanted_groups = {(one["groupId"], one["groupType"]) for one in FINAL["groups"] if one["groupType"] != "share"}
    assert wanted_groups <= found
    for theirs in FINAL["transactions"]:
        request = DescribeTransactionsRequest([theirs["transactionalId"]])
        [ours] = coordinate(
            cluster,
            theirs["transactionalId"],
            request,
            0,
            DescribeTransactionsResponse,
            lambda answer: [one.error_code for one in answer.transaction_states],
        ).transaction_states
        assert (ours.error_code, ours.transaction_state) == (Error.NONE, theirs["transactionState"])
        assert (ours.producer_id, ours.producer_epoch) == (theirs["producerId"], theirs["producerEpoch"])
        assert {(one.topic, *one.partitions) for one in ours.topics} == {
            (one["topic"], *one["partitions"]) for one in theirs["topics"]
        }


def test_the_logs_of_kafkas_coordinators_go_on_in_each_make(kafka: KafkaInstallation, tmp_path: Path):
    turns: tuple[BrokerMake, ...] = ("ours", "kafka", "ours")
    with scenario_cluster(tmp_path, ("ours",), kafka, ALONE) as cluster:
        coordinator_of(cluster, "g")
        coordinator_of(cluster, "t", TRANSACTION)
        topic = cluster.create("own", (FIRST,))
        while min(one.leader_epoch for kind in COUNTS for one in partitions(cluster, kind)) <= LATEST_EPOCH:
            restart(cluster)
        cluster.stop(FIRST)
        put_logs(cluster)
        groups: list[str] = []
        for make in turns:
            cluster.makes[FIRST] = make
            cluster.start(FIRST)
            cluster.wait_until_active(FIRST)
            assert_as_kafka_left_it(cluster)
            for group in groups:
                assert committed(cluster, group, topic, stable=True) == (7, Error.NONE)
            groups.append(fresh(make))
            assert commit(cluster, groups[-1], topic, 5) == Error.NONE
            for version in (TV1, TV2):
                producer = Producer(cluster, f"{groups[-1]}-{version}", version)
                producer.send(topic, b"v")
                producer.commit_offset(groups[-1], topic, 5 + version)
                producer.end(commits=True)
            cluster.stop(FIRST)
            for kind, count in COUNTS.items():
                theirs, ours = dumps(cluster, kind, FIRST, range(count))
                assert ours == theirs
                for number in range(count):
                    assert log_of(cluster, kind, number).startswith(FILES[segment(kind, number)])
