"""Creates, enlarges and deletes topics (Kafka: `ReplicationControlManager.createTopics`, `createPartitions`,
`deleteTopics`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from functools import cache, partial
from typing import Final

from kraft.access.errors import ApiError
from kraft.access.topic_names import check_name
from kraft.config.definitions import TOPIC
from kraft.config.described import of_file
from kraft.config.topic_synonyms import inherited
from kraft.controller.configs.incremental_configs import SET, alter
from kraft.controller.decision.mutations import Mutations
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import TOO_MANY_RECORDS, ControllerResult, Steps, gather
from kraft.controller.topics.partition_change import record_version
from kraft.controller.topics.partition_updates import default_directory, is_active
from kraft.controller.topics.placement import is_cordoned, placements, usable_brokers
from kraft.limits import PARTITIONS_PER_REQUEST, RECORDS_PER_OPERATION
from kraft.steps import with_pauses
from kraft.supported_features import REFUSALS_OF_4_4
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.image.persistent_map import in_key_order_by_runs
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from metadata_log.types import METADATA_TOPIC, Uuid, random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from transport.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from transport.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from transport.protocol.messages.incremental_alter_configs import AlterableConfig

DEFAULT: Final = -1
"""The count that selects the controller's configured default."""
_BY_ID_SINCE: Final = 6
_DISABLED_SINCE: Final = 3
"""The first version of DeleteTopics whose clients know TOPIC_DELETION_DISABLED."""
_CREATION_STRICT_SINCE, _GROWTH_STRICT_SINCE, _DELETION_STRICT_SINCE = 6, 3, 5
"""The first versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
_NO_TOPIC: Final = "This server does not host this topic-partition."
_NO_ID: Final = "This server does not host this topic ID."
_FROM_TOPIC, _FROM_BROKER, _FROM_CLUSTER, _FROM_FILE, _FROM_DEFAULT = 1, 2, 3, 4, 5
"""The source of a configuration value (`DescribeConfigsResponse.ConfigSource`)."""


# Create


def create_topics(context: RequestContext, request: CreateTopicsRequest) -> Steps:
    """Create the valid topics; one atomic batch holds all records. Raises `ApiError` if the request is too large."""
    counts = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if counts[topic.name] == 1 and topic.name != METADATA_TOPIC]
    total = sum(_partition_count(context, topic) for topic in wanted)
    if total > PARTITIONS_PER_REQUEST:
        text = "Excessively large number of partitions per request."
        raise ApiError(Error.POLICY_VIOLATION, text)
    colliding = _Colliding(context.image)
    mutations = context.mutations(_CREATION_STRICT_SINCE)
    records: list[VersionedRecord] = []
    results = []
    for topic in wanted:
        try:
            made, result = yield from _create(context, topic, colliding, mutations)
            records += made
        except ApiError as refused:
            result = CreatableTopicResult(
                name=topic.name, error_code=refused.error, error_message=refused.text or refused.error.message
            )
        results.append(result)
        yield None
    for name, count in counts.items():
        if name == METADATA_TOPIC or count > 1:
            internal = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            text = internal if name == METADATA_TOPIC else "Duplicate topic name."
            results.append(CreatableTopicResult(name=name, error_code=Error.INVALID_REQUEST, error_message=text))
    if len(records) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, TOO_MANY_RECORDS)
    response = CreateTopicsResponse(mutations.throttle_ms, results)
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _partition_count(context: RequestContext, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.defaults.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions


def _create(
    context: RequestContext, topic: CreatableTopic, colliding: _Colliding, mutations: Mutations
) -> Generator[None, None, tuple[list[VersionedRecord], CreatableTopicResult]]:
    image = context.image
    if topic.name in image.topics:
        raise ApiError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    check_name(topic.name)
    yield from colliding.check(topic.name)
    empty = [one.name for one in topic.configs if one.value is None]
    if empty:
        raise ApiError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}")
    changes = [AlterableConfig(name=one.name, config_operation=SET, value=one.value) for one in topic.configs]
    configs = alter(context, (ResourceType.TOPIC, topic.name), changes, is_new=True)
    if topic.assignments:
        replicas = yield from _manual_assignment(image, topic)
    else:
        replicas = yield from _placement(context, topic)
    mutations.charge(len(replicas))
    topic_id = random_uuid(context.rng)
    partitions = yield from gather(_partition_records(image, topic_id, 0, replicas))
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=list(_effective(context, configs)),
    )
    return [VersionedRecord(TopicRecord(name=topic.name, topic_id=topic_id)), *configs, *partitions], result


class _Colliding:
    """The topics with names that metrics cannot distinguish from a new one: metric names equate dot and underscore.

    All names are examined once for a request, and only if a new topic has such a name.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._topics = image.topics
        self._by_plain_name: dict[str, str] | None = None

    def check(self, name: str) -> Generator[None, None, None]:
        """Refuse a name that collides."""
        if "." not in name and "_" not in name:
            return
        if self._by_plain_name is None:
            names: dict[str, str] = {}
            for entry in with_pauses(in_key_order_by_runs(self._topics.by_name)):
                if entry is None:
                    yield None
                else:
                    names.setdefault(entry[0].replace(".", "_"), entry[0])
            self._by_plain_name = names
        other = self._by_plain_name.get(name.replace(".", "_"))
        if other is not None:
            text = f"Topic '{name}' collides with existing topic: {other}"
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, text)


