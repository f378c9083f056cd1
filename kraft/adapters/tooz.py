"""A driver of tooz, OpenStack's library of coordination: groups, locks and leaders on `kraft.Store`.

    coordinator = tooz.coordination.get_coordinator("kraft:///etc/nova/c1.properties?timeout=10", b"host-1")

`kraft.adapters.reach` has the forms of the URL. The one option, `timeout`, is how long a coordinator that has died
still counts as a member, leader and holder, in seconds of the log's clock; and how long a call waits for the quorum.

A coordinator needs no heartbeat: the thread of the store renews its leases, also while the program computes. What it
holds it holds at most until it is stopped, or the process ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar, TypeVarTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

import tooz
import trio
from tooz import coordination, locking, utils
from tooz.coordination import Capabilities, Characteristics, CoordinatorResult

from kraft.adapters.reach import SCHEME, store_at
from kraft.admin.errors import NoController
from kraft.config import ConfigError, UsageError
from kraft.node.errors import NodeError, NodeStopped
from kraft.state_machine import CommandRefused
from kraft.store.commands import Append, Entry, IfValue, IfVersion, Put
from kraft.store.errors import Conflict, LeaseLost, StoreError
from kraft.store.machine import appended_key
from kraft.store.store import Lease, Store
from kraft.sync import Store as SyncStore
from kraft.trio_thread import Forked, Kept, LoopEnded, wait_for
from metadata_log.errors import MetadataLogError

T = TypeVar("T")
P = TypeVarTuple("P")
_DEFAULT_TIMEOUT: Final = 30.0
_GROUPS: Final = "tooz/groups/"
_MEMBERS: Final = "tooz/members/"
_LEADERS: Final = "tooz/leaders/"
_LOCKS: Final = "tooz/locks/"
_EXCLUSIVE: Final = b"exclusive"
_SHARED: Final = b"shared"


class KraftLock(locking.Lock):
    """A lock: the places of a line in the store, each with a lease. Readers share what no writer before them wants."""

    def __init__(self, driver: KraftDriver, name: bytes) -> None:
        super().__init__(name)
        self._driver = driver
        self._line = f"{_LOCKS}{_quoted(name)}/"
        self._places: list[tuple[str, Kept[str | None]]] = []

    def acquire(self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None) -> bool:
        """Join the line, and wait until its turn comes; see `tooz.locking.Lock.acquire`.

        Args:
            blocking: False to give up at once, a number to give up after so many seconds.
            shared: Whether others that share may hold it at the same time.
            timeout: The same as a number for `blocking`.
        """
        waits = blocking is not False
        patience = float(blocking) if waits and blocking is not True else timeout
        with _translated():
            kept = self._driver.keep(self._place(_SHARED if shared else _EXCLUSIVE, waits=waits))
            try:
                place = wait_for(kept.opened, patience if waits else self._driver.timeout)
            except TimeoutError:
                if waits:
                    return False
                raise
        if place is None:
            kept.close()
            return False
        self._places.append((place, kept))
        return True

    @asynccontextmanager
    async def _place(self, value: bytes, *, waits: bool) -> AsyncIterator[str | None]:
        """A place that holds the lock; None if there is none at once."""
        store = self._driver.store.trio
        if not waits and not _may_hold(value, await self._entries(store)):
            yield None
            return
        async with store.lease(self._driver.timeout) as lease:
            changes = store.watch(self._line)
            key = appended_key(self._line, await store.transact(Append(self._line, value, lease.id)))
            while not (holds := _holds(key, value, await self._entries(store, linearizable=False))) and waits:
                if await store.get(key, linearizable=False) is None:
                    raise LeaseLost(f"the place {key} in the line was lost")
                if await anext(changes, None) is None:
                    raise NodeStopped("the node has stopped")
            yield key if holds else None

    async def _entries(self, store: Store, *, linearizable: bool = True) -> Sequence[Entry]:
        return (await store.scan(self._line, linearizable=linearizable)).entries

    def release(self) -> bool:
        """Give the lock back; False if it was not held, or is held no more."""
        try:
            key, kept = self._places.pop()
        except IndexError:
            return False
        try:
            return self._driver.ask(self._driver.store.trio.delete, key).get()
        finally:
            kept.close()

    def break_(self) -> bool:
        """Take the lock from whoever holds it; False if nobody does."""

        async def take() -> bool:
            store = self._driver.store.trio
            entries = await self._entries(store)
            holders = [one.key for one in entries if _holds(one.key, one.value, entries)]
            return any([await store.delete(key) for key in holders])

        return self._driver.ask(take).get()

    def is_still_owner(self) -> bool:
        """Whether this object still holds the lock, by what the quorum says."""

        async def is_there() -> bool:
            store = self._driver.store.trio
            return any([await store.get(key) is not None for key, _ in self._places])

        return self._driver.ask(is_there).get()

    @property
    def acquired(self) -> bool:
        """Whether this object has acquired the lock, and has not released or lost it as far as it knows."""
        return any(not kept.ended.done() for _, kept in self._places)


def _may_hold(value: bytes, before: Sequence[Entry]) -> bool:
    """Whether a place in the queue holds the lock, by its value and the places before it."""
    return all(one.value == _SHARED for one in before) if value == _SHARED else not before


def _holds(key: str, value: bytes, entries: Sequence[Entry]) -> bool:
    keys = [one.key for one in entries]
    return key in keys and _may_hold(value, entries[: keys.index(key)])


class KraftDriver(coordination.CoordinationDriverCachedRunWatchers):
    """The driver; see the module."""

    CHARACTERISTICS = (
        Characteristics.NON_TIMEOUT_BASED,
        Characteristics.DISTRIBUTED_ACROSS_THREADS,
        Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
        Characteristics.DISTRIBUTED_ACROSS_HOSTS,
        Characteristics.LINEARIZABLE,
        Characteristics.SEQUENTIAL,
        Characteristics.CAUSAL,
        Characteristics.SERIALIZABLE,
    )

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(utils.to_binary(member_id), parsed_url, options)
        self._url = f"{SCHEME}://{parsed_url.netloc}{parsed_url.path}"
        self.timeout = float(utils.collapse(options).get("timeout", _DEFAULT_TIMEOUT))
        """The life of a lease, and the time of a call, in seconds."""
        self._opened = ExitStack()
        self._store: SyncStore | None = None
        self._session: Kept[Lease] | None = None
        """Its lease ends with this coordinator, and with it what the coordinator is: a member, a leader."""
        self._kept: set[Kept[Any]] = set()

    # What every method needs

    @property
    def store(self) -> SyncStore:
        """The store. Raises `tooz.ToozError` unless the coordinator is started."""
        if self._store is None:
            raise tooz.ToozError("the coordinator is not started")
        return self._store

    def keep(self, manager: AbstractAsyncContextManager[T]) -> Kept[T]:
        """Keep something open in the thread of the store, until the coordinator stops at the latest."""
        kept = self.store.thread.keep(manager)
        self._kept.add(kept)
        kept.ended.add_done_callback(lambda _: self._kept.discard(kept))
        return kept

    def ask(self, function: Callable[[*P], Awaitable[T]], *args: *P) -> CoordinatorResult[T]:
        """Run an asynchronous function in the thread of the store."""

        async def in_time() -> T:
            with trio.fail_after(self.timeout):
                return await function(*args)

        with _translated():
            return CoordinatorResult(self.store.thread.start(in_time), _translated)

    def _lease(self) -> Lease:
        """The lease of this coordinator; a new one if the last one was lost."""
        with _translated():
            if self._session is None or self._session.ended.done():
                self._session = self.keep(self.store.trio.lease(self.timeout))
            return wait_for(self._session.opened, self.timeout)

    def _start(self) -> None:
        with _translated():
            self._store = self._opened.enter_context(store_at(self._url))
        try:
            self._lease()
        except BaseException as failure:
            self._stop()
            if isinstance(failure, coordination.OperationTimedOut):
                raise coordination.ToozConnectionError(f"no quorum at {self._url} in {self.timeout} s") from failure
            raise

    def _stop(self) -> None:
        kept = list(self._kept)
        for one in kept:
            one.close()
        wait(one.ended for one in kept)
        self._store = self._session = None
        with _translated():
            self._opened.close()

    # Groups

    def create_group(self, group_id: bytes) -> CoordinatorResult[None]:
        """Create a group; see `tooz.coordination.CoordinationDriver`, also for the other methods."""

        async def create() -> None:
            try:
                await self.store.trio.put(_group(group_id), b"", if_absent=True)
            except Conflict:
                raise coordination.GroupAlreadyExist(group_id) from None

        return self.ask(create)

    def delete_group(self, group_id: bytes) -> CoordinatorResult[None]:
        """Delete a group without members."""

        async def delete() -> None:
            store = self.store.trio
            while True:
                group = await self._existing(group_id)
                if (await store.scan(_members(group_id), limit=1)).entries:
                    raise coordination.GroupNotEmpty(group_id)
                # Who joins changes the group's version.
                with suppress(Conflict):
                    await store.delete(group.key, if_version=group.version)
                    return

        return self.ask(delete)

    def get_groups(self) -> CoordinatorResult[list[bytes]]:
        """All groups."""

        async def groups() -> list[bytes]:
            return [_id_of(one) async for one in self.store.trio.entries(_GROUPS)]

        return self.ask(groups)

    async def _existing(self, group_id: bytes) -> Entry:
        group = await self.store.trio.get(_group(group_id))
        if group is None:
            raise coordination.GroupNotCreated(group_id)
        return group

    # Members

    def join_group(self, group_id: bytes, capabilities: Capabilities | None = None) -> CoordinatorResult[None]:
        """Join a group, until the coordinator leaves it, stops, or dies."""
        lease = self._lease()
        group, member = _group(group_id), _member(group_id, self._member_id)

        async def join() -> None:
            joined = (Put(member, utils.dumps(capabilities), lease.id), Put(group, b""))
            try:
                await self.store.trio.transact(*joined, conditions=(IfVersion(member, 0), IfValue(group, b"")))
            except Conflict as found:
                if found.key == group:
                    raise coordination.GroupNotCreated(group_id) from None
                raise coordination.MemberAlreadyExist(group_id, self._member_id) from None
            self._joined_groups.add(group_id)

        return self.ask(join)

    def leave_group(self, group_id: bytes) -> CoordinatorResult[None]:
        """Leave a group."""

        async def leave() -> None:
            if not await self.store.trio.delete(_member(group_id, self._member_id)):
                raise coordination.MemberNotJoined(group_id, self._member_id)
            self._joined_groups.discard(group_id)

        return self.ask(leave)

    def update_capabilities(self, group_id: bytes, capabilities: Capabilities) -> CoordinatorResult[None]:
        """Change what the others see of this member."""

        async def update() -> None:
            while True:
                entry = await self._joined(group_id, self._member_id)
                changed = Put(entry.key, utils.dumps(capabilities), entry.lease)
                with suppress(Conflict):
                    await self.store.trio.transact(changed, conditions=(IfVersion(entry.key, entry.version),))
                    return

        return self.ask(update)

    async def _joined(self, group_id: bytes, member_id: bytes) -> Entry:
        entry = await self.store.trio.get(_member(group_id, member_id))
        if entry is None:
            await self._existing(group_id)
            raise coordination.MemberNotJoined(group_id, member_id)
        return entry

    async def _capabilities(self, group_id: bytes, member_id: bytes) -> Capabilities | None:
        return _loaded((await self._joined(group_id, member_id)).value)

    async def _with_capabilities(self, group_id: bytes) -> dict[bytes, Capabilities | None]:
        members = [one async for one in self.store.trio.entries(_members(group_id))]
        if not members:
            await self._existing(group_id)
        return {_id_of(one): _loaded(one.value) for one in members}

    def get_members(self, group_id: bytes) -> CoordinatorResult[set[bytes]]:
        """The members of a group."""

        async def members() -> set[bytes]:
            return set(await self._with_capabilities(group_id))

        return self.ask(members)

    def get_members_with_capabilities(self, group_id: bytes) -> CoordinatorResult[dict[bytes, Capabilities | None]]:
        """The members of a group, with what they told of themselves."""
        return self.ask(self._with_capabilities, group_id)

    def get_member_capabilities(self, group_id: bytes, member_id: bytes) -> CoordinatorResult[Capabilities | None]:
        """The capabilities that a member gave when it joined."""
        return self.ask(self._capabilities, group_id, member_id)

    def get_member_info(self, group_id: bytes, member_id: bytes) -> CoordinatorResult[dict[str, Any]]:
        """A dictionary about a member, with its capabilities."""

        async def info() -> dict[str, Any]:
            return {"capabilities": await self._capabilities(group_id, member_id)}

        return self.ask(info)

    # Leaders

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Call who watches a group that has changed, or that this coordinator leads now."""
        called = super().run_watchers(timeout)
        self.run_elect_coordinator()
        return called

    def run_elect_coordinator(self) -> None:
        """Become the leader of each watched group that has none."""
        for group_id in list(self._hooks_elected_leader):
            lease = self._lease()
            if self.ask(self._lead, group_id, lease).get():
                self._hooks_elected_leader[group_id].run(coordination.LeaderElected(group_id, self._member_id))

    async def _lead(self, group_id: bytes, lease: Lease) -> bool:
        store = self.store.trio
        if await store.get(_leader(group_id)) is None:
            with suppress(Conflict):
                await store.put(_leader(group_id), self._member_id, if_absent=True, lease=lease)
                return True
        return False

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """Stop to lead a group; False if another coordinator leads it, or none."""
        lease = self._lease()

        async def resign() -> bool:
            leader = await self.store.trio.get(_leader(group_id))
            if leader is None or leader.lease != lease.id:
                return False
            with suppress(Conflict):
                return await self.store.trio.delete(leader.key, if_version=leader.version)
            return False

        return self.ask(resign).get()

    def get_leader(self, group_id: bytes) -> CoordinatorResult[bytes | None]:  # type: ignore[override]  # of a group without one, too
        """The member that leads a group; None if none does."""

        async def leader() -> bytes | None:
            entry = await self.store.trio.get(_leader(group_id))
            return None if entry is None else entry.value

        return self.ask(leader)

    # Locks

    def get_lock(self, name: bytes) -> KraftLock:
        """A lock, which nobody holds by that."""
        return KraftLock(self, name)


