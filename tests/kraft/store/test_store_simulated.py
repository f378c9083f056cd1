"""A store and its leases in the simulator: what clients hear is linearizable, no fencing token is given twice, and bugs
that are planted are found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from kraft.sim import InvariantViolated, WorkloadSpec, run, workload_spec_of
from kraft.sim.faults.nemesis import Nemesis
from kraft.sim.faults.profiles import BROAD, CLOCKS, Profile
from kraft.sim.nodes.workload_spec import READ
from kraft.state_machine import Position
from kraft.store import commands
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

HISTORY = 6


def size(seed: int) -> int:
    return 3 if seed % 3 else 5


# Without leases a store is its own specification: nothing of its answers depends on time.


def draw_transaction(rng: Random) -> Transaction:
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


def store_spec(make: Callable[[], StoreMachine]) -> WorkloadSpec:
    spec = workload_spec_of(partial(StoreMachine, HISTORY), draw_transaction, look=seen)
    return msgspec.structs.replace(spec, make=make)


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.soak) for n in range(100, 200))])
def test_a_store_is_linearizable(seed: int) -> None:
    assert run(seed, size(seed), workload_spec=store_spec(partial(StoreMachine, HISTORY))).acknowledged > 0


# With leases. Holders stand in a line, as those of `Lock`; who is first holds the lock.


class Tokens:
    """The tokens that the nodes of a run granted, by the place in the log: the same everywhere, and each token once."""

    def __init__(self) -> None:
        self.granted: dict[int, int] = {}
        self.held: dict[int, int | None] = {}
        """Who held the lock after each command."""
        self.events: dict[int, list[Event]] = {}

    def note(self, at: Position, result: Result, holder: int | None) -> None:
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
    """Tells its run what it grants, and what a watch would see. What it answers does not depend on time."""

    tick_ms = 100

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(2)
        self.tokens = tokens

    def apply(self, command: Command, at: Position) -> Result:
        before, revision = self.by_key(), self.revision
        result = super().apply(command, at)
        line = self.scan("lock/", limit=1)
        self.tokens.note(at, result, line[0].created if line else None)
        after = self.by_key()
        changed: list[tuple[str, bytes | None]] = [(key, None) for key in before.keys() - after.keys()]
        changed += [(key, one.value) for key, one in after.items() if before.get(key) != one]
        self.tokens.note_events(self, revision, changed)
        return Done(0)

    def by_key(self) -> dict[str, Entry]:
        return {one.key: one for one in self.scan()}


def draw_lease_command(rng: Random) -> Command:
    lease = rng.randint(1, 40)
    return rng.choice(
        (
            Grant(300),
            Grant(300),
            Renew(lease),
            Revoke(lease),
            Transaction((Append("lock/", b"", lease),)),
            Transaction((Append("lock/", b"", lease),)),
            Pass(),
        )
    )


@pytest.fixture(autouse=True)
def _short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run lasts some seconds."""
    monkeypatch.setattr(commands, "SHORTEST_LEASE_MS", 300)


def lease_spec(machine: Callable[[Tokens], StoreMachine]) -> WorkloadSpec:
    tokens = Tokens()
    return WorkloadSpec(
        make=partial(machine, tokens),
        draw=lambda rng: msgspec.json.encode(draw_lease_command(rng)).decode(),
        command=msgspec.json.Decoder(Command).decode,
        look=lambda machine, line: None,
        initial=None,
        step=lambda state, line: (None, None if line == READ else Done(0)),
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_token_is_given_twice(seed: int) -> None:
    run(seed, size(seed), workload_spec=lease_spec(WatchedStore))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(100))
def test_no_token_is_given_twice_in_ten_thousand_seeds(part: int) -> None:
    """Nearly every run has nodes that pause, and clocks that jump, step back between two lives and run too fast."""
    run_seeds(range(1000 + 100 * part, 1000 + 100 * (part + 1)), partial(lease_spec, WatchedStore), CLOCKS)


