"""Requests to a controller, errors among them, in an order that makes sense: what two controllers are compared on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from metadata_log.serde import Message, encode, schema_of
from metadata_log.types import Uuid
from support.differential.controller_sides import Side, directory, incarnation, registration
from transport.protocol import messages as m
from transport.protocol.headers import encode_request
from transport.protocol.messages import (
    alter_client_quotas,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_registration,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)
from transport.protocol.messages.principal import DefaultPrincipalData

Build = Callable[[Side], Message]
Step = tuple[Build, int]
FAR: Final = 10**6
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def latest(build: Build) -> Step:
    """In the highest version of its API."""
    return build, -1


# Requests


def register(broker: int, **changes: Any) -> Step:
    return latest(lambda side: registration(broker, **changes))


def heartbeat(broker: int, *, epoch: int | None = None, offset: int = FAR, **changes: Any) -> Step:
    def build(side: Side) -> Message:
        known = side.epochs.get(broker, -1) if epoch is None else epoch
        request = {"current_metadata_offset": offset, "want_fence": False, "cordoned_log_dirs": []}
        return m.BrokerHeartbeatRequest(broker_id=broker, broker_epoch=known, **{**request, **changes})

    return latest(build)


def arrives(broker: int, **changes: Any) -> list[Step]:
    """A broker registers and is unfenced."""
    return [register(broker, **changes), heartbeat(broker)]


def create(*topics: create_topics.CreatableTopic, version: int = 7, **changes: Any) -> Step:
    return lambda side: m.CreateTopicsRequest(topics=list(topics), timeout_ms=5000, **changes), version


def topic(
    name: str,
    *replicas: Sequence[int],
    count: int = -1,
    factor: int = -1,
    indexes: Sequence[int] | None = None,
    **configs: str | None,
) -> create_topics.CreatableTopic:
    """A topic with replicas chosen by hand, or with counts; configs with `_` for `.`."""
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in zip(indexes or range(len(replicas)), replicas, strict=True)
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def grow(
    name: str, count: int, *replicas: Sequence[int], twice: bool = False, version: int = 3, **changes: Any
) -> Step:
    assignments = [create_partitions.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in replicas] or None
    asked = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    topics = [asked, asked] if twice else [asked]
    return lambda side: m.CreatePartitionsRequest(topics=topics, timeout_ms=5000, **changes), version


def delete(*names: str) -> Step:
    return lambda side: m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000), 5


def delete_by(*asked: tuple[str | None, str | None]) -> Step:
    """By name, by the id of a name, or by both; the id of `""` is the id of no topic."""
    unknown = Uuid(b"no topic has it.")

    def build(side: Side) -> Message:
        states = [
            delete_topics.DeleteTopicState(
                name=name, topic_id=Uuid.ZERO if of is None else side.topics.get(of, unknown)
            )
            for name, of in asked
        ]
        return m.DeleteTopicsRequest(topics=states, timeout_ms=5000)

    return build, 6


def configure(kind: int, name: str, *changes: tuple[str, int, str | None], twice: bool = False, **more: Any) -> Step:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    resources = [resource, resource] if twice else [resource]
    return latest(lambda side: m.IncrementalAlterConfigsRequest(resources=resources, **more))


def elections(kind: int, *partitions: tuple[str, Sequence[int]], everything: bool = False, version: int = 2) -> Step:
    asked = [elect_leaders.TopicPartitions(topic=name, partitions=list(numbers)) for name, numbers in partitions]
    chosen = None if everything else asked
    return lambda side: m.ElectLeadersRequest(election_type=kind, topic_partitions=chosen, timeout_ms=5000), version


def reassign(name: str, *targets: tuple[int, Sequence[int] | None], **changes: Any) -> Step:
    partitions = [
        alter_partition_reassignments.ReassignablePartition(
            partition_index=number, replicas=None if replicas is None else list(replicas)
        )
        for number, replicas in targets
    ]
    asked = alter_partition_reassignments.ReassignableTopic(name=name, partitions=partitions)
    return latest(lambda side: m.AlterPartitionReassignmentsRequest(topics=[asked], timeout_ms=5000, **changes))


def reassignments(*asked: tuple[str, Sequence[int]]) -> Step:
    topics = [
        list_partition_reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=list(numbers))
        for name, numbers in asked
    ]
    return latest(lambda side: m.ListPartitionReassignmentsRequest(topics=topics or None, timeout_ms=5000))


def isr(
    name: str,
    members: Sequence[int],
    *,
    by: int,
    partition: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    recovery: int = 0,
    broker_epoch: int | None = None,
    member_epoch: int | None = None,
) -> Step:
    def build(side: Side) -> Message:
        def epoch_of(broker: int) -> int:
            return side.epochs.get(broker, -1) if member_epoch is None else member_epoch

        change = alter_partition.AlterPartitionRequestPartitionData(
            partition_index=partition,
            leader_epoch=leader_epoch,
            new_isr_with_epochs=[
                alter_partition.BrokerState(broker_id=broker, broker_epoch=epoch_of(broker)) for broker in members
            ],
            leader_recovery_state=recovery,
            partition_epoch=partition_epoch,
        )
        topic_id = side.topics.get(name, Uuid(b"no topic has it."))
        asked = alter_partition.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[change])
        epoch = side.epochs[by] if broker_epoch is None else broker_epoch
        return m.AlterPartitionRequest(broker_id=by, broker_epoch=epoch, topics=[asked])

    return latest(build)


def assign(broker: int, home: Uuid, *places: tuple[str, int], epoch: int | None = None) -> Step:
    def build(side: Side) -> Message:
        topics = [
            assign_replicas_to_dirs.AssignReplicasToDirsRequestTopicData(
                topic_id=side.topics.get(name, Uuid(b"no topic has it.")),
                partitions=[assign_replicas_to_dirs.AssignReplicasToDirsRequestPartitionData(partition_index=number)],
            )
            for name, number in places
        ]
        known = side.epochs[broker] if epoch is None else epoch
        directories = [assign_replicas_to_dirs.AssignReplicasToDirsRequestDirectoryData(id=home, topics=topics)]
        return m.AssignReplicasToDirsRequest(broker_id=broker, broker_epoch=known, directories=directories)

    return latest(build)


def producer_ids(broker: int, epoch: int | None = None) -> Step:
    def build(side: Side) -> Message:
        known = side.epochs[broker] if epoch is None else epoch
        return m.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=known)

    return latest(build)


def unregister(broker: int) -> Step:
    return latest(lambda side: m.UnregisterBrokerRequest(broker_id=broker))


ANONYMOUS: Final = b"\x00\x00" + encode(DefaultPrincipalData(type="User", name="ANONYMOUS"), 0)
LOOPBACK: Final = bytes((127, 0, 0, 1))


def envelope(
    inner: Step | bytes, *, principal: bytes | None = ANONYMOUS, address: bytes = LOOPBACK, cut: int | None = None
) -> Step:
    """A request that a broker passes on, of which only the first `cut` bytes arrive."""

    def build(side: Side) -> Message:
        data = inner
        if not isinstance(data, bytes):
            request = data[0](side)
            api_key = schema_of(type(request)).api_key
            assert api_key is not None
            data = encode_request(api_key, newest(request, data[1]), 55, "client", request)
        return m.EnvelopeRequest(request_data=data[:cut], request_principal=principal, client_host_address=address)

    return latest(build)


# Stories. Each goes on where the one before has ended.

A, B, C, D, E = 101, 102, 103, 104, 105
PREFERRED, UNCLEAN = 0, 1
_FEW_FEATURES: Final = [
    broker_registration.Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)
]
_OLD: Final = [broker_registration.Feature(name="metadata.version", min_supported_version=1, max_supported_version=2)]


def _features(**changes: tuple[int, int] | None) -> list[broker_registration.Feature]:
    ranges = {one.name: (one.min_supported_version, one.max_supported_version) for one in registration(1).features}
    for key, value in changes.items():
        name = key.replace("_", ".")
        ranges.pop(name, None)
        if value is not None:
            ranges[name] = value
    return [
        broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in ranges.items()
    ]


STORIES: Final[dict[str, list[Step]]] = {
    "brokers register": [
        *arrives(A),
        *arrives(B),
        *arrives(C, rack=None),
        register(D),
        register(D),
        register(106),
        heartbeat(D, want_fence=True),
        heartbeat(D, want_fence=True, offset=0),
        heartbeat(D, offset=0),
        heartbeat(D, epoch=1),
        heartbeat(99, epoch=1),
        register(A, incarnation_id=incarnation(A, 1)),
        register(A, cluster_id="another"),
        register(E, is_migrating_zk_broker=True),
        register(E, log_dirs=[]),
        register(E, log_dirs=[Uuid(bytes(15) + b"\x05")]),
        register(E, log_dirs=[directory(E), directory(E)]),
        register(E, log_dirs=[directory(E), directory(A)]),
        register(E, features=_FEW_FEATURES),
        register(E, features=_OLD),
        register(E, features=_features(metadata_version=None)),
        register(E, features=_features(kraft_version=(1, 1))),
        register(E, features=_features(kraft_version=None)),
        register(E, features=_features(share_version=None)),
        register(E, features=_features(new_feature=(0, 4))),
        register(E, features=_features(newer_feature=(1, 4))),
        (lambda side: registration(E, log_dirs=[], previous_broker_epoch=-1), 0),
        unregister(E),
        unregister(E),
        producer_ids(A),
        producer_ids(B),
        producer_ids(A, 1),
        producer_ids(99, 1),
    ],
    "topics are created": [
        create(topic("by-hand", [A, B], [B, C], [C, A])),
        create(topic("by-hand", count=1, factor=1)),
        create(topic("placed", count=6, factor=3)),
        create(topic("placed-by-default")),
        create(topic("trial", [A, B]), validate_only=True),
        create(topic("old", [A]), version=4),
        create(topic("older", [A]), version=2),
        create(topic("counted", [B]), topic("placed", count=1, factor=1), topic("fine", [A])),
        create(topic("", count=1, factor=1)),
        create(topic(".", count=1, factor=1), topic("..", count=1, factor=1)),
        create(topic("placed".ljust(249, "x"), count=1, factor=1), topic("x" * 250, count=1, factor=1)),
        create(topic("what is this", count=1, factor=1), topic("größe", count=1, factor=1)),
        create(topic("a.b", [A])),
        create(topic("a_b", count=1, factor=1)),
        create(topic("c.d", [A]), topic("c_d", [B])),
        create(topic("twice", count=1, factor=1), topic("twice", count=2, factor=1), topic("once", [A])),
        create(topic("__cluster_metadata", count=1, factor=1), topic("beside", [A])),
        create(topic("none", count=0, factor=1), topic("minus", count=-2, factor=1)),
        create(topic("zero", count=1, factor=0), topic("minus", count=1, factor=-2)),
        create(topic("many", count=1, factor=9)),
        create(topic("placed-fours", count=1, factor=4)),
        create(topic("huge", count=10_001, factor=1), topic("beside-huge", count=1, factor=1)),
        create(topic("at-limit", count=10_000, factor=1)),
        create(topic("both", [A], count=1)),
        create(topic("both", [A], factor=1)),
        create(topic("both", [A], count=1, factor=1)),
        create(topic("indexes", [A], [B], indexes=[0, 0])),
        create(topic("indexes", [A], [B], indexes=[0, 2])),
        create(topic("indexes", [A], [B], indexes=[1, 2])),
        create(topic("turned", [A], [B], indexes=[1, 0])),
        create(topic("replicas", [])),
        create(topic("replicas", [A, A])),
        create(topic("replicas", [A, 99])),
        create(topic("replicas", [-1])),
        create(topic("replicas", [A, B], [C])),
        create(topic("fenced", [D])),
        create(topic("half-fenced", [D, A])),
        create(topic("configured", [A], retention_ms="1000", min_insync_replicas="1")),
        create(topic("configs", [A], retention_ms=None)),
        create(topic("configs", [A], no_such_key="1")),
        create(topic("configs", [A], retention_ms="soon")),
        create(topic("configs", [A], retention_ms="-2")),
        create(topic("configs", [A], cleanup_policy="compact,tidy")),
        create(topic("configs", [A], min_insync_replicas="0")),
        create(topic("configs", [A], compression_type="best")),
        create(topic("configs", [A], segment_bytes="1")),
        create(topic("configs", [A], max_message_bytes="-1")),
        create(topic("configs", [A], min_cleanable_dirty_ratio="2")),
        create(topic("configs", [A], preallocate="perhaps")),
        create(topic("configs", [A], min_compaction_lag_ms="20", max_compaction_lag_ms="10")),
        create(topic("configs", [A], leader_replication_throttled_replicas="a:b")),
        create(topic("configs", [A], message_timestamp_type="Now")),
        create(topic("configs", [A], remote_storage_enable="true")),
        create(topic("configs", [A], local_retention_ms="-3")),
        create(topic("configs", [A], cleanup_policy="")),
        create(topic("empty-list", [A], leader_replication_throttled_replicas="")),
        create(topic("spaces", [A], retention_ms=" 77 ", cleanup_policy="compact, delete")),
        create(),
        (lambda side: m.CreateTopicsRequest(topics=[], validate_only=True), 7),
    ],
    "topics grow": [
        grow("placed", 8),
        grow("by-hand", 4, [A, B]),
        grow("by-hand", 6, [A, B], [B, C]),
        grow("by-hand", 6),
        grow("by-hand", 2),
        grow("by-hand", 0),
        grow("by-hand", -1),
        grow("by-hand", 7, [A, B], [B, C]),
        grow("by-hand", 8, [A, B]),
        grow("by-hand", 7, [A]),
        grow("by-hand", 7, [A, A]),
        grow("by-hand", 7, [A, 99]),
        grow("by-hand", 7, []),
        grow("by-hand", 8, [A, B], [A]),
        grow("fine", 3, [D], [A]),
        grow("fine", 3, [A], [B], validate_only=True),
        grow("nope", 3),
        grow("fine", 3, twice=True),
        grow("placed", 9, version=0),
        delete("placed", "placed-by-default", "placed-fours", "placed".ljust(249, "x")),
    ],
    "configurations": [
        configure(TOPIC, "fine", ("retention.ms", SET, "5000")),
        configure(TOPIC, "fine", ("retention.ms", SET, "5000")),
        configure(TOPIC, "fine", ("retention.ms", DELETE, None)),
        configure(TOPIC, "fine", ("retention.ms", DELETE, None)),
        configure(TOPIC, "fine", ("retention.ms", SET, None)),
        configure(TOPIC, "fine", ("cleanup.policy", APPEND, "compact")),
        configure(TOPIC, "fine", ("cleanup.policy", APPEND, "compact")),
        configure(TOPIC, "fine", ("cleanup.policy", SUBTRACT, "delete")),
        configure(TOPIC, "fine", ("cleanup.policy", SUBTRACT, "compact")),
        configure(TOPIC, "fine", ("cleanup.policy", APPEND, "tidy")),
        configure(TOPIC, "fine", ("leader.replication.throttled.replicas", APPEND, "0:101,1:102")),
        configure(TOPIC, "fine", ("leader.replication.throttled.replicas", APPEND, "1:102,2:103")),
        configure(TOPIC, "fine", ("leader.replication.throttled.replicas", SUBTRACT, "1:102")),
        configure(TOPIC, "fine", ("retention.ms", APPEND, "1")),
        configure(TOPIC, "fine", ("retention.ms", SUBTRACT, "1")),
        configure(TOPIC, "fine", ("nonsense", APPEND, "1")),
        configure(TOPIC, "fine", ("nonsense", SET, "1")),
        configure(TOPIC, "fine", ("nonsense", DELETE, None)),
        configure(TOPIC, "fine", ("retention.ms", SET, "soon"), ("flush.ms", SET, "5")),
        configure(TOPIC, "fine", ("flush.ms", SET, "5"), ("flush.messages", SET, "6")),
        configure(TOPIC, "fine", ("flush.ms", SET, "5"), ("flush.ms", SET, "6")),
        configure(TOPIC, "fine", ("min.insync.replicas", SET, "2")),
        configure(TOPIC, "fine", ("min.insync.replicas", SET, "2")),
        configure(TOPIC, "fine", ("min.insync.replicas", DELETE, None)),
        configure(TOPIC, "fine", ("min.insync.replicas", SET, "-4")),
        configure(TOPIC, "fine", ("retention.ms", SET, "7"), validate_only=True),
        configure(TOPIC, "nope", ("retention.ms", SET, "7")),
        configure(TOPIC, "", ("retention.ms", SET, "7")),
        configure(TOPIC, "not a name", ("retention.ms", SET, "7")),
        configure(TOPIC, "fine", ("retention.ms", SET, "7"), twice=True),
        configure(TOPIC, "fine"),
        configure(BROKER, "", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "", ("log.cleaner.threads", DELETE, None)),
        configure(BROKER, "", ("log.cleaner.threads", DELETE, None)),
        configure(BROKER, "101", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "101", ("nonsense", SET, "2")),
        configure(BROKER, "101", ("log.cleanup.policy", APPEND, "compact")),
        configure(BROKER, "101", ("log.cleaner.threads", APPEND, "1")),
        configure(BROKER, "1", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "99", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "-1", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "first", ("log.cleaner.threads", SET, "2")),
        configure(BROKER, "101", ("min.insync.replicas", SET, "2")),
        configure(BROKER, "101", ("min.insync.replicas", DELETE, None)),
        configure(BROKER, "", ("min.insync.replicas", SET, "2")),
        configure(BROKER, "", ("min.insync.replicas", SET, "2")),
        configure(BROKER, "", ("min.insync.replicas", DELETE, None)),
        configure(BROKER, "", ("min.insync.replicas", SET, "1")),
        configure(BROKER, "", ("retention.ms", SET, "2")),
        configure(METRICS, "watch", ("interval.ms", SET, "1000")),
        configure(METRICS, "watch", ("interval.ms", SET, "1")),
        configure(METRICS, "", ("interval.ms", SET, "1000")),
        configure(METRICS, "watch", ("metrics", APPEND, "org.apache.")),
        configure(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        configure(GROUP, "g", ("consumer.session.timeout.ms", SET, "soon")),
        configure(GROUP, "g", ("nonsense", SET, "1")),
        configure(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
        configure(GROUP, "limits", ("consumer.session.timeout.ms", SET, "44999")),
        configure(GROUP, "limits", ("consumer.session.timeout.ms", SET, "45000")),
        configure(GROUP, "limits", ("consumer.session.timeout.ms", SET, "60000")),
        configure(GROUP, "limits", ("consumer.session.timeout.ms", SET, "60001")),
        configure(GROUP, "limits", ("consumer.session.timeout.ms", SET, "0")),
        configure(GROUP, "limits", ("consumer.heartbeat.interval.ms", SET, "4999")),
        configure(GROUP, "limits", ("consumer.heartbeat.interval.ms", SET, "5000")),
        configure(GROUP, "limits", ("consumer.heartbeat.interval.ms", SET, "15001")),
        configure(GROUP, "limits", ("consumer.heartbeat.interval.ms", SET, "0")),
        configure(GROUP, "limits", ("consumer.assignment.interval.ms", SET, "-1")),
        configure(GROUP, "limits", ("consumer.assignment.interval.ms", SET, "0")),
        configure(GROUP, "limits", ("consumer.assignment.interval.ms", SET, "15001")),
        configure(GROUP, "limits", ("consumer.assignment.interval.ms", SET, "15000")),
        configure(GROUP, "limits", ("share.assignment.interval.ms", SET, "-1")),
        configure(GROUP, "limits", ("share.assignment.interval.ms", SET, "0")),
        configure(GROUP, "limits", ("share.assignment.interval.ms", SET, "15001")),
        configure(GROUP, "limits", ("share.assignment.interval.ms", SET, "15000")),
        configure(GROUP, "limits", ("streams.assignment.interval.ms", SET, "-1")),
        configure(GROUP, "limits", ("streams.assignment.interval.ms", SET, "0")),
        configure(GROUP, "limits", ("streams.assignment.interval.ms", SET, "15001")),
        configure(GROUP, "limits", ("streams.assignment.interval.ms", SET, "15000")),
        configure(GROUP, "limits", ("share.session.timeout.ms", SET, "44999")),
        configure(GROUP, "limits", ("share.session.timeout.ms", SET, "60001")),
        configure(GROUP, "limits", ("share.heartbeat.interval.ms", SET, "4999")),
        configure(GROUP, "limits", ("share.heartbeat.interval.ms", SET, "15001")),
        configure(GROUP, "limits", ("share.record.lock.duration.ms", SET, "14999")),
        configure(GROUP, "limits", ("share.record.lock.duration.ms", SET, "15000")),
        configure(GROUP, "limits", ("share.record.lock.duration.ms", SET, "60001")),
        configure(GROUP, "limits", ("share.record.lock.duration.ms", SET, "999")),
        configure(GROUP, "limits", ("share.delivery.count.limit", SET, "1")),
        configure(GROUP, "limits", ("share.delivery.count.limit", SET, "2")),
        configure(GROUP, "limits", ("share.delivery.count.limit", SET, "10")),
        configure(GROUP, "limits", ("share.delivery.count.limit", SET, "11")),
        configure(GROUP, "limits", ("share.partition.max.record.locks", SET, "99")),
        configure(GROUP, "limits", ("share.partition.max.record.locks", SET, "100")),
        configure(GROUP, "limits", ("share.partition.max.record.locks", SET, "4000")),
        configure(GROUP, "limits", ("share.partition.max.record.locks", SET, "10001")),
        configure(GROUP, "limits", ("share.auto.offset.reset", SET, "never")),
        configure(GROUP, "limits", ("share.auto.offset.reset", SET, "by_duration:PT1H")),
        configure(GROUP, "limits", ("share.auto.offset.reset", SET, "by_duration:x")),
        configure(GROUP, "limits", ("share.auto.offset.reset", SET, "earliest")),
        configure(GROUP, "limits", ("share.isolation.level", SET, "none")),
        configure(GROUP, "limits", ("share.renew.acknowledge.enable", SET, "maybe")),
        configure(GROUP, "limits", ("streams.session.timeout.ms", SET, "44999")),
        configure(GROUP, "limits", ("streams.session.timeout.ms", SET, "60001")),
        configure(GROUP, "limits", ("streams.heartbeat.interval.ms", SET, "4999")),
        configure(GROUP, "limits", ("streams.heartbeat.interval.ms", SET, "15001")),
        configure(GROUP, "limits", ("streams.num.standby.replicas", SET, "2")),
        configure(GROUP, "limits", ("streams.num.standby.replicas", SET, "3")),
        configure(GROUP, "limits", ("streams.num.standby.replicas", SET, "-1")),
        configure(GROUP, "limits", ("streams.initial.rebalance.delay.ms", SET, "-1")),
        configure(GROUP, "limits", ("streams.initial.rebalance.delay.ms", SET, "99999")),
        configure(
            GROUP,
            "both",
            ("consumer.session.timeout.ms", SET, "45000"),
            ("consumer.heartbeat.interval.ms", SET, "15000"),
        ),
        configure(GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)),
        configure(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1")),
        configure(METRICS, "watch", ("match", APPEND, "client_id=a")),
        configure(BROKER, "101", ("log.cleanup.policy", SUBTRACT, "delete")),
        configure(BROKER, "", ("group.consumer.assignors", SUBTRACT, "range")),
        configure(BROKER, "", ("ssl.enabled.protocols", APPEND, "TLSv1.1")),
        configure(BROKER, "", ("cordoned.log.dirs", SET, "/somewhere")),
        configure(BROKER, "101", ("cordoned.log.dirs", APPEND, "/somewhere")),
        configure(TOPIC, "configured", ("remote.log.copy.disable", SET, "true")),
        configure(TOPIC, "configured", ("remote.log.delete.on.disable", SET, "true")),
        configure(TOPIC, "configured", ("local.retention.ms", SET, "99999999999")),
        configure(TOPIC, "configured", ("local.retention.bytes", SET, "99999999999")),
        configure(TOPIC, "configured", ("compression.gzip.level", SET, "0")),
        configure(TOPIC, "configured", ("compression.type", SET, " gzip ")),
        configure(TOPIC, "configured", ("cleanup.policy", SET, "compact,,delete")),
        configure(TOPIC, "configured", ("cleanup.policy", SET, "delete,delete")),
        configure(TOPIC, "configured", ("preallocate", SET, "TRUE")),
        configure(TOPIC, "configured", ("min.cleanable.dirty.ratio", SET, "nan")),
        configure(TOPIC, "configured", ("min.cleanable.dirty.ratio", SET, "1e-3")),
        configure(TOPIC, "configured", ("retention.bytes", SET, "9223372036854775808")),
        configure(TOPIC, "configured", ("segment.bytes", SET, "2147483648")),
        configure(TOPIC, "configured", ("retention.ms", SET, "+5")),
        configure(TOPIC, "configured", ("retention.ms", SET, "")),
        configure(TOPIC, "configured", ("unclean.leader.election.enable", SET, "true")),
        configure(TOPIC, "configured", ("leader.replication.throttled.replicas", SET, "*")),
        configure(TOPIC, "configured", ("leader.replication.throttled.replicas", SET, "0:1,*")),
        configure(0, "x", ("nonsense", SET, "1")),
        configure(99, "x", ("nonsense", SET, "1")),
        latest(lambda side: m.IncrementalAlterConfigsRequest(resources=[])),
    ],
    "in-sync replicas": [
        create(topic("synced", [A, B, C], [A, D, B]), topic("lonely", [A])),
        isr("synced", [A, B], by=A),
        isr("synced", [A, B], by=A, partition_epoch=1),
        isr("synced", [A], by=A, partition_epoch=0),
        isr("synced", [A], by=A, partition_epoch=9),
        isr("synced", [A], by=A, leader_epoch=9, partition_epoch=1),
        isr("synced", [A], by=A, leader_epoch=-1, partition_epoch=1),
        isr("synced", [A, B], by=B, partition_epoch=1),
        isr("synced", [B], by=A, partition_epoch=1),
        isr("synced", [A, A], by=A, partition_epoch=1),
        isr("synced", [A, 99], by=A, partition_epoch=1),
        isr("synced", [], by=A, partition_epoch=1),
        isr("synced", [A, B], by=A, partition_epoch=1, recovery=1),
        isr("synced", [A], by=A, partition_epoch=1, recovery=1),
        isr("synced", [A, B, C], by=A, partition_epoch=1, member_epoch=1),
        isr("synced", [A, B, C], by=A, partition_epoch=1, member_epoch=-1),
        isr("synced", [A, B, D], by=A, partition=1, partition_epoch=0),
        isr("synced", [A], by=A, partition=7),
        isr("synced", [A], by=A, broker_epoch=1),
        isr("nope", [A], by=A),
    ],
    "directories": [
        assign(A, directory(A), ("synced", 0), ("synced", 9), ("nope", 0), ("counted", 0)),
        assign(A, directory(A, 1), ("lonely", 0)),
        assign(A, directory(A), ("lonely", 0)),
        assign(A, directory(A), ("lonely", 0), epoch=1),
        assign(99, directory(A), ("lonely", 0), epoch=1),
    ],
    "leaders are elected": [
        create(topic("led", [A, B], [B, A], [C], [C, A])),
        elections(PREFERRED, ("led", [0, 1, 9]), ("nope", [0])),
        elections(UNCLEAN, ("led", [0])),
        elections(7, ("led", [0])),
        elections(PREFERRED, everything=True),
        elections(UNCLEAN, everything=True),
        elections(PREFERRED),
        elections(PREFERRED, ("led", [0]), version=0),
        heartbeat(C, want_fence=True),
        elections(PREFERRED, ("led", [2, 3])),
        elections(UNCLEAN, ("led", [2, 3])),
        heartbeat(C),
        elections(UNCLEAN, ("led", [2])),
        elections(PREFERRED, ("led", [3])),
        isr("led", [A, C], by=A, partition=3, leader_epoch=1, partition_epoch=1),
        elections(PREFERRED, ("led", [3])),
    ],
    "reassignments": [
        create(topic("moved", [A, B], [A, B], [A, B, C], [B]), topic("still", [A])),
        reassign("moved", (0, [A, C]), (9, [A]), (1, None)),
        reassign("nope", (0, [A])),
        reassign("moved", (1, [])),
        reassign("moved", (1, [A, A])),
        reassign("moved", (1, [A, 99])),
        reassign("moved", (1, [A]), allow_replication_factor_change=False),
        reassign("moved", (1, [B, A])),
        reassign("moved", (2, [C, B])),
        reassign("moved", (3, [D])),
        reassign("moved", (3, [A, B, C]), allow_replication_factor_change=False),
        reassignments(),
        reassignments(("moved", [0, 1, 9]), ("nope", [0]), ("still", [0])),
        isr("moved", [A, B, C], by=A, partition_epoch=1),
        reassignments(),
        reassign("moved", (3, None)),
        reassign("moved", (3, [A, C])),
        isr("moved", [A, B, C], by=B, partition=3, leader_epoch=1, partition_epoch=3),
        reassign("moved", (0, [B, C])),
        reassign("moved", (0, [B, A])),
        reassign("moved", (0, None)),
        reassignments(),
        latest(lambda side: m.AlterPartitionReassignmentsRequest(topics=[])),
    ],
    "brokers come and go": [
        heartbeat(B, want_fence=True),
        heartbeat(B),
        heartbeat(C, want_shut_down=True),
        heartbeat(A),
        heartbeat(B),
        heartbeat(C, want_shut_down=True),
        heartbeat(C, want_shut_down=True),
        heartbeat(B, want_fence=True, want_shut_down=True),
        heartbeat(B),
        register(C, incarnation_id=incarnation(C, 1)),
        heartbeat(B, cordoned_log_dirs=[directory(B)]),
        create(topic("placed-uncordoned", count=4, factor=2)),
        delete("placed-uncordoned"),
        create(topic("on-cordoned", [B])),
        heartbeat(B, cordoned_log_dirs=None),
        heartbeat(B, cordoned_log_dirs=[]),
        heartbeat(B, offline_log_dirs=[directory(9)]),
        register(E, log_dirs=[directory(E), directory(E, 1)]),
        heartbeat(E),
        create(topic("two-homes", [E, A], [E])),
        assign(E, directory(E), ("two-homes", 0), ("two-homes", 1)),
        heartbeat(E, offline_log_dirs=[directory(E)]),
        heartbeat(E, offline_log_dirs=[directory(E)]),
        assign(E, directory(E), ("two-homes", 0)),
        unregister(E),
        heartbeat(E),
        unregister(D),
        unregister(99),
    ],
    "brokers pass requests on": [
        envelope(configure(TOPIC, "fine", ("retention.ms", SET, "999"))),
        envelope(configure(TOPIC, "nope", ("retention.ms", SET, "999"))),
        envelope(configure(BROKER, "101", ("cordoned.log.dirs", SET, "/somewhere"))),
        envelope(configure(BROKER, "101", ("cordoned.log.dirs", DELETE, None))),
        envelope(elections(PREFERRED, ("led", [0]), version=0)),
        envelope(grow("nope", 3)),
        envelope(delete("nope"), address=bytes(15) + b"\x01"),
        envelope(reassignments()),
        envelope(unregister(99)),
        envelope(delete("nope"), principal=None),
        envelope(delete("nope"), principal=b""),
        envelope(delete("nope"), principal=b"\x00"),
        envelope(delete("nope"), principal=b"\x00\x07" + ANONYMOUS[2:]),
        envelope(delete("nope"), principal=ANONYMOUS[:6]),
        envelope(delete("nope"), principal=ANONYMOUS + b"more"),
        envelope(delete("nope"), address=b""),
        envelope(delete("nope"), address=b"12345"),
        envelope(delete("nope"), principal=None, address=b"12345"),
        envelope(heartbeat(A)),
        envelope(register(A)),
        envelope(b""),
        envelope(b"\x00\x13"),
        envelope(delete("nope"), cut=12),
        envelope(delete("nope"), cut=-3),
        envelope(b"\x7f\x00\x00\x01\x00\x00\x00\x07\xff\xff"),
        envelope(b"\x00\x13\x00\x63\x00\x00\x00\x07\xff\xff"),
        envelope(latest(lambda side: m.DescribeClusterRequest(endpoint_type=2))),
        envelope(latest(lambda side: m.ApiVersionsRequest())),
        envelope(envelope(delete("nope"))),
    ],
    "bad input": [
        create(topic("bad", [A, B], [B, A])),
        create(topic("x" * 20_000, count=1, factor=1)),
        create(topic("bad", count=-(2**31), factor=-(2**15)), topic("worse", count=-(2**31), factor=-(2**15))),
        create(topic("worse", [2**31 - 1], [-(2**31)])),
        create(topic("worse", [A], indexes=[-1]), topic("worst", [A], indexes=[2**31 - 1])),
        create(*(topic(f"bad-{number}", count=2_000, factor=1) for number in range(6))),
        grow("bad", -(2**31)),
        grow("bad", 2**31 - 1, [A, B]),
        grow("bad", 2**31 - 1, [A, B], validate_only=True),
        configure(GROUP, "x" * 32_767, ("consumer.session.timeout.ms", SET, "x" * 9_000)),
        configure(METRICS, "bad", ("interval.ms", SET, "9" * 9_000)),
        configure(TOPIC, "bad", ("retention.ms", SET, "9" * 9_000)),
        configure(TOPIC, "bad", *[("retention.ms", SET, "1")] * 100),
        configure(TOPIC, "bad", ("", SET, "1")),
        configure(BROKER, "99999999999", ("", SET, "1")),
        reassign("bad", (0, [B]), (0, [A])),
        reassign("bad", (-1, [A]), (2**31 - 1, [A]), (-(2**31), None)),
        reassign("", (0, [A])),
        reassign("bad", (0, [-1]), (1, [A] * 1000)),
        reassign("bad", (0, [2**31 - 1])),
        elections(PREFERRED, ("bad", [-1, -1, 0, 0]), ("", [0])),
        elections(-1, ("bad", [0])),
        assign(A, directory(A), ("bad", -1), ("bad", 0), ("bad", 0)),
        isr("bad", [C], by=C, partition=-7),
        isr("bad", [A] * 100, by=B, partition=0),
        isr("bad", [-1], by=B, partition=1),
        producer_ids(A, -1),
        producer_ids(-1, -1),
        unregister(-1),
        heartbeat(-1, epoch=-1),
        heartbeat(A, offset=-(2**63)),
        delete_by((None, None), ("", None), ("x" * 20_000, None)),
        delete(*["bad-0"] * 100),
        latest(lambda side: m.UpdateFeaturesRequest(feature_updates=[])),
        latest(lambda side: m.AlterUserScramCredentialsRequest()),
        latest(lambda side: m.AlterClientQuotasRequest()),
        latest(lambda side: m.AlterConfigsRequest()),
        latest(lambda side: m.ElectLeadersRequest(topic_partitions=[])),
        latest(lambda side: m.AssignReplicasToDirsRequest(broker_id=A, broker_epoch=side.epochs[A])),
        latest(lambda side: m.AlterPartitionRequest(broker_id=A, broker_epoch=side.epochs[A])),
        latest(lambda side: m.CreateAclsRequest()),
        latest(lambda side: m.DeleteAclsRequest()),
        latest(lambda side: m.RenewDelegationTokenRequest()),
        latest(lambda side: m.ExpireDelegationTokenRequest()),
        envelope(latest(lambda side: m.RenewDelegationTokenRequest())),
        delete("bad"),
    ],
    "topics are deleted": [
        delete("older", "nope"),
        delete("old", "old"),
        delete_by(("spaces", None), (None, "counted"), ("nope", None), (None, "")),
        delete_by(("fine", "fine")),
        delete_by((None, None)),
        delete_by(("fine", None), (None, "fine")),
        delete_by(("fine", None), ("fine", None)),
        delete_by((None, "fine"), (None, "fine")),
        delete_by(("nope", None), ("nope", None)),
        delete(),
        delete_by(),
        delete_by(("__cluster_metadata", None)),
    ],
    "internal settings": [
        create(topic("small-segments", [A], internal_segment_bytes="4096", retention_ms="1000")),
        create(topic("bad-segments", [A], internal_segment_bytes="x")),
        create(topic("bad-segments", [A], internal_segment_bytes="2147483648")),
        configure(TOPIC, "small-segments", ("internal.segment.bytes", SET, "-1")),
        configure(TOPIC, "small-segments", ("internal.segment.bytes", APPEND, "1")),
        configure(TOPIC, "small-segments", ("internal.segment.bytes", DELETE, None)),
        configure(BROKER, "", ("internal.segment.bytes", SET, "4096")),
    ],
}

LAST_KNOWN_LEADER_IS_GONE: Final[list[Step]] = [
    create(topic("t", [B], unclean_leader_election_enable="true")),
    reassign("t", (0, [A, C])),
    isr("t", [A, B], by=B, partition_epoch=1),
    heartbeat(C, want_fence=True),
    heartbeat(B, want_fence=True),
    heartbeat(A, want_fence=True),
    reassign("t", (0, None)),
    heartbeat(A),
    unregister(B),
    register(B, incarnation_id=incarnation(B, 7)),
]
"""Broker A led the partition last, as an adding replica, which the cancellation removed."""


def describe_group(name: str, *keys: str, with_synonyms: bool = True) -> Step:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=GROUP, resource_name=name, configuration_keys=list(keys) or None
    )
    return latest(lambda side: m.DescribeConfigsRequest(resources=[resource], include_synonyms=with_synonyms))


GROUPS: Final[list[Step]] = [
    configure(
        GROUP,
        "set",
        ("consumer.session.timeout.ms", SET, "50000"),
        ("streams.assignor.name", SET, "sticky"),
        ("errors.deadletterqueue.topic.name", SET, "x"),
        ("streams.acceptable.recovery.lag", SET, "5"),
    ),
    configure(GROUP, "set", ("consumer.session.timeout.ms", SET, "70000")),
    configure(
        GROUP,
        "set",
        ("consumer.heartbeat.interval.ms", SET, "90000"),
        ("consumer.session.timeout.ms", SET, "70000"),
    ),
    configure(GROUP, "other", ("share.session.timeout.ms", SET, "46000")),
    configure(GROUP, "other", ("streams.task.offset.interval.ms", SET, "1")),
    configure(GROUP, "other", ("streams.num.warmup.replicas", SET, "1000")),
    configure(GROUP, "other", ("consumer.heartbeat.interval.ms", SET, "50000")),
    configure(GROUP, "other", ("share.delivery.count.limit", SET, "20")),
    configure(GROUP, "other", ("share.record.lock.duration.ms", SET, "61000")),
    configure(GROUP, "other", ("share.partition.max.record.locks", SET, "9000")),
    configure(GROUP, "other", ("streams.assignor.name", SET, "another")),
    configure(
        BROKER,
        "",
        ("group.consumer.max.session.timeout.ms", SET, "80000"),
        ("group.consumer.assignment.interval.ms", SET, "2000"),
        ("group.streams.assignors", SET, "sticky,range"),
    ),
    configure(BROKER, "1", ("group.share.assignment.interval.ms", SET, "3000")),
    configure(GROUP, "other", ("consumer.session.timeout.ms", SET, "70000")),
    describe_group("set"),
    describe_group("set", with_synonyms=False),
    describe_group("unset"),
    describe_group("unset", "streams.assignor.name", "streams.task.offset.interval.ms"),
    describe_group(""),
]
"""What a node says of the settings of groups, which its own ones bound and stand behind."""
GROUPS_OF_A_NODE: Final = {
    "group.consumer.session.timeout.ms": "46000",
    "group.consumer.max.session.timeout.ms": "65000",
    "group.consumer.max.heartbeat.interval.ms": "60000",
    "group.share.heartbeat.interval.ms": "6000",
    "group.share.session.timeout.ms": "51000",
    "group.share.max.delivery.count.limit": "20",
    "group.share.max.record.lock.duration.ms": "61000",
    "group.share.max.partition.max.record.locks": "9000",
    "group.streams.min.task.offset.interval.ms": "10",
    "group.streams.max.warmup.replicas": "2000",
    "group.streams.rack.aware.assignment.tags": "a,b",
}
"""Settings of a node with which `GROUPS` has other answers."""

DIFFERENCES: Final[dict[str, list[Step]]] = {
    "the text that quotes a long value is cut, where Kafka cannot send its own and says UNKNOWN_SERVER_ERROR": [
        configure(TOPIC, "configured", ("index.interval.bytes", SET, "x" * 32_767)),
    ],
    "going back to the original replicas completes; in Kafka the reassignment stays open for ever": [
        create(topic("wedged", [A, B])),
        reassign("wedged", (0, [A, 106])),
        reassign("wedged", (0, [A, B])),
        reassignments(("wedged", [0])),
    ],
    "names of hosts are no addresses: what one means here it need not mean on every broker": [
        latest(
            lambda side: m.AlterClientQuotasRequest(
                entries=[
                    alter_client_quotas.AlterClientQuotasRequestEntryData(
                        entity=[
                            alter_client_quotas.AlterClientQuotasRequestEntityData(
                                entity_type="ip", entity_name="localhost"
                            )
                        ],
                        ops=[alter_client_quotas.OpData(key="connection_creation_rate", value=1e6)],
                    )
                ]
            )
        ),
    ],
    "an APPEND of null is nothing, where Kafka's active controller fails and resigns": [
        configure(TOPIC, "configured", ("cleanup.policy", APPEND, None)),
    ],
    "an unknown operation is refused, where Kafka's active controller fails and resigns": [
        configure(TOPIC, "configured", ("retention.ms", 9, "1")),
    ],
    "min.insync.replicas of all brokers counts if it is a number, where Kafka's active controller fails and resigns": [
        configure(BROKER, "", ("min.insync.replicas", SET, "many")),
        create(topic("counts", [A])),
        heartbeat(A, want_fence=True),
    ],
}
"""What we do otherwise on purpose, and why. The last answer of each is in `OUR_ANSWERS`, and differs from Kafka's."""
OUR_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "the text that quotes a long value is cut, where Kafka cannot send its own and says UNKNOWN_SERVER_ERROR": {
        "responses": [
            {
                "error_code": 40,
                "error_message": f"Invalid value {'x' * 32_750}...",
                "resource_name": "configured",
                "resource_type": TOPIC,
            }
        ],
    },
    "going back to the original replicas completes; in Kafka the reassignment stays open for ever": {
        "error_code": 0,
        "error_message": None,
        "topics": [],
    },
    "names of hosts are no addresses: what one means here it need not mean on every broker": {
        "entries": [
            {
                "entity": [{"entity_name": "localhost", "entity_type": "ip"}],
                "error_code": 42,
                "error_message": "localhost is not a valid IP or resolvable host.",
            }
        ],
    },
    "an APPEND of null is nothing, where Kafka's active controller fails and resigns": {
        "responses": [
            {"error_code": 0, "error_message": None, "resource_name": "configured", "resource_type": TOPIC},
        ],
    },
    "an unknown operation is refused, where Kafka's active controller fails and resigns": {
        "responses": [
            {
                "error_code": 42,
                "error_message": "Unknown operation 9 on retention.ms.",
                "resource_name": "configured",
                "resource_type": TOPIC,
            }
        ],
    },
    "min.insync.replicas of all brokers counts if it is a number, where Kafka's active controller fails and resigns": {
        "error_code": 0,
        "is_caught_up": True,
        "is_fenced": True,
        "should_shut_down": False,
    },
}
"""The last answer of this controller to each of `DIFFERENCES`, without throttle times and unknown fields."""


def newest(request: Message, version: int) -> int:
    """The version meant, which is the highest if it is below 0."""
    return schema_of(type(request)).versions.highest if version < 0 else version


def told(side: Side, story: Sequence[Step]) -> list[dict[str, Any]]:
    """The answers of a side to a story."""
    answers = []
    for build, version in story:
        request = build(side)
        answers.append(side.ask(request, newest(request, version)))
    return answers
