"""The transactional ids of one partition of `__transaction_state` (Kafka: `TransactionStateManager`).

The log has the last change of every id. What it does not have: which change is not committed yet, the timers, and from
which epoch a producer had the present one raised.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping
from functools import partial
from itertools import islice
from sys import intern
from typing import Final

from msgspec import Struct, structs

from kraft.config.transaction_settings import TransactionConfig
from kraft.coordinators.runtime.shard import NOTHING, Context, CoordinatorResult, Record
from kraft.coordinators.transactions.marker_sender import MarkerSender
from kraft.coordinators.transactions.transaction import (
    Decision,
    Status,
    TakeId,
    Transaction,
    complete,
    fence,
    is_expired,
    is_timed_out,
    needs_id,
)
from kraft.limits import (
    GLANCES_PER_UNIT,
    TRANSACTION_PARTITIONS,
    TRANSACTIONS_EXPIRED_AT_ONCE,
    TRANSACTIONS_PER_STEP,
)
from metadata_log.errors import ReplayError
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import Map, with_entry, without_key
from metadata_log.records.coordinator import TRANSACTION_STATE, TRANSACTION_VERSION_0, RecordKind
from metadata_log.records.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from metadata_log.types import NO_EPOCH, NO_PRODUCER, Uuid
from transport.protocol.errors import Error

FEATURE: Final = "transaction.version"
NEXT_IDS_SINCE: Final = 1
"""The first level whose records have room for the next producer id."""
NO_TRANSACTIONS: Final[Map[str, Transaction]] = Map()
NO_ENDINGS: Final[Map[str, None]] = Map()
EXPIRY: Final = "expiry"
"""The timer that ends when the ids that nobody uses are looked for."""
ABORT_RETRY_MS: Final = 500
_FIXED_BYTES: Final = 1500
_PARTITION_BYTES: Final = 300
"""How much memory an id and a partition of its transaction take, also while the markers of its end are on their way."""
_CHARACTER_BYTES: Final = 12
"""A character may take four bytes, and an id is kept in three places as a text of its own."""


class Timeout(Struct, frozen=True, gc=False):
    """The timer of an open transaction."""

    name: str


class Resumption(Struct, frozen=True, gc=False):
    """The timer of a transaction that a former coordinator has decided, until that is committed."""

    name: str


class Completion(Struct, frozen=True, gc=False):
    """The timer of a transaction with all its markers, of which the end could not be written yet."""

    name: str


class Transactions(Struct, frozen=True):
    """The replicated state: the transactional ids, those of them with markers to be sent, and what all that takes."""

    by_id: Map[str, Transaction] = NO_TRANSACTIONS
    ending: Map[str, None] = NO_ENDINGS
    bytes: int = 0


def _weight(name: str, one: Transaction | None) -> int:
    return 0 if one is None else _FIXED_BYTES + _CHARACTER_BYTES * len(name) + _PARTITION_BYTES * len(one.partitions)


def version_of(image: MetadataImage) -> int:
    """The level of the feature `transaction.version`."""
    return image.features.level(FEATURE)


def record_of(name: str, one: Transaction, version: int) -> Record:
    """The record of a change, as Kafka writes it at a level of `transaction.version` (`TransactionLog.valueToBytes`).

    At level 0 a record has no field of KIP-890: whoever loads it knows one producer id.
    """
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(one.partitions):
        topics.setdefault(topic, []).append(number)
    partitions = tuple(PartitionsSchema(topic, tuple(numbers)) for topic, numbers in topics.items())
    is_plain = version < NEXT_IDS_SINCE
    value = TransactionLogValue(
        producer_id=one.producer_id,
        previous_producer_id=NO_PRODUCER if is_plain else one.previous_producer_id,
        next_producer_id=NO_PRODUCER if is_plain else one.next_producer_id,
        producer_epoch=one.epoch,
        transaction_timeout_ms=one.timeout_ms,
        transaction_status=one.status,
        transaction_partitions=None if one.status is Status.EMPTY else partitions,
        transaction_last_update_timestamp_ms=one.updated_ms,
        transaction_start_timestamp_ms=one.start_ms,
        client_transaction_version=0 if is_plain else one.client_version,
    )
    return Record(TransactionLogKey(name), value, TRANSACTION_VERSION_0 if is_plain else None)


def transaction_of(value: TransactionLogValue) -> Transaction:
    """The transaction in a record. Raises `ReplayError` for an unknown status."""
    if not Status.EMPTY <= value.transaction_status <= Status.COMPLETE_ABORT:
        raise ReplayError(f"a transactional id has the unknown status {value.transaction_status}")
    return Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        status=Status(value.transaction_status),
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        partitions=frozenset(
            (intern(each.topic), number) for each in value.transaction_partitions or () for number in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )


class TransactionShard:
    """One partition of the transaction coordinator.

    Args:
        partition: Its number.
        epoch: The leader epoch, which markers carry: an older coordinator's are refused.
        sender: What tells partitions of the ends of transactions.
        settings: The settings.
        take_id: Draws a new producer id; None while there is none.
    """

    kinds: Mapping[int, RecordKind] = TRANSACTION_STATE

    def __init__(
        self, partition: int, epoch: int, sender: MarkerSender, settings: TransactionConfig, take_id: TakeId
    ) -> None:
        self.partition = partition
        self._epoch = epoch
        self._sender = sender
        self._settings = settings
        self._take_id = take_id
        self._pending: dict[str, Transaction | None] = {}
        """The changes that are not committed yet; None for an id that is being forgotten."""
        self._last_epochs: dict[str, tuple[int, int, int]] = {}
        """`Transaction.last_epoch` by id, with the producer id and the epoch that it belongs to."""
        self._expiring: Iterator[tuple[str, Transaction]] | None = None
        """The ids that are still to be looked at for expiry."""

    # ------------------------------------------------------------------------------------------------ replicated state

    def empty(self) -> Transactions:
        """The state without transactional ids."""
        return Transactions()

    def replay(self, state: Transactions, record: Record, offset: int, producer_id: int) -> Transactions:
        """The state after a record."""
        assert isinstance(record.key, TransactionLogKey), record
        name = record.key.transactional_id
        before = state.by_id.get(name)
        if record.value is None:
            if before is None:
                return state
            by_id = without_key(state.by_id, name)
            after = None
        else:
            assert isinstance(record.value, TransactionLogValue), record
            after = transaction_of(record.value)
            by_id = with_entry(state.by_id, name, after)
        ending = state.ending
        if after is not None and after.status.is_ending:
            ending = with_entry(ending, name, None)
        elif name in ending:
            ending = without_key(ending, name)
        return Transactions(by_id, ending, state.bytes + _weight(name, after) - _weight(name, before))

    def lacking(self, state: Transactions, record: Record) -> str:
        """Nothing: every record has all of its transactional id."""
        return ""

    def end_transaction(
        self, state: Transactions, producer_id: int, *, is_commit: bool
    ) -> Generator[None, None, Transactions]:
        """Return the state as it is: no record of this topic belongs to a transaction."""
        yield None
        return state

    # -------------------------------------------------------------------------------------------------- what is decided

    def known(self, state: Transactions, name: str) -> Transaction | None:
        """The transaction of an id, with the last epoch that this coordinator remembers; None for an unknown id."""
        transaction = state.by_id.get(name)
        if transaction is None:
            return None
        producer_id, epoch, last_epoch = self._last_epochs.get(
            name, (transaction.producer_id, transaction.epoch, NO_EPOCH)
        )
        is_of_this = (producer_id, epoch) == (transaction.producer_id, transaction.epoch)
        return structs.replace(transaction, last_epoch=last_epoch) if is_of_this else transaction

    def is_pending(self, state: Transactions, name: str) -> bool:
        """Whether a change of an id is under way: one that is not committed, or markers."""
        return name in self._pending or name in state.ending

    def decided(self, name: str, decision: Decision, context: Context) -> CoordinatorResult:
        """The consequence of a decision on an id, which is the result."""
        written = decision.written
        if written is None:
            return CoordinatorResult(result=decision)
        if len(written.partitions) > TRANSACTION_PARTITIONS and written.status is Status.ONGOING:
            return CoordinatorResult(result=Decision(Error.POLICY_VIOLATION))
        return self._writing(name, written, context, decision)

    def _writing(self, name: str, written: Transaction, context: Context, result: object) -> CoordinatorResult:
        # The record has all of them.
        context.budget.left -= len(written.partitions) // GLANCES_PER_UNIT
        self._pending[name] = written
        self._last_epochs[name] = written.producer_id, written.epoch, written.last_epoch
        if written.last_epoch == NO_EPOCH:
            del self._last_epochs[name]

        ended = partial(self._written, name, written)
        return CoordinatorResult([record_of(name, written, version_of(context.image))], result, ended)

    def _written(self, name: str, written: Transaction, error: Error, context: Context) -> CoordinatorResult | None:
        """A change is committed, or not."""
        if error is Error.REQUEST_TIMED_OUT:
            # The record is in the log, and will be committed or lost: until then nobody may build on either.
            return CoordinatorResult(on_end=partial(self._written, name, written))
        del self._pending[name]
        if error is Error.NONE:
            self._follow(name, written, context)
        elif written.status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT):
            context.timers.set(Completion(name), context.now_ms + ABORT_RETRY_MS)
        return None

    def _follow(self, name: str, written: Transaction, context: Context) -> None:
        """Do what follows a committed change: set its time-out, or send the markers of its end."""
        if written.status is Status.ONGOING:
            self._watch(name, written.start_ms + written.timeout_ms, context)
        else:
            context.timers.cancel(Timeout(name))
        if written.status.is_ending:
            self._sender.begin(self.partition, name, self._epoch, written)

    def _watch(self, name: str, over_ms: int, context: Context) -> None:
        """Look at an open transaction at the first of the regular moments after its time is over."""
        interval_ms = self._settings.abort_interval_ms
        context.timers.set(Timeout(name), (over_ms // interval_ms + 1) * interval_ms)

    # ------------------------------------------------------------------------------------------------ what time brings

    def on_loaded(self, context: Context) -> Generator[None, None, None]:
        """Go on with what the coordinator before has left: markers are sent again, open transactions watched.

        The end of the log may have an outcome that is not committed. Another leader may lack it, and decide otherwise:
        no partition may have learned it then.
        """
        context.timers.set(EXPIRY, context.now_ms + self._settings.expiry_interval_ms)
        for number, (name, one) in enumerate(context.state.by_id.items(), 1):
            if one.status.is_ending:
                context.timers.set(Resumption(name), context.now_ms)
            elif one.status is Status.ONGOING:
                self._watch(name, one.start_ms + one.timeout_ms, context)
            if number % TRANSACTIONS_PER_STEP == 0:
                yield

    def on_timer(self, key: Hashable, context: Context) -> CoordinatorResult:
        """Abort what takes too long, note what has ended, and forget what nobody uses."""
        match key:
            case Timeout(name):
                return self._time_out(name, context)
            case Completion(name):
                return self.complete(name, context)
            case Resumption(name):
                return CoordinatorResult(on_end=partial(self._resume, name))
            case _:
                return self._expire(context)

    def _resume(self, name: str, error: Error, context: Context) -> CoordinatorResult | None:
        """Send the markers of a loaded transaction once the log is committed up to where it was loaded."""
        if error is Error.REQUEST_TIMED_OUT:
            return CoordinatorResult(on_end=partial(self._resume, name))
        known = context.state.by_id.get(name)
        if error is Error.NONE and known is not None and known.status.is_ending and name not in self._pending:
            self._sender.begin(self.partition, name, self._epoch, known)
        return None

    def _time_out(self, name: str, context: Context) -> CoordinatorResult:
        known = self.known(context.state, name)
        if known is None or known.status is not Status.ONGOING:
            return NOTHING
        is_due = not self.is_pending(context.state, name) and is_timed_out(known, context.now_ms)
        version = version_of(context.image)
        next_id = self._take_id() if is_due and needs_id(known, version) else NO_PRODUCER
        if not is_due or next_id is None:
            self._watch(name, max(known.start_ms + known.timeout_ms, context.now_ms), context)
            return NOTHING
        return self._writing(name, fence(known, context.now_ms, version=version, next_id=next_id), context, None)

    def complete(self, name: str, context: Context) -> CoordinatorResult:
        """Note that all markers of a transaction are written."""
        known = self.known(context.state, name)
        if known is None or not known.status.is_ending or name in self._pending:
            return NOTHING
        return self._writing(name, complete(known, context.now_ms), context, None)

    def _expire(self, context: Context) -> CoordinatorResult:
        """Forget transactional ids that were not used for long: a portion now, and the next one when the timer says."""
        settings, now_ms = self._settings, context.now_ms
        if self._expiring is None:
            # The state is a value: what is looked at stays the same while others change theirs.
            self._expiring = iter(context.state.by_id.items())
        looked_at = list(islice(self._expiring, TRANSACTIONS_EXPIRED_AT_ONCE))
        if len(looked_at) < TRANSACTIONS_EXPIRED_AT_ONCE:
            self._expiring = None
        context.timers.set(EXPIRY, now_ms + (settings.expiry_interval_ms if self._expiring is None else 1))
        names = [
            name
            for name, one in looked_at
            if is_expired(one, now_ms, settings.expiry_ms)
            and context.state.by_id.get(name) is one
            and name not in self._pending
        ]
        self._pending.update(dict.fromkeys(names))

        def ended(error: Error, later: Context) -> CoordinatorResult | None:
            if error is Error.REQUEST_TIMED_OUT:
                return CoordinatorResult(on_end=ended)
            for name in names:
                del self._pending[name]
                if error is Error.NONE:
                    self._last_epochs.pop(name, None)
            return None

        return CoordinatorResult([Record(TransactionLogKey(name)) for name in names], None, ended)

    def on_deleted_topics(self, topics: Mapping[str, Uuid], context: Context) -> None:
        """The sender of markers sees for itself which topics there are."""

    def on_unloaded(self, context: Context) -> Generator[None, None, None]:
        """Another broker coordinates the partition: it sends the markers."""
        self._sender.forget(self.partition)
        yield None
