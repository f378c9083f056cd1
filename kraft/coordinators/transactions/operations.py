"""The operations on transactional ids: what a request, or the last marker of a transaction, makes of one (Kafka:
`TransactionCoordinator`).

Each decides by a function of `kraft.coordinators.transactions.transaction`, and makes the answer of its decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.runtime.parts import InParts
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.transactions.shard import NEXT_IDS_SINCE, TransactionShard, version_of
from kraft.coordinators.transactions.transaction import (
    BUMPING,
    Decision,
    Expected,
    TakeId,
    TopicPartition,
    add,
    end,
    initialize,
)
from kraft.limits import SMALL_TRANSACTION
from kraft.wire import WireRequest
from metadata_log.serde import Message
from metadata_log.types import NO_EPOCH, NO_PRODUCER
from transport.protocol.errors import Error
from transport.protocol.messages import add_partitions_to_txn as adding
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE: Final[Mapping[type[Message], int]] = {
    InitProducerIdRequest: 4,
    adding.AddPartitionsToTxnRequest: 2,
    AddOffsetsToTxnRequest: 2,
    EndTxnRequest: 2,
}
"""The versions since which clients know PRODUCER_FENCED."""
BUMPING_SINCE: Final = 5
"""The first version of EndTxn after which the producer has a new epoch."""


def told(request: WireRequest, error: Error) -> Error:
    """An error as clients of a version know it."""
    if error is Error.PRODUCER_FENCED and request.version < FENCED_SINCE[type(request.message)]:
        return Error.INVALID_PRODUCER_EPOCH
    return error


class Initialize(Struct):
    """InitProducerId: a producer begins to use a transactional id."""

    request: WireRequest[InitProducerIdRequest]
    name: str
    take_id: TakeId
    is_full: Callable[[], bool]

    def decide(self, shard: TransactionShard, context: Context) -> CoordinatorResult:
        """Give the producer an epoch that fences all others."""
        message, known = self.request.message, shard.known(context.state, self.name)
        if known is None and self.is_full():
            return CoordinatorResult(result=Decision(Error.POLICY_VIOLATION))
        is_new = message.producer_id == NO_PRODUCER
        decision = initialize(
            known,
            None if is_new else Expected(message.producer_id, message.producer_epoch),
            message.transaction_timeout_ms,
            self.take_id,
            context.now_ms,
            is_pending=shard.is_pending(context.state, self.name),
            version=version_of(context.image),
        )
        return shard.decided(self.name, decision, context)

    def tell(self, decision: Decision) -> Message:
        """The producer id and the epoch."""
        if decision.error is not Error.NONE:
            return self.refuse(ApiError(decision.error))
        return InitProducerIdResponse(producer_id=decision.producer_id, producer_epoch=decision.epoch)

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        error = told(self.request, refused.error)
        return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH)


class End(Struct):
    """EndTxn: a producer commits or aborts. The answer comes with the decision; the partitions learn of it then."""

    request: WireRequest[EndTxnRequest]
    take_id: TakeId

    def decide(self, shard: TransactionShard, context: Context) -> CoordinatorResult:
        """Decide the outcome."""
        message = self.request.message
        name = message.transactional_id
        decision = end(
            shard.known(context.state, name),
            Expected(message.producer_id, message.producer_epoch),
            self.take_id if version_of(context.image) >= NEXT_IDS_SINCE else None,
            context.now_ms,
            is_commit=message.committed,
            is_pending=shard.is_pending(context.state, name),
            client_version=BUMPING if self.request.version >= BUMPING_SINCE else 0,
        )
        return shard.decided(name, decision, context)

    def tell(self, decision: Decision) -> Message:
        """The producer id and the epoch to go on with."""
        if decision.error is not Error.NONE:
            return self.refuse(ApiError(decision.error))
        return EndTxnResponse(producer_id=decision.producer_id, producer_epoch=decision.epoch)

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        return EndTxnResponse(error_code=told(self.request, refused.error))


class Addition(Struct, kw_only=True):
    """A producer, or a leader in its name, adds partitions to a transaction."""

    name: str
    producer: Expected
    partitions: frozenset[TopicPartition]
    is_full: Callable[[], bool]
    client_version: int = 0
    count: int = 0
    """How many partitions the transaction has then; 0 if it has not changed."""

    def decide(self, shard: TransactionShard, context: Context) -> CoordinatorResult:
        """Add them, if there is room."""
        decision = add(
            shard.known(context.state, self.name),
            self.producer,
            self.partitions,
            context.now_ms,
            is_pending=shard.is_pending(context.state, self.name),
            client_version=self.client_version,
        )
        if decision.written is not None:
            self.count = len(decision.written.partitions)
            if self.count > SMALL_TRANSACTION and self.is_full():
                return CoordinatorResult(result=Decision(Error.POLICY_VIOLATION))
        return shard.decided(self.name, decision, context)


class AddPartitions(Addition):
    """AddPartitionsToTxn of a client."""

    request: WireRequest[adding.AddPartitionsToTxnRequest]

    def tell(self, decision: Decision) -> Message:
        """The same for each partition."""
        return self.refuse(ApiError(decision.error))

    def refuse(self, refused: ApiError) -> Message:
        """The same error for each partition."""
        error = told(self.request, refused.error)
        results = same_results(self.request.message.v3_and_below_topics, error)
        return adding.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


class AddOffsets(Addition):
    """AddOffsetsToTxn: the partition of a group becomes part of a transaction."""

    request: WireRequest[AddOffsetsToTxnRequest]

    def tell(self, decision: Decision) -> Message:
        """That it was added, or why not."""
        return self.refuse(ApiError(decision.error))

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        return AddOffsetsToTxnResponse(error_code=told(self.request, refused.error))


class BrokersAnswer(InParts[adding.AddPartitionsToTxnRequest]):
    """The answer to AddPartitionsToTxn of a broker, of which each transaction is a part."""

    def __init__(self, request: WireRequest[adding.AddPartitionsToTxnRequest]) -> None:
        super().__init__(request, len(request.message.transactions))
        self._results: dict[int, adding.AddPartitionsToTxnResult] = {}

    def note(
        self, at: int, partitions: frozenset[TopicPartition], found: Error | Mapping[TopicPartition, Error]
    ) -> Message | None:
        """Note the result of a transaction, for all of its partitions or each; returns the answer after the last."""
        asked = self.request.message.transactions[at]
        topics = same_results(asked.topics, found) if isinstance(found, Error) else results_of(partitions, found)
        self._results[at] = adding.AddPartitionsToTxnResult(asked.transactional_id, topics)
        return self.ended()

    def answer(self) -> Message:
        """The results in the order of the request."""
        done = [self._results[at] for at in range(len(self._results))]
        return adding.AddPartitionsToTxnResponse(results_by_transaction=done)


class AddForBroker(Addition):
    """One transaction of AddPartitionsToTxn of a broker that leads partitions."""

    answer: BrokersAnswer
    at: int

    @property
    def request(self) -> WireRequest:
        """The request, of which this is a part."""
        return self.answer.request

    def tell(self, decision: Decision) -> Message | None:
        """The answer, after the last transaction."""
        return self.answer.note(self.at, self.partitions, decision.error)

    def refuse(self, refused: ApiError) -> Message | None:
        """As `tell`."""
        return self.answer.note(self.at, self.partitions, refused.error)


class Complete(Struct):
    """The end of a transaction whose markers are all written. It is tried again until it is in the log."""

    name: str
    request = None

    def decide(self, shard: TransactionShard, context: Context) -> CoordinatorResult:
        """Note the end."""
        return shard.complete(self.name, context)

    def tell(self, result: object) -> None:
        """Nobody has asked."""

    def refuse(self, refused: ApiError) -> None:
        """Nobody has asked."""


def same_results(
    topics: Iterable[adding.AddPartitionsToTxnTopic], error: Error
) -> list[adding.AddPartitionsToTxnTopicResult]:
    """The answer with the same error for all that the request names, as it names it."""
    return [
        adding.AddPartitionsToTxnTopicResult(
            topic.name, [adding.AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions]
        )
        for topic in topics
    ]


def results_of(
    partitions: Iterable[TopicPartition], errors: Mapping[TopicPartition, Error], otherwise: Error = Error.NONE
) -> list[adding.AddPartitionsToTxnTopicResult]:
    """The answer for each partition."""
    topics: dict[str, list[adding.AddPartitionsToTxnPartitionResult]] = {}
    for topic, number in sorted(partitions):
        error = errors.get((topic, number), otherwise)
        topics.setdefault(topic, []).append(adding.AddPartitionsToTxnPartitionResult(number, error))
    return [adding.AddPartitionsToTxnTopicResult(name, parts) for name, parts in topics.items()]
