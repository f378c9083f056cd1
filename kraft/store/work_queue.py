"""A queue of jobs for many workers, of what every store has: who dies loses nothing, and what never works ends.

A job is one key, in the order in which jobs were put. Who takes it counts the attempt in it and adds a key that ends
with the taker's lease, in one transaction. Whoever settles it requires the version that the take has made, so that one
of two who believe to have a job is heard: the one who took it last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import msgspec
import trio
from msgspec import Struct

from kraft.node.errors import NodeStopped
from kraft.state_machine import CommandRefused
from kraft.store.commands import Append, Delete, Entry, IfVersion, Operation, Put, check_value
from kraft.store.errors import Conflict, LeaseLost
from kraft.store.locks import prefix_of
from kraft.store.machine import appended_key
from kraft.store.store import DEFAULT_TTL, Lease, Store

DEFAULT_ATTEMPTS: Final = 5
MOST_TAKEN: Final = 10_000
"""No more jobs are taken at a time: each has a lease of its own."""
_SETTLE_S: Final = 2.0
"""How long a block that has failed waits for the quorum. Otherwise its job comes again when the lease ends."""
_WHY_CHARACTERS: Final = 200
_FULLEST: Final = 0.9
"""No job is put into a store that is fuller: workers need keys for the jobs that they have, and for dead letters."""


class _Kept(Struct, frozen=True, array_like=True):
    """A job in the store. New fields come at the end, with defaults."""

    attempts: int
    value: bytes


class _Buried(Struct, frozen=True, array_like=True):
    """A dead letter in the store. New fields come at the end, with defaults."""

    attempts: int
    why: str
    value: bytes


class DeadLetter(Struct, frozen=True):
    """A job that no worker is to try again, of `WorkQueue.dead`."""

    id: int
    """The number of the job."""
    value: bytes
    attempts: int
    """How often it was handed out."""
    why: str
    """The words of the last worker about it, or the error of its block."""
    version: int
    """The revision at which it died."""


class _Done(Struct, frozen=True):
    """The job is done."""


class _Again(Struct, frozen=True):
    """The job is to be tried again, unless it was tried too often."""

    why: str


class _Reject(Struct, frozen=True):
    """Nobody is to try the job again."""

    why: str


class Job:
    """A job that this worker has, of `WorkQueue.take`. What is said last about it happens at the end of the block.

    A block that says nothing is done with its job, and one that fails wants it tried again. Any thread may use it.
    """

    def __init__(self, entry: Entry, kept: _Kept, token: int, lease: Lease) -> None:
        self.id = _id_of(entry.key)
        """The number of the job, the same at each attempt: what must not happen twice is remembered by it."""
        self.value = kept.value
        self.attempt = kept.attempts + 1
        """How often it was handed out by now, 1 at first."""
        self.token = token
        """A fencing token: higher than that of each attempt before."""
        self.said: _Done | _Again | _Reject | None = None
        """The outcome at the end of the block."""
        self._lease = lease

    @property
    def is_held(self) -> bool:
        """Whether no other worker has the job."""
        return self._lease.is_held

    def done(self) -> None:
        """Say that the job is done."""
        self.said = _Done()

    def again(self, why: str = "") -> None:
        """Say that any worker is to try the job again. After its last attempt it becomes a dead letter.

        Args:
            why: What the dead letter says.
        """
        self.said = _Again(why)

    def reject(self, why: str = "") -> None:
        """Say that nobody is to try the job again: it becomes a dead letter.

        Args:
            why: What the dead letter says.
        """
        self.said = _Reject(why)

    @contextmanager
    def unless_it_fails(self) -> Iterator[None]:
        """Say what a block means that has said nothing: done, or again if it fails."""
        try:
            yield
        except BaseException as failure:
            if self.said is None:
                self.again(f"{type(failure).__name__}: {failure}")
            raise
        if self.said is None:
            self.done()


class WorkQueue:
    """A queue of jobs. One worker at a time has a job; one that dies or fails leaves it to another one.

    Each job happens at least once: a worker that is paused for longer than its lease may finish a job that another one
    has by then, as `Job.is_held` and `Job.token` tell.

    Args:
        store: The store.
        name: The name of the queue.
        attempts: How often a job is handed out before it becomes a dead letter. All workers give the same number.
        ttl: How long the job of a worker that has died waits, in seconds; see `Store.lease`.
    """

    def __init__(self, store: Store, name: str, *, attempts: int = DEFAULT_ATTEMPTS, ttl: float = DEFAULT_TTL) -> None:
        if attempts < 1:
            raise ValueError(f"a job is tried at least once, and not {attempts} times")
        self._store = store
        self._attempts = attempts
        self._ttl = ttl
        self._prefix = prefix_of("work", name)
        self._jobs = self._prefix + "job/"
        self._taken = self._prefix + "taken/"
        self._dead = self._prefix + "dead/"

    async def put(self, value: bytes) -> int:
        """Add a job at the end.

        Returns:
            The number of the job.

        Raises:
            CommandRefused: The job is too large, or the store has no room for it. A tenth of the store stays free, so
                that workers can take jobs from a queue that is full.
            NodeStopped: The node has stopped; the job may or may not be in the queue.
        """
        check_value(value)
        if self._store.fullness > _FULLEST:
            raise CommandRefused("nine tenths of the store are full: jobs are put when others are done")
        return await self._store.transact(Append(self._jobs, _encoded(_Kept(0, bytes(value)))))

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Job]:
        """Take the first job that nobody has, and wait for one if there is none. It is settled at the end of the block.

        The block is cancelled and ends with `LeaseLost` if the lease is lost, as after a long pause of the worker.

        Raises:
            LeaseLost: Another worker may have the job by now.
            CommandRefused: There are too many leases, or there is no room for a dead letter.
            NodeStopped: The node has stopped; the job comes again, unless it was settled.
        """
        async with self._store.lease(self._ttl) as lease:
            job = await self._claim(lease)
            try:
                with job.unless_it_fails():
                    yield job
            except BaseException:
                with (
                    trio.move_on_after(_SETTLE_S, shield=True),
                    suppress(LeaseLost, NodeStopped, CommandRefused),
                ):
                    await self._settle(job)
                raise
            await self._settle(job)

    async def _claim(self, lease: Lease) -> Job:
        while True:
            # Before the look at the keys, so that no change is missed.
            watch = self._store.watch(self._prefix)
            entry = await self._first_free()
            if entry is None:
                if await anext(watch, None) is None:
                    raise NodeStopped("the node has stopped")
                continue
            # Another one that has taken it is a conflict, and this node knows that by then.
            with suppress(Conflict):
                job = await self._begin(entry, lease)
                if job is not None:
                    return job

    async def _first_free(self) -> Entry | None:
        """The first job that nobody has, as far as this node knows."""
        store = self._store
        taken = (await store.scan(self._taken, limit=MOST_TAKEN, linearizable=False)).entries
        ids = {_id_of(one.key) for one in taken}
        jobs = (await store.scan(self._jobs, limit=len(ids) + 1, linearizable=False)).entries
        return next((one for one in jobs if _id_of(one.key) not in ids), None)

    async def _begin(self, entry: Entry, lease: Lease) -> Job | None:
        """Take a job, or bury it if it was tried too often: then None."""
        kept, job_id = msgspec.msgpack.decode(entry.value, type=_Kept), _id_of(entry.key)
        taken = appended_key(self._taken, job_id)
        is_free = (IfVersion(entry.key, entry.version), IfVersion(taken, 0))
        if kept.attempts >= self._attempts:
            why = f"the worker of attempt {kept.attempts} has told nothing"
            await self._store.transact(*self._burial(job_id, kept, why), conditions=is_free)
            return None
        begun = Put(entry.key, _encoded(_Kept(kept.attempts + 1, kept.value)))
        token = await self._store.transact(begun, Put(taken, b"", lease.id), conditions=is_free)
        return Job(entry, kept, token, lease)

    def _burial(self, job_id: int, kept: _Kept, why: str) -> tuple[Operation, ...]:
        buried = _Buried(kept.attempts, why[:_WHY_CHARACTERS], kept.value)
        return Delete(appended_key(self._jobs, job_id)), Put(appended_key(self._dead, job_id), _encoded(buried))

    async def _settle(self, job: Job) -> None:
        """Carry out what was said. The end of the lease frees a job that stays."""
        key = appended_key(self._jobs, job.id)
        kept = _Kept(job.attempt, job.value)
        match job.said:
            case _Again() if job.attempt < self._attempts:
                return
            case _Again(why=why) | _Reject(why=why):
                operations = self._burial(job.id, kept, why)
            case _:
                operations = (Delete(key),)
        try:
            await self._store.transact(*operations, conditions=(IfVersion(key, job.token),))
        except Conflict:
            raise LeaseLost(f"another worker has had job {job.id} since") from None

    async def dead(self, *, limit: int = 1000) -> tuple[DeadLetter, ...]:
        """The first dead letters, in the order of their jobs."""
        letters = []
        for entry in (await self._store.scan(self._dead, limit=limit)).entries:
            buried = msgspec.msgpack.decode(entry.value, type=_Buried)
            letters.append(DeadLetter(_id_of(entry.key), buried.value, buried.attempts, buried.why, entry.version))
        return tuple(letters)

    async def retry(self, letter: DeadLetter) -> int:
        """Make a dead letter a new job, at the end of the queue.

        Returns:
            The number of the new job.

        Raises:
            Conflict: It is no dead letter any more.
            NodeStopped: The node has stopped; the letter may or may not be a job.
        """
        key = appended_key(self._dead, letter.id)
        job = Append(self._jobs, _encoded(_Kept(0, letter.value)))
        return await self._store.transact(Delete(key), job, conditions=(IfVersion(key, letter.version),))

    async def forget(self, letter: DeadLetter) -> None:
        """Delete a dead letter. Raises `Conflict` if it is none any more, and `NodeStopped`."""
        await self._store.delete(appended_key(self._dead, letter.id), if_version=letter.version)


def _id_of(key: str) -> int:
    return int(key.rpartition("/")[2])


def _encoded(value: _Kept | _Buried) -> bytes:
    return msgspec.msgpack.encode(value)
