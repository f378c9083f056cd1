"""A case for each check of the books beside a simulated store."""

from __future__ import annotations

from check_sites import Cases
from kraft.sim.nodes.store_workload import TTL_MS, Tokens, WatchedStore
from kraft.state_machine import Position
from kraft.store.commands import Command, Done, Event, Grant, Granted, Pass, Put, Transaction
from kraft.store.machine import StoreMachine

CASES = Cases()


def at(offset: int, time_ms: int = 0) -> Position:
    return Position(offset, 1, time_ms)


@CASES("the token of offset 1 is 5 and 6")
def two_nodes_grant_other_tokens() -> None:
    tokens = Tokens()
    tokens.note(at(1), Granted(5), None)
    tokens.note(at(1), Granted(6), None)


@CASES("token 5 at offset 2 is not above 5")
def a_token_is_given_twice() -> None:
    tokens = Tokens()
    tokens.note(at(1), Granted(5), None)
    tokens.note(at(2), Granted(5), None)


@CASES("after offset 1 both 5 and None hold the lock")
def two_nodes_have_other_holders() -> None:
    tokens = Tokens()
    tokens.note(at(1), Done(0), 5)
    tokens.note(at(1), Done(0), None)


@CASES("after offset 3 4 holds the lock, and 5 did")
def an_earlier_holder_comes_back() -> None:
    tokens = Tokens()
    tokens.note(at(2), Done(0), 5)
    tokens.note(at(3), Done(0), 4)


def stored(*keys: str) -> StoreMachine:
    machine = StoreMachine(8)
    for number, key in enumerate(keys):
        machine.apply(Transaction((Put(key, b""),)), at(number))
    return machine


@CASES("the changes .* are the events")
def a_change_is_no_event() -> None:
    Tokens().note_events(stored("a"), 0, [("a", b""), ("b", b"")])


@CASES("a watch sees .* after revision 0, and not")
def a_watch_lacks_an_event() -> None:
    tokens = Tokens()
    tokens.events[1] = [Event(1, "other", b"")]
    tokens.note_events(stored("a"), 0, [("a", b"")])


def leased(*commands: Command) -> WatchedStore:
    """A store with a lease, which forgets the lease before the last command."""
    machine = WatchedStore(Tokens())
    for number, command in enumerate((Grant(TTL_MS), *commands)):
        if number == len(commands):
            machine._leases.clear()
            machine._ends.clear()
        machine.apply(command, at(number))
    return machine


@CASES("lease 1 has ended at 0 ms, and its time is over at 3000 ms")
def a_lease_ends_before_its_time() -> None:
    leased(Pass())
