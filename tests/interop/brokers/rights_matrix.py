"""Every request of which a broker checks the rights, the rules of six users, and what of an answer is compared.

Kafka's broker never answers a DescribeUserScramCredentials about all users for a client without the right
(`getErrorResponse` fails), so that the request here names a user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from authorized_brokers import OURS, THEIRS
from kraft.access.authorizer import AclOperation, AclResource
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol import messages as m
from transport.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    create_acls,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_delegation_token,
    describe_producers,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

USERS: Final = ("admin", "alice", "bob", "carol", "dora", "mallory")
"""The administrator is a super user, and the last one has no rights at all."""
TOPIC: Final = {OURS: "ours", THEIRS: "theirs"}
"""The topic that a broker leads."""
SECRET: Final = {OURS: "ours-secret", THEIRS: "theirs-secret"}
"""Another topic that a broker leads."""
CLUSTER: Final = "kafka-cluster"
WAIT_MS: Final = 20_000
NOW_MS: Final = 1_795_000_000_000
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4
_TOPIC, _GROUP, _CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
_TRANSACTION: Final = AclResource.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
_DESCRIBE, _ALL = AclOperation.DESCRIBE, AclOperation.ALL
RULES: Final = (
    # One consumes, one produces, one looks at the cluster, one may do all but a few things.
    *[("alice", _TOPIC, PREFIXED, name, _READ, ALLOW) for name in TOPIC.values()],
    *[("alice", _TOPIC, PREFIXED, f"{name}-", _ALL, DENY) for name in TOPIC.values()],
    ("alice", _GROUP, LITERAL, "g", _READ, ALLOW),
    *[("bob", _TOPIC, LITERAL, name, _WRITE, ALLOW) for name in TOPIC.values()],
    ("bob", _TOPIC, LITERAL, "new", _CREATE, ALLOW),
    ("bob", _TOPIC, LITERAL, "new", _DESCRIBE, ALLOW),
    ("bob", _TRANSACTION, LITERAL, "t", _WRITE, ALLOW),
    ("carol", _CLUSTER, LITERAL, CLUSTER, _DESCRIBE, ALLOW),
    ("carol", _CLUSTER, LITERAL, CLUSTER, AclOperation.DESCRIBE_CONFIGS, ALLOW),
    ("carol", _CLUSTER, LITERAL, CLUSTER, AclOperation.IDEMPOTENT_WRITE, ALLOW),
    ("carol", _TOPIC, LITERAL, "*", AclOperation.DESCRIBE_CONFIGS, ALLOW),
    ("carol", _TOPIC, LITERAL, "*", _DELETE, ALLOW),
    ("dora", _TOPIC, LITERAL, "*", _ALL, ALLOW),
    *[("dora", _TOPIC, LITERAL, name, _DESCRIBE, DENY) for name in TOPIC.values()],
    ("dora", _CLUSTER, LITERAL, CLUSTER, _ALL, ALLOW),
    ("dora", _CLUSTER, LITERAL, CLUSTER, AclOperation.IDEMPOTENT_WRITE, DENY),
)
MAY_SEARCH: Final = {"alice": ("0 g",), "bob": ("1 t",), "admin": ("0 g", "0 other", "1 t", "1 other")}
"""The coordinators that users may look for, by type and key: such a search makes a broker of Kafka create a topic."""


def rules() -> m.CreateAclsRequest:
    """The request that makes the rules."""
    return m.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=f"User:{user}",
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for user, resource, pattern, name, operation, permission in RULES
        ]
    )


def topics(*brokers: int) -> m.CreateTopicsRequest:
    """The request that makes the topics of each broker."""
    return m.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[one])],
            )
            for one in brokers
            for name in (TOPIC[one], SECRET[one])
        ],
        timeout_ms=WAIT_MS,
    )


def facts(message: Struct, path: str = "") -> Iterator[tuple[str, int]]:
    """The error codes and the permitted operations in an answer, each with what it is about."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    keys = ("topic", "name", "resource_name", "key", "partition_index", "partition", "index", "resource_type")
    here = "/".join([path, *(str(fields[key]) for key in keys if key in fields)])
    for name, value in fields.items():
        if name == "error_code" or name.endswith("authorized_operations"):
            yield f"{here} {name}", value
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, Struct):
                    yield from facts(one, here)


def about_records(topic: str, secret: str) -> dict[str, tuple[Message, int]]:
    """Requests about the records of two topics and of one that does not exist, with their versions."""
    names = (topic, secret, "absent")
    data = [produce.PartitionProduceData(records=write_batch([Record(0, NOW_MS, 0, None, b"v")], epoch=-1))]
    writes = [produce.TopicProduceData(name=one, partition_data=data) for one in names]
    parts = [fetch.FetchPartition(partition_max_bytes=1000)]
    reads = [fetch.FetchTopic(topic=one, partitions=parts) for one in names]
    latest = [list_offsets.ListOffsetsPartition(timestamp=-1)]
    ends = [offset_for_leader_epoch.OffsetForLeaderPartition()]
    starts = [delete_records.DeleteRecordsPartition()]
    unknown = [produce.TopicProduceData(topic_id=Uuid(b"x" * 16), partition_data=data)]
    return {
        "Produce": (m.ProduceRequest(acks=1, timeout_ms=WAIT_MS, topic_data=writes), 12),
        "Produce by id": (m.ProduceRequest(acks=1, timeout_ms=WAIT_MS, topic_data=unknown), 13),
        "Fetch": (m.FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1000, topics=reads), 12),
        "Fetch of a follower": (m.FetchRequest(replica_id=999, max_wait_ms=0, max_bytes=1000, topics=reads[:1]), 12),
        "ListOffsets": (
            m.ListOffsetsRequest(replica_id=-1, topics=[list_offsets.ListOffsetsTopic(one, latest) for one in names]),
            10,
        ),
        "OffsetForLeaderEpoch": (
            m.OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[offset_for_leader_epoch.OffsetForLeaderTopic(one, ends) for one in names]
            ),
            4,
        ),
        "DeleteRecords": (
            m.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(one, starts) for one in names], WAIT_MS),
            2,
        ),
        "DescribeProducers": (
            m.DescribeProducersRequest([describe_producers.TopicRequest(one, [0]) for one in names]),
            0,
        ),
        "InitProducerId": (m.InitProducerIdRequest(transactional_id=None), 5),
        "DescribeLogDirs": (m.DescribeLogDirsRequest(topics=[]), 4),
    }


