"""A queue of jobs as workers use it, in virtual time and under faults, and planted bugs that such runs find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio._core._run as trio_scheduler
from trio.testing import MockClock

from kraft.store.commands import Condition, Operation
from kraft.store.store import Store
from kraft.store.work_queue import Job, WorkQueue
from kraft.testing import cluster
from kraft.testing.faults import JumpingClock
from simulated_jobs import run_jobs
from simulated_recipes import Broken


@pytest.fixture(autouse=True)
def _clocks_that_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "NodeClock", JumpingClock)


async def run_seeds(seeds: range, seconds: float = 20) -> int:
    """Run seeds, each with an order of tasks of its own; the seed of a failure is printed."""
    again = 0
    for seed in seeds:
        print("seed", seed)
        trio_scheduler._r.seed(seed)
        again += (await run_jobs(seed, seconds)).again
    return again


@pytest.mark.parametrize("seed", [0, 1])
async def test_a_queue_keeps_its_promises(seed: int, autojump_clock: MockClock) -> None:
    assert await run_seeds(range(seed, seed + 1)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
async def test_a_queue_keeps_its_promises_in_two_hundred_seeds(part: int, autojump_clock: MockClock) -> None:
    assert await run_seeds(range(20 * part, 20 * (part + 1)), 40) > 20


# Planted bugs.

Asked = tuple[tuple[Operation, ...], tuple[Condition, ...]]
"""What a transaction does, and what it requires."""
Planted = Callable[[pytest.MonkeyPatch], None]


def _with_transactions(patch: pytest.MonkeyPatch, change: Callable[[Asked], Asked]) -> None:
    """Have each transaction changed before it is made."""
    transact = Store.transact

    async def changed(store: Store, *operations: Operation, conditions: tuple[Condition, ...] = ()) -> int:
        operations, conditions = change((operations, conditions))
        return await transact(store, *operations, conditions=conditions)

    patch.setattr(Store, "transact", changed)


def taken_by_two(patch: pytest.MonkeyPatch) -> None:
    """Who takes a job does not look whether another one has it."""

    def change(asked: Asked) -> Asked:
        operations, conditions = asked
        return operations, tuple(one for one in conditions if "/taken/" not in one.key)

    async def first(queue: WorkQueue) -> object:
        return next(iter((await queue._store.scan(queue._jobs, limit=1)).entries), None)

    _with_transactions(patch, change)
    patch.setattr(WorkQueue, "_first_free", first)


def without_a_limit(patch: pytest.MonkeyPatch) -> None:
    """A job comes again however often it was handed out."""
    init = WorkQueue.__init__

    def unlimited(queue: WorkQueue, store: Store, name: str, **given: float) -> None:
        init(queue, store, name, ttl=given.get("ttl", 10))
        queue._attempts = 1000

    patch.setattr(WorkQueue, "__init__", unlimited)


def done_though_it_failed(patch: pytest.MonkeyPatch) -> None:
    """A job that its worker rejects counts as done."""
    patch.setattr(Job, "reject", lambda job, why="": job.done())


BUGS = (
    pytest.param(taken_by_two, "two workers have job", id="taken-by-two"),
    pytest.param(without_a_limit, r"is handed out \d times", id="without-a-limit"),
    pytest.param(done_though_it_failed, "rejected and not dead", id="done-though-it-failed"),
)


@pytest.mark.parametrize(("planted", "why"), BUGS)
async def test_a_planted_bug_is_found(
    planted: Planted, why: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    planted(monkeypatch)
    with pytest.raises(Broken, match=why):
        await run_seeds(range(40))
