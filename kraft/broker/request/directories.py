"""AlterReplicaLogDirs and DescribeLogDirs: moves replicas between the log directories of this broker, and says
what is in them (KIP-113; Kafka: `KafkaApis.handleAlterReplicaLogDirsRequest`, `ReplicaManager.describeLogDirs`).
"""

from __future__ import annotations

from typing import Final

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from kraft.partitions.replicas.cordoned import cordoned_by, knows_cordoned
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.log.partition_names import PartitionName
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import alter_replica_log_dirs as messages
from transport.protocol.messages import describe_log_dirs as log_dirs

LONGEST_PARTITION_NAME: Final = 255 - len(f".{32 * '0'}-future")
"""The characters of the name of a partition whose copy can have a directory of its own (KAFKA-4893)."""


class DirectoriesHandler:
    """Answers AlterReplicaLogDirs and DescribeLogDirs requests; the moves go on in the background."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def alter(
        self, request: WireRequest[messages.AlterReplicaLogDirsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """Begin the moves, and answer with one result for each partition."""
        message = request.message
        may = self._rights(request, AclOperation.ALTER, AclResource.CLUSTER)
        # Of a partition that is named again, the last directory counts.
        paths: dict[str, dict[int, str]] = {}
        for directory in message.dirs:
            for topic in directory.topics:
                yield None
                paths.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
        cordoned = cordoned_by(self._manager.settings, image)
        answered = []
        for name, wanted in paths.items():
            parts = []
            for at, (number, path) in enumerate(wanted.items()):
                if at % PARTITIONS_PER_STEP == 0:
                    yield None
                error = Error.CLUSTER_AUTHORIZATION_FAILED
                if may:
                    error = self._alter(image, name, number, path, cordoned, now_ms)
                parts.append(messages.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error))
            if parts:
                answered.append(messages.AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts))
        return Answer(request.request_id, messages.AlterReplicaLogDirsResponse(results=answered))

    def describe(
        self, request: WireRequest[log_dirs.DescribeLogDirsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """The log directories with the sizes of their partitions; partitions that are not here are left out."""
        message = request.message
        asked = None
        if message.topics is not None:
            asked = set[tuple[str, int]]()
            for topic in message.topics:
                asked.update((topic.topic, number) for number in topic.partitions)
                yield None
        results = []
        cordoned = cordoned_by(self._manager.settings, image) if knows_cordoned(image) else ()
        for directory in self._manager.settings.directories:
            error = Error.KAFKA_STORAGE_ERROR if directory.id in self._manager.failed_directories else Error.NONE
            topics: dict[str, list[log_dirs.DescribeLogDirsPartition]] = {}
            for at, key in enumerate(list(self._manager.partitions)):
                if at % PARTITIONS_PER_STEP == 0:
                    yield None
                partition = self._manager.partitions.get(key)
                described = None if partition is None or partition.is_offline else _described(partition, directory.id)
                if partition is None or described is None:
                    continue
                if asked is None or (partition.topic, partition.number) in asked:
                    topics.setdefault(partition.topic, []).append(described)
            total, usable = self._manager.hosting.store.space(directory)
            results.append(
                log_dirs.DescribeLogDirsResult(
                    error_code=error,
                    log_dir=directory.shown or directory.path,
                    topics=[log_dirs.DescribeLogDirsTopic(name, parts) for name, parts in sorted(topics.items())],
                    total_bytes=total,
                    usable_bytes=usable,
                    is_cordoned=directory.id in cordoned,
                )
            )
        return Answer(request.request_id, log_dirs.DescribeLogDirsResponse(results=results))

    def _alter(
        self, image: MetadataImage, name: str, number: int, path: str, cordoned: frozenset[Uuid], now_ms: int
    ) -> Error:
        if len(f"{name}-{number}") > LONGEST_PARTITION_NAME:
            return Error.INVALID_TOPIC_EXCEPTION
        topic_id = image.topics.by_name.get(name, Uuid.ZERO)
        if cordoned:
            target = next((one.id for one in self._manager.settings.directories if one.is_at(path)), None)
            if target in cordoned and target not in self._manager.failed_directories:
                return Error.INVALID_REPLICA_ASSIGNMENT
        error = self._manager.moves.alter((topic_id, number), path, now_ms)
        if error is Error.REPLICA_NOT_AVAILABLE:
            self._manager.moves.prefer(PartitionName(name, number), path)
        topic = image.topics.by_id.get(topic_id)
        is_known = topic is not None and 0 <= number < len(topic.partitions)
        if error is Error.REPLICA_NOT_AVAILABLE and not is_known:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        return error

    @staticmethod
    def refuse_describe(request: WireRequest, refused: ApiError) -> Answer:
        """DescribeLogDirs with an error."""
        return Answer(request.request_id, log_dirs.DescribeLogDirsResponse(error_code=refused.error))


def _described(partition: HostedPartition, directory: Uuid) -> log_dirs.DescribeLogDirsPartition | None:
    """Describe a replica's log in a log directory, or its copy that moves there; None if the directory has neither."""
    copy = partition.copy
    if partition.directory == directory:
        lag = max(0, partition.log.high_watermark - partition.log.end_offset)
        return log_dirs.DescribeLogDirsPartition(partition.number, partition.log.size_bytes, lag)
    if copy is None or copy.directory != directory:
        return None
    lag = max(0, partition.log.end_offset - copy.log.end_offset)
    return log_dirs.DescribeLogDirsPartition(partition.number, copy.log.size_bytes, lag, is_future_key=True)