def _manual_assignment(image: MetadataImage, topic: CreatableTopic) -> Generator[None, None, list[tuple[int, ...]]]:
    if topic.replication_factor != DEFAULT:
        text = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise ApiError(Error.INVALID_REQUEST, text)
    if topic.num_partitions != DEFAULT:
        text = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise ApiError(Error.INVALID_REQUEST, text)
    by_index: dict[int, CreatableReplicaAssignment] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            text = f"Found multiple manual partition assignments for partition {assignment.partition_index}"
            raise ApiError(Error.INVALID_REPLICA_ASSIGNMENT, text)
        by_index[assignment.partition_index] = assignment
    factor: int | None = None
    for assignment in topic.assignments:
        check_assignment(image, assignment.broker_ids, factor)
        check_active(image, assignment.partition_index, assignment.broker_ids)
        factor = len(assignment.broker_ids)
        yield None
    if sorted(by_index) != list(range(len(by_index))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise ApiError(Error.INVALID_REPLICA_ASSIGNMENT, text)
    return [tuple(by_index[number].broker_ids) for number in range(len(by_index))]


def check_assignment(image: MetadataImage, replicas: Sequence[int], factor: int | None = None) -> None:
    """Refuse an invalid manual assignment; fenced brokers are permitted."""
    start = "The manual partition assignment includes"
    refuses_cordoned = (image.features.metadata_version or 0) >= REFUSALS_OF_4_4
    text = None
    if not replicas:
        text = f"{start} an empty replica list."
    ids = sorted(replicas)
    for at, broker_id in enumerate(ids):
        if at and ids[at - 1] == broker_id:
            text = f"{start} the broker {broker_id} more than once."
            break
        if broker_id not in image.brokers.by_id:
            text = f"{start} broker {broker_id}, but no such broker is registered."
            break
        if refuses_cordoned and is_cordoned(image.brokers.by_id[broker_id]):
            text = f"{start} broker {broker_id}, but all its log directories are cordoned."
            break
    if text is None and factor is not None and len(replicas) != factor:
        text = (
            f"{start} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s)."
        )
    if text is not None:
        raise ApiError(Error.INVALID_REPLICA_ASSIGNMENT, text)


def check_active(image: MetadataImage, number: int, replicas: Sequence[int]) -> None:
    """Refuse a manual assignment without an active broker, since no replica could lead."""
    if not any(is_active(image, replica) for replica in replicas):
        text = f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
        raise ApiError(Error.INVALID_REPLICA_ASSIGNMENT, text + "controlled shutdown.")


def _placement(context: RequestContext, topic: CreatableTopic) -> Generator[None, None, list[tuple[int, ...]]]:
    count, factor = topic.num_partitions, topic.replication_factor
    if factor < DEFAULT or factor == 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ApiError(Error.INVALID_REPLICATION_FACTOR, text)
    if count < DEFAULT or count == 0:
        text = "Number of partitions was set to an invalid non-positive value."
        raise ApiError(Error.INVALID_PARTITIONS, text)
    count = context.defaults.num_partitions if count == DEFAULT else count
    factor = context.defaults.replication_factor if factor == DEFAULT else factor
    try:
        return (yield from _placed(context, count, factor))
    except ApiError as impossible:
        text = f"Unable to replicate the partition {factor} time(s): {impossible.text}"
        raise ApiError(impossible.error, text) from impossible


def _placed(context: RequestContext, count: int, factor: int) -> Generator[None, None, list[tuple[int, ...]]]:
    placed = []
    for replicas in placements(usable_brokers(context.image, context.sessions), count, factor, context.rng):
        placed.append(replicas)
        yield None
    return placed


def _partition_records(
    image: MetadataImage, topic_id: Uuid, first: int, placed: Sequence[tuple[int, ...]]
) -> Iterator[VersionedRecord]:
    """The records of new partitions: the first active replica leads, without an election."""
    version = record_version(image.features.metadata_version or 0)
    # Few brokers get thousands of replicas, so each broker is looked up once.
    active = cache(partial(is_active, image))
    directory = cache(partial(default_directory, image))
    for number, replicas in enumerate(placed, first):
        isr = tuple([replica for replica in replicas if active(replica)])
        if not isr:
            why = "All brokers are currently fenced or in controlled shutdown."
            text = f"Unable to replicate the partition {len(replicas)} time(s): {why}"
            raise ApiError(Error.INVALID_REPLICATION_FACTOR, text)
        record = PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple([directory(replica) for replica in replicas]) if version else (),
        )
        yield VersionedRecord(record, version)


