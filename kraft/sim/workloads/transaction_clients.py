"""A producer of transactions of one run, drawn from its seed. The producer is its own coordinator: the producer ends a
transaction by a marker to the leader of each partition (KIP-98; with the epochs of KIP-890).
"""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.invariants.cluster_model import PartitionKey
from kraft.sim.workloads.record_clients import ALL, NO_PRODUCER, Asked, Sent, after_answer, choose_partition
from kraft.sim.world.host import START_MS
from metadata_log.image import MetadataImage
from metadata_log.image.topics import NO_LEADER
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

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
