"""A replicated key-value store for a program that runs one of its nodes (as etcd's, inside of the program)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar, Unpack

import trio
from msgspec import Struct

from kraft.config import Config, NodeSettings
from kraft.node.embed import open_node
from kraft.node.errors import NodeStopped
from kraft.node.joining import create, join, observe
from kraft.node.state_machine_node import StateMachineNode
from kraft.state_machine import CommandRefused
from kraft.store.commands import (
    NO_LEASE,
    Clear,
    Command,
    Condition,
    Delete,
    Done,
    Entry,
    Event,
    Grant,
    Granted,
    IfValue,
    IfVersion,
    LeaseEnded,
    Mismatch,
    Operation,
    Put,
    Renew,
    Result,
    Revoke,
    Transaction,
    Unfit,
    check_key,
    check_types,
    fault_in,
    fault_in_life,
)
from kraft.store.errors import Conflict, LeaseLost
from kraft.store.machine import StoreMachine
from transport.causes import one_cause

R = TypeVar("R", bound=Result)
DEFAULT_TTL: Final = 10.0
_RENEWALS: Final = 3
"""How often a lease is renewed in its life."""
_REVOKE_S: Final = 2.0
"""How long the end of a lease waits for the quorum. Otherwise the lease ends by itself."""
_PAGE: Final = 1000
"""The keys of a page, and the events that a watch looks at in one turn."""


class Page(Struct, frozen=True):
    """Some keys in order, as they were after one revision; a watch from this revision misses nothing since."""

    revision: int
    entries: tuple[Entry, ...]
    is_last: bool
    """Whether there are no further keys with the prefix."""
    age: float = 0.0
    """How old this may be, in seconds: it has every change that was acknowledged longer ago. See `Store.age`."""


class Lease:
    """A lease that is renewed while a block runs, or by its holder; see `Store.lease` and `Store.grant`."""

    def __init__(self, lease_id: int, ttl: float) -> None:
        self.id = lease_id
        """The number of the lease. A later lease has a higher one, so that it is a fencing token."""
        self.ttl = ttl
        """The life of the lease after a renewal, in seconds."""
        self.is_held = True
        """Whether the holder may still rely on the lease."""


class StoreWatch(AsyncIterator[Event]):
    """The changes after a revision, each once and in order, as this node comes to know that they are committed.

    The iteration ends when the node stops. A snapshot that this node takes from the leader makes no gap.

    Raises:
        Compacted: The watcher is so far behind that changes are not kept any more.
    """

    def __init__(self, node: StateMachineNode[Command, Result], prefix: str, key: str | None, after: int) -> None:
        self.after = after
        """The revision up to which nothing is left to return."""
        self._node = node
        self._prefix = prefix
        self._key = key
        self._unread: deque[Event] = deque()

    def __aiter__(self) -> StoreWatch:
        return self

    async def __anext__(self) -> Event:
        while not self._unread:
            events = _machine_of(self._node).events_after(self.after, _PAGE)
            if events:
                self.after = events[-1].revision
                self._unread.extend(filter(self._is_wanted, events))
                await trio.lowlevel.checkpoint()
            elif not await self._node.wait_for_applied():
                raise StopAsyncIteration
        return self._unread.popleft()

    def _is_wanted(self, event: Event) -> bool:
        return event.key.startswith(self._prefix) if self._key is None else event.key == self._key


class Store:
    """A replicated key-value store. All methods work on any node of the quorum, and must be called in the Trio thread.

    Keys are text, values are bytes. A change is on the disks of a majority when its method returns.

    Args:
        node: A node with `state_machine=StoreMachine`; `open_store` makes both.
    """

    def __init__(self, node: StateMachineNode[Command, Result]) -> None:
        self.node = node
        """The node of this store."""
        _machine_of(node)

    # Reading

    def age(self) -> float:
        """How old what this node has may be, in seconds: it has every change that was acknowledged longer ago.

        That is the time since the last linearizable read at this node began, and infinite before the first one. Ask
        before the read that it is about.
        """
        return self.node.age()

    async def get(self, key: str, *, linearizable: bool = True, max_age: float | None = None) -> Entry | None:
        """Read a key.

        Args:
            key: The key.
            linearizable: Whether the read sees every change that was acknowledged before the call; see
                `StateMachineNode.read`. Otherwise it reads what this node has, at once, without a quorum: something
                old, as `age` says.
            max_age: Read what this node has if that is not older than so many seconds, and otherwise linearizably.

        Returns:
            The key with its value and version; None if it does not exist.

        Raises:
            NodeStopped: The node has stopped.
        """
        check_key(key)
        return await self.node.read(lambda machine: machine.get(key), linearizable=linearizable, max_age=max_age)

    async def scan(
        self,
        prefix: str = "",
        *,
        after: str = "",
        limit: int = _PAGE,
        linearizable: bool = True,
        max_age: float | None = None,
    ) -> Page:
        """Read the first keys with a prefix, in the order of their characters.

        Args:
            prefix: What the keys begin with; empty for all keys.
            after: The key after which to begin, as the last one of the page before.
            limit: The most keys to return.
            max_age: As for `get`; `Page.age` says how old the page may be.
            linearizable: As for `get`. Pages that are read one after the other are of different moments.

        Raises:
            NodeStopped: The node has stopped.
            ValueError: The limit is below 1.
        """
        if limit < 1:
            raise ValueError(f"a page has at least one key: the limit is {limit}")

        def page(machine: StoreMachine) -> Page:
            entries = machine.scan(prefix, after, limit + 1)
            return Page(machine.revision, tuple(entries[:limit]), len(entries) <= limit, self.age())

        return await self.node.read(page, linearizable=linearizable, max_age=max_age)

    async def entries(self, prefix: str = "", *, linearizable: bool = True) -> AsyncIterator[Entry]:
        """Iterate over all keys with a prefix, in order, a page at a time.

        Pages are of different moments: what is changed meanwhile may be seen or not, and every other key is seen once.
        To go on with what changes, take `revision` before, and watch from there.

        Args:
            prefix: What the keys begin with; empty for all keys.
            linearizable: As for `get`, for each page.

        Raises:
            NodeStopped: The node has stopped.
        """
        page = await self.scan(prefix, linearizable=linearizable)
        while True:
            for entry in page.entries:
                yield entry
            if page.is_last:
                return
            page = await self.scan(prefix, after=page.entries[-1].key, linearizable=linearizable)

    @property
    def revision(self) -> int:
        """The last revision that this node has applied."""
        return _machine_of(self.node).revision

    @property
    def fullness(self) -> float:
        """How much of its room the store uses, from 0 to 1, as far as this node has applied changes."""
        return _machine_of(self.node).fullness

    def watch(self, prefix: str = "", *, key: str | None = None, after: int | None = None) -> StoreWatch:
        """Follow the changes of the keys with a prefix, or of one key.

        Args:
            prefix: What the keys begin with; empty for all keys.
            key: The only key to follow, instead of a prefix.
            after: The revision after which to begin, such as `Page.revision`; by default the last one that this node
                has applied.
        """
        return StoreWatch(self.node, prefix, key, self.revision if after is None else after)

    # Changing

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        if_version: int | None = None,
        if_absent: bool = False,
        if_value: bytes | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Set the value of a key.

        Args:
            key: The key.
            value: Its new value.
            if_version: Only if this is the key's version (`Entry.version`); 0 if the key must not exist.
            if_absent: Only if the key does not exist.
            if_value: Only if this is the key's value.
            lease: The lease that the key ends with. Without one the key stays, also if it had a lease before.

        Returns:
            The key's new version.

        Raises:
            Conflict: A condition does not hold; nothing is changed.
            LeaseLost: The lease has ended; nothing is changed.
            CommandRefused: The key, the value or the whole store is too large; nothing is changed.
            TypeError: The key is no text, or the value no bytes.
            NodeStopped: The node has stopped; the key may or may not be changed.
        """
        version = 0 if if_absent else if_version
        if not isinstance(lease, Lease | None):
            raise TypeError(f"lease= takes a Lease, as `Store.lease` and `Store.grant` make it, and not {lease!r}")
        change = Put(key, value, NO_LEASE if lease is None else lease.id)
        return await self.transact(change, conditions=_conditions(key, version, if_value))

    async def delete(self, key: str, *, if_version: int | None = None, if_value: bytes | None = None) -> bool:
        """Delete a key. Conditions and errors are those of `put`.

        Returns:
            Whether the key existed.
        """
        done = await self._transact(Delete(key), conditions=_conditions(key, if_version, if_value))
        return done.found > 0

    async def clear(self, prefix: str) -> int:
        """Delete all keys with a prefix: a thousand with each transaction, so that readers may see a part of it.

        Returns:
            How many keys were deleted.
        """
        count = 0
        clear = Clear(prefix)
        while True:
            removed = (await self._transact(clear)).found
            count += removed
            if removed < clear.most:
                return count

    async def transact(self, *operations: Operation, conditions: tuple[Condition, ...] = ()) -> int:
        """Change several keys at once, or none of them.

        Args:
            operations: `Put`, `Delete`, `Clear` and `Append` of `kraft.store`. No key may be changed twice.
            conditions: `IfVersion` and `IfValue` of `kraft.store`, which must hold.

        Returns:
            The revision of the store, which is the version of each key that was put.

        Raises:
            Conflict: A condition does not hold; nothing is changed.
            LeaseLost: A lease has ended; nothing is changed.
            CommandRefused: A limit is exceeded; nothing is changed.
            TypeError: An operation or a condition is none, or has a value of another type.
            NodeStopped: The node has stopped; the keys may or may not be changed.
        """
        return (await self._transact(*operations, conditions=conditions)).revision

    async def _transact(self, *operations: Operation, conditions: tuple[Condition, ...] = ()) -> Done:
        check_types(operations, conditions)
        return await self._submit(Transaction(operations, conditions), Done)

    async def _submit(self, command: Command, wanted: type[R]) -> R:
        why = fault_in(command)
        result = Unfit(why) if why is not None else await self.node.submit(command)
        match result:
            case Mismatch(key=key, entry=entry):
                raise Conflict(key, entry)
            case LeaseEnded(lease=lease):
                raise LeaseLost(f"lease {lease} has ended")
            case Unfit(why=why):
                raise CommandRefused(why)
            case _:
                assert isinstance(result, wanted), result
                return result

    # Leases

    @asynccontextmanager
    async def lease(self, ttl: float = DEFAULT_TTL) -> AsyncIterator[Lease]:
        """Hold a lease for the duration of the block: keys that are put with it exist no longer than it.

        The lease is renewed three times in its life, and revoked at the end of the block. If it is lost before, the
        block is cancelled, and ends with `LeaseLost`. Time counts by the log, which stands still while there is no
        leader; the holder gives a lease up by its own clock, which is never later.

        Args:
            ttl: How long the lease lives after its last renewal, in seconds: from three on, to a day.

        Raises:
            LeaseLost: The lease has ended, or was not renewed in time.
            CommandRefused: There are too many leases, or the time is out of bounds.
            NodeStopped: The node has stopped.
        """
        began, lease = await self._granted(ttl)
        lost: list[Exception] = []

        async def keep() -> None:
            try:
                await self._keep(lease, began)
            except (LeaseLost, NodeStopped) as failure:
                lost.append(failure)
                nursery.cancel_scope.cancel()

        with one_cause():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep)
                try:
                    yield lease
                finally:
                    nursery.cancel_scope.cancel()
                    await self._let_go(lease)
        # One error, also if the block has failed at the same time: then its own.
        for failure in lost:
            raise failure from None

    async def _granted(self, ttl: float) -> tuple[float, Lease]:
        """A new lease, and when it was asked for: not so long ago that no renewal could come in time any more.

        A grant waits as long as there is no leader, so it may come when its time is over by the holder's clock.
        Nobody relies on it by then, and another one is asked for.
        """
        while True:
            began = trio.current_time()
            lease = await self.grant(ttl)
            if trio.current_time() < began + ttl - ttl / _RENEWALS:
                return began, lease

    async def grant(self, ttl: float = DEFAULT_TTL) -> Lease:
        """Begin a lease that its holder renews by itself, for holders that are to lose it when they hang.

        Args:
            ttl: How long the lease lives after its last renewal, in seconds: from three on, to a day.

        Raises:
            CommandRefused: There are too many leases, or the time is out of bounds.
            NodeStopped: The node has stopped; there may be such a lease or not.
        """
        why = fault_in_life(ttl)
        if why is not None:
            raise CommandRefused(why)
        return Lease((await self._submit(Grant(round(ttl * 1000)), Granted)).lease, ttl)

    async def renew(self, lease: Lease) -> None:
        """Begin the time of a lease anew. Raises `LeaseLost` if it has ended, and `NodeStopped`."""
        try:
            await self._submit(Renew(lease.id), Done)
        except LeaseLost:
            lease.is_held = False
            raise

    async def revoke(self, lease: Lease) -> None:
        """End a lease, with its keys. Raises `LeaseLost` if it has ended, and `NodeStopped`."""
        lease.is_held = False
        await self._submit(Revoke(lease.id), Done)

    async def _keep(self, lease: Lease, renewed: float) -> None:
        """Renew a lease until it is lost. It counts from before each renewal that has succeeded."""
        try:
            while True:
                await trio.sleep_until(renewed + lease.ttl / _RENEWALS)
                began = trio.current_time()
                with trio.move_on_at(renewed + lease.ttl):
                    await self.renew(lease)
                    renewed = began
                if renewed != began:
                    raise LeaseLost(f"lease {lease.id} could not be renewed in {lease.ttl} s")
        finally:
            lease.is_held = False

    async def _let_go(self, lease: Lease) -> None:
        lease.is_held = False
        with trio.move_on_after(_REVOKE_S, shield=True):
            try:
                await self.revoke(lease)
            except (LeaseLost, NodeStopped):
                # It has ended, or ends by itself.
                return