def _effective(context: RequestContext, records: Sequence[VersionedRecord]) -> Iterator[CreatableTopicConfigs]:
    """The configuration that a new topic will have, by name."""
    image = context.image
    own = {one.record.name: one.record.value for one in records if isinstance(one.record, ConfigRecord)}
    layers = (
        (image.configs.of((ResourceType.BROKER, str(context.defaults.node_id))), _FROM_BROKER),
        (image.configs.of((ResourceType.BROKER, "")), _FROM_CLUSTER),
        (of_file(context.own_settings), _FROM_FILE),
    )
    for key in sorted(TOPIC):
        value, source = own.get(key), _FROM_TOPIC
        for settings, where in layers:
            if value is None:
                value, source = inherited(key, settings), where
        if value is None:
            if TOPIC[key].is_internal:
                continue
            value, source = TOPIC[key].default, _FROM_DEFAULT
        yield CreatableTopicConfigs(name=key, value=value, config_source=source)


# Grow


def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> Steps:
    """Add partitions; each topic has its own outcome, and one atomic batch holds all records."""
    counts = Counter(topic.name for topic in request.topics)
    if (context.image.features.metadata_version or 0) >= REFUSALS_OF_4_4:
        _check_growth(context.image, [topic for topic in request.topics if counts[topic.name] == 1])
    mutations = context.mutations(_GROWTH_STRICT_SINCE)
    records: list[VersionedRecord] = []
    results = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        error, text = Error.NONE, None
        try:
            records += yield from _grow(context, topic, mutations)
        except ApiError as refused:
            error, text = refused.error, refused.text
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=text))
        yield None
        if len(records) > RECORDS_PER_OPERATION:
            raise ApiError(Error.POLICY_VIOLATION, TOO_MANY_RECORDS)
    for name, count in counts.items():
        if count > 1:
            text = "Duplicate topic name."
            results.append(CreatePartitionsTopicResult(name=name, error_code=Error.INVALID_REQUEST, error_message=text))
    response = CreatePartitionsResponse(mutations.throttle_ms, results)
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _check_growth(image: MetadataImage, asked: Sequence[CreatePartitionsTopic]) -> None:
    """Refuse more new partitions than one request may write, before any of them is placed."""
    more = (one.count - len(image.topics[one.name].partitions) for one in asked if one.name in image.topics)
    if sum(each for each in more if each > 0) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, "Excessively large number of additional partitions per request.")


