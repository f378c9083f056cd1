"""The requests to a transaction coordinator (Kafka: `TransactionCoordinator`, `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kraft.access.authorizer import AclOperation, AclResource
from kraft.config.transaction_settings import TransactionConfig
from kraft.coordinators.runtime.runtime import CoordinatorRuntime, refused
from kraft.coordinators.runtime.shard import Operation
from kraft.coordinators.transactions.marker_sender import MarkerSender
from kraft.coordinators.transactions.operations import (
    AddForBroker,
    AddOffsets,
    AddPartitions,
    BrokersAnswer,
    Complete,
    End,
    Initialize,
    results_of,
)
from kraft.coordinators.transactions.producer_ids import ProducerIds
from kraft.coordinators.transactions.shard import Transactions, TransactionShard
from kraft.coordinators.transactions.transaction import BUMPING, Expected, TopicPartition, verify
from kraft.handling.coordinators import GROUP, TOPICS, partition_of
from kraft.handling.reply_keys import MarkersSent
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling, long_step
from kraft.limits import (
    ADDITIONS_PER_STEP,
    LARGE_TRANSACTION,
    PARTITIONS_PER_STEP,
    REQUEST_STEPS_PER_TURN,
    TRANSACTION_STATE_BYTES,
)
from kraft.partitions.lookup import is_known
from kraft.partitions.replicas.key import INTERNAL_TOPICS
from kraft.wire import Answer, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NO_EPOCH, NO_PRODUCER, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import add_partitions_to_txn as adding
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest

BROKERS_SINCE: Final = 4
"""The first version of AddPartitionsToTxn that only brokers send."""


class TransactionsHandler:
    """Answers the requests to transaction coordinators.

    Args:
        runtime: The partitions of `__transaction_state` that this broker coordinates.
        sender: What tells partitions of the ends of transactions.
        ids: The producer ids that this broker may give out.
        rights: Whether a client may do something.
        settings: The settings.
        group_partitions: The partitions of `__consumer_offsets`, if it is still to be made.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[Transactions],
        sender: MarkerSender,
        ids: ProducerIds,
        rights: Rights,
        settings: TransactionConfig,
        group_partitions: int,
    ) -> None:
        self._runtime = runtime
        self._sender = sender
        self._ids = ids
        self._rights = rights
        self._settings = settings
        self._group_partitions = group_partitions

    def _may_write(self, request: WireRequest, name: str) -> bool:
        return self._rights(request, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)

    def _write(self, operation: Operation, name: str, now_ms: int) -> Answer | None:
        """Do an operation on a transactional id."""
        if not name:
            return refused(operation, Error.INVALID_REQUEST)
        return self._runtime.write(self._runtime.number_of(name), operation, now_ms)

    def initialize(
        self, request: WireRequest[InitProducerIdRequest], image: MetadataImage, now_ms: int
    ) -> Answer | None:
        """InitProducerId with a transactional id."""
        message = request.message
        name = message.transactional_id
        assert name is not None, message
        operation = Initialize(request, name, self._ids.take, self._is_full)
        if not self._may_write(request, name):
            return refused(operation, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (message.producer_id == NO_PRODUCER) != (message.producer_epoch == NO_EPOCH) or not name:
            return refused(operation, Error.INVALID_REQUEST)
        if not 0 < message.transaction_timeout_ms <= self._settings.max_timeout_ms:
            return refused(operation, Error.INVALID_TRANSACTION_TIMEOUT)
        return self._write(operation, name, now_ms)

    def _is_full(self) -> bool:
        """Whether the ids of this broker take so much memory that it accepts no new one."""
        return sum(one.state.bytes for one in self._runtime.partitions.values()) > TRANSACTION_STATE_BYTES

    def end(self, request: WireRequest[EndTxnRequest], image: MetadataImage, now_ms: int) -> Answer | None:
        """EndTxn."""
        operation, name = End(request, self._ids.take), request.message.transactional_id
        if not self._may_write(request, name):
            return refused(operation, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return self._write(operation, name, now_ms)

    def add_offsets(
        self, request: WireRequest[AddOffsetsToTxnRequest], image: MetadataImage, now_ms: int
    ) -> Answer | None:
        """AddOffsetsToTxn: the offsets of a group become part of a transaction."""
        message = request.message
        group, topic_id = message.group_id, image.topics.by_name.get(TOPICS[GROUP])
        # A producer may name a group before anybody has asked for its coordinator, and so for the topic.
        count = self._group_partitions if topic_id is None else len(image.topics.by_id[topic_id].partitions)
        operation = AddOffsets(
            request=request,
            name=message.transactional_id,
            producer=Expected(message.producer_id, message.producer_epoch),
            partitions=frozenset({(TOPICS[GROUP], partition_of(group, count))}),
            is_full=self._is_full,
        )
        if not self._may_write(request, message.transactional_id):
            return refused(operation, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, group):
            return refused(operation, Error.GROUP_AUTHORIZATION_FAILED)
        return self._write(operation, message.transactional_id, now_ms)

    # ------------------------------------------------------------------------------------------------------ partitions

    def add_partitions(
        self, request: WireRequest[adding.AddPartitionsToTxnRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """AddPartitionsToTxn of a client, or of brokers that lead partitions."""
        if request.version >= BROKERS_SINCE:
            return (yield from self._add_for_brokers(request, image, now_ms))
        message = request.message
        partitions = yield from _partitions_of(message.v3_and_below_topics)
        operation = AddPartitions(
            request=request,
            name=message.v3_and_below_transactional_id,
            producer=Expected(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
            partitions=partitions,
            is_full=self._is_full,
        )
        if not self._may_write(request, operation.name):
            return refused(operation, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        errors = yield from self._objections(request, message.v3_and_below_topics, partitions, image)
        if errors:
            results = results_of(partitions, errors, Error.OPERATION_NOT_ATTEMPTED)
            answer = adding.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
            return Answer(request.request_id, answer)
        return self._write(operation, operation.name, now_ms)

    def _objections(
        self,
        request: WireRequest,
        topics: Sequence[adding.AddPartitionsToTxnTopic],
        partitions: frozenset[TopicPartition],
        image: MetadataImage,
    ) -> Handling[dict[TopicPartition, Error]]:
        """The errors for which a client may not add some of the partitions that it names."""
        errors = yield from _unknown(partitions, image)
        for topic in topics:
            yield None
            is_allowed = self._rights(request, AclOperation.WRITE, AclResource.TOPIC, topic.name)
            if not is_allowed or topic.name in INTERNAL_TOPICS:
                errors |= {(topic.name, number): Error.TOPIC_AUTHORIZATION_FAILED for number in topic.partitions}
        return errors

    def _add_for_brokers(
        self, request: WireRequest[adding.AddPartitionsToTxnRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """The leaders of partitions verify transactions, or add themselves to them."""
        message = request.message
        if not self._rights(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
            refusal = adding.AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
            return Answer(request.request_id, refusal)
        if not message.transactions:
            return Answer(request.request_id, adding.AddPartitionsToTxnResponse())
        whole = BrokersAnswer(request)
        answer: Answer | None = None
        for at, one in enumerate(message.transactions):
            if at and at % ADDITIONS_PER_STEP == 0:
                yield None
            partitions = yield from _partitions_of(one.topics)
            producer, name = Expected(one.producer_id, one.producer_epoch), one.transactional_id
            unknown = yield from _unknown(partitions, image)
            if unknown or one.verify_only:
                found = (
                    dict.fromkeys(partitions, Error.OPERATION_NOT_ATTEMPTED) | unknown
                    if unknown
                    else self._verify(name, producer, partitions)
                )
                told = whole.note(at, partitions, found)
                answer = answer if told is None else Answer(request.request_id, told)
                continue
            addition = AddForBroker(
                answer=whole,
                at=at,
                name=name,
                producer=producer,
                partitions=partitions,
                is_full=self._is_full,
                client_version=BUMPING,
            )
            answer = self._write(addition, name, now_ms) or answer
            if addition.count >= LARGE_TRANSACTION:
                # Each record has all partitions.
                yield from long_step(REQUEST_STEPS_PER_TURN)
        return answer

    def _verify(
        self, name: str, producer: Expected, partitions: frozenset[TopicPartition]
    ) -> Error | Mapping[TopicPartition, Error]:
        known = self._runtime.active(self._runtime.number_of(name)) if name else Error.INVALID_REQUEST
        if isinstance(known, Error):
            return known
        shard = known.shard
        assert isinstance(shard, TransactionShard), shard
        verdict = verify(shard.known(known.state, name), producer, partitions)
        # What is not committed yet may be lost with this coordinator, and then nobody would end the transaction.
        return (
            verdict if isinstance(verdict, Error) else verify(shard.known(known.committed, name), producer, partitions)
        )

    # ------------------------------------------------------------------------------------------------------------- time

    def on_reply(self, key: MarkersSent, message: Message | None, now_ms: int) -> None:
        """The answer of a leader to markers; None if the request has failed."""
        self._sender.on_reply(key, message, now_ms)

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """Note which transactions have all their markers, and send the markers that are due."""
        yield from self._sender.due(image, now_ms)
        for ending in self._sender.take_ended():
            self._sender.finish(ending)
            self._runtime.write(ending.partition, Complete(ending.name), now_ms)


def _partitions_of(topics: Sequence[adding.AddPartitionsToTxnTopic]) -> Handling[frozenset[TopicPartition]]:
    topic_partitions: set[TopicPartition] = set()
    seen = 0
    for topic in topics:
        for begin in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            some = topic.partitions[begin : begin + PARTITIONS_PER_STEP]
            seen += 1 + len(some)
            if seen > PARTITIONS_PER_STEP:
                seen = len(some)
                yield None
            topic_partitions.update([(topic.name, number) for number in some])
    return frozenset(topic_partitions)


def _unknown(partitions: frozenset[TopicPartition], image: MetadataImage) -> Handling[dict[TopicPartition, Error]]:
    """The partitions that do not exist, with their error."""
    errors: dict[TopicPartition, Error] = {}
    for at, (topic, number) in enumerate(sorted(partitions), 1):
        if at % PARTITIONS_PER_STEP == 0:
            yield None
        if not is_known(image, (image.topics.by_name.get(topic, Uuid.ZERO), number)):
            errors[topic, number] = Error.UNKNOWN_TOPIC_OR_PARTITION
    return errors
