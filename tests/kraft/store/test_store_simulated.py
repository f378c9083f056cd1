"""A store and its leases in the simulator: what clients hear is linearizable, no fencing token is given twice, and bugs
that are planted are found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from kraft.sim import InvariantViolated, WorkloadSpec, run
from kraft.sim.faults.nemesis import Nemesis
from kraft.sim.faults.profiles import BROAD, CLOCKS, Profile
from kraft.sim.nodes.store_workload import HISTORY, Tokens, WatchedStore, leases_spec, transactions_spec
from kraft.state_machine import Position
from kraft.store import commands
from kraft.store.commands import (
    Done,
    Granted,
)
from kraft.store.machine import StoreMachine


def size(seed: int) -> int:
    return 3 if seed % 3 else 5


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.soak) for n in range(100, 200))])
def test_a_store_is_linearizable(seed: int) -> None:
    assert run(seed, size(seed), workload_spec=transactions_spec()).acknowledged > 0


SHORT_MS = 300


@pytest.fixture(autouse=True)
def _short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run lasts some seconds."""
    monkeypatch.setattr(commands, "SHORTEST_LEASE_MS", SHORT_MS)


def lease_spec(machine: Callable[[Tokens], StoreMachine]) -> WorkloadSpec:
    return leases_spec(machine, SHORT_MS)


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
        (partial(transactions_spec, WatchSkipsAnEvent), "machine of node"),
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
