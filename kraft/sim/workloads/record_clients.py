"""Producers and consumers of one run, all drawn from its seed: what they send next, and what an answer means to them.

Producers send one batch at a time, and send the same bytes again until an answer ends the batch. Consumers read on from
their position, and go back now and then. A producer of transactions is its own coordinator: it ends a transaction by a
marker to the leader of each partition (KIP-98; with the epochs of KIP-890).
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.invariants.cluster_model import PartitionKey
from kraft.sim.nodes.data_broker import LOG_DIRS
from kraft.sim.world.host import START_MS
from metadata_log.image import MetadataImage
from metadata_log.image.topics import NO_LEADER
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import NO_PRODUCER
from transport.protocol.errors import Error
from transport.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ALL: Final = -1
COMPACTED: Final = "compacted"
"""The name of the topic that keeps the last value of each key."""
_KEYS: Final = 5
_TOMBSTONES: Final = 0.1
_MAX_BYTES: Final = 1 << 20
_ANEW: Final = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH)
"""The answers after which an idempotent producer takes another producer id."""


Asked = tuple[PartitionKey | None, Message]
"""A request, and the partition with the leader that gets the request; None for any broker."""


class Sent(Struct, frozen=True):
    """A batch that was sent and not answered yet."""

    key: PartitionKey
    data: bytes
    sequence: int
    count: int


class Producer:
    """One producer, with acks=all or acks=1, idempotent or not."""

    def __init__(self, rng: Random, name: str, *, fills_logs: bool = False) -> None:
        """With `fills_logs` the producer writes long batches, most of them to one partition, and more often with
        acks=1.
        """
        self._rng = rng
        self._name = name
        self._fills_logs = fills_logs
        self._favourite: PartitionKey | None = None
        self._is_idempotent = rng.random() < (0.3 if fills_logs else 0.7)
        self._acks = ALL if self._is_idempotent or rng.random() < 0.6 else 1
        self._producer_id = NO_PRODUCER
        self._sequences: dict[PartitionKey, int] = {}
        self._count = 0
        self.sent: Sent | None = None

    def next_request(self, image: MetadataImage, now_ms: int, *, is_over: bool) -> Asked | None:
        """The next request; None if there is nothing to send. With `is_over` the producer begins no batch."""
        if self.sent is not None and self.sent.key[0] not in image.topics.by_id:
            self.sent = None
        if self._is_idempotent and self._producer_id == NO_PRODUCER:
            return None, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        if self.sent is None and not is_over:
            self.sent = self._new_batch(image, now_ms)
        sent = self.sent
        if sent is None:
            return None
        data = TopicProduceData(topic_id=sent.key[0], partition_data=[PartitionProduceData(sent.key[1], sent.data)])
        timeout_ms = self._rng.choice((300, 1000, 3000))
        return sent.key, ProduceRequest(acks=self._acks, timeout_ms=timeout_ms, topic_data=[data])

    def _new_batch(self, image: MetadataImage, now_ms: int) -> Sent | None:
        key = self._choose(image)
        if key is None:
            return None
        count = self._rng.choice((2, 5, 5) if self._fills_logs else (1, 1, 2, 5))
        sizes = (150,) if self._fills_logs else (10, 10, 150)
        records = list[Record]()
        for at in range(count):
            self._count += 1
            value = f"{self._name} {self._count}".encode().ljust(self._rng.choice(sizes), b".")
            record = Record(at, START_MS + now_ms, 0, None, value)
            records.append(self._with_key(record) if image.topics.by_id[key[0]].name == COMPACTED else record)
        sequence = self._sequences.get(key, 0) if self._is_idempotent else -1
        data = write_batch(
            records,
            epoch=-1,
            producer_id=self._producer_id,
            producer_epoch=0 if self._is_idempotent else -1,
            base_sequence=sequence,
        )
        return Sent(key, data, sequence, count)

    def _with_key(self, record: Record) -> Record:
        """One of a few keys, now and then with a tombstone."""
        key = f"key {self._rng.randrange(_KEYS)}".encode()
        return replace(record, key=key, value=None if self._rng.random() < _TOMBSTONES else record.value)

    def _choose(self, image: MetadataImage) -> PartitionKey | None:
        """Any partition, or the favourite one of a producer that fills logs."""
        known = self._favourite
        if known is None or known[0] not in image.topics.by_id or self._rng.random() < 0.1:
            known = choose_partition(self._rng, image)
        if self._fills_logs:
            self._favourite = known
        return known

    def on_answer(self, response: Message) -> bool:
        """An answer to the last request has arrived; returns whether the partition may have another leader."""
        self._producer_id, error = after_answer(response, self._producer_id, self.sent)
        if self.sent is None or error is None:
            return False
        if error is Error.NONE:
            self._sequences[self.sent.key] = self.sent.sequence + self.sent.count
            self.sent = None
        elif error in _ANEW:
            self.sent, self._producer_id = None, NO_PRODUCER
            self._sequences.clear()
        return error is not Error.NONE


class Consumer:
    """One consumer of one partition at a time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._key: PartitionKey | None = None
        self._offset = 0

    def next_request(self, image: MetadataImage) -> Asked | None:
        """The next request; None without a partition."""
        rng = self._rng
        if self._key is None or self._key[0] not in image.topics.by_id or rng.random() < 0.1:
            self._key, self._offset = choose_partition(rng, image), 0
        if self._key is None:
            return None
        if rng.random() < 0.1:
            self._offset = rng.randint(0, self._offset)
        limit = rng.choice((1, 500, _MAX_BYTES))
        part = FetchPartition(partition=self._key[1], fetch_offset=self._offset, partition_max_bytes=limit)
        fetch = FetchRequest(
            max_wait_ms=rng.choice((0, 100, 500)),
            min_bytes=rng.choice((0, 1, 1, 400)),
            max_bytes=_MAX_BYTES,
            isolation_level=rng.randrange(2),
            topics=[FetchTopic(topic_id=self._key[0], partitions=[part])],
        )
        return self._key, fetch

    def on_answer(self, response: Message) -> bool:
        """An answer to the last request has arrived; returns whether the partition may have another leader."""
        match response:
            case FetchResponse(responses=[topic]) if self._key is not None and topic.topic_id == self._key[0]:
                (data,) = topic.partitions
                if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                    self._offset = max(0, self._offset + self._rng.choice((-5, -1, 1, 5)))
                elif data.error_code == Error.NONE and data.records:
                    self._offset = max(self._offset, _end_of(data.records))
                return data.error_code != Error.NONE
        return False


