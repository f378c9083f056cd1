"""Without the right, a client gets the error that Kafka has for it, and nothing happens."""

from __future__ import annotations

from typing import Any

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings, Denial
from kraft.access.caller import Caller
from metadata_log.records.metadata import RemoveAccessControlEntryRecord
from support.broker.request_brokers import (
    CLUSTER,
    Brokers,
    NewTopic,
    batch,
    epoch_of,
    fetch,
    only_partition,
    produce,
    rule,
    topic_id,
)
from support.kraft.denials import taken
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
    """Brokers with the topics `open` and `secret`, where a client may do only what the ACLs allow."""
    topics = [NewTopic("open", OPEN[0], ((101,),)), NewTopic("secret", SECRET[0], ((101,),))]
    brokers = Brokers(topics, authorizer=AuthorizerSettings())
    if allowed:
        brokers.change(*(rule(number, *one) for number, one in enumerate(allowed)))
    return brokers


def both(parts: Any) -> list[int]:
    return [part.error_code for topic in parts for part in topic.partitions]


def test_a_producer_needs_the_right_to_write_the_topic() -> None:
    brokers = brokers_with((AclOperation.WRITE, AclResource.TOPIC, "open"))
    assert only_partition(brokers.ask(101, produce(OPEN, batch(b"a")))).error_code == 0
    assert only_partition(brokers.ask(101, produce(SECRET, batch(b"a")))).error_code == DENIED
    assert brokers.part(101, SECRET).log.end_offset == 0


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
    readers = brokers_with(
        (AclOperation.READ, AclResource.TOPIC, "open"), (AclOperation.ALTER, AclResource.CLUSTER, CLUSTER)
    )
    assert only_partition(readers.ask(101, request)).error_code == DENIED
    allowed = brokers_with((AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER))
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
    for right in (
        (AclOperation.WRITE, AclResource.TOPIC, "of-no-one-yet"),
        (AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, CLUSTER),
    ):
        brokers = brokers_with(right)
        outcome = brokers.send(101, InitProducerIdRequest(transactional_id=None))[1]
        assert (outcome, brokers.requests[101].waiting) == (None, 1)
    denied = brokers_with((AclOperation.READ, AclResource.TOPIC, "open"))
    answer = denied.ask(101, InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED


def test_a_broker_may_ask_for_the_ends_of_epochs_of_all_topics() -> None:
    brokers = brokers_with((AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER))
    ends = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition()]) for name in ("open", "secret")]
    assert both(brokers.ask(101, OffsetForLeaderEpochRequest(topics=ends)).topics) == [0, 0]


def test_rights_change_with_the_metadata() -> None:
    brokers = brokers_with()
    request = produce(OPEN, batch(b"a"))
    assert only_partition(brokers.ask(101, request)).error_code == DENIED
    brokers.change(rule(1, AclOperation.ALL, AclResource.TOPIC, "open"))
    assert only_partition(brokers.ask(101, request)).error_code == 0


def test_a_waiting_consumer_that_has_lost_its_right_is_refused_at_its_next_fetch() -> None:
    brokers = brokers_with((AclOperation.READ, AclResource.TOPIC, "open"))
    request = fetch((OPEN, 0), wait_ms=500)
    assert brokers.send(101, request)[1] is None
    assert len(brokers.poll(101, after_ms=500)) == 1
    brokers.change(RemoveAccessControlEntryRecord(id=rule(0, AclOperation.READ, AclResource.TOPIC, "open").id))
    assert only_partition(brokers.ask(101, request)).error_code == DENIED


def test_each_denied_topic_is_one_line_of_the_audit_log() -> None:
    brokers = brokers_with()
    brokers.ask(101, produce(OPEN, batch(b"a")))
    brokers.ask(101, produce(OPEN, batch(b"a")))
    caller = Caller(host="127.0.0.1", listener="PLAINTEXT")
    denial = Denial(caller, AclOperation.WRITE, AclResource.TOPIC, "open", "DefaultDeny")
    assert taken(brokers.rights[101].audited) == [denial, denial]
    assert taken(brokers.rights[101].audited) == []


def test_without_rules_the_setting_decides() -> None:
    topics = [NewTopic("open", OPEN[0], ((101,),))]
    brokers = Brokers(topics, authorizer=AuthorizerSettings(allows_without_acl=True))
    assert only_partition(brokers.ask(101, produce(OPEN, batch(b"a")))).error_code == 0
    brokers.change(rule(1, AclOperation.READ, AclResource.TOPIC, "open"))
    assert only_partition(brokers.ask(101, produce(OPEN, batch(b"a")))).error_code == DENIED


def test_a_super_user_needs_no_rule() -> None:
    topics = [NewTopic("open", OPEN[0], ((101,),))]
    brokers = Brokers(topics, authorizer=AuthorizerSettings(frozenset(("User:ANONYMOUS",))))
    assert only_partition(brokers.ask(101, produce(OPEN, batch(b"a")))).error_code == 0
