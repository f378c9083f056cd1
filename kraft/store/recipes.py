"""Barriers, counters and queues, of what every store has: transactions with conditions, leases and watches."""

from __future__ import annotations

from typing import Final

from kraft.node.errors import NodeStopped
from kraft.store.commands import Append, Clear, Entry, IfVersion, Put
from kraft.store.errors import Conflict
from kraft.store.locks import prefix_of
from kraft.store.store import DEFAULT_TTL, Lease, Store

MOST_PARTIES: Final = 1000
"""The keys of one page: who arrives counts the others by it."""


class Barrier:
    """A number of programs wait for each other, again and again. One that dies while it waits is not counted.

    Args:
        store: The store.
        name: The name of the barrier.
        parties: How many have to wait, from 1 to 1000. All of them must give the same number.
        ttl: How long a program that has died is still counted, in seconds; see `Store.lease`.
    """

    def __init__(self, store: Store, name: str, parties: int, ttl: float = DEFAULT_TTL) -> None:
        if not 1 <= parties <= MOST_PARTIES:
            raise ValueError(f"1 to {MOST_PARTIES} parties wait for each other, and not {parties}")
        self._store = store
        prefix = prefix_of("barrier", name)
        self._gate = prefix + "gate"
        """The key that changes when the barrier opens."""
        self._places = prefix + "place/"
        self._parties = parties
        self._ttl = ttl

    async def wait(self) -> None:
        """Wait until all parties wait. One that is cancelled meanwhile is not counted.

        Raises:
            LeaseLost: This program could not show that it is alive.
            NodeStopped: The node has stopped.
        """
        async with self._store.lease(self._ttl) as lease:
            while not await self._arrive(lease):
                pass

    async def _arrive(self, lease: Lease) -> bool:
        """Wait with the others for the next opening; False if the barrier has opened before this party was counted."""
        store = self._store
        gate = await store.get(self._gate)
        is_closed = IfVersion(self._gate, 0 if gate is None else gate.version)
        opening = store.watch(key=self._gate)
        try:
            await store.transact(Append(self._places, b"", lease.id), conditions=(is_closed,))
        except Conflict:
            return False
        if len((await store.scan(self._places)).entries) >= self._parties:
            try:
                await store.transact(Put(self._gate, b""), Clear(self._places), conditions=(is_closed,))
            except Conflict:
                # Another one that came at the same time has opened.
                return True
        if await anext(opening, None) is None:
            raise NodeStopped("the node has stopped")
        return True


class Counter:
    """A number that many programs add to.

    Args:
        store: The store.
        name: The name of the counter, which begins with 0.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._key = prefix_of("counter", name)

    async def add(self, amount: int = 1) -> int:
        """Add to the number, and return what it is then.

        Raises:
            NodeStopped: The node has stopped; the number may or may not be changed.
        """
        entry = await self._store.get(self._key, linearizable=False)
        while True:
            number = _number(entry) + amount
            version = 0 if entry is None else entry.version
            try:
                await self._store.put(self._key, str(number).encode(), if_version=version)
            except Conflict as other:
                entry = other.entry
            else:
                return number

    async def value(self, *, linearizable: bool = True) -> int:
        """The number. For `linearizable` see `Store.get`."""
        return _number(await self._store.get(self._key, linearizable=linearizable))


def _number(entry: Entry | None) -> int:
    return 0 if entry is None else int(entry.value)


class Queue:
    """A queue of values. Each value is taken once, by one of those who ask.

    Args:
        store: The store.
        name: The name of the queue.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = prefix_of("queue", name)

    async def put(self, value: bytes) -> None:
        """Add a value at the end.

        Raises:
            CommandRefused: The store has no room for it.
            NodeStopped: The node has stopped; the value may or may not be in the queue.
        """
        await self._store.transact(Append(self._prefix, value))

    async def get(self) -> bytes:
        """Take the first value, and wait for one if there is none. A value that was taken is not in the queue any more,
        whatever becomes of its taker.

        Raises:
            NodeStopped: The node has stopped; a value may or may not have been taken.
        """
        watch = self._store.watch(self._prefix)
        while True:
            first = (await self._store.scan(self._prefix, limit=1, linearizable=False)).entries
            if first:
                try:
                    await self._store.delete(first[0].key, if_version=first[0].version)
                except Conflict:
                    # Another one has taken it, and this node knows that by now.
                    continue
                return first[0].value
            if await anext(watch, None) is None:
                raise NodeStopped("the node has stopped")
