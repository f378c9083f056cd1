"""The answers about topics: Metadata and DescribeTopicPartitions.

Kafka: `KRaftMetadataCache`, `KafkaApis.handleTopicMetadataRequest`, `DescribeTopicPartitionsRequestHandler`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from random import Random
from typing import Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.endpoint_types import NOT_ASKED
from kraft.access.errors import ApiError
from kraft.access.topic_names import check_name
from kraft.broker.metadata.brokers import any_of, endpoint_of, reachable
from kraft.handling.coordinators import TOPICS
from kraft.handling.rights import Permissions
from kraft.limits import ITEMS_PER_STEP
from metadata_log.image import Broker, MetadataImage, Partition, TopicImage
from metadata_log.types import NO_NODE, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from transport.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_IDS_SINCE: Final = 12
"""The first version of Metadata in which a client may name topics by id."""
_LISTENER_ERROR_SINCE: Final = 6
"""The first version with clients that know LISTENER_NOT_FOUND."""


class _State(Struct, frozen=True, gc=False):
    """A partition as a client is told of it."""

    error: Error
    leader: int
    offline: list[int]


def metadata(
    image: MetadataImage,
    request: MetadataRequest,
    *,
    version: int,
    listener: str,
    cluster_id: str,
    rng: Random,
    permissions: Permissions,
    creates: bool,
) -> Generator[None, None, MetadataResponse]:
    """The answer to Metadata. A topic that does not exist has an error, also if the broker asks for its creation.

    A client without the right to describe a topic does not learn whether the topic exists. If the broker `creates` the
    missing topics of the request, the client needs the right to create them.

    Raises `ApiError` for a whole request that is refused.
    """
    if version < _IDS_SINCE and any(one.name is None or one.topic_id != Uuid.ZERO for one in request.topics or ()):
        raise ApiError(Error.INVALID_REQUEST, f"Topic ids are not supported in version {version}.")
    alive = reachable(image, listener)
    every = wants_all(request, version)
    by_id = any(one.topic_id != Uuid.ZERO for one in request.topics or ())
    names, topics = (image.topics, []) if every else _asked(image, request, by_id=by_id)
    with_operations = request.include_topic_authorized_operations
    denied: list[MetadataResponseTopic] = []
    work = 0
    for name in names:
        topic = image.topics.get(name)
        if not permissions.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, is_asked=not every):
            if not every:
                denied.append(_denied(name, topic if by_id else None))
        elif topic is None:
            topics.append(_absent(name, permissions, creates=creates, with_operations=with_operations))
        else:
            partitions: list[MetadataResponsePartition] = []
            for number, partition in enumerate(topic.partitions):
                partitions.append(_partition(image, listener, number, partition, version))
                work += 1
                if work % ITEMS_PER_STEP == 0:
                    yield None
            topics.append(
                MetadataResponseTopic(
                    name=name,
                    topic_id=topic.id,
                    is_internal=is_internal(name),
                    partitions=partitions,
                    topic_authorized_operations=permissions.on_topic(name) if with_operations else NOT_ASKED,
                )
            )
        yield None
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=at.host, port=at.port, rack=broker.rack)
            for broker, at in alive
        ],
        cluster_id=cluster_id,
        controller_id=any_of(alive, rng),
        topics=[*topics, *denied],
        cluster_authorized_operations=(
            permissions.on_cluster() if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _asked(
    image: MetadataImage, request: MetadataRequest, *, by_id: bool
) -> tuple[Iterable[str], list[MetadataResponseTopic]]:
    """The names of the topics that a request asks for, and an error for each id that no topic has.

    A request that has the id of one topic names all of them so.
    """
    if not by_id:
        return dict.fromkeys(one.name for one in request.topics or () if one.name is not None), []
    names: list[str] = []
    unknown: list[MetadataResponseTopic] = []
    for topic_id in dict.fromkeys(one.topic_id for one in request.topics or () if one.topic_id != Uuid.ZERO):
        if (topic := image.topics.by_id.get(topic_id)) is None:
            unknown.append(MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        else:
            names.append(topic.name)
    return names, unknown


def _denied(name: str, named_by_id: TopicImage | None) -> MetadataResponseTopic:
    """The refusal of a topic, by what the client named it by: it does not learn the other."""
    return MetadataResponseTopic(
        error_code=Error.TOPIC_AUTHORIZATION_FAILED,
        name=name if named_by_id is None else None,
        topic_id=Uuid.ZERO if named_by_id is None else named_by_id.id,
    )


def _absent(name: str, permissions: Permissions, *, creates: bool, with_operations: bool) -> MetadataResponseTopic:
    """The error for a name that no topic has."""
    may_exist = not creates or _may_create(permissions, name)
    return MetadataResponseTopic(
        error_code=absence(name) if may_exist else Error.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=permissions.on_topic(name) if may_exist and with_operations else NOT_ASKED,
    )


def refuse_metadata(request: MetadataRequest, error: Error, version: int) -> MetadataResponse:
    """The answer with the same error for each topic, and without brokers (`MetadataRequest.getErrorResponse`)."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error, name=one.name or "", topic_id=one.topic_id)
            for one in request.topics or ()
        ],
        error_code=error if version >= 13 else 0,
    )


def wants_all(request: MetadataRequest, version: int) -> bool:
    """Whether the request is about all topics; in version 0 the empty list says so."""
    return request.topics is None or (version == 0 and not request.topics)


def missing(answer: MetadataResponse) -> list[str]:
    """The valid names in an answer of topics that do not exist, which may be created automatically."""
    absent = Error.UNKNOWN_TOPIC_OR_PARTITION
    return [one.name for one in answer.topics if one.error_code == absent and one.name is not None]


