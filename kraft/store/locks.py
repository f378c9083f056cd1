"""Locks, semaphores and elections: who wants to hold something stands in a line of keys, each with a lease.

The keys of a line are in the order of their creation, and the first ones hold. The revision that created a key is the
holder's fencing token: it is higher than those of all holders before. A resource that refuses a lower token than it has
seen is safe from a holder that goes on though its lease has ended, as after a pause of its process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from urllib.parse import quote

from msgspec import Struct

from kraft.node.errors import NodeStopped
from kraft.store.commands import Append, Entry
from kraft.store.errors import LeaseLost
from kraft.store.machine import appended_key
from kraft.store.store import DEFAULT_TTL, Lease, Store, StoreWatch


class Held:
    """The proof of a holder: a fencing token, and a lease that is renewed."""

    def __init__(self, token: int, key: str, lease: Lease) -> None:
        self.token = token
        """The fencing token: higher than that of each holder before."""
        self.key = key
        """The key of the holder in the store."""
        self.lease = lease

    @property
    def is_held(self) -> bool:
        """Whether the holder may still rely on it."""
        return self.lease.is_held


class Semaphore:
    """A lock that a number of holders have at a time, in the order in which they ask; use it with `async with`.

    The block is cancelled and ends with `LeaseLost` if the lease is lost, as after a long pause of the holder.

    Args:
        store: The store.
        name: The name, which all who ask have in common.
        count: How many may hold it. All who ask must give the same number.
        ttl: How long a holder that has died keeps its place, in seconds; see `Store.lease`.
    """

    _KIND = "semaphore"

    def __init__(self, store: Store, name: str, count: int, ttl: float = DEFAULT_TTL) -> None:
        if count < 1:
            raise ValueError(f"at least one holder is admitted, and not {count}")
        self._line = Line(store, self._KIND, name, ttl)
        self._count = count
        self._held: AbstractAsyncContextManager[Held] | None = None

    async def __aenter__(self) -> Held:
        """Wait until it is held. Raises `RuntimeError` in a block of the same object."""
        if self._held is not None:
            raise RuntimeError("this object is in use: each holder makes its own")
        self._held = self._line.place(self._count)
        try:
            return await self._held.__aenter__()
        except BaseException:
            self._held = None
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Give it back."""
        held, self._held = self._held, None
        assert held is not None
        return await held.__aexit__(kind, error, trace)


class Lock(Semaphore):
    """A lock that one holder has at a time, in the order in which they ask; use it with `async with`.

    The block is cancelled and ends with `LeaseLost` if the lease is lost, as after a long pause of the holder.

    Args:
        store: The store.
        name: The name of the lock.
        ttl: How long a holder that has died keeps the lock, in seconds; see `Store.lease`.
    """

    _KIND = "lock"

    def __init__(self, store: Store, name: str, ttl: float = DEFAULT_TTL) -> None:
        super().__init__(store, name, 1, ttl)


class Leader(Struct, frozen=True):
    """The leader, as it calls itself, with its fencing token."""

    value: bytes
    token: int


class Election:
    """An election among programs, of which one leads at a time.

    Args:
        store: The store.
        name: The name of the election.
        ttl: How long a leader that has died still leads, in seconds; see `Store.lease`.
    """

    def __init__(self, store: Store, name: str, ttl: float = DEFAULT_TTL) -> None:
        self._line = Line(store, "election", name, ttl)

    def campaign(self, value: bytes = b"") -> AbstractAsyncContextManager[Held]:
        """Wait until this candidate leads; it leads in the block, and resigns at the end.

        The block is cancelled and ends with `LeaseLost` if the leadership is lost before.

        Args:
            value: What observers are told of the leader, such as its address.
        """
        return self._line.place(1, value)

    async def leader(self, *, linearizable: bool = True) -> Leader | None:
        """The leader of now; None if nobody does. For `linearizable` see `Store.get`."""
        first = await self._line.first(1, linearizable=linearizable)
        return Leader(first[0].value, first[0].created) if first else None

    def observe(self) -> LeaderWatch:
        """Follow who leads: the present leader at once, then each other one that this node comes to know."""
        return LeaderWatch(self, self._line.watch())


class LeaderWatch(AsyncIterator[Leader | None]):
    """The leaders of an election, one after the other, with None while nobody leads. A leader of a short time may be
    left out. The iteration ends when the node stops.
    """

    def __init__(self, election: Election, changes: StoreWatch) -> None:
        self._election = election
        self._changes = changes
        self._told: tuple[Leader | None, ...] = ()

    def __aiter__(self) -> LeaderWatch:
        return self

    async def __anext__(self) -> Leader | None:
        while True:
            leader = await self._election.leader(linearizable=False)
            if self._told != (leader,):
                self._told = (leader,)
                return leader
            await anext(self._changes)


class Line:
    """The keys of those who hold something, and of those who wait for it."""

    def __init__(self, store: Store, kind: str, name: str, ttl: float) -> None:
        self._store = store
        self._prefix = prefix_of(kind, name)
        self._ttl = ttl

    @asynccontextmanager
    async def place(self, count: int, value: bytes = b"") -> AsyncIterator[Held]:
        """Join at the end, wait until this place is among the first ones, and leave at the end of the block."""
        async with self._store.lease(self._ttl) as lease:
            # Before the key exists, so that no change is missed.
            watch = self.watch()
            token = await self._store.transact(Append(self._prefix, value, lease.id))
            key = appended_key(self._prefix, token)
            while key not in [one.key for one in await self.first(count, linearizable=False)]:
                if await self._store.get(key, linearizable=False) is None:
                    raise LeaseLost(f"lease {lease.id} has ended before its turn came")
                if await anext(watch, None) is None:
                    raise NodeStopped("the node has stopped")
            yield Held(token, key, lease)

    async def first(self, count: int, *, linearizable: bool) -> list[Entry]:
        """The first places."""
        return list((await self._store.scan(self._prefix, limit=count, linearizable=linearizable)).entries)

    def watch(self) -> StoreWatch:
        """Follow the changes of the line."""
        return self._store.watch(self._prefix)


def prefix_of(kind: str, name: str) -> str:
    """The keys of something with a name begin with this; no other name begins with the same."""
    return f"{kind}/{quote(name, safe='')}/"