def after_answer(response: Message, producer_id: int, sent: Sent | None) -> tuple[int, Error | None]:
    """Read an answer as a producer does. Returns its producer id from now on, and the result of the batch that was
    sent, or None if the answer has no result.
    """
    match response:
        case InitProducerIdResponse(error_code=Error.NONE, producer_id=given) if producer_id == NO_PRODUCER:
            return given, None
        case ProduceResponse(responses=[topic]) if sent is not None:
            (part,) = topic.partition_responses
            return producer_id, Error.of(part.error_code)
        case _:
            return producer_id, None


def deletion(rng: Random, image: MetadataImage, key: PartitionKey, most: int) -> DeleteRecordsRequest:
    """The deletion of some of the first records of a partition, of which `most` are committed."""
    name = image.topics.by_id[key[0]].name
    part = DeleteRecordsPartition(partition_index=key[1], offset=rng.randint(0, most))
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[part])], timeout_ms=1000)


def move(rng: Random, image: MetadataImage, key: PartitionKey) -> AlterReplicaLogDirsRequest:
    """The move of a replica to one of the log directories of its broker."""
    topic = AlterReplicaLogDirTopic(name=image.topics.by_id[key[0]].name, partitions=[key[1]])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=rng.choice(LOG_DIRS), topics=[topic])])


def choose_partition(rng: Random, image: MetadataImage) -> PartitionKey | None:
    """Any partition; None if there is none."""
    names = list(image.topics)
    if not names:
        return None
    topic = image.topics[rng.choice(names)]
    return (topic.id, rng.randrange(len(topic.partitions))) if topic.partitions else None


def _end_of(data: bytes) -> int:
    """The offset after the last whole batch."""
    at = end = 0
    while at + 61 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        end = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
        at += size
    return end


TRANSACTION_VERSION: Final = 2
"""Each end of a transaction raises the epoch of its producer, so that late copies of a marker end no later one."""


