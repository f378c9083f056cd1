"""DescribeProducers: the active producers of partitions (KIP-664; Kafka: `ReplicaManager.activeProducerState`)."""

from __future__ import annotations

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.access.topic_names import check_name
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP, REPEATED_GROUPS
from kraft.partitions.lookup import hosted
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import describe_producers as producers


class DescribeProducersHandler:
    """Answers DescribeProducers requests."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def answer(
        self, request: WireRequest[producers.DescribeProducersRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """The active producers of partitions; every replica knows them, not only the leader.

        Few partitions that are named again are answered again: their producers may be many.
        """
        message = request.message
        topics = []
        seen: set[tuple[str, int]] = set()
        repeated = 0
        for topic in message.topics:
            refused = self._refused(request, topic.name)
            topic_id = image.topics.by_name.get(topic.name, Uuid.ZERO)
            parts = []
            yield None
            for number in topic.partition_indexes:
                if (topic.name, number) in seen:
                    repeated += 1
                    if repeated > REPEATED_GROUPS:
                        continue
                seen.add((topic.name, number))
                yield None
                partition = hosted(self._manager, image, (topic_id, number), needs_leader=False)
                error = refused or (Error.NONE if isinstance(partition, HostedPartition) else partition)
                part = producers.PartitionResponse(partition_index=number, error_code=error)
                if error is Error.NONE and isinstance(partition, HostedPartition):
                    part = producers.PartitionResponse(number, active_producers=(yield from _active(partition)))
                parts.append(part)
            topics.append(producers.TopicResponse(name=topic.name, partitions=parts))
        return Answer(request.request_id, producers.DescribeProducersResponse(topics=topics))

    def _refused(self, request: WireRequest, name: str) -> Error:
        """Why a topic is not looked for: the client may not read it, or no topic has such a name; else NONE."""
        try:
            check_name(name)
        except ApiError as bad:
            return bad.error
        may = self._rights(request, AclOperation.READ, AclResource.TOPIC, name)
        return Error.NONE if may else Error.TOPIC_AUTHORIZATION_FAILED

    @staticmethod
    def refuse(request: WireRequest[producers.DescribeProducersRequest], refused: ApiError) -> Answer:
        """DescribeProducers with an error for each partition."""
        message = request.message
        topics = [
            producers.TopicResponse(
                name=topic.name,
                partitions=[
                    producers.PartitionResponse(partition_index=number, error_code=refused.error)
                    for number in topic.partition_indexes
                ],
            )
            for topic in message.topics
        ]
        return Answer(request.request_id, producers.DescribeProducersResponse(topics=topics))


def _active(partition: HostedPartition) -> Handling[list[producers.ProducerState]]:
    producer_states: list[producers.ProducerState] = []
    for each in list(partition.log.producers.states.producers.values()):
        if len(producer_states) % PARTITIONS_PER_STEP == 0:
            yield None
        state = producers.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=-1 if each.open_offset is None else each.open_offset,
        )
        producer_states.append(state)
    return producer_states
