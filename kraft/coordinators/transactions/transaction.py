"""The state of one transactional id at its coordinator, and the changes that are allowed.

Kafka: `TransactionMetadata`, `TransactionCoordinator`.

Each function here is a decision: it takes what is known and what is asked, and says what is to be written, or why
nothing is. The answer goes out once the record is committed. Until then everybody else who asks for the same id is told
to come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct, structs

from metadata_log.types import NO_EPOCH, NO_PRODUCER
from transport.protocol.errors import Error

NEVER: Final = -1
"""The start of a transaction that has not begun."""
LAST_EPOCH: Final = 32766
"""The last epoch of a producer id that a producer gets."""
FENCING_EPOCH: Final = 32767
"""The epoch above, and the highest of a record: it only fences the producer that has the last one."""
BUMPING: Final = 2
"""The transaction version in which each end of a transaction raises the producer's epoch (KIP-890)."""
TopicPartition = tuple[str, int]


class Status(IntEnum):
    """The state of a transactional id, by the number in its record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Kafka keeps this one and the next in memory only; a record never has them."""
    PREPARE_EPOCH_FENCE = 7

    @property
    def is_ending(self) -> bool:
        """Whether the outcome is decided, and the partitions are still to learn it."""
        return self in _ENDING

    @property
    def is_over(self) -> bool:
        """Whether there is no transaction."""
        return self in (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)

    @property
    def title(self) -> str:
        """The name that administrators see and filter by, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_ENDING: Final = (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
STATUS_OF: Final[Mapping[str, Status]] = MappingProxyType({each.title: each for each in Status})
"""The states by the names that administrators use."""


class Transaction(Struct, frozen=True, kw_only=True):
    """A transactional id: its producer, and its last or present transaction. Times are ms since 1970."""

    producer_id: int
    epoch: int
    status: Status
    timeout_ms: int
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER
    """The producer id before the last change, mostly the same."""
    next_producer_id: int = NO_PRODUCER
    """The producer id after the end of this transaction, because the epochs of the present one are used up."""
    last_epoch: int = NO_EPOCH
    """The epoch from which the present one was raised at the producer's own wish: whoever names it asks again. Not in
    the log, so that a new coordinator does not know it.
    """
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NEVER
    client_version: int = 0
    """The transaction version of the client: `BUMPING`, or 0 for those below."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch."""
        return self.epoch >= LAST_EPOCH

    @property
    def bumps(self) -> bool:
        """Whether the end of the transaction raises the epoch."""
        return self.client_version >= BUMPING


class Decision(Struct, frozen=True):
    """The decision about a request: its answer, which goes out once the record `written`, if any, is committed.

    `producer_id` and `epoch` are those to use from now on, for the APIs that tell them.
    """

    error: Error = Error.NONE
    written: Transaction | None = None
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


_LATER: Final = Decision(Error.CONCURRENT_TRANSACTIONS)
_FENCED: Final = Decision(Error.PRODUCER_FENCED)
_FOREIGN: Final = Decision(Error.INVALID_PRODUCER_ID_MAPPING)
_INVALID: Final = Decision(Error.INVALID_TXN_STATE)
_NO_ID_YET: Final = Decision(Error.COORDINATOR_LOAD_IN_PROGRESS)
TakeId = Callable[[], int | None]
"""A new producer id; None while this broker has none."""


class Expected(Struct, frozen=True):
    """The producer id and the epoch that a client has."""

    producer_id: int
    epoch: int


# ------------------------------------------------------------------------------------------------------ InitProducerId


def initialize(
    known: Transaction | None,
    expected: Expected | None,
    timeout_ms: int,
    take_id: TakeId,
    now_ms: int,
    *,
    is_pending: bool,
    version: int,
) -> Decision:
    """A producer begins to use a transactional id: it gets an epoch that fences every other producer of the id.

    Args:
        known: The id as the coordinator knows it; None for a new one.
        expected: What the producer has had until now, if it asks for a higher epoch; None for a new producer.
        timeout_ms: How long its transactions may take, in ms.
        take_id: Draws a new producer id.
        now_ms: The time in ms since 1970.
        is_pending: Whether a change of the id is under way.
        version: The level of the feature `transaction.version`, by which the coordinator itself aborts.
    """
    if known is None:
        fresh = take_id()
        if fresh is None:
            return _NO_ID_YET
        known = Transaction(
            producer_id=fresh, epoch=NO_EPOCH, status=Status.EMPTY, timeout_ms=timeout_ms, updated_ms=now_ms
        )
    if is_pending:
        return _LATER
    if expected is not None and not _is_own(known, expected):
        return _FENCED
    if known.status.is_ending:
        return _LATER
    if known.status is Status.ONGOING:
        next_id = take_id() if needs_id(known, version) else NO_PRODUCER
        if next_id is None:
            return _NO_ID_YET
        # The producer asks again, and gets an epoch above the one that has fenced the former producer.
        fenced = fence(known, now_ms, version=version, next_id=next_id)
        return Decision(Error.CONCURRENT_TRANSACTIONS, fenced)
    return _next_epoch(known, expected, timeout_ms, take_id, now_ms)


