"""Bugs in rules that `docs/protocol/Transaction.tla` states, for `bench/traces.py --transactions`: the planted ones of
the simulator, and ten more. All were chosen before any of them was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from kraft.coordinators.transactions import coordinator, operations, shard, transaction
from kraft.coordinators.transactions.marker_sender import Ending, MarkerSender
from kraft.coordinators.transactions.transaction import Decision, Expected, Status, TopicPartition, Transaction
from kraft.coordinators.transactions.transaction_guards import TransactionGuards
from kraft.partitions.log.producers import ProducerRefusal, ProducerStates
from kraft.partitions.replicas import leaders
from metadata_log.records.batch import RecordBatch
from planted_bugs import MUTANTS
from planted_bugs.registry import Patches
from transport.protocol.errors import Error

PLANTED: Final = (
    "new-producers-keep-the-epoch",
    "new-producers-overtake-an-ending",
    "new-producers-forget-the-open-transaction",
    "ends-of-any-epoch-count",
    "markers-before-the-outcome-is-committed",
    "markers-commit-every-transaction",
    "any-end-is-acknowledged",
    "interrupted-transactions-are-committed",
    "fenced-producers-may-add-partitions",
    "older-producers-write-outside-of-transactions",
)
"""All of `planted_bugs/coordinators.py` about transactions."""


def guards_outlive_a_marker(code: Patches) -> None:
    """A permission to begin a transaction in a partition stays when a marker ends the transaction."""
    code.replace(TransactionGuards, "on_marker", lambda guards, *given, **named: None)


def fenced_transactions_keep_the_epoch(code: Patches) -> None:
    """A transaction that the coordinator aborts keeps the epoch of its producer."""
    sound = transaction.fence

    def fence(known: Transaction, *given: Any, **named: Any) -> Transaction:
        return replace(sound(known, *given, **named), epoch=known.epoch)

    code.replace(transaction, "fence", fence)
    code.replace(shard, "fence", fence)


def complete_after_the_first_marker(code: Patches) -> None:
    """A transaction is over when the first of its partitions has its marker."""
    sound = MarkerSender._note

    def note(sender: MarkerSender, ending: Ending, one: TopicPartition) -> None:
        ending.left.intersection_update({one})
        sound(sender, ending, one)

    code.replace(MarkerSender, "_note", note)


def ends_keep_the_epoch(code: Patches) -> None:
    """The end of a transaction of version 2 does not raise the epoch."""
    sound = transaction._end_and_bump

    def end_and_bump(known: Transaction | None, *given: Any, **named: Any) -> Decision:
        decision = sound(known, *given, **named)
        if known is None or decision.written is None:
            return decision
        return replace(decision, written=replace(decision.written, epoch=known.epoch), epoch=known.epoch)

    code.replace(transaction, "_end_and_bump", end_and_bump)


def any_marker_is_written(code: Patches) -> None:
    """A leader writes a marker whatever its epoch is."""
    code.replace(leaders, "marker_refusal", lambda states, marker: None)


def records_of_any_epoch_are_taken(code: Patches) -> None:
    """A leader appends a record of an epoch that is fenced."""
    sound = ProducerStates.check

    def check(states: ProducerStates, batch: RecordBatch) -> ProducerRefusal | None:
        refused = sound(states, batch)
        return None if refused is not None and refused.error is Error.INVALID_PRODUCER_EPOCH else refused

    code.replace(ProducerStates, "check", check)


def records_are_taken_twice(code: Patches) -> None:
    """A leader does not look at sequence numbers."""
    sound = ProducerStates.check

    def check(states: ProducerStates, batch: RecordBatch) -> ProducerRefusal | None:
        refused = sound(states, batch)
        return None if refused is not None and refused.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER else refused

    code.replace(ProducerStates, "duplicate_of", lambda states, batch: None)
    code.replace(ProducerStates, "check", check)


def aborts_complete_as_commits(code: Patches) -> None:
    """A transaction that is to abort is noted as committed in the end."""
    sound = transaction.complete

    def complete(known: Transaction, now_ms: int) -> Transaction:
        return replace(sound(known, now_ms), status=Status.COMPLETE_COMMIT)

    code.replace(shard, "complete", complete)


def partitions_join_an_ending(code: Patches) -> None:
    """A partition is added to a transaction whose outcome is decided, which goes on."""
    sound = transaction.add

    def add(known: Transaction | None, *given: Any, **named: Any) -> Decision:
        if known is not None and known.status.is_ending:
            known = replace(known, status=Status.ONGOING)
        return sound(known, *given, **named)

    code.replace(operations, "add", add)


def verified_without_a_look(code: Patches) -> None:
    """A coordinator confirms to leaders whatever they ask of a version 1 transaction."""

    def verify(
        known: Transaction | None, producer: Expected, partitions: frozenset[TopicPartition]
    ) -> Error | dict[TopicPartition, Error]:
        return dict.fromkeys(partitions, Error.NONE)

    code.replace(coordinator, "verify", verify)


OF_TRANSACTIONS: Final[dict[str, Callable[[Patches], None]]] = {
    **{name: MUTANTS[name].plant for name in PLANTED},
    "guards-outlive-a-marker": guards_outlive_a_marker,
    "fenced-transactions-keep-the-epoch": fenced_transactions_keep_the_epoch,
    "complete-after-the-first-marker": complete_after_the_first_marker,
    "ends-keep-the-epoch": ends_keep_the_epoch,
    "any-marker-is-written": any_marker_is_written,
    "records-of-any-epoch-are-taken": records_of_any_epoch_are_taken,
    "records-are-taken-twice": records_are_taken_twice,
    "aborts-complete-as-commits": aborts_complete_as_commits,
    "partitions-join-an-ending": partitions_join_an_ending,
    "verified-without-a-look": verified_without_a_look,
}
