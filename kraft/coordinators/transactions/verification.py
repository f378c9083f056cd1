"""Asks transaction coordinators whether a partition belongs to an open transaction (KIP-890; Kafka:
`AddPartitionsToTxnManager`, `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`).

A coordinator has at most one request of this broker under way. Transactions that arrive meanwhile share the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kraft.agenda import Agenda, Slot
from kraft.handling.coordinators import TRANSACTION, coordinator_of
from kraft.handling.reply_keys import Verification, to_broker
from kraft.limits import VERIFICATIONS
from kraft.wire import Send, Target
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

VERIFICATION_RETRY_MS: Final = 20
"""Kafka's `add.partitions.to.txn.retry.backoff.ms`."""
RETRY_MAX_MS: Final = 100
"""Kafka's `add.partitions.to.txn.retry.backoff.max.ms`: the coordinator may still end the last transaction."""
Errors = Mapping[tuple[str, int], Error]
"""The result for each topic and partition."""


class Transaction(Struct, frozen=True):
    """A question to the coordinator: the transaction as its producer names it, and the partitions in question.

    `adds` tells whether the coordinator shall add the partitions (transaction version 2), or only look for them.
    """

    name: str
    producer_id: int
    epoch: int
    adds: bool
    partitions: tuple[tuple[str, int], ...]

    def all(self, error: Error) -> dict[tuple[str, int], Error]:
        """The same result for all partitions."""
        return dict.fromkeys(self.partitions, error)


class Verified(Struct, frozen=True, gc=False):
    """The key by which a request is woken that waits for a verification by the coordinator."""

    request_id: int


class Asking(Struct):
    """A Produce request that waits for a coordinator, until there are `errors`."""

    request_id: int
    transaction: Transaction
    give_up_ms: int
    errors: Errors | None = None


