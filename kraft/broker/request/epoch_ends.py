"""OffsetForLeaderEpoch: where the records of a leader epoch end (KIP-101, KIP-320; Kafka:
`ReplicaManager.lastOffsetForLeaderEpoch`).
"""

from __future__ import annotations

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from kraft.partitions.lookup import hosted
from kraft.partitions.replicas.epoch_ends import end_of_epoch
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class EpochEndHandler:
    """Answers OffsetForLeaderEpoch requests."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def answer(
        self, request: WireRequest[OffsetForLeaderEpochRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """The ends of the epochs of a request."""
        message = request.message
        may_all = self._rights(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, is_asked=False)
        topics = []
        for topic in message.topics:
            may = may_all or self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic)
            topic_id = image.topics.by_name.get(topic.topic, Uuid.ZERO)
            parts = []
            for at, part in enumerate(topic.partitions):
                if at % PARTITIONS_PER_STEP == 0:
                    yield None
                parts.append(
                    self._partition(topic_id, part, image)
                    if may
                    else EpochEndOffset(Error.TOPIC_AUTHORIZATION_FAILED, part.partition)
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return Answer(request.request_id, OffsetForLeaderEpochResponse(topics=topics))

    def _partition(self, topic_id: Uuid, part: OffsetForLeaderPartition, image: MetadataImage) -> EpochEndOffset:
        key = topic_id, part.partition
        partition = hosted(self._manager, image, key, part.current_leader_epoch, needs_leader=True)
        if isinstance(partition, Error):
            return EpochEndOffset(partition, part.partition)
        end = end_of_epoch(partition.log.epochs, part.leader_epoch, partition.log.end_offset)
        if end is None:
            return EpochEndOffset(Error.NONE, part.partition)
        return EpochEndOffset(Error.NONE, part.partition, end.epoch, end.offset)

    @staticmethod
    def refuse(request: WireRequest[OffsetForLeaderEpochRequest], refused: ApiError) -> Answer:
        """OffsetForLeaderEpoch with an error for each partition."""
        message = request.message
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(refused.error, one.partition) for one in topic.partitions],
            )
            for topic in message.topics
        ]
        return Answer(request.request_id, OffsetForLeaderEpochResponse(topics=topics))