def _quoted(one: bytes | str) -> str:
    return quote_from_bytes(utils.to_binary(one), safe="")


def _group(group_id: bytes) -> str:
    return f"{_GROUPS}{_quoted(group_id)}"


def _members(group_id: bytes) -> str:
    return f"{_MEMBERS}{_quoted(group_id)}/"


def _member(group_id: bytes, member_id: bytes) -> str:
    return f"{_members(group_id)}{_quoted(member_id)}"


def _leader(group_id: bytes) -> str:
    return f"{_LEADERS}{_quoted(group_id)}"


def _id_of(entry: Entry) -> bytes:
    """The id of a group or a member, with which its key ends."""
    return unquote_to_bytes(entry.key.rpartition("/")[2])


def _loaded(value: bytes) -> Capabilities | None:
    loaded: Capabilities | None = utils.loads(value)
    return loaded


@contextmanager
def _translated() -> Iterator[None]:
    """Our errors as tooz's."""
    try:
        yield
    except (TimeoutError, trio.TooSlowError) as failure:
        raise coordination.OperationTimedOut("no quorum has answered in time") from failure
    except (NodeStopped, LoopEnded, Forked, NoController, OSError) as failure:
        raise coordination.ToozConnectionError(str(failure)) from failure
    except (StoreError, CommandRefused, NodeError, ConfigError, UsageError, MetadataLogError) as failure:
        raise tooz.ToozError(str(failure)) from failure