class TransactionalProducer:
    """One producer of transactions with acks=all."""

    def __init__(self, rng: Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._idle = rng.choice((0.0, 0.3, 0.8))
        """How often the producer does nothing while its transaction is open."""
        self._producer_id = NO_PRODUCER
        self._epoch = 0
        self._sequences: dict[PartitionKey, int] = {}
        """The next sequence number of each partition of the open transaction."""
        self._left = 0
        self._count = 0
        self._unmarked: list[PartitionKey] | None = None
        """The partitions without a marker yet; None while the transaction goes on."""
        self._is_commit = False
        self._is_fenced = False
        self.sent: Sent | None = None

    def next_request(self, image: MetadataImage, now_ms: int, *, is_over: bool) -> Asked | None:
        """The next request; None if there is nothing to send. With `is_over` the producer ends its transaction."""
        self._forget_deleted(image)
        if self._producer_id == NO_PRODUCER:
            return None if is_over else (None, InitProducerIdRequest(transactional_id=None))
        if is_over and self.sent is not None and self._unmarked is None and not _has_leader(image, self.sent.key):
            # The other partitions of the transaction wait for its end.
            self._end(is_commit=False)
        if self.sent is None and self._unmarked is None:
            self._go_on(image, now_ms, is_over=is_over)
        if self.sent is not None:
            return self._produce(self.sent)
        if self._unmarked:
            return self._mark(self._unmarked[0], image)
        if self._unmarked is not None:
            self._begin_anew()
        return None

    def _forget_deleted(self, image: MetadataImage) -> None:
        known = image.topics.by_id
        if self.sent is not None and self.sent.key[0] not in known:
            self.sent = None
        self._sequences = {key: each for key, each in self._sequences.items() if key[0] in known}
        if self._unmarked is not None:
            self._unmarked = [key for key in self._unmarked if key[0] in known]

    def _go_on(self, image: MetadataImage, now_ms: int, *, is_over: bool) -> None:
        """Begin to end the transaction, or make its next batch."""
        rng = self._rng
        if self._sequences and (is_over or self._left <= 0):
            self._end(is_commit=rng.random() < 0.6)
            return
        if is_over or (self._sequences and rng.random() < self._idle):
            return
        key = choose_partition(rng, image)
        if key is None:
            return
        if not self._sequences:
            self._left = rng.choice((1, 1, 2, 4))
        self._left -= 1
        count = rng.choice((1, 1, 3))
        values = [f"{self._name} {self._count + at}".encode() for at in range(count)]
        self._count += count
        data = write_batch(
            [Record(at, START_MS + now_ms, 0, value, value) for at, value in enumerate(values)],
            epoch=-1,
            transactional=True,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.setdefault(key, 0),
        )
        self.sent = Sent(key, data, self._sequences[key], count)

    def _end(self, *, is_commit: bool) -> None:
        self.sent, self._is_commit, self._unmarked = None, is_commit, list(self._sequences)

    def _begin_anew(self) -> None:
        """The transaction is over: the next one has a later epoch."""
        self._unmarked, self._sequences = None, {}
        self._epoch += 1
        if self._is_fenced or self._epoch > 1000:
            self._producer_id, self._epoch, self._is_fenced = NO_PRODUCER, 0, False

    def _produce(self, sent: Sent) -> Asked:
        data = TopicProduceData(topic_id=sent.key[0], partition_data=[PartitionProduceData(sent.key[1], sent.data)])
        timeout_ms = self._rng.choice((300, 1000, 3000))
        request = ProduceRequest(transactional_id=self._name, acks=ALL, timeout_ms=timeout_ms, topic_data=[data])
        return sent.key, request

    def _mark(self, key: PartitionKey, image: MetadataImage) -> Asked:
        topic = WritableTxnMarkerTopic(name=image.topics.by_id[key[0]].name, partition_indexes=[key[1]])
        marker = WritableTxnMarker(
            producer_id=self._producer_id,
            producer_epoch=self._epoch + 1,
            transaction_result=self._is_commit,
            topics=[topic],
            transaction_version=TRANSACTION_VERSION,
        )
        return key, WriteTxnMarkersRequest(markers=[marker])

    def on_answer(self, response: Message) -> bool:
        """An answer to the last request has arrived; returns whether the partition may have another leader."""
        self._producer_id, produced = after_answer(response, self._producer_id, self.sent)
        if self.sent is not None and produced is not None:
            return self._on_produced(self.sent, produced)
        match response:
            case WriteTxnMarkersResponse(markers=[marked]) if self._unmarked:
                error = Error.of(marked.topics[0].partitions[0].error_code)
                if error in (Error.NONE, Error.INVALID_PRODUCER_EPOCH):
                    self._is_fenced = self._is_fenced or error is not Error.NONE
                    self._unmarked.pop(0)
                else:
                    # A partition may have no leader for the rest of the run: the others have their turns meanwhile.
                    self._unmarked.append(self._unmarked.pop(0))
                return error is not Error.NONE
        return False

    def _on_produced(self, sent: Sent, error: Error) -> bool:
        if error is Error.NONE:
            self._sequences[sent.key] = sent.sequence + sent.count
            self.sent = None
        elif error in (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_TXN_STATE):
            self._is_fenced = self._is_fenced or error is Error.INVALID_PRODUCER_EPOCH
            self._end(is_commit=False)
        return error is not Error.NONE


def _has_leader(image: MetadataImage, key: PartitionKey) -> bool:
    topic_id, number = key
    return image.topics.by_id[topic_id].partitions[number].leader != NO_LEADER