class Verifier:
    """The verifications of a broker that are under way.

    Args:
        agenda: What is due at the broker.
        tell: Takes the key of what ends the wait of a request.
        listener: The listener at which brokers reach each other.
        timeout_ms: How long one request to a coordinator may take, in ms.
        retry_ms: After how long a coordinator is asked again that still ends the last transaction, in ms.
        give_up_ms: For how long it is asked, in ms.
    """

    def __init__(
        self,
        agenda: Agenda,
        tell: Callable[[Hashable], None],
        listener: str,
        timeout_ms: int,
        retry_ms: int = VERIFICATION_RETRY_MS,
        give_up_ms: int = RETRY_MAX_MS,
    ) -> None:
        self._agenda = agenda
        self._tell = tell
        self._retry_ms = retry_ms
        self._give_up_ms = give_up_ms
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._last_number = 0
        self._queued: dict[int, dict[str, Asking]] = {}
        """By coordinator and transactional id."""
        self._sent: dict[Verification, tuple[int, dict[str, Asking]]] = {}
        """The coordinator, and what was asked."""
        self._again: list[tuple[int, Asking]] = []
        """The questions that are asked again, with the time in ms."""

    def __len__(self) -> int:
        under_way = sum(map(len, self._queued.values())) + sum(len(each) for _, each in self._sent.values())
        return under_way + len(self._again)

    def ask(self, request_id: int, transaction: Transaction, image: MetadataImage, now_ms: int) -> Asking:
        """Begin a verification, which has the result after the change `Verified`.

        A coordinator is asked even if the request does not wait any more: its connection may be gone, or too many wait.
        """
        asking = Asking(request_id, transaction, now_ms + self._give_up_ms)
        if len(self) < VERIFICATIONS:
            self._queue(asking, image)
        else:
            self._end(asking, Error.COORDINATOR_NOT_AVAILABLE)
        return asking

    def _queue(self, asking: Asking, image: MetadataImage) -> None:
        wanted = asking.transaction
        coordinator = coordinator_of(image, TRANSACTION, wanted.name, self._listener)
        if coordinator is None:
            self._end(asking, Error.COORDINATOR_NOT_AVAILABLE)
            return
        queued = self._queued.setdefault(coordinator[0].id, {})
        known = queued.get(wanted.name)
        if known is not None:
            if known.transaction.epoch > wanted.epoch:
                self._end(asking, Error.INVALID_PRODUCER_EPOCH)
                return
            # With an equal epoch the producer repeats its request.
            is_old = known.transaction.epoch < wanted.epoch
            self._end(known, Error.INVALID_PRODUCER_EPOCH if is_old else Error.NETWORK_EXCEPTION)
        queued[wanted.name] = asking
        if coordinator[0].id not in {one for one, _ in self._sent.values()}:
            self._agenda.now(Slot.VERIFICATIONS)

    def _end(self, asking: Asking, error: Error) -> None:
        self._note(asking, asking.transaction.all(error))

    def _note(self, asking: Asking, errors: Errors) -> None:
        asking.errors = errors
        self._tell(Verified(asking.request_id))

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """The requests to send."""
        if not self._again and not self._queued:
            return
        ripe = [asking for at_ms, asking in self._again if at_ms <= now_ms]
        self._again = [each for each in self._again if each[0] > now_ms]
        for asking in ripe:
            self._queue(asking, image)
        self._agenda.at(Slot.VERIFICATIONS, min([at_ms for at_ms, _ in self._again], default=NEVER_MS))
        busy = {coordinator for coordinator, _ in self._sent.values()}
        for coordinator in [one for one in self._queued if one not in busy]:
            asked = self._queued.pop(coordinator)
            broker = image.brokers.by_id.get(coordinator)
            at = None if broker is None else next((e for e in broker.endpoints if e.name == self._listener), None)
            if at is None:
                for each in asked.values():
                    self._end(each, Error.COORDINATOR_NOT_AVAILABLE)
                continue
            self._last_number += 1
            key, target = Verification(self._last_number), Target(coordinator, at.host, at.port)
            self._sent[key] = coordinator, asked
            yield Send(_request(asked), to_broker(key), self._timeout_ms, target)

    def on_reply(self, key: Verification, message: Message | None, now_ms: int) -> None:
        """Take the answer of a coordinator; None if the request failed."""
        coordinator, asked = self._sent.pop(key)
        if coordinator in self._queued:
            self._agenda.now(Slot.VERIFICATIONS)
        match message:
            case AddPartitionsToTxnResponse(error_code=Error.NONE):
                results = {each.transactional_id: each.topic_results for each in message.results_by_transaction}
                for name, asking in asked.items():
                    errors = asking.transaction.all(Error.NETWORK_EXCEPTION) | {
                        (topic.name, part.partition_index): Error.of(part.partition_error_code)
                        for topic in results.get(name, ())
                        for part in topic.results_by_partition
                    }
                    self._judge(asking, errors, now_ms)
            case AddPartitionsToTxnResponse(error_code=code):
                # No producer expects the error of a broker without the right to ask.
                is_refused = code == Error.CLUSTER_AUTHORIZATION_FAILED
                for asking in asked.values():
                    self._end(asking, Error.INVALID_TXN_STATE if is_refused else Error.of(code))
            case _:
                for asking in asked.values():
                    self._end(asking, Error.NETWORK_EXCEPTION)

    def _judge(self, asking: Asking, errors: Errors, now_ms: int) -> None:
        is_early = asking.transaction.adds and Error.CONCURRENT_TRANSACTIONS in errors.values()
        if is_early and now_ms < asking.give_up_ms:
            self._again.append((now_ms + self._retry_ms, asking))
            self._agenda.by(Slot.VERIFICATIONS, now_ms + self._retry_ms)
        else:
            self._note(asking, errors)


def produce_error(error: Error, *, version: int, adds: bool) -> Error:
    """The error of a Produce request for that of a coordinator, as producers of its version understand it."""
    match error:
        case (
            Error.NETWORK_EXCEPTION
            | Error.COORDINATOR_LOAD_IN_PROGRESS
            | Error.COORDINATOR_NOT_AVAILABLE
            | Error.NOT_COORDINATOR
        ):
            return Error.NOT_ENOUGH_REPLICAS
        case Error.CONCURRENT_TRANSACTIONS if not adds:
            return Error.NOT_ENOUGH_REPLICAS
        case Error.PRODUCER_FENCED:
            return Error.INVALID_PRODUCER_EPOCH
        case Error.TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE:
            return Error.INVALID_TXN_STATE
        case _:
            return error


ABORTABLE_SINCE: Final = 11
"""The first version of Produce with clients that know TRANSACTION_ABORTABLE."""
ADDS_SINCE: Final = 12
"""The first version of Produce that adds its partitions to the transaction (transaction version 2)."""


def _request(asked: Mapping[str, Asking]) -> AddPartitionsToTxnRequest:
    transactions = []
    for asking in asked.values():
        one = asking.transaction
        topics: dict[str, list[int]] = {}
        for topic, number in one.partitions:
            topics.setdefault(topic, []).append(number)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=one.name,
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                verify_only=not one.adds,
                topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in topics.items()],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)