def run_seeds(seeds: range, spec: Callable[[], WorkloadSpec], profile: Profile = BROAD) -> None:
    for seed in seeds:
        run(seed, size(seed), workload_spec=spec(), profile=profile)


def test_nodes_pause_and_clocks_jump_in_the_first_seeds_of_the_ten_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[str] = []
    strike = Nemesis.strike

    def noted(nemesis: Nemesis) -> str:
        what = strike(nemesis)
        struck.append(what.partition(" ")[0])
        return what

    monkeypatch.setattr(Nemesis, "strike", noted)
    for seed in range(1000, 1002):
        struck.clear()
        run_seeds(range(seed, seed + 1), partial(lease_spec, WatchedStore), CLOCKS)
        assert {"pause", "wrong-clock", "clock-steps"} <= set(struck)


def test_leases_end_in_the_seeds_of_these_tests() -> None:
    """By themselves, and not only by Revoke: the leader lets time pass."""
    spec = lease_spec(WatchedStore)
    ended = 0

    class Counted(WatchedStore):
        def _end(self, lease_id: int) -> None:
            nonlocal ended
            ended += self._leases[lease_id].ends_ms <= self.now_ms
            super()._end(lease_id)

    run(0, 3, workload_spec=msgspec.structs.replace(spec, make=partial(Counted, Tokens())))
    assert ended > 10


# Planted bugs.


class LeaseByLocalClock(WatchedStore):
    """Leases end by a clock of this process, here the number of commands since it began, and not by the log's."""

    count = 0

    def _pass_time(self, at: Position) -> None:
        self.count += 1
        self.now_ms += 100 if self.count > 20 else 0
        super()._pass_time(at)


class TokenReusedAfterRestart(WatchedStore):
    """Who starts from a snapshot counts from the keys that it finds there."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.revision = max((one.version for one in self.scan()), default=0)


class WatchSkipsAnEvent(StoreMachine):
    """The history of a node that starts from a snapshot lacks its last event."""

    def __init__(self) -> None:
        super().__init__(HISTORY)

    def restore(self, data: bytes) -> None:
        super().restore(data)
        self._events = self._events[:-1]


class WatchSkipsAtTheBound(WatchedStore):
    """All nodes forget one event more than they say."""

    def _record(self, events: Any) -> None:
        compacted = self.compacted
        super()._record(events)
        if self.compacted > compacted:
            del self._events[:1]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (partial(lease_spec, LeaseByLocalClock), "machine of node|hold the lock|token of offset"),
        (partial(lease_spec, TokenReusedAfterRestart), "machine of node|is not above|token of offset"),
        (partial(store_spec, WatchSkipsAnEvent), "machine of node"),
        (partial(lease_spec, WatchSkipsAtTheBound), "a watch sees"),
    ],
    ids=["lease-by-local-clock", "token-reused-after-restart", "watch-skips-an-event", "watch-skips-at-the-bound"],
)
def test_a_planted_bug_is_found(spec: Callable[[], WorkloadSpec], why: str) -> None:
    with pytest.raises(InvariantViolated, match=why):
        run_seeds(range(30), spec)


def test_the_checks_look_at_what_they_should() -> None:
    """The checks of tokens find a reuse that all nodes agree on, which no comparison of nodes can."""
    tokens = Tokens()
    tokens.note(Position(1, 1, 0), Granted(5), 5)
    tokens.note(Position(1, 1, 0), Granted(5), 5)
    with pytest.raises(InvariantViolated, match="token 5 at offset 2 is not above 5"):
        tokens.note(Position(2, 1, 0), Granted(5), 5)
    with pytest.raises(InvariantViolated, match="4 holds the lock, and 5 did"):
        tokens.note(Position(3, 1, 0), Done(0), 4)
    with pytest.raises(InvariantViolated, match="both 5 and None hold"):
        tokens.note(Position(1, 1, 0), Granted(5), None)
