"""Produce: checks, append, and the wait of acks=all (Kafka: `KafkaApis.handleProduceRequest`,
`ReplicaManager.appendRecords`, `DelayedProduce`).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.broker.asked import Asked
from kraft.broker.log.outcomes import Refused
from kraft.broker.replica.manager import ReplicaManager
from kraft.broker.replicas import PartitionKey
from kraft.broker.request.batch_check import FirstBatch, first_batch, only_batch
from kraft.broker.request.lookup import INTERNAL_TOPICS, current_leader, hosted, is_known
from kraft.broker.request.outcomes import Answer, Close, Outcome, Rights
from kraft.controller.decision.authorizer import AclOperation, AclResource
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import produce as messages

NO_OFFSET: Final = -1
ACKS_ALL: Final = -1
TOPIC_IDS_SINCE: Final = 13
LEADER_SINCE: Final = 10
ADMIN_CLIENT: Final = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""
_WITHOUT_LOG_START: Final = frozenset(
    (
        *(Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER, Error.MESSAGE_TOO_LARGE),
        *(Error.RECORD_LIST_TOO_LARGE, Error.CORRUPT_MESSAGE, Error.KAFKA_STORAGE_ERROR),
    )
)
"""The errors of an append that are answered without the log start, as in Kafka."""


class Entry(Struct):
    """One partition of a request, and its answer so far."""

    topic: str
    topic_id: Uuid
    index: int
    records: bytes | None
    key: PartitionKey | None = None
    error: Error = Error.NONE
    text: str | None = None
    refused: tuple[messages.BatchIndexAndErrorMessage, ...] = ()
    base_offset: int = NO_OFFSET
    append_time_ms: int = -1
    log_start: int = NO_OFFSET
    awaited: int | None = None
    """The high watermark that an answer with acks=all waits for; None if nothing is awaited."""

    def refuse(self, error: Error, text: str | None = None) -> None:
        """End the entry with an error."""
        self.error, self.text = error, text


class WaitingProduce(Struct):
    """A request with acks=all that waits for its followers."""

    request: Asked
    entries: list[Entry]

    @property
    def keys(self) -> set[PartitionKey]:
        """The partitions that the request waits for."""
        return {each.key for each in self.entries if each.awaited is not None and each.key is not None}


class ProduceHandler:
    """Answers Produce requests."""

    def __init__(self, manager: ReplicaManager, rights: Rights) -> None:
        self._manager = manager
        self._rights = rights

    def begin(self, request: Asked, image: MetadataImage, now_ms: int) -> Outcome | WaitingProduce | None:
        """Append the batches of a request.

        Returns:
            The answer, the request if it waits, or None for acks=0: then there is no answer.
        """
        message = request.message
        assert isinstance(message, messages.ProduceRequest), message
        entries = _entries(message)
        if self._is_foreign_transaction(request, message, entries):
            for entry in entries:
                entry.refuse(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return self._finish(request, entries, image)
        ready = [each for each in entries if self._is_ready(request, each, image)]
        if message.acks not in (ACKS_ALL, 0, 1):
            for entry in ready:
                entry.refuse(Error.INVALID_REQUIRED_ACKS)
            ready = []
        for entry, batch in self._verified(ready):
            self._append(request, entry, batch, message.acks, image, now_ms)
        waiting = WaitingProduce(request, entries)
        if waiting.keys and not self.is_complete(waiting, image):
            return waiting
        return self._finish(request, entries, image)

    def _is_foreign_transaction(self, request: Asked, message: messages.ProduceRequest, entries: list[Entry]) -> bool:
        """Whether the request has records of a transaction, and no transactional id that the client may use."""
        batches = (first_batch(each.records or b"") for each in entries)
        if not any(isinstance(batch, FirstBatch) and batch.is_transactional for batch in batches):
            return False
        name = message.transactional_id
        return name is None or not self._rights(request, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)

    def _is_ready(self, request: Asked, entry: Entry, image: MetadataImage) -> bool:
        """Whether an entry names a partition and has one batch; otherwise the entry ends with its error."""
        topic_id = entry.topic_id
        if request.version >= TOPIC_IDS_SINCE:
            if topic_id not in image.topics.by_id:
                entry.refuse(Error.UNKNOWN_TOPIC_ID)
                return False
            entry.topic = image.topics.by_id[topic_id].name
        else:
            topic_id = image.topics.by_name.get(entry.topic, Uuid.ZERO)
        entry.key = topic_id, entry.index
        if not self._rights(request, AclOperation.WRITE, AclResource.TOPIC, entry.topic):
            entry.refuse(Error.TOPIC_AUTHORIZATION_FAILED)
        elif not is_known(image, entry.key):
            entry.refuse(Error.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            checked = only_batch(entry.records, request.version)
            if isinstance(checked, FirstBatch):
                return True
            entry.refuse(checked.error, checked.text)
        return False

    def _verified(self, ready: list[Entry]) -> list[tuple[Entry, FirstBatch]]:
        """The entries that may be appended, with their batches. No broker of ours coordinates transactions yet: records
        of a transaction that this log does not hold open are refused as in Kafka without a coordinator.
        """
        batches = [(each, first_batch(each.records or b"")) for each in ready]
        found = [(entry, batch) for entry, batch in batches if isinstance(batch, FirstBatch)]
        transactional = [(entry, batch) for entry, batch in found if batch.is_transactional]
        if len({batch.producer_id for _, batch in transactional}) > 1:
            for entry in ready:
                entry.refuse(Error.INVALID_PRODUCER_ID_MAPPING, "the batches have more than one transactional producer")
            return []
        for entry, batch in transactional:
            if not self._is_open(entry, batch.producer_id):
                entry.refuse(Error.NOT_ENOUGH_REPLICAS, "no transaction coordinator can verify the transaction")
        return [(entry, batch) for entry, batch in found if entry.error is Error.NONE]

    def _is_open(self, entry: Entry, producer_id: int) -> bool:
        """Whether a producer has an open transaction in a partition."""
        assert entry.key is not None
        partition = self._manager.partition(entry.key)
        if partition is None or partition.is_offline:
            return True
        producer = partition.log.producers.states.producers.get(producer_id)
        return producer is not None and producer.open_offset is not None

    def _append(
        self, request: Asked, entry: Entry, batch: FirstBatch, acks: int, image: MetadataImage, now_ms: int
    ) -> None:
        if entry.topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT:
            entry.refuse(Error.INVALID_TOPIC_EXCEPTION, f"{entry.topic} is an internal topic")
            return
        assert entry.key is not None
        assert entry.records is not None
        partition = hosted(self._manager, image, entry.key, needs_leader=True)
        if isinstance(partition, Error):
            entry.refuse(partition)
            return
        done = self._manager.append(entry.key, entry.records, acks=acks, now_ms=now_ms)
        if isinstance(done, Refused):
            entry.refuse(done.error, done.text)
            entry.refused = tuple(messages.BatchIndexAndErrorMessage(each.index, each.text) for each in done.records)
            if done.error not in _WITHOUT_LOG_START and not partition.is_offline:
                entry.log_start = partition.start_offset
            return
        entry.base_offset, entry.append_time_ms = done.first_offset, done.append_time_ms
        entry.log_start = partition.start_offset
        if acks == ACKS_ALL:
            entry.awaited = done.last_offset + 1

    def is_complete(self, waiting: WaitingProduce, image: MetadataImage) -> bool:
        """Whether no partition of a request is awaited any more (`Partition.checkEnoughReplicasReachOffset`)."""
        for entry in waiting.entries:
            if entry.awaited is None:
                continue
            assert entry.key is not None
            partition = hosted(self._manager, image, entry.key, needs_leader=True)
            if isinstance(partition, Error):
                entry.refuse(partition)
            elif partition.high_watermark < entry.awaited:
                continue
            elif len(partition.maximal_isr) < partition.min_isr:
                entry.refuse(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            entry.awaited = None
        return not waiting.keys

    def end(self, waiting: WaitingProduce, image: MetadataImage) -> Outcome | None:
        """The answer of a request that has waited; a partition that is still awaited has timed out."""
        for entry in waiting.entries:
            if entry.awaited is not None:
                entry.refuse(Error.REQUEST_TIMED_OUT)
        return self._finish(waiting.request, waiting.entries, image)

    def _finish(self, request: Asked, entries: list[Entry], image: MetadataImage) -> Outcome | None:
        message = request.message
        assert isinstance(message, messages.ProduceRequest), message
        if message.acks == 0:
            # Without an answer, a closed connection is the only sign: the client looks for the leader again.
            return Close(request.request_id) if any(each.error is not Error.NONE for each in entries) else None
        endpoints: dict[int, messages.NodeEndpoint] = {}
        topics: dict[tuple[str, Uuid], list[messages.PartitionProduceResponse]] = {}
        for entry in entries:
            leader = messages.LeaderIdAndEpoch()
            if entry.error is Error.NOT_LEADER_OR_FOLLOWER and request.version >= LEADER_SINCE and entry.key:
                known = current_leader(self._manager, image, entry.key, request.listener)
                leader = messages.LeaderIdAndEpoch(known.leader_id, known.leader_epoch)
                if known.endpoint is not None:
                    at = known.endpoint
                    endpoints[at.node_id] = messages.NodeEndpoint(at.node_id, at.host, at.port, at.rack)
            by_id = request.version >= TOPIC_IDS_SINCE
            topics.setdefault(("" if by_id else entry.topic, entry.topic_id if by_id else Uuid.ZERO), []).append(
                messages.PartitionProduceResponse(
                    index=entry.index,
                    error_code=entry.error,
                    base_offset=entry.base_offset,
                    log_append_time_ms=entry.append_time_ms,
                    log_start_offset=entry.log_start,
                    record_errors=list(entry.refused),
                    error_message=entry.text,
                    current_leader=leader,
                )
            )
        responses = [
            messages.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=parts)
            for (name, topic_id), parts in topics.items()
        ]
        return Answer(
            request.request_id,
            messages.ProduceResponse(responses=responses, node_endpoints=list(endpoints.values())),
        )


def _entries(message: messages.ProduceRequest) -> list[Entry]:
    """The partitions of a request; of a partition that the request names twice, the later one counts, as in Kafka."""
    found: dict[tuple[str, Uuid, int], Entry] = {}
    for topic in message.topic_data:
        for part in topic.partition_data:
            found[topic.name, topic.topic_id, part.index] = Entry(topic.name, topic.topic_id, part.index, part.records)
    return list(found.values())