def _grow(
    context: RequestContext, asked: CreatePartitionsTopic, mutations: Mutations
) -> Generator[None, None, list[VersionedRecord]]:
    image = context.image
    if asked.name not in image.topics:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    topic = image.topics[asked.name]
    now = len(topic.partitions)
    if asked.count == now:
        raise ApiError(Error.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if asked.count < now:
        text = f"The topic {topic.name} currently has {now} partition(s); {asked.count} would not be an increase."
        raise ApiError(Error.INVALID_PARTITIONS, text)
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        # Two billion partitions would exhaust the memory before the check of the limit.
        added = min(asked.count - now, RECORDS_PER_OPERATION + 1)
        placed = yield from _placed(context, added, factor)
    else:
        if len(asked.assignments) != asked.count - now:
            text = f"Attempted to add {asked.count - now} additional partition(s), but only "
            text += f"{len(asked.assignments)} assignment(s) were specified."
            raise ApiError(Error.INVALID_REPLICA_ASSIGNMENT, text)
        for number, assignment in enumerate(asked.assignments, now):
            check_assignment(image, assignment.broker_ids, factor)
            check_active(image, number, assignment.broker_ids)
            yield None
        placed = [tuple(assignment.broker_ids) for assignment in asked.assignments]
    mutations.charge(len(placed))
    return (yield from gather(_partition_records(image, topic.id, now, placed)))


# Delete


def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> Steps:
    """Delete by name or id; each topic has its own outcome, and one atomic batch holds all records.

    Committed metadata resolves a name, as for other readers. The topic to delete must still exist in uncommitted
    metadata.
    """
    if not context.defaults.deletes_topics:
        if context.version < _DISABLED_SINCE:
            raise ApiError(Error.INVALID_REQUEST, "This version does not support topic deletion.")
        raise ApiError(Error.TOPIC_DELETION_DISABLED)
    asked = request.topics
    if context.version < _BY_ID_SINCE:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    results = []
    for one in with_pauses(asked):
        if one is None:
            yield None
        elif error := _malformed(one):
            results.append(_outcome(one.name, one.topic_id, *error))
    names = Counter(one.name for one in asked if one.name is not None and one.topic_id == Uuid.ZERO)
    ids = Counter(one.topic_id for one in asked if one.name is None and one.topic_id != Uuid.ZERO)
    wanted: dict[Uuid, str] = {}
    topics = context.committed.topics
    for topic_id, times in ids.items():
        yield None
        if times > 1:
            results.append(_outcome(None, topic_id, Error.INVALID_REQUEST, "Duplicate topic id."))
        elif topic_id not in topics.by_id:
            results.append(_outcome(None, topic_id, Error.UNKNOWN_TOPIC_ID, _NO_ID))
        else:
            wanted[topic_id] = topics.by_id[topic_id].name
    for name, times in names.items():
        yield None
        if times > 1:
            results.append(_outcome(name, Uuid.ZERO, Error.INVALID_REQUEST, "Duplicate topic name."))
        elif name not in topics:
            results.append(_outcome(name, Uuid.ZERO, Error.UNKNOWN_TOPIC_OR_PARTITION, _NO_TOPIC))
        elif topics[name].id in ids:
            wanted.pop(topics[name].id, None)
            text = "The provided topic name maps to an ID that was already supplied."
            results.append(_outcome(name, topics[name].id, Error.INVALID_REQUEST, text))
        else:
            wanted[topics[name].id] = name
    records: list[VersionedRecord] = []
    mutations = context.mutations(_DELETION_STRICT_SINCE)
    for topic_id, name in wanted.items():
        yield None
        if topic_id in context.image.topics.by_id:
            if len(records) == RECORDS_PER_OPERATION:
                raise ApiError(Error.POLICY_VIOLATION, TOO_MANY_RECORDS)
            try:
                mutations.charge(len(context.image.topics.by_id[topic_id].partitions))
            except ApiError as refused:
                results.append(_outcome(name, topic_id, refused.error, refused.text or refused.error.message))
                continue
            records.append(VersionedRecord(RemoveTopicRecord(topic_id=topic_id)))
            results.append(_outcome(name, topic_id, Error.NONE, None))
        else:
            results.append(_outcome(name, topic_id, Error.UNKNOWN_TOPIC_ID, _NO_ID))
    return ControllerResult(tuple(records), DeleteTopicsResponse(mutations.throttle_ms, results))


def _malformed(asked: DeleteTopicState) -> tuple[Error, str] | None:
    if asked.name is not None and asked.topic_id != Uuid.ZERO:
        return Error.INVALID_REQUEST, "You may not specify both topic name and topic id."
    if asked.name is None and asked.topic_id == Uuid.ZERO:
        return Error.INVALID_REQUEST, "Neither topic name nor id were specified."
    return None


def _outcome(name: str | None, topic_id: Uuid, error: Error, text: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=text)
