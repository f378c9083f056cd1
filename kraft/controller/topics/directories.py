"""Assigns replicas to log directories, and moves replicas off failed directories (KIP-858, KIP-1066; Kafka:
`ReplicationControlManager.handleAssignReplicasToDirs`, `handleDirectoriesOffline`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Records, Steps
from kraft.controller.topics.partition_change import PartitionTarget
from kraft.controller.topics.partition_updates import (
    BrokerUpdate,
    Member,
    all_partitions_by_steps,
    change_of,
    partition_updates,
    where,
)
from metadata_log.image import Broker, MetadataImage
from metadata_log.image.features import DIRECTORIES_SINCE
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import BrokerRegistrationChangeRecord
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


def offline_changes(context: RequestContext, broker: Broker, reported: tuple[Uuid, ...]) -> Records:
    """The records for the directories that a broker reports offline; the broker repeats the report in each
    heartbeat."""
    lost = [directory for directory in broker.directories if directory in reported]
    if not lost:
        return
    for directory in lost:
        members = _replicas_in(context.image, broker.id, directory)
        yield from partition_updates(context.image, members, BrokerUpdate(removed=broker.id), context.defaults)
    left = tuple(directory for directory in broker.directories if directory not in reported)
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left)
    yield VersionedRecord(change, 2)


def cordoned_change(broker: Broker, reported: tuple[Uuid, ...]) -> list[VersionedRecord]:
    """The records for the directories that a broker reports cordoned, which take no new replicas."""
    if broker.cordoned_directories is not None and sorted(broker.cordoned_directories) == sorted(reported):
        return []
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=reported)
    return [VersionedRecord(change, 3)]


def assign_replicas_to_dirs(context: RequestContext, request: AssignReplicasToDirsRequest) -> Steps:
    """Assign replicas to directories, with an error code for each. Raises `ApiError` if the request fails as a
    whole."""
    image = context.image
    if (image.features.metadata_version or 0) < DIRECTORIES_SINCE:
        raise ApiError(Error.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = image.brokers.by_id.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    directories = []
    for directory in request.directories:
        offline: list[Member] = []
        topics = []
        for topic in directory.topics:
            answers = []
            for asked in topic.partitions:
                number = asked.partition_index
                error = _assignment_error(image, broker.id, topic.topic_id, number)
                if error is Error.NONE:
                    topic_image = image.topics.by_id[topic.topic_id]
                    target = PartitionTarget(directories={broker.id: directory.id})
                    yield from change_of(image, topic_image, number, target, context.defaults)
                    if directory.id not in broker.directories:
                        offline.append((topic_image.id, number, topic_image.partitions[number]))
                yield None
                answers.append(AssignReplicasToDirsResponsePartitionData(partition_index=number, error_code=error))
            topics.append(AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=answers))
        directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
        yield from partition_updates(image, offline, BrokerUpdate(removed=broker.id), context.defaults)
    return ControllerResult((), AssignReplicasToDirsResponse(directories=directories), is_atomic=False)


def _assignment_error(image: MetadataImage, broker_id: int, topic_id: Uuid, number: int) -> Error:
    topic = image.topics.by_id.get(topic_id)
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    if number not in range(len(topic.partitions)):
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in topic.partitions[number].replicas else Error.NOT_LEADER_OR_FOLLOWER


def _replicas_in(image: MetadataImage, broker_id: int, directory: Uuid) -> Iterator[Member | None]:
    """The partitions with a replica of the broker in a directory. There is no index, because directories fail
    rarely."""

    def is_there(member: Member) -> bool:
        partition = member[2]
        return (broker_id, directory) in zip(partition.replicas, partition.directories, strict=True)

    return where(all_partitions_by_steps(image), is_there)
