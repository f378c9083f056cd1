"""ListOffsets: the start, the end, and offsets by time (Kafka: `ReplicaManager.fetchOffset`,
`Partition.fetchOffsetForTimestamp`).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec.structs import replace

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.broker.request.reading import READ_COMMITTED
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from kraft.partitions.lookup import hosted
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.errors import MetadataLogError, OversizedRecord
from metadata_log.image import MetadataImage
from metadata_log.types import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

MAX_TIMESTAMP: Final = -3
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SINCE: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version of the request for each negative time."""
_OF_TIERS: Final = (EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
EPOCHS_SINCE: Final = 4
OFFSET_NOT_AVAILABLE_SINCE: Final = 5


class ListOffsetsHandler:
    """Answers ListOffsets requests."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def answer(self, request: WireRequest[ListOffsetsRequest], image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """The offsets of the partitions of a request, in steps: of a few partitions, or of one search by time."""
        message = request.message
        asked: dict[str, list[ListOffsetsPartition]] = {}
        for topic in message.topics:
            asked.setdefault(topic.name, []).extend(topic.partitions)
        topics = []
        for name, partitions in asked.items():
            if partitions:
                topics.append((yield from self._topic(request, message, name, partitions, image)))
            yield None
        return Answer(request.request_id, ListOffsetsResponse(topics=topics))

    def _topic(
        self,
        request: WireRequest,
        message: ListOffsetsRequest,
        name: str,
        partitions: list[ListOffsetsPartition],
        image: MetadataImage,
    ) -> Handling[ListOffsetsTopicResponse]:
        count = Counter(part.partition_index for part in partitions)
        may = self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        topic_id = image.topics.by_name.get(name, Uuid.ZERO)
        answers = []
        repeated: set[int] = set()
        for at, part in enumerate(partitions):
            if part.timestamp >= 0 or at % PARTITIONS_PER_STEP == 0:
                yield None
            if not may:
                answers.append(_failed(part, Error.TOPIC_AUTHORIZATION_FAILED))
            elif count[part.partition_index] > 1:
                # The answer has one entry for a partition that the request names twice.
                if part.partition_index not in repeated:
                    repeated.add(part.partition_index)
                    answers.append(_failed(part, Error.INVALID_REQUEST))
            elif part.timestamp < 0 and request.version < SINCE.get(part.timestamp, request.version + 1):
                answers.append(_failed(part, Error.UNSUPPORTED_VERSION))
            else:
                answers.append((yield from self._partition(request, message, topic_id, part, image)))
        return ListOffsetsTopicResponse(name=name, partitions=answers)

    def _partition(
        self,
        request: WireRequest,
        message: ListOffsetsRequest,
        topic_id: Uuid,
        part: ListOffsetsPartition,
        image: MetadataImage,
    ) -> Handling[ListOffsetsPartitionResponse]:
        key = topic_id, part.partition_index
        needs_leader = message.replica_id != DEBUGGING_CONSUMER
        partition = hosted(self._manager, image, key, part.current_leader_epoch, needs_leader=needs_leader)
        if isinstance(partition, Error):
            return _failed(part, partition)
        is_consumer = message.replica_id == CONSUMER
        bound = partition.log.end_offset
        if is_consumer:
            is_committed = message.isolation_level == READ_COMMITTED
            bound = partition.log.last_stable_offset if is_committed else partition.log.high_watermark
        try:
            answer = yield from _offset(partition, part, bound, is_behind=is_consumer and _is_behind(partition))
        except OversizedRecord:
            return _failed(part, Error.INVALID_RECORD)
        except MetadataLogError:
            return _failed(part, Error.CORRUPT_MESSAGE)
        except OSError:
            return _failed(part, Error.KAFKA_STORAGE_ERROR)
        if answer.error_code == Error.OFFSET_NOT_AVAILABLE and request.version < OFFSET_NOT_AVAILABLE_SINCE:
            return _failed(part, Error.LEADER_NOT_AVAILABLE)
        return answer if request.version >= EPOCHS_SINCE else replace(answer, leader_epoch=-1)

    @staticmethod
    def refuse(request: WireRequest[ListOffsetsRequest], refused: ApiError) -> Answer:
        """ListOffsets with an error for each partition."""
        message = request.message
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=refused.error)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        return Answer(request.request_id, ListOffsetsResponse(topics=topics))


def _failed(part: ListOffsetsPartition, error: Error) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=error)


def _is_behind(partition: HostedPartition) -> bool:
    """Whether a new leader does not know yet which records of the leader before are committed."""
    return partition.leading is not None and partition.leading.start_offset > partition.log.high_watermark


def _of_a_tier(partition: HostedPartition, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """The answer about a topic with tiered storage, by a broker that has heard of no copied segment, as a leader of
    Kafka's soon after its election (`UnifiedLog.fetchEarliestPendingUploadOffset`).
    """
    log, index = partition.log, part.partition_index
    is_known = part.timestamp == EARLIEST_LOCAL_TIMESTAMP or (
        part.timestamp == EARLIEST_PENDING_UPLOAD and log.start_offset == log.local_start
    )
    if not is_known:
        return ListOffsetsPartitionResponse(index, Error.NONE)
    epoch = log.epochs.epoch_at(log.local_start)
    return ListOffsetsPartitionResponse(index, Error.NONE, -1, log.local_start, -1 if epoch is None else epoch)


def _offset(
    partition: HostedPartition, part: ListOffsetsPartition, bound: int, *, is_behind: bool
) -> Handling[ListOffsetsPartitionResponse]:
    """The answer for one time.

    Args:
        partition: The replica.
        part: What the client asks.
        bound: The end of what the client may read.
        is_behind: Whether the watermark is behind the start of the leader epoch.
    """
    log, index = partition.log, part.partition_index
    if part.timestamp == LATEST_TIMESTAMP:
        if is_behind:
            return _failed(part, Error.OFFSET_NOT_AVAILABLE)
        return ListOffsetsPartitionResponse(index, Error.NONE, -1, bound, partition.leader_epoch)
    if part.timestamp in _OF_TIERS and log.options.is_tiered:
        return _of_a_tier(partition, part)
    if part.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        first = log.epochs.entries[0] if log.epochs.entries else None
        epoch = first.epoch if first is not None and first.offset <= log.start_offset else -1
        return ListOffsetsPartitionResponse(index, Error.NONE, -1, log.start_offset, epoch)
    nothing = ListOffsetsPartitionResponse(index, Error.NONE)
    if part.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return nothing
    time = log.max_timestamp if part.timestamp == MAX_TIMESTAMP else part.timestamp
    if log.start_offset < log.local_start and part.timestamp >= 0:
        # The first record of this time may be one of those that cannot be read here.
        return _failed(part, Error.UNKNOWN_SERVER_ERROR)
    record = (yield from log.finding_time(time)) if time >= 0 else None
    if record is not None and record.offset < bound:
        epoch_at = log.epochs.epoch_at(record.offset)
        return ListOffsetsPartitionResponse(
            index, Error.NONE, record.timestamp, record.offset, -1 if epoch_at is None else epoch_at
        )
    if is_behind:
        return _failed(part, Error.OFFSET_NOT_AVAILABLE)
    return nothing
