"""A case for each check of share groups: what leaders tell members and the log has, to the violation."""

from __future__ import annotations

from check_sites import Cases
from coordinator_cases import batch
from kraft.invariants.shares import Member, ShareLedger, Told
from kraft.invariants.stored_batches import StoredBatch
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)
from scripted_node import uuid
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
