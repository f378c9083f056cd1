"""The decisions on a transactional id, by the tables of Kafka's coordinator."""

from __future__ import annotations

from itertools import count

import pytest
from msgspec import structs

from kraft.coordinators.transactions.transaction import (
    LAST_EPOCH,
    Decision,
    Expected,
    Status,
    Transaction,
    add,
    complete,
    end,
    fence,
    initialize,
    is_expired,
    is_timed_out,
    verify,
)
from transport.protocol.errors import Error

NOW_MS = 1_000_000
PARTS = frozenset({("out", 0), ("out", 1)})


def take() -> int:
    return 77


def known(status: Status, epoch: int = 5, **changes: object) -> Transaction:
    partitions = PARTS if status in (Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT) else frozenset()
    made = Transaction(
        producer_id=1, epoch=epoch, status=status, timeout_ms=1000, updated_ms=0, previous_producer_id=1,
        partitions=partitions,
    )  # fmt: skip
    return structs.replace(made, **changes)


def init(one: Transaction | None, expected: Expected | None = None, *, pending: bool = False) -> Decision:
    return initialize(one, expected, 3000, take, NOW_MS, is_pending=pending, version=2)


def test_init_creates_with_epoch_zero() -> None:
    decision = init(None)
    assert (decision.error, decision.producer_id, decision.epoch) == (Error.NONE, 77, 0)
    written = decision.written
    assert written is not None
    # As in the logs of Kafka: the producer id before is the new one.
    assert (written.status, written.previous_producer_id, written.start_ms) == (Status.EMPTY, 77, -1)
    assert (written.timeout_ms, written.updated_ms, written.last_epoch) == (3000, NOW_MS, -1)
    assert init(None, Expected(9, 9)).epoch == 0
    without = initialize(None, None, 3000, lambda: None, NOW_MS, is_pending=False, version=2)
    assert without == Decision(Error.COORDINATOR_LOAD_IN_PROGRESS)


def test_init_meets_a_change_under_way() -> None:
    assert init(known(Status.EMPTY), pending=True).error is Error.CONCURRENT_TRANSACTIONS
    for status in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT):
        assert init(known(status)) == Decision(Error.CONCURRENT_TRANSACTIONS)


def test_init_fences_an_open_transaction() -> None:
    decision = init(known(Status.ONGOING))
    assert decision.error is Error.CONCURRENT_TRANSACTIONS
    assert decision.written is not None
    assert (decision.written.status, decision.written.epoch) == (Status.PREPARE_ABORT, 6)
    assert init(complete(decision.written, NOW_MS)).epoch == 7


def test_init_with_no_epoch_left() -> None:
    for epoch in (LAST_EPOCH, LAST_EPOCH + 1):
        decision = init(known(Status.COMPLETE_ABORT, epoch))
        assert (decision.error, decision.producer_id, decision.epoch) == (Error.NONE, 77, 0)
        assert decision.written is not None
        assert decision.written.previous_producer_id == 1
    own = init(known(Status.EMPTY, LAST_EPOCH), Expected(1, LAST_EPOCH))
    assert own.written is not None
    # Whoever had the last epoch of the former producer id may have missed the answer; nobody else has that id rightly.
    assert init(own.written, Expected(1, LAST_EPOCH)) == init(own.written, Expected(77, LAST_EPOCH))
    one = structs.replace(own.written, status=Status.ONGOING, partitions=PARTS)
    assert init(one, Expected(1, LAST_EPOCH)).error is Error.CONCURRENT_TRANSACTIONS
    assert init(one, Expected(1, LAST_EPOCH - 1)).error is Error.PRODUCER_FENCED
    assert own.producer_id == 77
    again = init(own.written, Expected(1, LAST_EPOCH))
    assert (again.error, again.producer_id, again.epoch) == (Error.NONE, 77, 0)
    assert init(own.written, Expected(1, 7)).error is Error.PRODUCER_FENCED
    # The time-out of the transaction has used up the epoch: the producer that had the last one goes on.
    timed_out = complete(fence(known(Status.ONGOING, LAST_EPOCH), NOW_MS, version=2), NOW_MS)
    assert timed_out.epoch == LAST_EPOCH + 1
    assert init(timed_out, Expected(1, LAST_EPOCH)).producer_id == 77


