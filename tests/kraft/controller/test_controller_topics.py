"""The records of requests about topics: their order, limits, reassignments step by step."""

from __future__ import annotations

from kraft.config.data_settings import TopicDefaults
from metadata_log.records.metadata import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import directory
from support.differential.controller_stories import (
    BROKER,
    SET,
    TOPIC,
    A,
    B,
    C,
    configure,
    create,
    delete,
    grow,
    isr,
    reassign,
    reassignments,
    topic,
)
from transport.protocol.errors import Error


def test_a_topic_is_written_with_its_configs_before_its_partitions() -> None:
    cluster = Cluster(A, B)
    written = cluster.records(create(topic("t", [A, B], [B, A], retention_ms="1000", min_insync_replicas="2")))
    assert [type(record) for record in written] == [
        TopicRecord,
        ConfigRecord,
        ConfigRecord,
        ClearElrRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    assert written[-1] == PartitionRecord(
        partition_id=1,
        topic_id=cluster.side.topics["t"],
        replicas=(B, A),
        isr=(B, A),
        leader=B,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory(B), directory(A)),
    )
    assert cluster.records(create(topic("u", [A]), validate_only=True)) == []
    assert cluster.records(delete("t")) == [RemoveTopicRecord(topic_id=cluster.side.topics["t"])]


def test_the_record_limit_is_checked_before_the_partition_limit() -> None:
    cluster = Cluster(A)
    refused = cluster.do(create(topic("t", count=10_000, factor=1)))
    assert [one["error_code"] for one in refused["topics"]] == [44]
    made = cluster.do(create(topic("t", count=9_999, factor=1)))
    assert [one["error_code"] for one in made["topics"]] == [0]
    before = len(cluster.controller.batches)
    refused = cluster.do(grow("t", 20_000))
    assert [one["error_code"] for one in refused["results"]] == [44]
    assert cluster.since(before) == []


def test_broker_configs_are_written_although_unchanged() -> None:
    cluster = Cluster(A)
    cluster.do(create(topic("t", [A])))
    for kind, name, count in ((TOPIC, "t", 0), (BROKER, "", 1), (BROKER, "101", 1)):
        step = configure(kind, name, ("unclean.leader.election.enable", SET, "true"))
        cluster.do(step)
        assert len(cluster.records(step)) == count
    cluster_wide = configure(BROKER, "", ("min.insync.replicas", SET, "2"))
    assert cluster.records(cluster_wide)[-1] == ClearElrRecord(topic_name="")


def test_a_reassignment_away_from_its_leader() -> None:
    """The walk-through of controller.md 6.4."""
    cluster = Cluster(A, B, C)
    cluster.do(create(topic("t", [B, C])))
    assert cluster.records(reassign("t", (0, [A, C]))) == [
        cluster.moved(
            "t",
            replicas=(A, C, B),
            removing_replicas=(B,),
            adding_replicas=(A,),
            directories=(directory(A), directory(C), directory(B)),
        )
    ]
    before = len(cluster.controller.batches)
    answer = cluster.do(isr("t", [A, B, C], by=B, partition_epoch=1))
    assert answer["topics"][0]["partitions"][0]["error_code"] == 108
    assert cluster.since(before) == [
        cluster.moved(
            "t",
            isr=(A, C),
            leader=A,
            replicas=(A, C),
            removing_replicas=(),
            adding_replicas=(),
            directories=(directory(A), directory(C)),
        )
    ]


def test_a_cancelled_reassignment_keeps_its_current_replica_order() -> None:
    cluster = Cluster(A, B, C)
    cluster.do(create(topic("t", [A, B])))
    cluster.do(reassign("t", (0, [B, C])))
    assert cluster.partition("t").replicas == (B, C, A)
    cluster.do(reassign("t", (0, None)))
    now = cluster.partition("t")
    assert (now.replicas, now.leader, now.leader_epoch) == ((B, A), A, 1)
    assert not now.is_reassigning


def test_going_back_to_the_original_replicas_completes() -> None:
    """In Kafka the reassignment would stay open: the new replica is in both lists there."""
    cluster = Cluster(A, B, C)
    cluster.do(create(topic("t", [A, B])))
    cluster.do(reassign("t", (0, [A, C])), reassign("t", (0, [A, B])))
    now = cluster.partition("t")
    assert (now.replicas, now.is_reassigning) == ((A, B), False)
    assert cluster.do(reassignments())["topics"] == []


def test_a_controller_that_deletes_no_topics_says_so_to_clients_that_know_the_error() -> None:
    """Kafka: `delete.topic.enable`, `ControllerApis.deleteTopics`."""
    cluster = Cluster(A, topics=TopicDefaults(deletes_topics=False))
    cluster.do(create(topic("t", [A])))
    build, version = delete("t")
    assert version == 5
    for at, error in (
        (5, Error.TOPIC_DELETION_DISABLED),
        (3, Error.TOPIC_DELETION_DISABLED),
        (2, Error.INVALID_REQUEST),
    ):
        (outcome,) = cluster.do((build, at))["responses"]
        assert (outcome["name"], outcome["error_code"]) == ("t", error)
    assert cluster.records(delete("t")) == []
