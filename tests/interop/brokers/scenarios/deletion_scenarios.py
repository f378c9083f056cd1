"""B34 and B37: retention, deleted records, and deleted topics."""

from __future__ import annotations

import time

from support.interop.real_kafka import eventually
from support.scenarios.reassignment_scenarios import wait_until_gone
from support.scenarios.scenario_client import EARLIEST, batch
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from transport.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

SEGMENT = 1 << 20
"""Bytes: the least that a topic may have, and two of the batches below."""
VALUE = 400_000
OLD_MS = 3_600_000


def delete_records(cluster: Cluster, topic: Topic, offset: int) -> tuple[Error, int]:
    """Delete the records before an offset; returns the error and the low watermark."""
    named = DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(0, offset)])
    request = DeleteRecordsRequest(topics=[named], timeout_ms=SECONDS * 1000)
    [found] = cluster.ask(cluster.leader(topic), request, 2, DeleteRecordsResponse).topics
    [partition] = found.partitions
    return Error.of(partition.error_code), partition.low_watermark


def segments(cluster: Cluster, broker: int, topic: Topic) -> list[str]:
    """The names of the segments of a replica."""
    return sorted(path.name for path in cluster.directory(broker, topic).glob("*.log"))


def wait_for_log_start(cluster: Cluster, topic: Topic, start: int) -> None:
    """Wait until every replica has deleted the same segments, and the log begins at an offset."""
    leader = cluster.leader(topic)
    eventually(lambda: cluster.offset_for(leader, topic, EARLIEST).offset == start, f"the log starts at {start}", 90)
    eventually(
        lambda: (
            len({tuple(segments(cluster, one, topic)) for one in topic.replicas}) == 1
            and len({cluster.fetch(one, topic, start).log_start_offset for one in topic.replicas}) == 1
        ),
        "all replicas have the same segments",
        90,
    )


def remove(cluster: Cluster, topic: Topic) -> None:
    """Delete a topic."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=SECONDS * 1000)
    [answer] = cluster.ask(cluster.alive[0], request, 6, DeleteTopicsResponse).responses
    assert answer.error_code == Error.NONE, answer


def create_again(cluster: Cluster, topic: Topic) -> Topic:
    """Create a topic with the name and the replicas of another one."""
    assignment = CreatableReplicaAssignment(0, list(topic.replicas))
    creatable = CreatableTopic(name=topic.name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    request = CreateTopicsRequest(topics=[creatable], timeout_ms=SECONDS * 1000)
    [made] = cluster.ask(cluster.alive[0], request, 7, CreateTopicsResponse).topics
    assert made.error_code == Error.NONE, made
    return Topic(topic.name, made.topic_id, topic.replicas)


@scenario("B37")
def a_topic_that_is_deleted_and_made_again_is_another_one(cluster: Cluster) -> None:
    old = cluster.create("b37")
    cluster.append(cluster.leader(old), old, batch(b"old"))
    remove(cluster, old)
    new = create_again(cluster, old)
    assert new.id != old.id
    assert cluster.send(lambda: cluster.leader(new), new, batch(b"new")) == 0
    cluster.wait_for_equal_logs(new, 1)
    leader = cluster.leader(new)
    assert cluster.produce(leader, old, batch(b"late")).error_code == Error.UNKNOWN_TOPIC_ID
    assert cluster.fetch(leader, old, 0).error_code == Error.UNKNOWN_TOPIC_ID
    assert cluster.values(leader, new) == [b"new"]


@scenario("B37", by_default=False)
def a_replica_that_was_down_drops_the_topic_that_was_deleted(cluster: Cluster) -> None:
    old = cluster.create("b37-down", 2)
    leader, follower = old.replicas
    cluster.append(leader, old, batch(b"old"))
    cluster.stop(follower)
    remove(cluster, old)
    new = create_again(cluster, old)
    assert cluster.send(lambda: cluster.leader(new), new, batch(b"new")) == 0
    identity = (cluster.directory(leader, new) / "partition.metadata").read_text()
    cluster.start(follower)
    cluster.wait_for_isr(new, leader, follower)
    cluster.wait_for_equal_logs(new, 1)
    assert (cluster.directory(follower, new) / "partition.metadata").read_text() == identity
    # The old log was found at the start without its topic: it is renamed, and stays.
    strays = list(cluster.log_dir(follower).glob(f"{old.name}-0.*-stray"))
    assert len(strays) == 1


@scenario("B37")
def a_deleted_topic_leaves_no_files(cluster: Cluster) -> None:
    topic = cluster.create("b37-gone")
    cluster.append(cluster.leader(topic), topic, batch(b"old"))
    remove(cluster, topic)
    for broker in topic.replicas:
        wait_until_gone(cluster, topic, broker)


@scenario("B34")
def records_are_deleted_on_request_by_all_replicas(cluster: Cluster) -> None:
    topic = cluster.create("b34-request", segment_bytes=str(SEGMENT))
    leader = cluster.leader(topic)
    for number in range(10):
        cluster.append(leader, topic, batch(b"%d" % number * VALUE))
    assert delete_records(cluster, topic, 11) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(cluster, topic, 5) == (Error.NONE, 5)
    assert delete_records(cluster, topic, 3) == (Error.NONE, 5)
    assert delete_records(cluster, topic, -1) == (Error.NONE, 10)
    wait_for_log_start(cluster, topic, 10)


@scenario("B34", by_default=False)
def retention_deletes_the_same_segments_on_all_replicas(cluster: Cluster) -> None:
    by_size = cluster.create("b34-size", segment_bytes=str(SEGMENT), retention_bytes=str(2 * SEGMENT))
    by_time = cluster.create("b34-time", segment_bytes=str(SEGMENT), retention_ms=str(OLD_MS))
    old = int(time.time() * 1000) - 2 * OLD_MS
    for number in range(10):
        for topic in (by_size, by_time):
            at = old if number < 6 and topic is by_time else None
            cluster.append(cluster.leader(topic), topic, batch(b"%d" % number * VALUE, timestamp_ms=at))
    wait_for_log_start(cluster, by_time, 6)
    # A log keeps at least its retention: of five segments with two batches each, three have more than two limits.
    wait_for_log_start(cluster, by_size, 4)
