"""Without the right, a client gets the error that Kafka has for it, and nothing happens."""

from __future__ import annotations

from typing import Any

from request_brokers import Brokers, NewTopic, batch, epoch_of, fetch, only_partition, produce, topic_id

from kraft.broker.asked import Asked
from kraft.controller.decision.authorizer import AclOperation, AclResource
from transport.protocol.errors import Error
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from transport.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from transport.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from transport.protocol.messages.fetch import ReplicaState
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from transport.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

OPEN, SECRET = (topic_id(1), 0), (topic_id(2), 0)
DENIED = Error.TOPIC_AUTHORIZATION_FAILED


def brokers_with(*allowed: tuple[AclOperation, AclResource, str]) -> Brokers:
    """Brokers with the topics `open` and `secret`, where a client may do only what is listed."""

    def may(request: Asked, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return (operation, resource, name) in allowed

    return Brokers([NewTopic("open", OPEN[0], ((101,),)), NewTopic("secret", SECRET[0], ((101,),))], rights=may)


def both(parts: Any) -> list[int]:
    return [part.error_code for topic in parts for part in topic.partitions]


def test_a_producer_needs_the_right_to_write_the_topic() -> None:
    brokers = brokers_with((AclOperation.WRITE, AclResource.TOPIC, "open"))
    assert only_partition(brokers.ask(101, produce(OPEN, batch(b"a")))).error_code == 0
    assert only_partition(brokers.ask(101, produce(SECRET, batch(b"a")))).error_code == DENIED
    assert brokers.part(101, SECRET).end_offset == 0


def test_a_consumer_needs_the_right_to_read_the_topic() -> None:
    brokers = brokers_with((AclOperation.READ, AclResource.TOPIC, "open"))
    found = brokers.ask(101, fetch((SECRET, 0), (OPEN, 0)))
    assert {topic.topic_id: topic.partitions[0].error_code for topic in found.responses} == {
        OPEN[0]: 0,
        SECRET[0]: DENIED,
    }


def test_a_follower_needs_the_right_to_act_for_the_cluster() -> None:
    state = ReplicaState(102, epoch_of(102))
    request = fetch((OPEN, 0), replica_state=state)
    readers = brokers_with((AclOperation.READ, AclResource.TOPIC, "open"))
    assert only_partition(readers.ask(101, request)).error_code == DENIED
    allowed = brokers_with((AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, "kafka-cluster"))
    # Broker 102 has no replica of the partition.
    assert only_partition(allowed.ask(101, request)).error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_offsets_need_the_right_to_describe_the_topic() -> None:
    brokers = brokers_with((AclOperation.DESCRIBE, AclResource.TOPIC, "open"))
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(timestamp=-1)]) for name in ("open", "secret")]
    assert both(brokers.ask(101, ListOffsetsRequest(replica_id=-1, topics=topics)).topics) == [0, DENIED]
    ends = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition()]) for name in ("open", "secret")]
    assert both(brokers.ask(101, OffsetForLeaderEpochRequest(topics=ends)).topics) == [0, DENIED]


def test_deletion_of_records_needs_the_right_to_delete() -> None:
    brokers = brokers_with((AclOperation.DELETE, AclResource.TOPIC, "open"))
    topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)]) for name in ("open", "secret")]
    assert both(brokers.ask(101, DeleteRecordsRequest(topics=topics, timeout_ms=1000)).topics) == [0, DENIED]


def test_producers_and_log_directories_are_shown_to_those_with_the_right() -> None:
    brokers = brokers_with((AclOperation.READ, AclResource.TOPIC, "open"))
    topics = [TopicRequest(name, [0]) for name in ("open", "secret")]
    assert both(brokers.ask(101, DescribeProducersRequest(topics=topics)).topics) == [0, DENIED]
    hidden = brokers.ask(101, DescribeLogDirsRequest(topics=None))
    assert (hidden.error_code, hidden.results) == (Error.CLUSTER_AUTHORIZATION_FAILED, [])


def test_an_idempotent_producer_needs_the_right_to_write_some_topic() -> None:
    brokers = brokers_with((AclOperation.WRITE, AclResource.TOPIC, "open"))
    outcome = brokers.send(101, InitProducerIdRequest(transactional_id=None))[1]
    assert (outcome, brokers.requests[101].waiting) == (None, 1)
    denied = brokers_with().ask(101, InitProducerIdRequest(transactional_id=None))
    assert denied.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