def test_add() -> None:
    def ask(one: Transaction | None, pid: int = 1, epoch: int = 5, *, pending: bool = False) -> Decision:
        wanted = frozenset({("out", 1), ("in", 0)})
        return add(one, Expected(pid, epoch), wanted, NOW_MS, is_pending=pending, client_version=2)

    assert ask(None).error is Error.INVALID_PRODUCER_ID_MAPPING
    assert ask(known(Status.EMPTY), 2, 9, pending=True).error is Error.CONCURRENT_TRANSACTIONS
    assert ask(known(Status.EMPTY), 2, 9).error is Error.INVALID_PRODUCER_ID_MAPPING
    assert ask(known(Status.EMPTY), 1, 6).error is Error.PRODUCER_FENCED
    assert ask(known(Status.PREPARE_ABORT)).error is Error.CONCURRENT_TRANSACTIONS
    begun = ask(known(Status.COMPLETE_COMMIT, start_ms=5)).written
    assert begun is not None
    assert (begun.status, begun.start_ms, begun.client_version) == (Status.ONGOING, NOW_MS, 2)
    more = ask(known(Status.ONGOING, start_ms=5)).written
    assert more is not None
    assert (more.start_ms, more.partitions) == (5, PARTS | {("in", 0)})
    assert ask(more) == Decision()


def test_verify() -> None:
    asked = frozenset({("out", 0), ("in", 0)})
    assert verify(None, Expected(1, 5), asked) is Error.INVALID_PRODUCER_ID_MAPPING
    assert verify(known(Status.ONGOING), Expected(2, 5), asked) is Error.INVALID_PRODUCER_ID_MAPPING
    assert verify(known(Status.ONGOING), Expected(1, 4), asked) is Error.PRODUCER_FENCED
    assert verify(known(Status.PREPARE_COMMIT), Expected(1, 5), asked) is Error.CONCURRENT_TRANSACTIONS
    found = verify(known(Status.ONGOING), Expected(1, 5), asked)
    assert found == {("out", 0): Error.NONE, ("in", 0): Error.TRANSACTION_ABORTABLE}


