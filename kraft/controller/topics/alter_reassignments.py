"""Serves requests to reassign partitions and to list reassignments (Kafka: `alterPartitionReassignments`; KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.controller.decision.topic_configs import unclean_election
from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import PartitionTarget
from kraft.controller.topics.partition_updates import change_of
from kraft.controller.topics.reassignment_steps import begin
from kraft.controller.topics.topics import check_assignment
from kraft.limits import RECORDS_PER_OPERATION
from kraft.steps import with_pauses
from metadata_log.image import MetadataImage, Partition, TopicImage, reassigning
from metadata_log.records.frame import VersionedRecord
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from transport.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_FACTOR_FIELD_SINCE: Final = 1


def alter_reassignments(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Steps:
    """Begin, replace or cancel reassignments. Each partition has its own outcome; one atomic batch holds all
    records."""
    may_change = context.version < _FACTOR_FIELD_SINCE or request.allow_replication_factor_change
    records: list[VersionedRecord] = []
    answers = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            yield None
            error, text = Error.NONE, None
            try:
                records += _alter(context, topic.name, asked, may_change_factor=may_change)
            except ApiError as refused:
                error, text = refused.error, refused.text
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=error, error_message=text
                )
            )
        answers.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    if len(records) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, f"Too many records: {len(records)}")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change or not answers,
        error_message=None if answers else "",
        responses=answers,
    )
    return ControllerResult(tuple(records), response)


def list_reassignments(context: RequestContext, request: ListPartitionReassignmentsRequest) -> Steps:
    """The reassignments in progress, of the requested partitions or of all; idle and unknown partitions are omitted."""
    reassignments: dict[str, list[OngoingPartitionReassignment]] = {}
    for one in _under_way(context.committed, request):
        yield None
        if one is None:
            continue
        name, number, partition = one
        reassignments.setdefault(name, []).append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
        )
    topics = [OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in reassignments.items()]
    return ControllerResult(response=ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _under_way(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, int, Partition] | None]:
    """The partitions that are reassigned, with None where work may pause."""
    if request.topics is None:
        for topic_id, number, partition in reassigning(image.topics):
            yield image.topics.by_id[topic_id].name, number, partition
        return
    for asked in request.topics:
        if asked.name in image.topics:
            partitions = image.topics[asked.name].partitions
            for wanted in with_pauses(asked.partition_indexes):
                if wanted is None:
                    yield None
                elif wanted in range(len(partitions)) and partitions[wanted].is_reassigning:
                    yield asked.name, wanted, partitions[wanted]


def _alter(
    context: RequestContext, name: str, asked: ReassignablePartition, *, may_change_factor: bool
) -> list[VersionedRecord]:
    image, number = context.image, asked.partition_index
    if name not in image.topics:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    topic = image.topics[name]
    if number not in range(len(topic.partitions)):
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    partition = topic.partitions[number]
    if asked.replicas is None:
        return _cancel(context, topic, number)
    check_assignment(image, asked.replicas)
    if not may_change_factor:
        _check_factor(partition, asked.replicas)
    assignment = begin(partition, asked.replicas)
    target = PartitionTarget(replicas=assignment.replicas, removing=assignment.removing, adding=assignment.adding)
    return change_of(context.image, topic, number, target, context.defaults, Election.ONLINE)


def _check_factor(partition: Partition, replicas: Sequence[int]) -> None:
    """The replication factor must equal the current one, or the target's if a reassignment is in progress."""
    before = sum(replica not in partition.removing_replicas for replica in partition.replicas)
    if len(replicas) != before:
        text = f"The replication factor is changed from {before} to {len(replicas)}"
        raise ApiError(Error.INVALID_REPLICATION_FACTOR, text)


def _cancel(context: RequestContext, topic: TopicImage, number: int) -> list[VersionedRecord]:
    """Return to the former replicas, in their current order."""
    partition = topic.partitions[number]
    if not partition.is_reassigning:
        raise ApiError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    unclean = unclean_election(context.image, topic.name, context.defaults)
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    if not isr:
        if not unclean:
            text = f"Unable to revert partition assignment for {topic.name}:{number} because it would require an "
            text += "unclean leader election."
            raise ApiError(Error.INVALID_REPLICA_ASSIGNMENT, text)
        isr = replicas[:1]
    target = PartitionTarget(isr=isr, replicas=replicas, removing=(), adding=())
    return change_of(
        context.image, topic, number, target, context.defaults, Election.UNCLEAN if unclean else Election.ONLINE
    )
