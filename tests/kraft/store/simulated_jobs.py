"""A queue of jobs on running nodes, under Trio's `MockClock`: producers and workers, while nodes and workers fail.

The faults are those of `simulated_recipes`. Workers hang in their blocks, also until long after their lease, fail, are
cancelled, give jobs back and reject them. What is promised is written down apart from the queue.
"""

from __future__ import annotations

from random import Random

import trio
from msgspec import Struct, field

import kraft
from kraft.store import Job
from kraft.testing import Cluster
from simulated_recipes import TTL, Broken, World
from transport.causes import one_cause
from transport.faults import Faults

ATTEMPTS = 3


class Ledger(Struct):
    """What producers and workers know of each job, by its number."""

    has_sound_clocks: bool = True
    put: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    """The highest attempt that was handed out."""
    tokens: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    inside: dict[int, list[Job]] = field(default_factory=dict)
    """Who is in a block, by job."""
    broken: list[Broken] = field(default_factory=list)
    """The promises that were not kept: several workers may see it."""
    again: int = 0
    """The attempts that were not the first ones."""

    def take(self, job: Job) -> None:
        """A worker has a job: nobody is done with it, the attempt is new and allowed, and no other worker has it."""
        if job.id in self.done | self.rejected:
            raise Broken(f"job {job.id} is handed out after its end")
        if job.attempt <= self.attempts.get(job.id, 0) or job.token <= self.tokens.get(job.id, 0):
            raise Broken(f"attempt {job.attempt} of job {job.id} is handed out after {self.attempts[job.id]}")
        if job.attempt > ATTEMPTS:
            raise Broken(f"job {job.id} is handed out {job.attempt} times")
        self.attempts[job.id], self.tokens[job.id] = job.attempt, job.token
        self.again += job.attempt > 1
        holders = self.inside.setdefault(job.id, [])
        holders.append(job)
        if self.has_sound_clocks and sum(one.is_held for one in holders) > 1:
            raise Broken(f"two workers have job {job.id}")

    def leave(self, job: Job) -> None:
        """A worker has left its block."""
        self.inside[job.id].remove(job)

    def end(self, job: Job, *, is_done: bool) -> None:
        """A block has ended without an error, so what was said was carried out. Only the last attempt ends a job."""
        if job.attempt < self.attempts[job.id]:
            raise Broken(f"attempt {job.attempt} ends job {job.id}, of which attempt {self.attempts[job.id]} is on")
        (self.done if is_done else self.rejected).add(job.id)

    def check(self, letters: tuple[kraft.store.DeadLetter, ...]) -> None:
        """The queue is empty: each job was done, perhaps by somebody who does not know it, or is a dead letter."""
        dead = {one.id for one in letters}
        if dead & self.done or not self.rejected <= dead:
            raise Broken(f"done and dead: {dead & self.done}; rejected and not dead: {self.rejected - dead}")
        if lost := self.put - dead - self.attempts.keys():
            raise Broken(f"nobody has had these jobs, and they are gone: {lost}")


async def _work(ledger: Ledger, rng: Random, store: kraft.Store) -> None:
    """Have a job for a while, perhaps longer than the lease, and say something about it or fail."""
    what = rng.choice(("done", "done", "nothing", "again", "reject", "fail"))
    hangs = rng.random() < 0.2
    async with kraft.WorkQueue(store, "jobs", attempts=ATTEMPTS, ttl=TTL).take() as job:
        ledger.take(job)
        try:
            with trio.CancelScope(shield=hangs):
                await trio.sleep(rng.random() * (3 * TTL if hangs else 1))
            match what:
                case "done":
                    job.done()
                case "again":
                    job.again()
                case "reject":
                    job.reject()
                case "fail":
                    raise ArithmeticError
        finally:
            ledger.leave(job)
    if what != "again":
        ledger.end(job, is_done=what != "reject")


async def _client(world: World, ledger: Ledger, number: int) -> None:
    """Put jobs and take them, until it is calm."""
    rng = Random(f"jobs {world.seed} {number}")
    while not world.calm.is_set():
        await trio.sleep(rng.random())
        store = world.store(rng)
        if store is None:
            continue
        try:
            with one_cause(), trio.move_on_after(rng.random() * 20):
                if rng.random() < 0.4:
                    ledger.put.add(await kraft.WorkQueue(store, "jobs").put(b"job"))
                else:
                    await _work(ledger, rng, store)
        except Broken as broken:
            ledger.broken.append(broken)
        except (kraft.NodeStopped, kraft.LeaseLost, ArithmeticError):
            continue


async def _drain(world: World, ledger: Ledger) -> None:
    """Do what is left, until no job comes for longer than any lease."""
    queue = kraft.WorkQueue(kraft.Store(world.cluster.machine(world.cluster.ids[0])), "jobs", attempts=ATTEMPTS)
    while True:
        with trio.move_on_after(10 * TTL) as waiting:
            try:
                async with queue.take() as job:
                    ledger.take(job)
                    ledger.leave(job)
            except kraft.LeaseLost:
                continue
            ledger.end(job, is_done=True)
        if waiting.cancelled_caught:
            break
    ledger.check(await queue.dead())


async def run_jobs(seed: int, seconds: float = 20, clients: int = 5) -> Ledger:
    """Run a seed, and check it. Every second seed has sound clocks."""
    faults = Faults(drop=0.03, delay_ms=(1, 80), reorder=True)
    with trio.fail_after(3600):
        async with Cluster(controllers=3, seed=seed, state_machine=kraft.StoreMachine, faults=faults) as cluster:
            await cluster.leader()
            world = World(seed, cluster, has_sound_clocks=seed % 2 == 0)
            ledger = Ledger(has_sound_clocks=world.has_sound_clocks)
            with one_cause():
                async with trio.open_nursery() as nursery:
                    for number in range(clients):
                        nursery.start_soon(_client, world, ledger, number)
                    ends = trio.current_time() + seconds
                    while trio.current_time() < ends:
                        await trio.sleep(world.rng.random() * 5)
                        await world.strike()
                    world.calm.set()
            for broken in ledger.broken:
                raise broken
            await _drain(world, ledger)
            cluster.check()
    return ledger