S, E = Status, Error
BUMPED: list[tuple[Status, int, Status | Error, Status | Error]] = [
    (S.EMPTY, 5, E.INVALID_TXN_STATE, S.PREPARE_ABORT),
    (S.EMPTY, 4, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    (S.ONGOING, 5, S.PREPARE_COMMIT, S.PREPARE_ABORT),
    (S.ONGOING, 4, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    (S.PREPARE_COMMIT, 4, E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    (S.PREPARE_COMMIT, 5, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    (S.PREPARE_ABORT, 4, E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    (S.COMPLETE_COMMIT, 4, E.NONE, E.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, 5, E.INVALID_TXN_STATE, S.PREPARE_ABORT),
    (S.COMPLETE_ABORT, 4, E.INVALID_TXN_STATE, E.NONE),
    (S.COMPLETE_ABORT, 5, E.INVALID_TXN_STATE, S.PREPARE_ABORT),
    (S.COMPLETE_ABORT, 3, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    (S.COMPLETE_ABORT, 6, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
]


@pytest.mark.parametrize(("status", "epoch", "commit", "abort"), BUMPED)
def test_end_with_a_new_epoch(status: Status, epoch: int, commit: Status | Error, abort: Status | Error) -> None:
    def ask(pid: int, *, pending: bool = False, is_commit: bool = True) -> Decision:
        return end(
            known(status), Expected(pid, epoch), take, NOW_MS, is_commit=is_commit, is_pending=pending, client_version=2
        )

    for is_commit, expected in ((True, commit), (False, abort)):
        decision = ask(1, is_commit=is_commit)
        found = decision.error if decision.written is None else decision.written.status
        assert found is expected
        if decision.written is not None:
            assert (decision.written.epoch, decision.written.last_epoch, decision.epoch) == (6, 5, 6)
            assert decision.written.client_version == 2
            assert decision.written.start_ms == (-1 if status is Status.ONGOING else NOW_MS)
        elif expected is Error.NONE:
            assert (decision.producer_id, decision.epoch) == (1, 5)
    assert ask(2, pending=True).error is Error.INVALID_PRODUCER_ID_MAPPING
    assert ask(1, pending=True).error is Error.CONCURRENT_TRANSACTIONS


def test_end_with_the_last_epoch_takes_a_new_id() -> None:
    def ask(one: Transaction, pid: int) -> Decision:
        expected = Expected(pid, LAST_EPOCH)
        return end(one, expected, take, NOW_MS, is_commit=True, is_pending=False, client_version=2)

    decision = ask(known(Status.ONGOING, LAST_EPOCH), 1)
    assert (decision.producer_id, decision.epoch) == (77, 0)
    assert decision.written is not None
    assert (decision.written.producer_id, decision.written.epoch) == (1, LAST_EPOCH + 1)
    done = complete(decision.written, NOW_MS)
    assert (done.producer_id, done.epoch, done.previous_producer_id, done.next_producer_id) == (77, 0, 1, -1)
    again = ask(done, 1)
    assert (again.error, again.producer_id, again.epoch) == (Error.NONE, 77, 0)


def test_fence_by_version() -> None:
    one = known(Status.ONGOING, start_ms=0)
    assert is_timed_out(one, 1001)
    assert not is_timed_out(one, 1000)
    plain, bumping = fence(one, NOW_MS, version=1), fence(one, NOW_MS, version=2)
    assert (plain.epoch, plain.last_epoch, plain.client_version) == (6, -1, 0)
    assert (bumping.epoch, bumping.last_epoch, bumping.client_version) == (6, 5, 2)
    # The producer asks for its next epoch, and gets the one that has ended its transaction; below version 2 it is out.
    assert init(complete(bumping, NOW_MS), Expected(1, 5)).epoch == 6
    assert init(complete(plain, NOW_MS), Expected(1, 5)).error is Error.PRODUCER_FENCED


def test_expiry() -> None:
    assert is_expired(known(Status.EMPTY, updated_ms=1), 11, 10)
    assert not is_expired(known(Status.EMPTY, updated_ms=2), 11, 10)
    assert not is_expired(known(Status.ONGOING), NOW_MS, 10)
    assert not is_expired(known(Status.PREPARE_ABORT), NOW_MS, 10)


def test_every_epoch_belongs_to_one_producer() -> None:
    """However producers take turns, an epoch that one of them was given is given to no other."""
    ids = count(100)
    one: Transaction | None = None
    given: set[tuple[int, int]] = set()
    for _ in range(5):
        decision = initialize(one, None, 1000, lambda: next(ids), NOW_MS, is_pending=False, version=2)
        one = decision.written
        assert one is not None
        assert (decision.producer_id, decision.epoch) not in given
        given.add((decision.producer_id, decision.epoch))
        for _ in range(3):
            mine = Expected(one.producer_id, one.epoch)
            one = add(one, mine, PARTS, NOW_MS, is_pending=False, client_version=2).written
            assert one is not None
            ended = end(one, mine, lambda: next(ids), NOW_MS, is_commit=True, is_pending=False, client_version=2)
            assert ended.written is not None
            one = complete(ended.written, NOW_MS)
            assert (ended.producer_id, ended.epoch) not in given
            given.add((ended.producer_id, ended.epoch))
