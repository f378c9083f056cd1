"""B10 to B14: size limits, bounds of offsets, resets, sessions, and fetches that wait."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from support.interop.real_kafka import eventually
from support.scenarios.reassignment_scenarios import elect, reassign
from support.scenarios.scenario_client import EARLIEST, FETCH, Connection, batch, in_background, values_in
from support.scenarios.scenario_cluster import Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

LONG_MS: Final = 20_000
MOST_MS: Final = 2500
"""A fetch that something has ended has its answer long before its wait is over, on a machine that does other things."""


def delete_records(cluster: Cluster, topic: Topic, offset: int) -> tuple[Error, int]:
    """Delete the records before an offset; returns the error and the low watermark."""
    named = DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(0, offset)])
    request = DeleteRecordsRequest(topics=[named], timeout_ms=LONG_MS)
    [found] = cluster.ask(cluster.leader(topic), request, 2, DeleteRecordsResponse).topics
    [partition] = found.partitions
    return Error.of(partition.error_code), partition.low_watermark


@scenario("B10")
def a_fetch_keeps_to_its_limits_but_for_the_first_batch(cluster: Cluster) -> None:
    topics = [cluster.create(f"b10-{name}", 1) for name in ("a", "b")]
    leader = cluster.leader(topics[0])
    for topic in topics:
        for number in range(4):
            cluster.append(leader, topic, batch(b"%d" % number * 1000))
    size = len(batch(b"0" * 1000))

    def offsets(**fields: int) -> list[int]:
        return [offset for offset, _ in values_in(cluster.fetch(leader, topics[0], 0, **fields).records)]

    assert offsets() == [0, 1, 2, 3]
    assert offsets(partition_bytes=0) == [0]
    assert offsets(max_bytes=0) == [0]
    assert offsets(partition_bytes=2 * size) == [0, 1]
    assert offsets(max_bytes=3 * size) == [0, 1, 2]
    wanted = [FetchTopic(topic_id=topic.id, partitions=[FetchPartition(0, partition_max_bytes=1)]) for topic in topics]
    request = FetchRequest(min_bytes=1, topics=wanted)
    answer = cluster.ask(leader, request, FETCH, FetchResponse)
    found = {one.topic_id: values_in(one.partitions[0].records) for one in answer.responses}
    assert [offset for offset, _ in found[topics[0].id]] == [0]
    assert found.get(topics[1].id, []) == []


@scenario("B11")
def a_fetch_outside_the_log_is_out_of_range(cluster: Cluster) -> None:
    topic = cluster.create("b11", 2)
    leader = cluster.leader(topic)
    for number in range(10):
        cluster.append(leader, topic, batch(b"%d" % number))
    assert delete_records(cluster, topic, 4) == (Error.NONE, 4)
    assert cluster.offset_for(leader, topic, EARLIEST).offset == 4
    found = {offset: cluster.fetch(leader, topic, offset) for offset in (3, 4, 10, 11)}
    assert {offset: Error.of(one.error_code) for offset, one in found.items()} == {
        3: Error.OFFSET_OUT_OF_RANGE,
        4: Error.NONE,
        10: Error.NONE,
        11: Error.OFFSET_OUT_OF_RANGE,
    }
    assert values_in(found[10].records) == []
    assert [value for _, value in values_in(found[4].records)] == [b"%d" % number for number in range(4, 10)]
    follower = topic.replicas[1]
    eventually(lambda: cluster.fetch(follower, topic, 4).log_start_offset == 4, "the follower has deleted, too")


@scenario("B12")
def a_consumer_out_of_range_begins_where_it_was_told(cluster: Cluster) -> None:
    topic = cluster.create("b12", 2)
    leader = cluster.leader(topic)
    for number in range(6):
        cluster.append(leader, topic, batch(b"%d" % number))
    delete_records(cluster, topic, 2)
    for reset, first in (("earliest", 2), ("latest", 6)):
        consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap.split(","), auto_offset_reset=reset, enable_auto_commit=False
        )
        with closing(consumer):
            partition = TopicPartition(topic.name, 0)
            consumer.assign([partition])
            consumer.seek(partition, 1000)
            if reset == "latest":

                def has_moved(
                    consumer: KafkaConsumer = consumer, partition: TopicPartition = partition, first: int = first
                ) -> bool:
                    consumer.poll(timeout_ms=200)
                    return bool(consumer.position(partition) == first)

                eventually(has_moved, "the consumer is at the end")
                cluster.append(leader, topic, batch(b"6"))
            offsets: list[int] = []

            def some(consumer: KafkaConsumer = consumer, offsets: list[int] = offsets) -> bool:
                for found in consumer.poll(timeout_ms=200).values():
                    offsets.extend(one.offset for one in found)
                return bool(offsets)

            eventually(some, "the consumer reads")
            assert offsets[0] == first
    epoch = cluster.partition(topic).leader_epoch
    end = cluster.end_of_epoch(leader, topic, epoch)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (Error.NONE, epoch, 7)
    unknown = cluster.end_of_epoch(leader, topic, epoch + 5)
    assert (unknown.leader_epoch, unknown.end_offset) == (-1, -1)


@scenario("B13")
def a_session_answers_with_what_has_changed(cluster: Cluster) -> None:
    topics = [cluster.create(f"b13-{name}", 1) for name in ("a", "b")]
    leader = cluster.leader(topics[0])
    cluster.append(leader, topics[0], batch(b"0"))

    def ask(
        connection: Connection,
        session: tuple[int, int],
        *wanted: tuple[Topic, int],
        forgotten: tuple[Topic, ...] = (),
    ) -> FetchResponse:
        named = [
            FetchTopic(topic_id=one.id, partitions=[FetchPartition(0, fetch_offset=at, partition_max_bytes=1 << 20)])
            for one, at in wanted
        ]
        gone = [ForgottenTopic(topic_id=one.id, partitions=[0]) for one in forgotten]
        request = FetchRequest(
            session_id=session[0], session_epoch=session[1], topics=named, forgotten_topics_data=gone
        )
        return connection.ask(request, FETCH, FetchResponse)

    def topics_of(answer: FetchResponse) -> set[object]:
        return {one.topic_id for one in answer.responses}

    with cluster.connected(leader) as connection:
        full = ask(connection, (0, 0), (topics[0], 0), (topics[1], 0))
        session = full.session_id
        assert session > 0
        assert topics_of(full) == {topics[0].id, topics[1].id}
        assert ask(connection, (session, 1), (topics[0], 1)).responses == []
        cluster.append(leader, topics[1], batch(b"0"))
        assert topics_of(ask(connection, (session, 2))) == {topics[1].id}
        wrong = ask(connection, (session, 7))
        assert (wrong.error_code, wrong.responses) == (Error.INVALID_FETCH_SESSION_EPOCH, [])
        assert ask(connection, (session, 3), (topics[1], 1), forgotten=(topics[0],)).error_code == Error.NONE
        cluster.append(leader, topics[0], batch(b"1"))
        assert ask(connection, (session, 4)).responses == []
        closed = ask(connection, (session, -1), (topics[0], 0))
        assert (closed.session_id, topics_of(closed)) == (0, {topics[0].id})
        gone = ask(connection, (session, 5))
        assert gone.error_code == Error.FETCH_SESSION_ID_NOT_FOUND


@scenario("B14")
def a_fetch_waits_for_the_watermark_and_for_no_longer(cluster: Cluster) -> None:
    topic = cluster.create("b14")
    leader = cluster.leader(topic)
    with in_background(lambda: cluster.fetch(leader, topic, 0, wait_ms=LONG_MS)) as waiting:
        cluster.append(leader, topic, batch(b"0"))
        acknowledged = time.monotonic()
        found = waiting.result()
        assert (time.monotonic() - acknowledged) * 1000 < MOST_MS
    assert [value for _, value in values_in(found.records)] == [b"0"]
    started = time.monotonic()
    assert values_in(cluster.fetch(leader, topic, 1, wait_ms=300).records) == []
    assert (time.monotonic() - started) * 1000 >= 300


@scenario("B14", by_default=False)
def a_lost_leadership_ends_the_fetches_that_need_the_leader(cluster: Cluster) -> None:
    topic = cluster.create("b14-lost")
    leader = cluster.leader(topic)
    with in_background(lambda: cluster.fetch(leader, topic, 0, wait_ms=LONG_MS, version=10)) as waiting:
        # A preferred election needs another first replica: the reassignment makes one.
        reassign(cluster, topic, (*topic.replicas[1:], leader))
        elect(cluster, topic)
        cluster.wait_for_leader(topic, topic.replicas[1])
        asked = time.monotonic()
        found = waiting.result()
        assert (time.monotonic() - asked) * 1000 < MOST_MS
    assert found.error_code == Error.NOT_LEADER_OR_FOLLOWER


@scenario("B14")
def a_new_segment_ends_the_wait_of_a_fetch(cluster: Cluster) -> None:
    """A fetch does not read across segments: once the watermark is in a later one, no more bytes can come."""
    topic = cluster.create("b14-roll", 1, segment_bytes=str(1 << 20))
    [leader] = topic.replicas
    value = b"v" * 600_000
    cluster.append(leader, topic, batch(value))
    request = cluster.fetch_request(topic, 0, wait_ms=LONG_MS, min_bytes=50 << 20)
    with in_background(lambda: cluster.ask(leader, request, FETCH, FetchResponse)) as waiting:
        assert cluster.append(leader, topic, batch(value)) == 1
        appended = time.monotonic()
        found = waiting.result()
        assert (time.monotonic() - appended) * 1000 < MOST_MS
    began = time.monotonic()
    later = cluster.ask(leader, request, FETCH, FetchResponse)
    assert (time.monotonic() - began) * 1000 < MOST_MS
    for answer in (found, later):
        assert [offset for offset, _ in values_in(answer.responses[0].partitions[0].records)] == [0]
