"""Locks, elections, semaphores, barriers, queues and counters as clients use them, in virtual time and under faults.

`test_store_simulated` looks at the state machine; here the code of the clients runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import pytest
import trio
import trio._core._run as trio_scheduler
from trio.testing import MockClock

from kraft.state_machine import Position
from kraft.store import Append, Delete, Held, recipes
from kraft.store.commands import NO_LEASE
from kraft.store.locks import Election, Leader, Line
from kraft.store.machine import StoreMachine
from kraft.store.recipes import Barrier, Counter
from kraft.store.store import Lease, Store
from kraft.testing import cluster
from kraft.testing.faults import JumpingClock
from simulated_recipes import Broken, Meeting, run_recipes


@pytest.fixture(autouse=True)
def _clocks_that_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "NodeClock", JumpingClock)


async def run_seeds(seeds: range, seconds: float = 30) -> int:
    """Run seeds, each with an order of tasks of its own; the seed of a failure is printed."""
    entered = 0
    for seed in seeds:
        print("seed", seed)
        trio_scheduler._r.seed(seed)
        world = await run_recipes(seed, seconds)
        entered += world.lock.entered
    return entered


@pytest.mark.parametrize("seed", [0, 1])
async def test_the_recipes_keep_their_promises(seed: int, autojump_clock: MockClock) -> None:
    assert await run_seeds(range(seed, seed + 1), 8) > 0


@pytest.mark.soak
@pytest.mark.parametrize("part", range(100))
async def test_the_recipes_keep_their_promises_in_four_thousand_seeds(part: int, autojump_clock: MockClock) -> None:
    assert await run_seeds(range(40 * part, 40 * (part + 1)), 40) > 40


# Planted bugs.

Planted = Callable[[pytest.MonkeyPatch], None]


def lease_by_hope(patch: pytest.MonkeyPatch) -> None:
    """The holder of a lease that cannot be renewed relies on it until somebody says that it has ended."""

    async def keep(store: Store, lease: Lease, renewed: float) -> None:
        try:
            while True:
                await trio.sleep(lease.ttl / 3)
                await store.renew(lease)
        finally:
            lease.is_held = False

    patch.setattr(Store, "_keep", keep)


def lease_by_local_clock(patch: pytest.MonkeyPatch) -> None:
    """The lease of a holder ends by the clock of the node that applies a command, so at each node at another time."""
    pass_time = StoreMachine._pass_time

    def pass_own_time(machine: StoreMachine, at: Position) -> None:
        pass_time(machine, at)
        machine.now_ms = max(machine.now_ms, int(trio.current_time() * 1000))

    patch.setattr(StoreMachine, "_pass_time", pass_own_time)


def token_of_the_lease(patch: pytest.MonkeyPatch) -> None:
    """The token is the number of the lease, which is given before the place in the line."""
    init = Held.__init__

    def of_lease(held: Held, token: int, key: str, lease: Lease) -> None:
        init(held, lease.id, key, lease)

    patch.setattr(Held, "__init__", of_lease)


def token_reused_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Each node counts the tokens that it gives, from its start on."""
    init = Held.__init__
    counters: dict[int, count[int]] = {}

    @asynccontextmanager
    async def place(line: Line, places: int, value: bytes = b"") -> AsyncIterator[Held]:
        counter = counters.setdefault(id(line._store.node), count(1))
        async with known(line, places, value) as held:
            init(held, next(counter), held.key, held.lease)
            yield held

    known = Line.place
    patch.setattr(Line, "place", place)


def held_before_its_turn(patch: pytest.MonkeyPatch) -> None:
    """One more holds it than may."""
    first = Line.first

    async def first_and_next(line: Line, places: int, *, linearizable: bool) -> object:
        return await first(line, places + 1, linearizable=linearizable)

    patch.setattr(Line, "first", first_and_next)


def leader_of_long_ago(patch: pytest.MonkeyPatch) -> None:
    """Who leads is what this node has heard of first."""
    told: dict[int, Leader] = {}
    leader = Election.leader

    async def remembered(election: Election, *, linearizable: bool = True) -> Leader | None:
        found = await leader(election, linearizable=linearizable)
        return found and told.setdefault(id(election._line._store.node), found)

    patch.setattr(Election, "leader", remembered)


def value_taken_by_two(patch: pytest.MonkeyPatch) -> None:
    """Who takes a value of a queue does not look whether it was there."""

    async def delete(store: Store, key: str, **conditions: object) -> bool:
        return (await store._transact(Delete(key))).found > 0

    patch.setattr(Store, "delete", delete)


def addition_without_a_condition(patch: pytest.MonkeyPatch) -> None:
    """Who adds to a counter writes over what another has added meanwhile."""
    add, put = Counter.add, Store.put

    async def add_over(counter: Counter, amount: int = 1) -> int:
        async def put_over(store: Store, key: str, value: bytes, **conditions: object) -> int:
            return await put(store, key, value)

        store = counter._store
        patch.setattr(store, "put", partial(put_over, store))
        return await add(counter, amount)

    patch.setattr(Counter, "add", add_over)


def dead_party_is_counted(patch: pytest.MonkeyPatch) -> None:
    """The place of a party at a barrier does not end with its lease: when it comes again, it is counted twice."""

    def append(prefix: str, value: bytes, lease: int = NO_LEASE) -> Append:
        return Append(prefix, value)

    patch.setattr(recipes, "Append", append)


def barrier_opens_for_most(patch: pytest.MonkeyPatch) -> None:
    """A barrier opens when one party is missing."""
    init = Barrier.__init__

    def for_most(barrier: Barrier, store: Store, name: str, parties: int, ttl: float) -> None:
        init(barrier, store, name, parties - 1, ttl)

    patch.setattr(Barrier, "__init__", for_most)


SLOW = pytest.mark.soak
BUGS = (
    pytest.param(lease_by_hope, "hold it at the same time", id="lease-by-hope"),
    pytest.param(token_reused_after_a_restart, "is given twice", id="token-reused-after-a-restart"),
    pytest.param(held_before_its_turn, "hold it at the same time", id="held-before-its-turn"),
    pytest.param(lease_by_local_clock, ".", id="lease-by-local-clock", marks=SLOW),
    pytest.param(token_of_the_lease, "is in force, and the resource has seen", id="token-of-the-lease", marks=SLOW),
    pytest.param(leader_of_long_ago, "leads, and .* is told to", id="leader-of-long-ago", marks=SLOW),
    pytest.param(value_taken_by_two, "taken twice", id="value-taken-by-two", marks=SLOW),
    pytest.param(addition_without_a_condition, "have the same sum", id="addition-without-a-condition", marks=SLOW),
    pytest.param(dead_party_is_counted, "must have come so far", id="dead-party-is-counted"),
    pytest.param(barrier_opens_for_most, "must have come so far", id="barrier-opens-for-most", marks=SLOW),
)


@pytest.mark.parametrize(("planted", "why"), BUGS)
async def test_a_planted_bug_is_found(
    planted: Planted, why: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    planted(monkeypatch)
    with pytest.raises(Broken, match=why):
        await run_seeds(range(60))


def test_the_count_of_a_meeting_finds_who_leaves_too_early() -> None:
    meeting = Meeting()
    meeting.came = 3
    for party in range(3):
        meeting.leave(party)
    meeting.came = 5
    with pytest.raises(Broken, match="leaves round 2: 6 must have come so far, and 5 have"):
        meeting.leave(1)
