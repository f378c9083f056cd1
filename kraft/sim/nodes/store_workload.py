"""Stores as the state machine of a run: transactions without leases, which are linearizable, or leases and a line of
holders, with books of what each lease and each token may be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from msgspec import json, structs

from kraft.invariants.violation import InvariantViolated
from kraft.sim.nodes.workload_spec import READ, WorkloadSpec, workload_spec_of
from kraft.state_machine import Position
from kraft.store.commands import (
    Append,
    Clear,
    Command,
    Delete,
    Done,
    Entry,
    Event,
    Grant,
    Granted,
    IfValue,
    IfVersion,
    Pass,
    Put,
    Renew,
    Result,
    Revoke,
    Transaction,
)
from kraft.store.machine import StoreMachine

HISTORY: Final = 6
TTL_MS: Final = 3000
"""The shortest life of a lease."""
_LINE: Final = "lock/"


def store_spec(seed: int) -> WorkloadSpec:
    """The workload of one run: every second one has leases."""
    return leases_spec(WatchedStore) if seed % 2 else transactions_spec()


# Without leases a store is its own specification: nothing of its answers depends on time.


def transactions_spec(make: Callable[[], StoreMachine] = partial(StoreMachine, HISTORY)) -> WorkloadSpec:
    """Transactions with conditions, and reads of all keys and changes; `make` makes the store of a node."""
    spec = workload_spec_of(partial(StoreMachine, HISTORY), draw_transaction, look=seen)
    return structs.replace(spec, make=make)


def draw_transaction(rng: Random) -> Transaction:
    """One operation on a few keys, perhaps with a condition."""

    def key() -> str:
        return rng.choice("abc")

    operation: Put | Delete | Clear | Append = rng.choice(
        (Put(key(), b"%d" % rng.randint(0, 3)), Delete(key()), Clear(key(), 1), Append(key(), b""))
    )
    condition = rng.choice((None, IfVersion(key(), rng.randint(0, 9)), IfValue(key(), b"%d" % rng.randint(0, 3))))
    return Transaction((operation,), () if condition is None else (condition,))


def seen(machine: StoreMachine) -> object:
    """The values that a reader and a watcher may see, from as far back as the history goes."""
    return machine.revision, machine.scan(), list(machine.events_after(machine.compacted))


# With leases. Holders stand in a line, as those of `Lock`; who is first holds the lock.


def leases_spec(machine: Callable[[Tokens], StoreMachine], ttl_ms: int = TTL_MS) -> WorkloadSpec:
    """Leases that are granted, renewed and revoked, and places in a line. Each store tells the tokens of its run."""
    return WorkloadSpec(
        make=partial(machine, Tokens()),
        draw=lambda rng: json.encode(draw_lease_command(rng, ttl_ms)).decode(),
        command=json.Decoder(Command).decode,
        look=lambda machine, line: None,
        initial=None,
        step=lambda state, line: (None, None if line == READ else Done(0)),
    )


def draw_lease_command(rng: Random, ttl_ms: int = TTL_MS) -> Command:
    """One command on leases."""
    lease = rng.randint(1, 40)
    return rng.choice(
        (
            Grant(ttl_ms),
            Grant(ttl_ms),
            Renew(lease),
            Revoke(lease),
            Transaction((Append(_LINE, b"", lease),)),
            Transaction((Append(_LINE, b"", lease),)),
            Pass(),
        )
    )


class Tokens:
    """The tokens that the nodes of a run granted, by the place in the log: the same everywhere, and each token once."""

    def __init__(self) -> None:
        self.granted: dict[int, int] = {}
        self.held: dict[int, int | None] = {}
        """The holder of the lock after each command."""
        self.events: dict[int, list[Event]] = {}

    def note(self, at: Position, result: Result, holder: int | None) -> None:
        """A node has carried out a command."""
        if isinstance(result, Granted):
            known = self.granted.setdefault(at.offset, result.lease)
            if known != result.lease:
                raise InvariantViolated(f"the token of offset {at.offset} is {known} and {result.lease}")
            before = [token for offset, token in self.granted.items() if offset < at.offset]
            if before and max(before) >= result.lease:
                raise InvariantViolated(f"token {result.lease} at offset {at.offset} is not above {max(before)}")
        known_holder = self.held.setdefault(at.offset, holder)
        if known_holder != holder:
            raise InvariantViolated(f"after offset {at.offset} both {known_holder} and {holder} hold the lock")
        if holder is not None:
            before = [one for offset, one in self.held.items() if offset < at.offset and one is not None]
            if before and max(before) > holder:
                raise InvariantViolated(f"after offset {at.offset} {holder} holds the lock, and {max(before)} did")

    def note_events(self, machine: StoreMachine, revision: int, changed: list[tuple[str, bytes | None]]) -> None:
        """A watch from any revision that is kept sees each change once, the same at all nodes."""
        new = machine.events_after(max(revision, machine.compacted))
        # If more keys ended at one command than events are kept, nobody was to see those before.
        is_whole = revision >= machine.compacted
        if is_whole and ({(event.key, event.value) for event in new} != set(changed) or len(new) != len(changed)):
            raise InvariantViolated(f"the changes {changed} are the events {new}")
        for event in new:
            known = self.events.setdefault(event.revision, [])
            if event not in known:
                known.append(event)
        wanted = [
            one for at in sorted(self.events) for one in self.events[at] if machine.compacted < at <= machine.revision
        ]
        kept = list(machine.events_after(machine.compacted))
        if kept != wanted:
            raise InvariantViolated(f"a watch sees {kept} after revision {machine.compacted}, and not {wanted}")


class WatchedStore(StoreMachine):
    """Tells its run what it grants, and what a watch would see. What it answers does not depend on time.

    It keeps a book of its own of when each lease ends by the clock of the log.
    """

    tick_ms = 100

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(2)
        self.tokens = tokens
        self._book: dict[int, tuple[int, int]] = {}
        """When each lease ends, and how long it lives."""

    def restore(self, data: bytes) -> None:
        """Replace the state: the book goes on with what the snapshot says."""
        super().restore(data)
        self._book = {one: (lease.ends_ms, lease.ttl_ms) for one, lease in self._leases.items()}

    def apply(self, command: Command, at: Position) -> Result:
        """Carry out a command, and look at what came of it."""
        before, revision = self.by_key(), self.revision
        result = super().apply(command, at)
        line = self.scan(_LINE, limit=1)
        self.tokens.note(at, result, line[0].created if line else None)
        after = self.by_key()
        changed: list[tuple[str, bytes | None]] = [(key, None) for key in before if key not in after]
        changed += [(key, one.value) for key, one in after.items() if before.get(key) != one]
        self.tokens.note_events(self, revision, changed)
        self._note_leases(command, result)
        return Done(0)

    def by_key(self) -> dict[str, Entry]:
        """All keys."""
        return {one.key: one for one in self.scan()}

    def _note_leases(self, command: Command, result: Result) -> None:
        """A lease lives until its time has passed since its grant or its last renewal, and no longer."""
        book, now_ms = self._book, self.now_ms
        for lease, (ends_ms, _) in list(book.items()):
            if lease in self._leases:
                continue
            is_revoked = isinstance(command, Revoke) and command.lease == lease and isinstance(result, Done)
            if not is_revoked and now_ms < ends_ms:
                raise InvariantViolated(f"lease {lease} has ended at {now_ms} ms, and its time is over at {ends_ms} ms")
            del book[lease]
        match command, result:
            case Grant(ttl_ms=ttl_ms), Granted(lease=lease):
                book[lease] = now_ms + ttl_ms, ttl_ms
            case Renew(lease=lease), Done():
                book[lease] = now_ms + book[lease][1], book[lease][1]
