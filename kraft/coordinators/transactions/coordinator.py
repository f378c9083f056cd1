"""The requests to a transaction coordinator (Kafka: `TransactionCoordinator`, `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.config.transaction_settings import TransactionConfig
from kraft.coordinators.runtime.partition import CoordinatorPartition
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.settings import Status as Load
from kraft.coordinators.runtime.shard import Context
from kraft.coordinators.transactions.marker_sender import MarkerSender
from kraft.coordinators.transactions.producer_ids import ProducerIds
from kraft.coordinators.transactions.shard import NEXT_IDS_SINCE, Transactions, TransactionShard, version_of
from kraft.coordinators.transactions.transaction import (
    BUMPING,
    NO_EPOCH,
    NO_PRODUCER,
    STATUS_OF,
    Decision,
    Expected,
    TopicPartition,
    Transaction,
    add,
    end,
    initialize,
    verify,
)
from kraft.handling.coordinators import GROUP, TOPICS, partition_of
from kraft.handling.patterns import InvalidPattern, Matching
from kraft.handling.reply_keys import MarkersSent
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling, long_step
from kraft.limits import (
    ADDITIONS_PER_STEP,
    NAME_CHARACTERS_PER_STEP,
    PARTITIONS_PER_STEP,
    REQUEST_STEPS_PER_TURN,
    TRANSACTION_PARTITIONS,
    TRANSACTION_STATE_BYTES,
    TRANSACTIONS_PER_STEP,
)
from kraft.partitions.lookup import is_known
from kraft.partitions.replicas.key import INTERNAL_TOPICS
from kraft.wire import Answer, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import add_partitions_to_txn as adding
from transport.protocol.messages import describe_transactions as describing
from transport.protocol.messages import list_transactions as listing
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_States = list[listing.TransactionState]
FENCED_SINCE: Final[Mapping[type[Message], int]] = {
    InitProducerIdRequest: 4,
    adding.AddPartitionsToTxnRequest: 2,
    AddOffsetsToTxnRequest: 2,
    EndTxnRequest: 2,
}
"""The versions since which clients know PRODUCER_FENCED."""
BROKERS_SINCE: Final = 4
"""The first version of AddPartitionsToTxn that only brokers send."""
MANY_PARTITIONS: Final = 1000
"""The partitions of a transaction from which on each change of it has a turn of its own."""
FEW_PARTITIONS: Final = 8
"""The partitions that a transaction may have even if the ids take as much memory as they may."""
BUMPING_SINCE: Final = 5
"""The first version of EndTxn after which the producer has a new epoch."""


def _told(request: WireRequest, error: Error) -> Error:
    """An error as clients of a version know it."""
    if error is Error.PRODUCER_FENCED and request.version < FENCED_SINCE[type(request.message)]:
        return Error.INVALID_PRODUCER_EPOCH
    return error


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
        self._added = 0
        """How many partitions the transaction has that was changed last."""

    def _shard(self, number: int) -> TransactionShard | None:
        """The coordinator of a partition, while it is at this broker."""
        known = self._runtime.partitions.get(number)
        if known is None or known.status is not Load.ACTIVE:
            return None
        assert isinstance(known.shard, TransactionShard), known.shard
        return known.shard

    def _place(self, name: str) -> tuple[int, TransactionShard] | Error:
        """The coordinator of an id, or why it does not answer."""
        if not name:
            return Error.INVALID_REQUEST
        number = self._runtime.number_of(name)
        active = self._runtime.active(number)
        shard = self._shard(number)
        if isinstance(active, Error) or shard is None:
            return active if isinstance(active, Error) else Error.NOT_COORDINATOR
        return number, shard

    def _may_write(self, request: WireRequest, name: str) -> bool:
        return self._rights(request, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)

    # -------------------------------------------------------------------------------------------------- InitProducerId

    def initialize(
        self, request: WireRequest[InitProducerIdRequest], image: MetadataImage, now_ms: int
    ) -> Answer | None:
        """InitProducerId with a transactional id."""
        message = request.message
        name = message.transactional_id
        assert name is not None, message

        def refuse(error: Error) -> Message:
            return InitProducerIdResponse(
                error_code=_told(request, error), producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH
            )

        place = self._wanted(request, message, name)
        if isinstance(place, Error):
            return Answer(request.request_id, refuse(place))
        number, shard = place
        is_new = message.producer_id == NO_PRODUCER
        expected = None if is_new else Expected(message.producer_id, message.producer_epoch)

        def decide(known: Transaction | None, context: Context, *, is_pending: bool) -> Decision:
            if known is None and self._is_full:
                return Decision(Error.POLICY_VIOLATION)
            return initialize(
                known,
                expected,
                message.transaction_timeout_ms,
                self._ids.take,
                context.now_ms,
                is_pending=is_pending,
                version=version_of(context.image),
            )

        def tell(decision: Decision) -> Message:
            if decision.error is not Error.NONE:
                return refuse(decision.error)
            return InitProducerIdResponse(producer_id=decision.producer_id, producer_epoch=decision.epoch)

        operate = shard.deciding(name, decide, tell)
        return self._runtime.write(number, request, operate, lambda refused: refuse(refused.error), now_ms)

    def _wanted(
        self, request: WireRequest, message: InitProducerIdRequest, name: str
    ) -> tuple[int, TransactionShard] | Error:
        if not self._may_write(request, name):
            return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if (message.producer_id == NO_PRODUCER) != (message.producer_epoch == NO_EPOCH) or not name:
            return Error.INVALID_REQUEST
        if not 0 < message.transaction_timeout_ms <= self._settings.max_timeout_ms:
            return Error.INVALID_TRANSACTION_TIMEOUT
        return self._place(name)

    @property
    def _is_full(self) -> bool:
        """Whether the ids of this broker take so much memory that it accepts no new one."""
        return sum(one.state.bytes for one in self._runtime.partitions.values()) > TRANSACTION_STATE_BYTES

    # ------------------------------------------------------------------------------------------------------ partitions

    def add_partitions(
        self, request: WireRequest[adding.AddPartitionsToTxnRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """AddPartitionsToTxn of a client, or of brokers that lead partitions."""
        message = request.message
        if request.version >= BROKERS_SINCE:
            return (yield from self._add_for_brokers(request, message, image, now_ms))
        topics = message.v3_and_below_topics
        name = message.v3_and_below_transactional_id
        partitions = yield from _partitions_of(topics)

        def answer(results: list[adding.AddPartitionsToTxnTopicResult]) -> None:
            self._runtime.answer(request, adding.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

        if not self._may_write(request, name):
            answer(_same_results(topics, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return None
        errors = yield from self._objections(request, topics, partitions, image)
        if errors:
            answer(_results(partitions, errors, Error.OPERATION_NOT_ATTEMPTED))
            return None
        producer = Expected(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)

        def added(error: Error) -> None:
            answer(_same_results(topics, _told(request, error)))

        self._add(name, producer, partitions, 0, added, now_ms)
        return None

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
        self, request: WireRequest, message: adding.AddPartitionsToTxnRequest, image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """The leaders of partitions verify transactions, or add themselves to them."""
        if not self._rights(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
            refused = adding.AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
            return Answer(request.request_id, refused)
        results: list[adding.AddPartitionsToTxnResult | None] = [None] * len(message.transactions)
        left = len(results)

        def note(at: int, partitions: frozenset[TopicPartition], found: Error | Mapping[TopicPartition, Error]) -> None:
            nonlocal left
            topics = message.transactions[at].topics
            one = _same_results(topics, found) if isinstance(found, Error) else _results(partitions, found)
            results[at] = adding.AddPartitionsToTxnResult(message.transactions[at].transactional_id, one)
            left -= 1
            if left == 0:
                done = [each for each in results if each is not None]
                self._runtime.answer(request, adding.AddPartitionsToTxnResponse(results_by_transaction=done))

        if not results:
            return Answer(request.request_id, adding.AddPartitionsToTxnResponse())
        for at, one in enumerate(message.transactions):
            if at and at % ADDITIONS_PER_STEP == 0:
                yield None
            partitions = yield from _partitions_of(one.topics)
            producer, name = Expected(one.producer_id, one.producer_epoch), one.transactional_id
            unknown = yield from _unknown(partitions, image)
            if unknown:
                note(at, partitions, dict.fromkeys(partitions, Error.OPERATION_NOT_ATTEMPTED) | unknown)
            elif one.verify_only:
                note(at, partitions, self._verify(name, producer, partitions))
            else:
                self._add(name, producer, partitions, BUMPING, partial(note, at, partitions), now_ms)
                if self._added >= MANY_PARTITIONS:
                    self._added = 0
                    # Each record has all partitions.
                    yield from long_step(REQUEST_STEPS_PER_TURN)
        return None

    def _verify(
        self, name: str, producer: Expected, partitions: frozenset[TopicPartition]
    ) -> Error | Mapping[TopicPartition, Error]:
        place = self._place(name)
        if isinstance(place, Error):
            return place
        number, shard = place
        known = self._runtime.partitions[number]
        verdict = verify(shard.known(known.state, name), producer, partitions)
        # What is not committed yet may be lost with this coordinator, and then nobody would end the transaction.
        return (
            verdict if isinstance(verdict, Error) else verify(shard.known(known.committed, name), producer, partitions)
        )

    def _add(
        self,
        name: str,
        producer: Expected,
        partitions: frozenset[TopicPartition],
        client_version: int,
        done: Callable[[Error], None],
        now_ms: int,
    ) -> None:
        """Add partitions to a transaction; `done` takes the result, now or later."""
        place = self._place(name)
        if isinstance(place, Error):
            done(place)
            return

        def decide(known: Transaction | None, context: Context, *, is_pending: bool) -> Decision:
            decision = add(
                known, producer, partitions, context.now_ms, is_pending=is_pending, client_version=client_version
            )
            written = decision.written
            if written is not None:
                self._added = len(written.partitions)
                if self._added > FEW_PARTITIONS and self._is_full:
                    return Decision(Error.POLICY_VIOLATION)
            return decision

        number, shard = place
        self._runtime.run(number, shard.deciding(name, decide, lambda decision: decision.error), done, now_ms)

    def add_offsets(
        self, request: WireRequest[AddOffsetsToTxnRequest], image: MetadataImage, now_ms: int
    ) -> Answer | None:
        """AddOffsetsToTxn: the offsets of a group become part of a transaction."""
        message = request.message

        def answer(error: Error) -> None:
            self._runtime.answer(request, AddOffsetsToTxnResponse(error_code=_told(request, error)))

        group, topic_id = message.group_id, image.topics.by_name.get(TOPICS[GROUP])
        if not self._may_write(request, message.transactional_id):
            answer(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif not self._rights(request, AclOperation.READ, AclResource.GROUP, group):
            answer(Error.GROUP_AUTHORIZATION_FAILED)
        else:
            # A producer may name a group before anybody has asked for its coordinator, and so for the topic.
            count = self._group_partitions if topic_id is None else len(image.topics.by_id[topic_id].partitions)
            number = partition_of(group, count)
            producer = Expected(message.producer_id, message.producer_epoch)
            self._add(message.transactional_id, producer, frozenset({(TOPICS[GROUP], number)}), 0, answer, now_ms)
        return None

    # ---------------------------------------------------------------------------------------------------------- EndTxn

    def end(self, request: WireRequest[EndTxnRequest], image: MetadataImage, now_ms: int) -> Answer | None:
        """EndTxn: the answer comes with the decision; the partitions learn of it then."""
        message = request.message

        def refuse(error: Error) -> Message:
            return EndTxnResponse(error_code=_told(request, error))

        name = message.transactional_id
        if not self._may_write(request, name):
            return Answer(request.request_id, refuse(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        place = self._place(name)
        if isinstance(place, Error):
            return Answer(request.request_id, refuse(place))
        number, shard = place

        def decide(known: Transaction | None, context: Context, *, is_pending: bool) -> Decision:
            return end(
                known,
                Expected(message.producer_id, message.producer_epoch),
                self._ids.take if version_of(context.image) >= NEXT_IDS_SINCE else None,
                context.now_ms,
                is_commit=message.committed,
                is_pending=is_pending,
                client_version=BUMPING if request.version >= BUMPING_SINCE else 0,
            )

        def tell(decision: Decision) -> Message:
            if decision.error is not Error.NONE:
                return refuse(decision.error)
            return EndTxnResponse(producer_id=decision.producer_id, producer_epoch=decision.epoch)

        operate = shard.deciding(name, decide, tell)
        return self._runtime.write(number, request, operate, lambda refused: refuse(refused.error), now_ms)

    # --------------------------------------------------------------------------------------------- for administrators

    def describe(
        self, request: WireRequest[describing.DescribeTransactionsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """DescribeTransactions: the committed state of ids."""
        message = request.message
        states: list[describing.TransactionState] = []
        characters = 0
        told: dict[str, describing.TransactionState] = {}
        repeated = 0
        for name in message.transactional_ids:
            again = told.get(name)
            if again is not None:
                # The partitions may be many, and a client may name an id with two bytes.
                repeated += sum([len(topic.partitions) for topic in again.topics])
                if repeated > TRANSACTION_PARTITIONS:
                    again = describing.TransactionState(error_code=Error.INVALID_REQUEST, transactional_id=name)
                states.append(again)
                if len(states) % PARTITIONS_PER_STEP == 0:
                    yield None
                continue
            characters += len(name)
            if characters >= NAME_CHARACTERS_PER_STEP or len(states) % PARTITIONS_PER_STEP == 0:
                characters = 0
                yield None
            if not self._rights(request, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, name):
                error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                states.append(describing.TransactionState(error_code=error, transactional_id=name))
                continue
            place = self._place(name)
            transaction = (
                place if isinstance(place, Error) else self._runtime.partitions[place[0]].committed.by_id.get(name)
            )
            if isinstance(transaction, Transaction):
                told[name] = yield from self._described(request, name, transaction)
                states.append(told[name])
            else:
                error = Error.TRANSACTIONAL_ID_NOT_FOUND if transaction is None else transaction
                states.append(describing.TransactionState(error_code=error, transactional_id=name))
        return Answer(request.request_id, describing.DescribeTransactionsResponse(transaction_states=states))

    def _described(self, request: WireRequest, name: str, one: Transaction) -> Handling[describing.TransactionState]:
        topics: dict[str, list[int]] = {}
        for at, (topic, number) in enumerate(sorted(one.partitions), 1):
            if at % TRANSACTIONS_PER_STEP == 0:
                yield None
            topics.setdefault(topic, []).append(number)
        return describing.TransactionState(
            transactional_id=name,
            transaction_state=one.status.title,
            transaction_timeout_ms=one.timeout_ms,
            transaction_start_time_ms=one.start_ms,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            topics=[
                describing.TopicData(topic, numbers)
                for topic, numbers in topics.items()
                if self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, topic, is_asked=False)
            ],
        )

    def list(
        self, request: WireRequest[listing.ListTransactionsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """ListTransactions: the committed states of all ids of this coordinator that pass the filters."""
        message = request.message
        partitions = list(self._runtime.partitions.values())
        if any(one.status is Load.LOADING for one in partitions):
            error = Error.COORDINATOR_LOAD_IN_PROGRESS
            return Answer(request.request_id, listing.ListTransactionsResponse(error_code=error))
        try:
            states = yield from self._listed(request, message, partitions, now_ms)
        except InvalidPattern:
            error = Error.INVALID_REGULAR_EXPRESSION
            return Answer(request.request_id, listing.ListTransactionsResponse(error_code=error))
        unknown = list(dict.fromkeys(name for name in message.state_filters if name not in STATUS_OF))
        answer = listing.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)
        return Answer(request.request_id, answer)

    def _listed(
        self,
        request: WireRequest,
        message: listing.ListTransactionsRequest,
        partitions: Sequence[CoordinatorPartition[Transactions]],
        now_ms: int,
    ) -> Handling[_States]:
        matching = Matching(message.transactional_id_pattern) if message.transactional_id_pattern else None
        wanted = {STATUS_OF[name] for name in message.state_filters if name in STATUS_OF}
        ids, since_ms = frozenset(message.producer_id_filters), now_ms - message.duration_filter
        states: _States = []
        seen = 0
        for name, one in chain.from_iterable(each.committed.by_id.items() for each in partitions):
            seen += 1
            if seen % TRANSACTIONS_PER_STEP == 0:
                yield None
            if (message.state_filters and one.status not in wanted) or (ids and one.producer_id not in ids):
                continue
            if message.duration_filter >= 0 and one.start_ms >= since_ms:
                continue
            if not self._rights(request, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, name, is_asked=False):
                continue
            if matching is not None:
                is_match = matching.matches(name)
                if matching.is_due:
                    # Also the compilation of the next portion is long.
                    matching.pause()
                    yield from long_step(REQUEST_STEPS_PER_TURN)
                if not is_match:
                    continue
            states.append(listing.TransactionState(name, one.producer_id, one.status.title))
        return states

    # ------------------------------------------------------------------------------------------------------------- time

    def on_reply(self, key: MarkersSent, message: Message | None, now_ms: int) -> None:
        """The answer of a leader to markers; None if the request has failed."""
        self._sender.on_reply(key, message, now_ms)

    def take_changes(self) -> tuple[()]:
        """Nothing: no request waits for markers, not even EndTxn."""
        return ()

    def deadline_ms(self) -> int:
        """The time at which `due` has something, in ms."""
        return self._sender.deadline_ms()

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """Note which transactions have all their markers, and send the markers that are due."""
        yield from self._sender.due(image, now_ms)
        for ending in self._sender.take_ended():
            shard = self._shard(ending.partition)
            self._sender.finish(ending)
            if shard is not None:
                self._runtime.run(ending.partition, shard.completing(ending.name), _ignore, now_ms)

    # ----------------------------------------------------------------- the answers to requests that fail as a whole

    @staticmethod
    def refuse_describe(request: WireRequest[describing.DescribeTransactionsRequest], refused: ApiError) -> Answer:
        """DescribeTransactions with an error for each id."""
        message = request.message
        states = [
            describing.TransactionState(error_code=refused.error, transactional_id=name)
            for name in message.transactional_ids
        ]
        return Answer(request.request_id, describing.DescribeTransactionsResponse(transaction_states=states))

    @staticmethod
    def refuse_list(request: WireRequest, refused: ApiError) -> Answer:
        """ListTransactions with an error."""
        return Answer(request.request_id, listing.ListTransactionsResponse(error_code=refused.error))


def _ignore(result: object) -> None:
    """Drop the result of an operation that nobody has asked for."""


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


def _same_results(
    topics: Iterable[adding.AddPartitionsToTxnTopic], error: Error
) -> list[adding.AddPartitionsToTxnTopicResult]:
    """The answer with the same error for all that the request names, as it names it."""
    return [
        adding.AddPartitionsToTxnTopicResult(
            topic.name, [adding.AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions]
        )
        for topic in topics
    ]


def _results(
    partitions: Iterable[TopicPartition], errors: Mapping[TopicPartition, Error], otherwise: Error = Error.NONE
) -> list[adding.AddPartitionsToTxnTopicResult]:
    """The answer for each partition."""
    topics: dict[str, list[adding.AddPartitionsToTxnPartitionResult]] = {}
    for topic, number in sorted(partitions):
        error = errors.get((topic, number), otherwise)
        topics.setdefault(topic, []).append(adding.AddPartitionsToTxnPartitionResult(number, error))
    return [adding.AddPartitionsToTxnTopicResult(name, parts) for name, parts in topics.items()]
