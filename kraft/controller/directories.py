"""Which log directory of a broker holds a replica, and what becomes of it when that goes offline (KIP-858, KIP-1066;
Kafka: `ReplicationControlManager.handleAssignReplicasToDirs`, `handleDirectoriesOffline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraft.controller.deciding import Deciding
from kraft.controller.partition_change import DIRECTORIES_SINCE, Target, partition_change, record_version
from kraft.controller.partition_updates import BrokerUpdate, Member, partition_updates, rules_for
from kraft.controller.result import ApiError, ControllerResult, VersionedRecord
from kraft.controller.topic_configs import min_isr
from metadata_log.image import Broker, MetadataImage
from metadata_log.image.persistent_map import in_key_order
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


def offline_changes(deciding: Deciding, broker: Broker, reported: tuple[Uuid, ...]) -> list[VersionedRecord]:
    """A broker says which of its directories it can no longer read; it repeats that with every heartbeat."""
    lost = [directory for directory in broker.directories if directory in reported]
    if not lost:
        return []
    records: list[VersionedRecord] = []
    for directory in lost:
        records += _updates(deciding, broker.id, _replicas_in(deciding.image, broker.id, directory))
    left = tuple(directory for directory in broker.directories if directory not in reported)
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left)
    return [*records, VersionedRecord(change, 2)]


def cordoned_change(broker: Broker, reported: tuple[Uuid, ...]) -> list[VersionedRecord]:
    """A broker says which of its directories take no new replicas."""
    if broker.cordoned_directories is not None and sorted(broker.cordoned_directories) == sorted(reported):
        return []
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=reported)
    return [VersionedRecord(change, 3)]


def assign_replicas_to_dirs(deciding: Deciding, request: AssignReplicasToDirsRequest) -> ControllerResult:
    """A broker says where its replicas are; one code for each. Raises `ApiError` if the request fails as a whole."""
    image = deciding.image
    if (image.features.metadata_version or 0) < DIRECTORIES_SINCE:
        raise ApiError(Error.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = image.brokers.by_id.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    records: list[VersionedRecord] = []
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
                    member = (topic.topic_id, number, image.topics.by_id[topic.topic_id].partitions[number])
                    records += _assignment(deciding, broker.id, directory.id, member)
                    if directory.id not in broker.directories:
                        offline.append(member)
                answers.append(AssignReplicasToDirsResponsePartitionData(partition_index=number, error_code=error))
            topics.append(AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=answers))
        directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
        records += _updates(deciding, broker.id, offline)
    return ControllerResult(tuple(records), AssignReplicasToDirsResponse(directories=directories), is_atomic=False)


def refuse_assignment(
    _: AssignReplicasToDirsRequest, error: Error, text: str | None = None
) -> AssignReplicasToDirsResponse:
    """The answer to a request that fails as a whole; it has no place for words."""
    return AssignReplicasToDirsResponse(error_code=error)


def _assignment_error(image: MetadataImage, broker_id: int, topic_id: Uuid, number: int) -> Error:
    topic = image.topics.by_id.get(topic_id)
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    if number not in range(len(topic.partitions)):
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in topic.partitions[number].replicas else Error.NOT_LEADER_OR_FOLLOWER


def _assignment(deciding: Deciding, broker_id: int, directory: Uuid, member: Member) -> list[VersionedRecord]:
    topic_id, number, partition = member
    image = deciding.image
    rules = rules_for(image, partition, min_isr(image, image.topics.by_id[topic_id], deciding.defaults))
    target = Target(directories={broker_id: directory})
    change = partition_change(topic_id, number, partition, target, rules)
    return [] if change is None else [VersionedRecord(change, record_version(image.features.metadata_version or 0))]


def _replicas_in(image: MetadataImage, broker_id: int, directory: Uuid) -> Iterator[Member]:
    """The partitions that a broker holds in a directory. There is no index: directories fail rarely."""
    for topic_id, topic in in_key_order(image.topics.by_id):
        for number, partition in enumerate(topic.partitions):
            if (broker_id, directory) in zip(partition.replicas, partition.directories, strict=True):
                yield topic_id, number, partition


def _updates(deciding: Deciding, broker_id: int, members: Iterable[Member]) -> list[VersionedRecord]:
    """What the loss of a broker's replicas changes."""
    image = deciding.image
    version = record_version(image.features.metadata_version or 0)
    changes = partition_updates(image, members, BrokerUpdate(removed=broker_id), deciding.defaults)
    return [VersionedRecord(change, version) for change in changes]
