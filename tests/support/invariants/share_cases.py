"""A case for each check of share groups: what leaders tell members and the log has, to the violation."""

from __future__ import annotations

from kraft.invariants.shares import ACCEPT, RELEASE, RENEW, Member, ShareLedger, Told
from kraft.invariants.stored_batches import StoredBatch
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)
from support.invariants.check_sites import Cases
from support.invariants.coordinator_cases import batch
from support.invariants.scripted_node import uuid
from transport.protocol.errors import Error

CASES = Cases()
TOPIC = uuid(90)
PLACE = ("g", TOPIC, 0)
NAME = "g at t-0"
MOST, LOCK_MS = 3, 100


def asking(number: int, member: str = "a", *, at_ms: int = 0, leading: int = 1) -> Member:
    """A request of a member that has arrived at a leader."""
    return Member(number, member, PLACE, leading, at_ms)


class Shares:
    """A ledger with one leader, and requests that are answered at once."""

    def __init__(self) -> None:
        self.ledger = ShareLedger(MOST, LOCK_MS)
        self.ledger.began(1, 101)
        self._last = 0

    def give(self, member: str, count: int, at_ms: int = 0, *, leading: int = 1, is_sure: bool = True) -> None:
        """The leader gives offsets 0 to 2 to a member."""
        self._last += 1
        one = asking(self._last, member, at_ms=at_ms, leading=leading)
        self.ledger.delivered(one, NAME, 0, 2, count, at_ms, is_sure=is_sure)

    def acknowledge(self, member: str, kind: int, at_ms: int = 0, error: Error = Error.NONE) -> None:
        """A member acknowledges offsets 0 to 2."""
        self._last += 1
        told = [Told(0, 2, [kind])]
        self.ledger.asked(asking(self._last, member, at_ms=at_ms), told, 0)
        self.ledger.acknowledged(asking(self._last, member, at_ms=at_ms), NAME, told, error)

    def load(self, start: int = 0, **states: tuple[int, int]) -> None:
        """Another leader loads the share partition; the states are those of `of0`, `of1` and so on."""
        self.ledger.began(2, 102)
        known = {int(name.removeprefix("of")): state for name, state in states.items()}
        self.ledger.loaded(2, PLACE, NAME, start, known)


def snapshot(state_epoch: int, start: int, *states: tuple[int, int, int, int]) -> StoredBatch:
    """A snapshot with state batches: first, last, state, delivery count."""
    batches = tuple(ShareSnapshotValueStateBatch(*one) for one in states)
    value = ShareSnapshotValue(state_epoch=state_epoch, start_offset=start, state_batches=batches)
    return batch((ShareSnapshotKey("g", TOPIC, 0), value))


def update(start: int, *states: tuple[int, int, int, int]) -> StoredBatch:
    """An update."""
    batches = tuple(ShareUpdateValueStateBatch(*one) for one in states)
    return batch((ShareUpdateKey("g", TOPIC, 0), ShareUpdateValue(start_offset=start, state_batches=batches)))


def logged(*batches: StoredBatch) -> ShareLedger:
    """The ledger after some committed batches."""
    ledger = ShareLedger(MOST, LOCK_MS)
    for one in batches:
        ledger.committed(one)
    return ledger


@CASES("is delivered to b by broker 101, after it was accepted by a")
def an_accepted_record_is_delivered() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("a", ACCEPT, 10)
    shares.give("b", 2, 200, is_sure=False)
    shares.give("b", 2, 200)


@CASES("is delivered to b by broker 101, while a has it until 100")
def a_record_has_two_holders() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("b", ACCEPT, 10, Error.INVALID_RECORD_STATE)
    shares.give("b", 2, 99)


@CASES("while a has it until 150")
def a_renewed_lock_ends_early() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("a", RENEW, 50)
    shares.give("b", 2, 140)


@CASES("b acknowledges offset .*, which a has")
def another_one_acknowledges() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("b", ACCEPT, 100)
    shares.give("a", 2, 200, is_sure=False)
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("b", ACCEPT, 99)


@CASES("as delivery 4, and 3 are the limit")
def a_record_is_delivered_too_often() -> None:
    shares = Shares()
    for number in range(3):
        shares.give("a", number + 1, 200 * number)
        shares.ledger.gave_up(1, "a")
    shares.give("b", 3, 410)


@CASES("with the count 1, and not from 2 to 2")
def a_delivery_is_not_counted() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.give("b", 1, 100)


@CASES("knows offset 0 in state 0, and it was accepted by a")
def an_accepted_record_is_forgotten() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("a", ACCEPT)
    shares.load(3)
    shares.load(0, of0=(1, 0))


@CASES("knows of 0 deliveries of offset 0, and there were 1 that were written")
def a_written_delivery_is_forgotten() -> None:
    shares = Shares()
    shares.give("a", 1)
    shares.acknowledge("a", RELEASE)
    shares.load()


@CASES("broker 102 begins at 0, before 3")
def a_leader_begins_before_the_start() -> None:
    shares = Shares()
    shares.ledger.committed(snapshot(1, 3))
    shares.load()


@CASES("the start of broker 102 goes back from 3 to 2")
def the_start_of_a_leader_goes_back() -> None:
    shares = Shares()
    shares.load(3)
    shares.ledger.moved(2, NAME, 3)
    shares.ledger.moved(2, NAME, 2)


@CASES("the start goes back from 3 to 2")
def the_start_goes_back_in_a_snapshot() -> None:
    ledger = logged(snapshot(1, 3), snapshot(2, 1), update(3))
    ledger.committed(snapshot(2, 2))


@CASES("the start goes back from 3 to 2")
def the_start_goes_back_in_an_update() -> None:
    ledger = logged(snapshot(1, 3), update(-1), update(3))
    ledger.committed(update(2))


@CASES("the snapshot at 0 lacks the state of offset 4")
def a_snapshot_lacks_a_state() -> None:
    ledger = logged(snapshot(1, 3), update(3, (3, 4, 0, 1)), update(4, (4, 4, 2, 1)), snapshot(1, 4, (4, 4, 2, 1)))
    ledger.committed(snapshot(1, 4, (4, 4, 0, 1)))


@CASES("there is an update and no snapshot")
def an_update_comes_first() -> None:
    ledger = logged(snapshot(1, 3), batch((ShareSnapshotKey("g", TOPIC, 0), None)))
    ledger.committed(update(3))


@CASES("begins at 1, after the last snapshot of g")
def a_needed_snapshot_is_deleted() -> None:
    ledger = logged(snapshot(1, 3))
    ledger.pruned("__share_group_state-0", 0, ledger.places())
    ledger.pruned("__share_group_state-0", 1, ledger.places())