def _is_own(known: Transaction, expected: Expected) -> bool:
    """Whether a client may have the id: its producer id is the present one, or the one before that was used up."""
    if known.epoch == NO_EPOCH or expected.producer_id == known.producer_id:
        return True
    return expected.producer_id == known.previous_producer_id and expected.epoch >= LAST_EPOCH


def _next_epoch(
    known: Transaction, expected: Expected | None, timeout_ms: int, take_id: TakeId, now_ms: int
) -> Decision:
    producer_id, epoch, last_epoch = known.producer_id, known.epoch + 1, NO_EPOCH
    if known.epoch == NO_EPOCH:
        pass
    elif expected is None or expected.epoch == known.epoch or (known.is_exhausted and _is_last(known, expected)):
        if known.is_exhausted:
            fresh = take_id()
            if fresh is None:
                return _NO_ID_YET
            producer_id, epoch = fresh, 0
        if expected is not None:
            last_epoch = known.epoch
    elif _is_last(known, expected):
        epoch, last_epoch = known.epoch, known.last_epoch
    else:
        return _FENCED
    written = structs.replace(
        known,
        producer_id=producer_id,
        previous_producer_id=known.producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        status=Status.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NEVER,
        updated_ms=now_ms,
    )
    return Decision(Error.NONE, written, producer_id, epoch)


def _is_last(known: Transaction, expected: Expected) -> bool:
    return known.last_epoch != NO_EPOCH and expected.epoch == known.last_epoch


# ----------------------------------------------------------------------------------------------------------- partitions


def _mismatch(known: Transaction | None, producer: Expected) -> Decision | None:
    """Why a client does not speak for a transactional id; None if it does."""
    if known is None or known.producer_id != producer.producer_id:
        return _FOREIGN
    return _FENCED if known.epoch != producer.epoch else None


def add(
    known: Transaction | None,
    producer: Expected,
    partitions: frozenset[TopicPartition],
    now_ms: int,
    *,
    is_pending: bool,
    client_version: int,
) -> Decision:
    """Add partitions to a transaction; the first of them begin it (`prepareAddPartitions`)."""
    if known is None:
        return _FOREIGN
    if is_pending:
        return _LATER
    wrong = _mismatch(known, producer)
    if wrong is not None:
        return wrong
    if known.status.is_ending:
        return _LATER
    is_open = known.status is Status.ONGOING
    if is_open and partitions <= known.partitions:
        return Decision()
    written = structs.replace(
        known,
        previous_producer_id=known.producer_id,
        status=Status.ONGOING,
        partitions=known.partitions | partitions,
        start_ms=known.start_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )
    return Decision(written=written)


def verify(
    known: Transaction | None, producer: Expected, partitions: frozenset[TopicPartition]
) -> Error | dict[TopicPartition, Error]:
    """Whether partitions are part of an open transaction, as their leaders ask before they append.

    A change that is under way is of no account: the leader looks again when it appends.
    """
    wrong = _mismatch(known, producer)
    if wrong is not None:
        return wrong.error
    assert known is not None
    if known.status.is_ending:
        return Error.CONCURRENT_TRANSACTIONS
    return {one: Error.NONE if one in known.partitions else Error.TRANSACTION_ABORTABLE for one in partitions}


# -------------------------------------------------------------------------------------------------------------- the end


def end(
    known: Transaction | None,
    producer: Expected,
    take_id: TakeId | None,
    now_ms: int,
    *,
    is_commit: bool,
    is_pending: bool,
    client_version: int,
) -> Decision:
    """Commit or abort the transaction of a producer (`endTransaction`).

    `take_id` draws a new producer id. It is None where no record has room for one: a producer without a further epoch
    is fenced there, because it would begin anew with its sequence numbers in the same epoch.
    """
    if client_version < BUMPING:
        return _end_plainly(known, producer, now_ms, is_commit=is_commit, is_pending=is_pending)
    return _end_and_bump(known, producer, take_id, now_ms, is_commit=is_commit, is_pending=is_pending)


def _end_plainly(
    known: Transaction | None, producer: Expected, now_ms: int, *, is_commit: bool, is_pending: bool
) -> Decision:
    """End the transaction of a client that keeps its epoch."""
    wrong = _mismatch(known, producer)
    if wrong is not None:
        return wrong
    assert known is not None
    if is_pending:
        return _LATER
    if known.status is Status.ONGOING:
        return Decision(written=_ending(known, now_ms, is_commit=is_commit, client_version=0))
    return _as_before(known, is_commit=is_commit)