@asynccontextmanager
async def open_store(config: Config) -> AsyncIterator[Store]:
    """Run a node with a store for the duration of an `async with` block; see `open_node`, which has more arguments.

    Args:
        config: The node's configuration.
    """
    async with open_node(config, state_machine=StoreMachine) as node:
        yield Store(node)


@asynccontextmanager
async def create_store(directory: str, **given: Unpack[NodeSettings]) -> AsyncIterator[Store]:
    """Run the first node of a replicated store; other nodes `join_store`. See `create`.

    Args:
        directory: The node's directory.
        given: See `NodeSettings`: `node_id`, `listen`, `advertise`, `tls`, `sasl`, `monitor`, `settings`.
    """
    async with create(directory, state_machine=StoreMachine, **given) as node:
        yield Store(node)


@asynccontextmanager
async def join_store(address: str, directory: str, **given: Unpack[NodeSettings]) -> AsyncIterator[Store]:
    """Run a node that joins a replicated store, and votes from the beginning of the block on. See `join`.

    Args:
        address: The addresses of some nodes of the store: `host:port`, several with commas.
        directory: The node's directory.
        given: See `NodeSettings`: `node_id`, `listen`, `advertise`, `tls`, `sasl`, `monitor`, `settings`.
    """
    async with join(address, directory, state_machine=StoreMachine, **given) as node:
        yield Store(node)


@asynccontextmanager
async def connect_store(address: str, **given: Unpack[NodeSettings]) -> AsyncIterator[Store]:
    """Use a replicated store without a vote, a directory or a port, for the duration of the block. See `observe`.

    All of the store works: reads and watches are answered from a copy in memory, which follows the log, and changes go
    to the leader.

    Args:
        address: The addresses of some nodes of the store: `host:port`, several with commas.
        given: `tls`, `sasl`, `monitor` and `settings` of `NodeSettings`.
    """
    async with observe(address, state_machine=StoreMachine, **given) as node:
        yield Store(node)


def _machine_of(node: StateMachineNode[Command, Result]) -> StoreMachine:
    machine = node.machine
    assert isinstance(machine, StoreMachine), "a store needs a node with state_machine=kraft.StoreMachine"
    return machine


def _conditions(key: str, version: int | None, value: bytes | None) -> tuple[Condition, ...]:
    wanted: list[Condition] = []
    if version is not None:
        wanted.append(IfVersion(key, version))
    if value is not None:
        wanted.append(IfValue(key, value))
    return tuple(wanted)
