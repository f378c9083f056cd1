"""DescribeProducers and DescribeLogDirs: what a broker holds (KIP-664, KIP-113; Kafka:
`ReplicaManager.activeProducerState`, `ReplicaManager.describeLogDirs`).
"""

from __future__ import annotations

from kraft.access.authorizer import AclOperation, AclResource
from kraft.broker.handling.rights import Rights
from kraft.broker.handling.steps import Handling
from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.manager import ReplicaManager
from kraft.broker.request.lookup import hosted
from kraft.limits import PARTITIONS_PER_STEP
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import describe_log_dirs as log_dirs
from transport.protocol.messages import describe_producers as producers


class DescribeHandler:
    """Answers DescribeProducers and DescribeLogDirs requests."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def producers(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """The active producers of partitions; every replica knows them, not only the leader.

        A partition that is named again is answered once: its producers may be many.
        """
        message = request.message
        assert isinstance(message, producers.DescribeProducersRequest), message
        topics = []
        seen: set[tuple[str, int]] = set()
        for topic in message.topics:
            may = self._rights(request, AclOperation.READ, AclResource.TOPIC, topic.name)
            topic_id = image.topics.by_name.get(topic.name, Uuid.ZERO)
            parts = []
            yield None
            for number in topic.partition_indexes:
                if (topic.name, number) in seen:
                    continue
                seen.add((topic.name, number))
                yield None
                partition = hosted(self._manager, image, (topic_id, number), needs_leader=False)
                error = Error.NONE if isinstance(partition, HostedPartition) else partition
                if not may:
                    error = Error.TOPIC_AUTHORIZATION_FAILED
                found = producers.PartitionResponse(partition_index=number, error_code=error)
                if error is Error.NONE and isinstance(partition, HostedPartition):
                    found = producers.PartitionResponse(number, active_producers=(yield from _active(partition)))
                parts.append(found)
            topics.append(producers.TopicResponse(name=topic.name, partitions=parts))
        return Answer(request.request_id, producers.DescribeProducersResponse(topics=topics))

    def log_dirs(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """The log directories with the sizes of their partitions; partitions that are not here are left out."""
        message = request.message
        assert isinstance(message, log_dirs.DescribeLogDirsRequest), message
        asked = None
        if message.topics is not None:
            asked = set[tuple[str, int]]()
            for topic in message.topics:
                asked.update((topic.topic, number) for number in topic.partitions)
                yield None
        results = []
        for directory in self._manager.settings.directories:
            error = Error.KAFKA_STORAGE_ERROR if directory.id in self._manager.failed_directories else Error.NONE
            topics: dict[str, list[log_dirs.DescribeLogDirsPartition]] = {}
            for at, key in enumerate(list(self._manager.partitions)):
                if at % PARTITIONS_PER_STEP == 0:
                    yield None
                partition = self._manager.partitions.get(key)
                found = None if partition is None or partition.is_offline else _described(partition, directory.id)
                if partition is None or found is None:
                    continue
                if asked is None or (partition.topic, partition.number) in asked:
                    topics.setdefault(partition.topic, []).append(found)
            results.append(
                log_dirs.DescribeLogDirsResult(
                    error_code=error,
                    log_dir=directory.path,
                    topics=[log_dirs.DescribeLogDirsTopic(name, parts) for name, parts in sorted(topics.items())],
                )
            )
        return Answer(request.request_id, log_dirs.DescribeLogDirsResponse(results=results))


def _described(partition: HostedPartition, directory: Uuid) -> log_dirs.DescribeLogDirsPartition | None:
    """What a log directory holds of a replica: the log, or the copy that moves there; None for neither."""
    copy = partition.copy
    if partition.directory == directory:
        lag = max(0, partition.log.high_watermark - partition.log.end_offset)
        return log_dirs.DescribeLogDirsPartition(partition.number, partition.log.size_bytes, lag)
    if copy is None or copy.directory != directory:
        return None
    lag = max(0, partition.log.end_offset - copy.log.end_offset)
    return log_dirs.DescribeLogDirsPartition(partition.number, copy.log.size_bytes, lag, is_future_key=True)


def _active(partition: HostedPartition) -> Handling[list[producers.ProducerState]]:
    found: list[producers.ProducerState] = []
    for each in list(partition.log.producers.states.producers.values()):
        if len(found) % PARTITIONS_PER_STEP == 0:
            yield None
        state = producers.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=-1 if each.open_offset is None else each.open_offset,
        )
        found.append(state)
    return found