def about_metadata(topic: str, secret: str, broker: int) -> dict[str, tuple[Message, int]]:
    """Requests that a broker answers from its metadata, with their versions."""
    names = (topic, secret, "absent")
    named = [metadata.MetadataRequestTopic(name=one) for one in (*names, "not/valid")]
    operations = m.MetadataRequest(
        named,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    configs = [describe_configs.DescribeConfigsResource(2, one, ["retention.ms"]) for one in names]
    configs.append(describe_configs.DescribeConfigsResource(4, str(broker), ["node.id"]))
    owner = describe_delegation_token.DescribeDelegationTokenOwner("User", "x")
    return {
        "Metadata": (
            m.MetadataRequest(named, allow_auto_topic_creation=False, include_topic_authorized_operations=True),
            12,
        ),
        "Metadata with all operations": (operations, 8),
        "Metadata of version 1": (m.MetadataRequest(named[:2]), 1),
        "Metadata with creation": (
            m.MetadataRequest(
                [metadata.MetadataRequestTopic(name=f"made-by-{broker}")], allow_auto_topic_creation=True
            ),
            12,
        ),
        "DescribeTopicPartitions": (
            m.DescribeTopicPartitionsRequest([describe_topic_partitions.TopicRequest(one) for one in names]),
            0,
        ),
        "DescribeConfigs": (m.DescribeConfigsRequest(configs), 4),
        "DescribeCluster": (m.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1), 2),
        "ListConfigResources": (m.ListConfigResourcesRequest(resource_types=[]), 1),
        "DescribeClientQuotas": (m.DescribeClientQuotasRequest(components=[]), 1),
        "DescribeAcls": (m.DescribeAclsRequest(5, "none", 3, None, None, 1, 1), 3),
        "DescribeUserScramCredentials": (
            m.DescribeUserScramCredentialsRequest([describe_user_scram_credentials.UserName("x")]),
            0,
        ),
        "DescribeDelegationToken": (m.DescribeDelegationTokenRequest([owner]), 3),
        "CreateDelegationToken": (m.CreateDelegationTokenRequest("User", "x"), 3),
    }


def forwarded(topic: str, secret: str) -> dict[str, tuple[Message, int]]:
    """Requests that the controller decides for the principal in the Envelope, with their versions."""
    names = (topic, secret, "absent")
    creating = [create_topics.CreatableTopic(name=one, num_partitions=1, replication_factor=1) for one in ("new", "no")]
    more = [create_partitions.CreatePartitionsTopic(name=one, count=2, assignments=None) for one in names]
    change = [incremental_alter_configs.AlterableConfig(name="retention.ms", value="5000")]
    changed = [incremental_alter_configs.AlterConfigsResource(2, one, change) for one in names]
    quota = alter_client_quotas.AlterClientQuotasRequestEntryData(
        [alter_client_quotas.AlterClientQuotasRequestEntityData("user", "u")],
        [alter_client_quotas.OpData("producer_byte_rate", 1.0)],
    )
    moved = alter_partition_reassignments.ReassignableTopic(
        "absent", [alter_partition_reassignments.ReassignablePartition(0, None)]
    )
    return {
        "CreateTopics": (m.CreateTopicsRequest(creating, WAIT_MS, validate_only=True), 7),
        "CreatePartitions": (m.CreatePartitionsRequest(more, WAIT_MS, validate_only=True), 3),
        "DeleteTopics": (
            m.DeleteTopicsRequest([delete_topics.DeleteTopicState(name="absent")], timeout_ms=WAIT_MS),
            6,
        ),
        "IncrementalAlterConfigs": (m.IncrementalAlterConfigsRequest(changed, validate_only=True), 1),
        "AlterClientQuotas": (m.AlterClientQuotasRequest([quota], validate_only=True), 1),
        "ElectLeaders": (m.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(topic, [0])], WAIT_MS), 2),
        "ListPartitionReassignments": (m.ListPartitionReassignmentsRequest(WAIT_MS, []), 0),
        "AlterPartitionReassignments": (m.AlterPartitionReassignmentsRequest(timeout_ms=WAIT_MS, topics=[moved]), 0),
    }


def searches(user: str) -> dict[str, tuple[Message, int]]:
    """Searches for coordinators that the user may not look for, with their versions."""
    found: dict[str, tuple[Message, int]] = {}
    for kind, key in ((0, "g"), (0, "other"), (1, "t"), (1, "other")):
        if f"{kind} {key}" not in MAY_SEARCH.get(user, ()):
            many = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found[f"FindCoordinator of type {kind} for {key}"] = many, 6
            found[f"FindCoordinator of type {kind} for {key}, alone"] = m.FindCoordinatorRequest(key, kind), 2
    return found


def requests_of(user: str, broker: int) -> dict[str, tuple[Message, int]]:
    """Every request of a user to a broker, with its version."""
    topic, secret = TOPIC[broker], SECRET[broker]
    return (
        about_records(topic, secret) | about_metadata(topic, secret, broker) | forwarded(topic, secret) | searches(user)
    )
