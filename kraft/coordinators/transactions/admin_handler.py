"""The requests of administrators about transactions: DescribeTransactions, ListTransactions (KIP-664; Kafka:
`TransactionCoordinator`, `TransactionStateManager.listTransactionStates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.coordinators.runtime.partition import CoordinatorPartition
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.settings import Status as Load
from kraft.coordinators.transactions.shard import Transactions
from kraft.coordinators.transactions.transaction import STATUS_OF, Transaction
from kraft.handling.patterns import InvalidPattern, Matching
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling, long_step
from kraft.limits import (
    NAME_CHARACTERS_PER_STEP,
    PARTITIONS_PER_STEP,
    REQUEST_STEPS_PER_TURN,
    TRANSACTION_PARTITIONS,
    TRANSACTIONS_PER_STEP,
)
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.errors import Error
from transport.protocol.messages import describe_transactions as describing
from transport.protocol.messages import list_transactions as listing

_States = list[listing.TransactionState]


class TransactionAdminHandler:
    """Answers administrators.

    Args:
        runtime: The partitions of `__transaction_state` that this broker coordinates.
        rights: What clients may do.
    """

    def __init__(self, runtime: CoordinatorRuntime[Transactions], rights: Rights) -> None:
        self._runtime = runtime
        self._rights = rights

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
            known = self._runtime.active(self._runtime.number_of(name)) if name else Error.INVALID_REQUEST
            transaction = known if isinstance(known, Error) else known.committed.by_id.get(name)
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
