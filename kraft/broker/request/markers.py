"""WriteTxnMarkers: a transaction coordinator ends transactions in partitions that this broker leads (KIP-98, KIP-890;
Kafka: `KafkaApis.handleWriteTxnMarkersRequest`).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.broker.request.acknowledged import Awaited, acknowledgement, awaited
from kraft.coordinators.transactions.transaction_guards import TransactionGuards
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling, long_step
from kraft.limits import MARKERS_ANSWERED_PER_STEP, MARKERS_PER_STEP, REQUEST_STEPS_PER_TURN
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.transaction_markers import EPOCH_BUMPS_SINCE, TransactionMarker
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import write_txn_markers as messages


class MarkerEntry(Struct):
    """One partition of one marker, and its answer so far. `at` is the position of the marker in the request."""

    at: int
    topic: str
    key: PartitionKey
    error: Error = Error.NONE
    awaited: Awaited | None = None
    """The thing that the answer waits for; None if nothing is awaited."""


class WaitingMarkers(Struct):
    """A request that waits until the followers have its markers."""

    request: WireRequest[messages.WriteTxnMarkersRequest]
    entries: list[MarkerEntry]
    timeout_ms: int
    """For how long the request waits at most."""
    left: deque[MarkerEntry]
    """The entries that are still awaited, or of which nobody has looked whether they are: there may be very many."""

    @property
    def keys(self) -> set[PartitionKey]:
        """The partitions that the request waits for."""
        return {each.key for each in self.left}


class Coordinated(Protocol):
    """The coordinators of this broker that follow the log of a partition."""

    is_spent: bool
    """Whether the last marker has left no room in its turn."""

    def append_marker(
        self, partition: HostedPartition, marker: TransactionMarker, now_ms: int
    ) -> Appended | RefusedAppend | None:
        """Append a marker, and replay it; None if no coordinator follows the log."""


class MarkersHandler:
    """Answers WriteTxnMarkers requests.

    Args:
        manager: The replicas of this broker.
        rights: What clients may do.
        guards: The producers with a verification under way.
        timeout_ms: For how long a request waits at most.
        groups: The coordinators of groups, whose offsets may belong to a transaction.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        rights: Rights,
        guards: TransactionGuards,
        timeout_ms: int,
        groups: Coordinated,
    ) -> None:
        self._manager = manager
        self._groups = groups
        self._rights = rights
        self._guards = guards
        self._timeout_ms = timeout_ms

    def begin(
        self, request: WireRequest[messages.WriteTxnMarkersRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | WaitingMarkers]:
        """Append the markers; the result is the answer, or the request if it waits for followers."""
        message = request.message
        # An administrator may end a transaction that hangs (KIP-664); the right of brokers is the one that is recorded.
        is_allowed = self._rights(request, AclOperation.ALTER, AclResource.CLUSTER, is_asked=False) or self._rights(
            request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER
        )
        entries: list[MarkerEntry] = []
        for at, marker in enumerate(message.markers):
            for topic in marker.topics:
                topic_id = image.topics.by_name.get(topic.name, Uuid.ZERO)
                for number in topic.partition_indexes:
                    entry = MarkerEntry(at, topic.name, (topic_id, number))
                    entries.append(entry)
                    if len(entries) % MARKERS_PER_STEP == 0:
                        yield None
                    if not is_allowed:
                        entry.error = Error.CLUSTER_AUTHORIZATION_FAILED
                        continue
                    self._append(entry, marker, now_ms)
                    if self._groups.is_spent:
                        # The transaction had very many offsets.
                        self._groups.is_spent = False
                        yield from long_step(REQUEST_STEPS_PER_TURN)
        left = deque([one for one in entries if one.awaited is not None])
        waiting = WaitingMarkers(request, entries, self._timeout_ms, left)
        return (yield from self.end(waiting, image, now_ms)) if self.is_complete(waiting, image) else waiting

    def _append(self, entry: MarkerEntry, marker: messages.WritableTxnMarker, now_ms: int) -> None:
        partition = self._manager.partitions.get(entry.key)
        if partition is None or partition.is_offline:
            entry.error = Error.UNKNOWN_TOPIC_OR_PARTITION
            return
        if partition.leading is None:
            entry.error = Error.NOT_LEADER_OR_FOLLOWER
            return
        ending = TransactionMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        done = self._groups.append_marker(partition, ending, now_ms)
        if done is None:
            done = self._manager.leaders.append_marker(partition, ending, now_ms)
        if isinstance(done, RefusedAppend):
            entry.error = done.error
        else:
            is_bumped = marker.transaction_version >= EPOCH_BUMPS_SINCE
            self._guards.on_marker(entry.key, marker.producer_id, marker.producer_epoch, is_bumped=is_bumped)
            entry.awaited = awaited(partition, done.last_offset)

    def is_complete(self, waiting: WaitingMarkers, image: MetadataImage) -> bool:
        """Whether no marker is awaited any more. Those behind one that is are looked at later."""
        left = waiting.left
        while left:
            entry = left[0]
            if entry.awaited is not None:
                error = acknowledgement(self._manager, image, entry.key, entry.awaited)
                if error is None:
                    return False
                entry.error, entry.awaited = error, None
            left.popleft()
        return True

    def end(self, waiting: WaitingMarkers, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """The answer, in steps; a marker that is still awaited has timed out, and the coordinator sends it again."""
        message = waiting.request.message
        # Kafka keeps one result of a producer and a partition, however often the request names them.
        results: dict[int, dict[str, dict[int, messages.WritableTxnMarkerPartitionResult]]] = {}
        for count, entry in enumerate(waiting.entries, 1):
            if count % MARKERS_ANSWERED_PER_STEP == 0:
                yield None
            error: Error | None = entry.error
            if entry.awaited is not None:
                error = acknowledgement(self._manager, image, entry.key, entry.awaited)
            if error is None:
                error = Error.REQUEST_TIMED_OUT
            topics = results.setdefault(message.markers[entry.at].producer_id, {})
            number = entry.key[1]
            topics.setdefault(entry.topic, {})[number] = messages.WritableTxnMarkerPartitionResult(number, error)
        markers = []
        for count, (producer_id, topics) in enumerate(results.items(), 1):
            if count % MARKERS_ANSWERED_PER_STEP == 0:
                yield None
            told = [messages.WritableTxnMarkerTopicResult(name, list(parts.values())) for name, parts in topics.items()]
            markers.append(messages.WritableTxnMarkerResult(producer_id, told))
        return Answer(waiting.request.request_id, messages.WriteTxnMarkersResponse(markers=markers))