def _may_create(permissions: Permissions, name: str) -> bool:
    """Whether the client may create a topic of this name."""
    return permissions.may(AclOperation.CREATE, AclResource.CLUSTER, is_asked=False) or permissions.may(
        AclOperation.CREATE, AclResource.TOPIC, name
    )


def is_internal(name: str) -> bool:
    """Whether Kafka itself writes the topic."""
    return name in TOPICS.values()


def absence(name: str) -> Error:
    """Why there is no topic of this name."""
    try:
        check_name(name)
    except ApiError as refused:
        return refused.error
    return Error.UNKNOWN_TOPIC_OR_PARTITION


def _partition(
    image: MetadataImage, listener: str, number: int, partition: Partition, version: int
) -> MetadataResponsePartition:
    state = _state(image, listener, partition, knows_listeners=version >= _LISTENER_ERROR_SINCE)
    replicas, isr, error = partition.replicas, partition.isr, state.error
    if version == 0:
        # Clients of this version need an address for each replica (`errorUnavailableEndpoints`).
        replicas = tuple(one for one in replicas if _is_reachable(image, one, listener))
        isr = tuple(one for one in isr if _is_reachable(image, one, listener))
        is_short = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
        error = Error.REPLICA_NOT_AVAILABLE if is_short and error is Error.NONE else error
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=state.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=state.offline,
    )


def _is_reachable(image: MetadataImage, broker_id: int, listener: str) -> bool:
    broker = image.brokers.by_id.get(broker_id)
    return broker is not None and endpoint_of(broker, listener) is not None


def _state(image: MetadataImage, listener: str, partition: Partition, *, knows_listeners: bool) -> _State:
    brokers = image.brokers.by_id
    offline = [
        one
        for one in partition.replicas
        if (broker := brokers.get(one)) is None or _is_offline(broker, listener, partition)
    ]
    leader = brokers.get(partition.leader)
    if leader is None:
        return _State(Error.LEADER_NOT_AVAILABLE, NO_NODE, offline)
    if endpoint_of(leader, listener) is None:
        error = Error.LISTENER_NOT_FOUND if knows_listeners else Error.LEADER_NOT_AVAILABLE
        return _State(error, NO_NODE, offline)
    return _State(Error.NONE, leader.id, offline)


def _is_offline(broker: Broker, listener: str, partition: Partition) -> bool:
    if broker.fenced or endpoint_of(broker, listener) is None:
        return True
    return not broker.has_online(partition.directories[partition.replicas.index(broker.id)])


def describe_topic_partitions(
    image: MetadataImage,
    request: DescribeTopicPartitionsRequest,
    *,
    listener: str,
    limit: int,
    permissions: Permissions,
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """The requested topics by name, from the cursor on, with at most `limit` partitions.

    Topics that the client may not describe come last, with an error, or are left out of all topics.

    Raises `ApiError` for a cursor that is not among the topics, or with a negative partition.
    """
    cursor = request.cursor
    start = "" if cursor is None else cursor.topic_name
    wants_every = not request.topics
    named = image.topics if wants_every else sorted({one.name for one in request.topics})
    names = (one for one in named if one >= start)
    if cursor is not None:
        if not wants_every and all(one.name != start for one in request.topics):
            text = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {start}"
            raise ApiError(Error.INVALID_REQUEST, text)
        if cursor.partition_index < 0:
            text = f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}"
            raise ApiError(Error.INVALID_REQUEST, text)
    left = max(min(limit, request.response_partition_limit), 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield None
        if not permissions.may(AclOperation.DESCRIBE, AclResource.TOPIC, name):
            if not wants_every:
                error = Error.TOPIC_AUTHORIZATION_FAILED
                denied.append(DescribeTopicPartitionsResponseTopic(error_code=error, name=name))
            continue
        if left <= 0:
            return DescribeTopicPartitionsResponse(
                topics=[*topics, *denied],
                next_cursor=DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0),
            )
        operations = permissions.on_topic(name)
        if name not in image.topics:
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=absence(name),
                    name=name,
                    is_internal=is_internal(name),
                    topic_authorized_operations=operations,
                )
            )
            continue
        topic = image.topics[name]
        first = cursor.partition_index if cursor is not None and name == start else 0
        last = min(first + left, len(topic.partitions))
        partitions = []
        for number in range(first, last):
            partitions.append(_described(image, listener, number, topic.partitions[number]))
            if number % ITEMS_PER_STEP == 0:
                yield None
        topics.append(_described_topic(topic, partitions, operations))
        if last < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=[*topics, *denied],
                next_cursor=DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=last),
            )
        left -= len(partitions)
    return DescribeTopicPartitionsResponse(topics=[*topics, *denied])


def refuse_topic_partitions(request: DescribeTopicPartitionsRequest, error: Error) -> DescribeTopicPartitionsResponse:
    """The answer with the same error for each topic (`DescribeTopicPartitionsRequest.getErrorResponse`)."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=error, name=one.name) for one in request.topics]
    )


def _described_topic(
    topic: TopicImage, partitions: list[DescribeTopicPartitionsResponsePartition], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _described(
    image: MetadataImage, listener: str, number: int, partition: Partition
) -> DescribeTopicPartitionsResponsePartition:
    state = _state(image, listener, partition, knows_listeners=True)
    return DescribeTopicPartitionsResponsePartition(
        error_code=state.error,
        partition_index=number,
        leader_id=state.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=state.offline,
    )