def _as_before(known: Transaction, *, is_commit: bool) -> Decision:
    """The answer to a client that asks again for an end that is decided."""
    if known.status is (Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT):
        return _LATER
    if known.status is (Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT):
        return Decision(Error.NONE, None, known.producer_id, known.epoch)
    return _INVALID


def _end_and_bump(
    known: Transaction | None,
    producer: Expected,
    take_id: TakeId | None,
    now_ms: int,
    *,
    is_commit: bool,
    is_pending: bool,
) -> Decision:
    """End the transaction of a client that gets a new epoch with each end: nothing late counts for the next one."""
    if known is None:
        return _FOREIGN
    is_rotated = (
        known.previous_producer_id == producer.producer_id and producer.epoch >= LAST_EPOCH and known.epoch == 0
    )
    if known.producer_id != producer.producer_id and not is_rotated:
        return _FOREIGN
    if is_pending:
        return _LATER
    is_again = is_rotated or known.epoch == _raised(producer.epoch)
    is_present = known.epoch == producer.epoch
    if known.status.is_ending:
        return _as_before(known, is_commit=is_commit) if is_again else _FENCED
    is_stuck = known.status is Status.COMPLETE_ABORT and known.epoch > LAST_EPOCH and not is_commit
    if known.status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT) and is_again and not is_stuck:
        return _as_before(known, is_commit=is_commit)
    # A log may hold an abort of a coordinator that took no new id: no producer gets its epoch.
    if not is_present and not is_stuck:
        return _FENCED
    if known.status is not Status.ONGOING and is_commit:
        return _INVALID
    # The producer may abort what has no partition: its records may be on their way, and the new epoch keeps them out.
    next_id: int | None = NO_PRODUCER
    if known.is_exhausted:
        if take_id is None:
            return _FENCED
        next_id = take_id()
        if next_id is None:
            return _NO_ID_YET
    written = structs.replace(
        _ending(known, now_ms, is_commit=is_commit, client_version=BUMPING),
        epoch=_raised(known.epoch),
        last_epoch=known.epoch,
        next_producer_id=next_id,
    )
    after = complete(written, now_ms)
    return Decision(Error.NONE, written, after.producer_id, after.epoch)


def _ending(known: Transaction, now_ms: int, *, is_commit: bool, client_version: int) -> Transaction:
    return structs.replace(
        known,
        previous_producer_id=known.producer_id,
        status=Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT,
        start_ms=known.start_ms if known.status is Status.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def _raised(epoch: int) -> int:
    """The next epoch; the highest one stays (`TransactionMetadata.prepareFenceProducerEpoch`)."""
    return min(epoch + 1, FENCING_EPOCH)


def needs_id(known: Transaction, version: int) -> bool:
    """Whether `fence` needs a new producer id at this level of `transaction.version`."""
    return version >= BUMPING and known.is_exhausted


def fence(known: Transaction, now_ms: int, *, version: int, next_id: int = NO_PRODUCER) -> Transaction:
    """The coordinator aborts an open transaction, and raises the epoch so that its producer writes nothing more.

    Args:
        known: The transaction.
        now_ms: The time in ms since 1970.
        version: The level of the feature `transaction.version`. With `BUMPING` the producer may go on by the raised
            epoch once it asks for it; below that it is out.
        next_id: A new producer id, if `needs_id` says so: the id gets it with the end of the transaction.
    """
    assert known.status is Status.ONGOING, known
    bumps = version >= BUMPING
    return structs.replace(
        _ending(known, now_ms, is_commit=False, client_version=BUMPING if bumps else 0),
        epoch=_raised(known.epoch),
        last_epoch=known.epoch if bumps else NO_EPOCH,
        next_producer_id=next_id,
    )


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker: the transaction is over (`prepareComplete`)."""
    assert known.status.is_ending, known
    is_rotated = known.next_producer_id != NO_PRODUCER
    return structs.replace(
        known,
        producer_id=known.next_producer_id if is_rotated else known.producer_id,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER,
        epoch=0 if is_rotated else known.epoch,
        status=Status.COMPLETE_COMMIT if known.status is Status.PREPARE_COMMIT else Status.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


# ----------------------------------------------------------------------------------------------------------------- time


def is_timed_out(known: Transaction, now_ms: int) -> bool:
    """Whether an open transaction has taken longer than its producer has allowed."""
    return known.status is Status.ONGOING and known.start_ms + known.timeout_ms < now_ms


def is_expired(known: Transaction, now_ms: int, after_ms: int) -> bool:
    """Whether a transactional id has not been used for so long that it is forgotten."""
    return known.status.is_over and known.updated_ms + after_ms <= now_ms
