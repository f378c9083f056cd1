"""AlterReplicaLogDirs: moves replicas between the log directories of this broker (KIP-113; Kafka:
`KafkaApis.handleAlterReplicaLogDirsRequest`).
"""

from __future__ import annotations

from kraft.access.authorizer import AclOperation, AclResource
from kraft.broker.handling.rights import Rights
from kraft.broker.handling.steps import Handling
from kraft.broker.partitions.manager import ReplicaManager
from kraft.limits import PARTITIONS_PER_STEP
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import alter_replica_log_dirs as messages


class AlterDirsHandler:
    """Answers AlterReplicaLogDirs requests; the moves go on in the background."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def answer(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """Begin the moves, and answer with one result for each partition."""
        message = request.message
        assert isinstance(message, messages.AlterReplicaLogDirsRequest), message
        may = self._rights(request, AclOperation.ALTER, AclResource.CLUSTER)
        results: dict[str, list[messages.AlterReplicaLogDirPartitionResult]] = {}
        for directory in message.dirs:
            for topic in directory.topics:
                for at, number in enumerate(topic.partitions):
                    if at % PARTITIONS_PER_STEP == 0:
                        yield None
                    error = Error.CLUSTER_AUTHORIZATION_FAILED
                    if may:
                        error = self._alter(image, topic.name, number, directory.path, now_ms)
                    found = messages.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error)
                    results.setdefault(topic.name, []).append(found)
        answered = [
            messages.AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts) for name, parts in results.items()
        ]
        return Answer(request.request_id, messages.AlterReplicaLogDirsResponse(results=answered))

    def _alter(self, image: MetadataImage, name: str, number: int, path: str, now_ms: int) -> Error:
        topic_id = image.topics.by_name.get(name, Uuid.ZERO)
        error = self._manager.moves.alter((topic_id, number), path, now_ms)
        topic = image.topics.by_id.get(topic_id)
        is_known = topic is not None and 0 <= number < len(topic.partitions)
        if error is Error.REPLICA_NOT_AVAILABLE and not is_known:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        return error
