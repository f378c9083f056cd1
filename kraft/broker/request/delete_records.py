"""DeleteRecords: raise the log start of a partition, on all of its replicas (KIP-107; Kafka:
`ReplicaManager.deleteRecords`, `DelayedDeleteRecords`).
"""

from __future__ import annotations

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.broker.request.produce import ADMIN_CLIENT
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.lookup import hosted, is_known
from kraft.partitions.replicas.key import INTERNAL_TOPICS, PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import NO_OFFSET, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


class DeleteEntry(Struct):
    """One partition of a request, and its answer so far."""

    topic: str
    key: PartitionKey
    error: Error = Error.NONE
    low_watermark: int = NO_OFFSET
    awaited: int | None = None
    """The low watermark that is waited for; None if nothing is awaited."""


class WaitingDelete(Struct):
    """A request that waits until the followers have raised their log starts."""

    request: WireRequest[DeleteRecordsRequest]
    entries: list[DeleteEntry]

    @property
    def keys(self) -> set[PartitionKey]:
        """The partitions that the request waits for."""
        return {each.key for each in self.entries if each.awaited is not None}

    @property
    def timeout_ms(self) -> int:
        """For how long the request waits at most."""
        return self.request.message.timeout_ms


class DeleteRecordsHandler:
    """Answers DeleteRecords requests."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def begin(
        self, request: WireRequest[DeleteRecordsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | WaitingDelete]:
        """Raise the log starts; the result is the answer, or the request if it waits for followers."""
        message = request.message
        entries: dict[tuple[str, int], tuple[DeleteEntry, int]] = {}
        count = 0
        for topic in message.topics:
            topic_id = image.topics.by_name.get(topic.name, Uuid.ZERO)
            may = self._rights(request, AclOperation.DELETE, AclResource.TOPIC, topic.name)
            for part in topic.partitions:
                if count % PARTITIONS_PER_STEP == 0:
                    yield None
                count += 1
                entry = DeleteEntry(topic.name, (topic_id, part.partition_index))
                entry.error = Error.NONE if may else Error.TOPIC_AUTHORIZATION_FAILED
                # Of a partition that the request names twice, the later one counts, as in Kafka.
                entries[topic.name, part.partition_index] = entry, part.offset
        for entry, offset in entries.values():
            if entry.error is Error.NONE:
                # A log start that rises is written to the disk at once, with the epochs.
                yield None
                self._delete(request, entry, offset, image)
        waiting = WaitingDelete(request, [entry for entry, _ in entries.values()])
        return waiting if waiting.keys and not self.is_complete(waiting, image) else self.end(waiting, image, now_ms)

    def _delete(self, request: WireRequest, entry: DeleteEntry, offset: int, image: MetadataImage) -> None:
        if not is_known(image, entry.key):
            entry.error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif entry.topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT:
            entry.error = Error.INVALID_TOPIC_EXCEPTION
        else:
            partition = hosted(self._manager, image, entry.key, needs_leader=True)
            if isinstance(partition, Error):
                entry.error = partition
                return
            done = self._manager.leaders.delete_records(partition, offset)
            if isinstance(done, RefusedAppend):
                entry.error = done.error
            else:
                entry.awaited = done

    def is_complete(self, waiting: WaitingDelete, image: MetadataImage) -> bool:
        """Whether the log start of every replica on an active broker is high enough."""
        for entry in waiting.entries:
            if entry.awaited is None:
                continue
            partition = hosted(self._manager, image, entry.key, needs_leader=True)
            if isinstance(partition, Error):
                entry.error = partition
            else:
                entry.low_watermark = self._manager.leaders.low_watermark(partition)
                if entry.low_watermark < entry.awaited:
                    continue
            entry.awaited = None
        return not waiting.keys

    def end(self, waiting: WaitingDelete, image: MetadataImage, now_ms: int) -> Answer:
        """The answer; a partition that is still awaited has timed out."""
        topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
        for entry in waiting.entries:
            error = Error.REQUEST_TIMED_OUT if entry.awaited is not None else entry.error
            low = NO_OFFSET if error is not Error.NONE else entry.low_watermark
            topics.setdefault(entry.topic, []).append(DeleteRecordsPartitionResult(entry.key[1], low, error))
        return Answer(
            waiting.request.request_id,
            DeleteRecordsResponse(
                topics=[DeleteRecordsTopicResult(name=name, partitions=parts) for name, parts in topics.items()]
            ),
        )
