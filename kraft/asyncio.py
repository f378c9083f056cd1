"""Nodes, the store and its recipes for programs on asyncio: the names of `kraft`, with methods to `await`.

A thread of its own runs the node, with Trio. Several event loops may use one store. To cancel a call is to cancel it in
the other thread, too; a change may or may not have been made then. After a fork the child must open a store of its own:
a call raises `Forked` there. A block that holds something, as a lock, is cancelled when that is lost, and ends with
`LeaseLost`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from kraft.admin.descriptions import QuorumDescription
from kraft.client import Acknowledged, ConsumedRecord, ShareSettings
from kraft.client import client as trio_client
from kraft.client import share_consumer as trio_shares
from kraft.committed import CommittedBatch
from kraft.config import Config, NodeSettings
from kraft.node import embed, joining
from kraft.node import node as trio_node
from kraft.node import state_machine_node as trio_machine
from kraft.node.appends import Append, AppendedOffsets
from kraft.node.committed import LogSnapshot
from kraft.node.errors import NodeStopped
from kraft.quorum.values import LeaderAndEpoch
from kraft.quorum.voters import Voter
from kraft.replica.interface.status import ReplicaStatus
from kraft.state_machine import C, Change, R, StateMachine
from kraft.store import locks, recipes, work_queue
from kraft.store import store as trio_store
from kraft.store.commands import Command, Condition, Entry, Event, Operation, Result
from kraft.store.locks import Held, Leader
from kraft.store.store import DEFAULT_TTL, Lease, Page
from kraft.store.work_queue import DEFAULT_ATTEMPTS, DeadLetter, Job
from kraft.trio_thread import Kept, LoopEnded, TrioThread
from metadata_log.lazy_names import public_dir
from metadata_log.types import OffsetAndEpoch
from transport.interface import Endpoint

__all__ = [
    "AppendHandle",
    "Barrier",
    "ClientSession",
    "Counter",
    "Election",
    "Lock",
    "Node",
    "Queue",
    "Semaphore",
    "ShareConsumer",
    "StateMachineNode",
    "Store",
    "StoreWatch",
    "WorkQueue",
    "connect_store",
    "create",
    "create_store",
    "join",
    "join_store",
    "observe",
    "open_node",
    "open_share_consumer",
    "open_store",
]
__dir__ = public_dir(__name__)

T = TypeVar("T")
V = TypeVar("V")
E = TypeVar("E")


class _Remote:
    """Something in the other thread."""

    def __init__(self, thread: TrioThread[Any]) -> None:
        self.thread = thread

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function in the thread of the node."""
        return await asyncio.wrap_future(self.thread.start(function))


class _Block(Generic[T]):
    """A block of `async with` around one in the other thread, which is cancelled when that one fails."""

    def __init__(self, remote: _Remote, manager: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._remote = remote
        self._manager = manager
        self._kept: Kept[T] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        """How often others had cancelled the task before the block."""
        self._was_lost = False
        """Whether this object has cancelled the task."""

    async def __aenter__(self) -> T:
        """Wait until it is held. Raises `RuntimeError` in a block of the same object."""
        if self._kept is not None:
            raise RuntimeError("this object is in use: each holder makes its own")
        kept = self._kept = self._remote.thread.keep(self._manager())
        try:
            value = await asyncio.wrap_future(kept.opened)
        except BaseException:
            self._kept = None
            kept.close()
            raise
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling, self._was_lost = self._task.cancelling(), False
        loop = asyncio.get_running_loop()

        def lose(_: object) -> None:
            # A loop that is closed has no task to cancel.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._lose, kept)

        kept.ended.add_done_callback(lose)
        return value

    def _lose(self, kept: Kept[T]) -> None:
        if self._kept is kept:
            assert self._task is not None
            self._was_lost = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        kept, task, self._kept, self._task = self._kept, self._task, None, None
        assert kept is not None
        assert task is not None
        if not kept.ended.done():
            kept.close()
        is_only_lost = self._was_lost and task.uncancel() <= self._cancelling
        failure = await _failure_of(kept.ended)
        if failure is not None and (kind is not asyncio.CancelledError or is_only_lost):
            raise failure


class _Events(AsyncIterator[E], Generic[E]):
    """An iterator over one in the other thread. A call that was cancelled may be repeated."""

    def __init__(self, remote: _Remote, events: Callable[[], Awaitable[E]]) -> None:
        self._remote = remote
        self._next = events

    def __aiter__(self) -> _Events[E]:
        return self

    async def __anext__(self) -> E:
        try:
            return await self._remote.call(self._next)
        except LoopEnded:
            raise StopAsyncIteration from None


class _Ends:
    """The ends of waits of one event loop. What ends before the loop has its turn is one call of it."""

    def __init__(self) -> None:
        self._futures: deque[asyncio.Future[None]] = deque()
        self._is_called = False

    def tell(self, future: asyncio.Future[None]) -> None:
        """End a wait, from any thread."""
        self._futures.append(future)
        # In this order, and in the other one in the loop: what comes too late for one call makes the next.
        if not self._is_called:
            self._is_called = True
            # A loop that is closed has no task that waits.
            with suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_called = False
        while self._futures:
            future = self._futures.popleft()
            if not future.done():
                future.set_result(None)


_ENDS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ends] = WeakKeyDictionary()
_LOCK = threading.Lock()
"""Held while a task begins to wait for a handle."""


class AppendHandle(Append, kw_only=True):
    """An append under way, of `Node.append_soon`. `await` it, in any event loop, for the offset of its first value.

    To await a handle that is done does not wait for a turn of the loop. To cancel what awaits it does not take the
    append back. The errors of an append are those of `Node.append`; one that nobody asks for is lost.
    """

    thread: TrioThread[Any]
    waiting: list[tuple[_Ends, asyncio.Future[None]]] | None = None

    def __await__(self) -> Generator[Any, Any, int]:
        """Wait until the append is done; returns the offset of the first value."""
        if not self.is_done:
            self.thread.check_process()
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            with _LOCK:
                ends = _ENDS.get(loop)
                if ends is None:
                    ends = _ENDS[loop] = _Ends()
                if self.waiting is None:
                    self.waiting = []
                self.waiting.append((ends, future))
                self.then = _tell_loops
            # The thread of the node sets `is_done`, and looks at `then` after that.
            if not self.is_done:
                yield from future
        return self.outcome()


def _tell_loops(handle: AppendHandle) -> None:
    for ends, future in handle.waiting or ():
        ends.tell(future)


_AT_ONCE: Final = 256
"""So many appends cross to the thread of the node before the turn of the loop ends."""


class Node(_Remote):
    """A node that runs in the other thread; see `kraft.Node`. `open_node`, `create` and `join` make it.

    After the end of the block methods raise `LoopEnded`.
    """

    def __init__(self, thread: TrioThread[Any], node: trio_node.Node) -> None:
        super().__init__(thread)
        self.trio = node
        """The node of the other thread."""
        # What is asked after an append happens after it.
        thread.ahead = node.appends.take_gathered
        self._crosses: asyncio.AbstractEventLoop | None = None
        """The event loop after whose turn the appends cross to the thread of the node."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses of the node's listeners, in the order of the configuration."""
        return self.trio.endpoints

    @property
    def is_active(self) -> bool:
        """Whether this node leads and takes appends."""
        self.thread.check_process()
        return self.trio.is_active

    @property
    def has_quorum(self) -> bool:
        """Whether this node leads a majority, or follows a leader, as far as it knows; see `kraft.Node.has_quorum`."""
        self.thread.check_process()
        return self.trio.has_quorum

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The committed voters that this node knows, by id."""
        self.thread.check_process()
        return self.trio.voters

    async def status(self) -> ReplicaStatus:
        """The current state of this node's replica: leader, epoch and offsets."""
        return await asyncio.wrap_future(self.thread.do(self.trio.status))

    async def wait_for_leader(self) -> LeaderAndEpoch:
        """Wait until this node knows a leader that accepts appends."""
        return await self.call(self.trio.wait_for_leader)

    def leaders(self) -> AsyncIterator[LeaderAndEpoch]:
        """Follow who leads; see `kraft.Node.leaders`."""
        return _Events(self, self.trio.leaders().__anext__)

    def memberships(self) -> AsyncIterator[tuple[Voter, ...]]:
        """Follow who votes; see `kraft.Node.memberships`."""
        return _Events(self, self.trio.memberships().__anext__)

    async def append(self, values: Sequence[bytes]) -> int:
        """Append raw record values as one atomic unit and wait for the commit; see `kraft.Node.append`."""
        return await self.call(partial(self.trio.append, values))

    def append_soon(self, values: Sequence[bytes]) -> AppendHandle:
        """Append raw record values as one atomic unit, and return at once; see `kraft.Node.append_soon`.

        There is no task for the append. What a program appends between two turns of its loop goes to the thread of the
        node together, and to the log as one batch. It is to be called where a loop runs.

        Returns:
            A handle. `await` it for the offset of the first value.

        Raises:
            AppendsFull: The outstanding appends exceed a memory limit; the values are not appended.
            AppendRejected: There are no values.
            NodeStopped: The node has stopped.
            LoopEnded: Its thread has ended, too.
            Forked: This process is a fork of the one that has the node.
        """
        thread = self.thread
        thread.check_process()
        loop = asyncio.get_running_loop()
        handle = AppendHandle(len(values), thread=thread)
        try:
            gathered = self.trio.appends.gather(values, handle)
        except NodeStopped:
            thread.wake()
            raise
        if self._crosses is not loop:
            self._crosses = loop
            loop.call_soon(self._cross)
        if not gathered % _AT_ONCE:
            self._wake()
        return handle

    def _cross(self) -> None:
        self._crosses = None
        self._wake()

    def _wake(self) -> None:
        # A node that has stopped has failed what was gathered.
        with suppress(LoopEnded):
            self.thread.wake()

    def append_many(
        self, units: Iterable[Sequence[bytes]] | AsyncIterable[Sequence[bytes]], *, outstanding: int = 1024
    ) -> AsyncIterator[int]:
        """Append one unit after the other, while earlier ones are under way; see `kraft.Node.append_many`.

        Args:
            units: Units of record values. An asynchronous source may wait, but not for the offsets of what it has
                given.
            outstanding: The most units that are under way.

        Returns:
            An asynchronous iterator over the offset of the first value of each unit, in their order, once it is
            committed.
        """
        wait_for_room = partial(self.call, self.trio.appends.wait_for_room)
        return AppendedOffsets(self.append_soon, wait_for_room, units, outstanding)

    def committed(self, from_offset: int = 0) -> AsyncIterator[CommittedBatch]:
        """Iterate over the committed batches, and wait for more; see `kraft.Node.committed`."""
        return _Events(self, self.trio.committed(from_offset).__anext__)

    async def describe_quorum(self) -> QuorumDescription:
        """Ask the leader how far each voter and each observer is; see `kraft.Node.describe_quorum`."""
        return await self.call(self.trio.describe_quorum)

    async def add_voter(self, node_id: int | None = None, address: str | None = None) -> None:
        """Make an observer that has caught up a voter; see `kraft.Node.add_voter`."""
        await self.call(partial(self.trio.add_voter, node_id, address))

    async def remove_voter(self, node_id: int, *, force: bool = False) -> None:
        """Make a voter an observer; see `kraft.Node.remove_voter`."""
        await self.call(partial(self.trio.remove_voter, node_id, force=force))

    async def snapshot(self, state: bytes | None = None, *, offset: int | None = None) -> OffsetAndEpoch | None:
        """Write a snapshot; see `kraft.Node.snapshot`."""
        return await self.call(partial(self.trio.snapshot, state, offset=offset))

    async def load_snapshot(self) -> LogSnapshot | None:
        """The newest snapshot of a raw log; see `kraft.Node.load_snapshot`."""
        return await self.call(self.trio.load_snapshot)

    async def backup(self, folder: str) -> str:
        """Write what this node has into a file; see `kraft.Node.backup`."""
        return await self.call(partial(self.trio.backup, folder))

    async def transfer_leadership(self, node_id: int | None = None) -> LeaderAndEpoch:
        """Hand the leadership of this node over; see `kraft.Node.transfer_leadership`."""
        return await self.call(partial(self.trio.transfer_leadership, node_id))


class ClientSession(_Remote, Generic[C, R]):
    """The session of a client that numbers its commands itself; see `kraft.ClientSession`."""

    def __init__(self, thread: TrioThread[Any], session: trio_machine.ClientSession[C, R]) -> None:
        super().__init__(thread)
        self.trio = session
        """The session in the other thread."""

    @property
    def client(self) -> str:
        """The name of the client."""
        return self.trio.client

    @property
    def id(self) -> int:
        """The session id; another id than before means that the former session has expired."""
        return self.trio.id

    @property
    def last_sequence(self) -> int:
        """The highest sequence number of a command applied in the session."""
        return self.trio.last_sequence

    async def submit(self, command: C, sequence: int) -> R:
        """Apply a command exactly once, however often it is repeated; see `kraft.ClientSession.submit`."""
        return await self.call(partial(self.trio.submit, command, sequence))


class StateMachineNode(Node, Generic[C, R]):
    """A node with a log that drives a state machine; see `kraft.StateMachineNode`."""

    trio: trio_machine.StateMachineNode[C, R]

    def __init__(self, thread: TrioThread[Any], node: trio_machine.StateMachineNode[C, R]) -> None:
        super().__init__(thread, node)

    async def submit(self, command: C) -> R:
        """Apply a command exactly once, and wait until it is applied; see `kraft.StateMachineNode.submit`."""
        return await self.call(partial(self.trio.submit, command))

    async def open_session(self, client: str) -> ClientSession[C, R]:
        """Open the session of a client, or resume it; see `kraft.StateMachineNode.open_session`."""
        return ClientSession(self.thread, await self.call(partial(self.trio.open_session, client)))

    async def age(self) -> float:
        """How old the state of this node may be, in seconds; see `kraft.StateMachineNode.age`."""
        return await asyncio.wrap_future(self.thread.do(self.trio.age))

    async def read(
        self, look: Callable[[Any], T] | None = None, *, linearizable: bool = True, max_age: float | None = None
    ) -> T:
        """Read this node's state machine; see `kraft.StateMachineNode.read`. The thread of the node calls `look`."""
        return await self.call(partial(self.trio.read, look, linearizable=linearizable, max_age=max_age))

    def watch(self, types: Sequence[str] = ()) -> AsyncIterator[Change[C, R]]:
        """Iterate over the commands that this node applies from now on; see `kraft.StateMachineNode.watch`."""
        made = self.thread.do(self.trio.watch, types)
        # The thread has made it before it does what is asked later.
        return _Events(self, lambda: made.result().__anext__())


class StoreWatch(_Events[Event]):
    """The changes after a revision, each once and in order; see `kraft.store.StoreWatch`."""


class Store(_Remote):
    """A replicated key-value store; see `kraft.Store`. `open_store` makes it.

    After the end of `open_store` methods raise `LoopEnded`.
    """

    def __init__(self, thread: TrioThread[Any], store: trio_store.Store) -> None:
        super().__init__(thread)
        self.trio = store
        """The store of the other thread."""
        self.node: StateMachineNode[Command, Result] = StateMachineNode(thread, store.node)
        """The node of this store."""

    async def age(self) -> float:
        """How old what this node has may be, in seconds; see `kraft.Store.age`."""
        return await asyncio.wrap_future(self.thread.do(self.trio.age))

    async def get(self, key: str, *, linearizable: bool = True, max_age: float | None = None) -> Entry | None:
        """Read a key; see `kraft.Store.get`."""
        return await self.call(partial(self.trio.get, key, linearizable=linearizable, max_age=max_age))

    async def scan(
        self,
        prefix: str = "",
        *,
        after: str = "",
        limit: int = 1000,
        linearizable: bool = True,
        max_age: float | None = None,
    ) -> Page:
        """Read the first keys with a prefix; see `kraft.Store.scan`."""
        return await self.call(
            partial(self.trio.scan, prefix, after=after, limit=limit, linearizable=linearizable, max_age=max_age)
        )

    async def entries(self, prefix: str = "", *, linearizable: bool = True) -> AsyncIterator[Entry]:
        """Iterate over all keys with a prefix, a page at a time; see `kraft.Store.entries`."""
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
        self.thread.check_process()
        return self.trio.revision

    @property
    def fullness(self) -> float:
        """How much of its room the store uses, from 0 to 1; see `kraft.Store.fullness`."""
        self.thread.check_process()
        return self.trio.fullness

    def watch(self, prefix: str = "", *, key: str | None = None, after: int | None = None) -> StoreWatch:
        """Follow changes; see `kraft.Store.watch`."""
        self.thread.check_process()
        watch = self.trio.watch(prefix, key=key, after=after)
        return StoreWatch(self, watch.__anext__)

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
        """Set the value of a key; see `kraft.Store.put`."""
        put = self.trio.put
        return await self.call(
            partial(put, key, value, if_version=if_version, if_absent=if_absent, if_value=if_value, lease=lease)
        )

    async def delete(self, key: str, *, if_version: int | None = None, if_value: bytes | None = None) -> bool:
        """Delete a key; see `kraft.Store.delete`."""
        return await self.call(partial(self.trio.delete, key, if_version=if_version, if_value=if_value))

    async def clear(self, prefix: str) -> int:
        """Delete all keys with a prefix; see `kraft.Store.clear`."""
        return await self.call(partial(self.trio.clear, prefix))

    async def transact(self, *operations: Operation, conditions: tuple[Condition, ...] = ()) -> int:
        """Change several keys at once; see `kraft.Store.transact`."""
        return await self.call(partial(self.trio.transact, *operations, conditions=conditions))

    def lease(self, ttl: float = DEFAULT_TTL) -> _Block[Lease]:
        """Hold a lease for the duration of the block; see `kraft.Store.lease`."""
        return _Block(self, partial(self.trio.lease, ttl))

    async def grant(self, ttl: float = DEFAULT_TTL) -> Lease:
        """Begin a lease that its holder renews by itself; see `kraft.Store.grant`."""
        return await self.call(partial(self.trio.grant, ttl))

    async def renew(self, lease: Lease) -> None:
        """Begin the time of a lease anew; see `kraft.Store.renew`."""
        await self.call(partial(self.trio.renew, lease))

    async def revoke(self, lease: Lease) -> None:
        """End a lease, with its keys; see `kraft.Store.revoke`."""
        await self.call(partial(self.trio.revoke, lease))


class Semaphore(_Block[Held]):
    """A lock that a number of holders have at a time; see `kraft.Semaphore`."""

    def __init__(self, store: Store, name: str, count: int, ttl: float = DEFAULT_TTL) -> None:
        super().__init__(store, partial(locks.Semaphore, store.trio, name, count, ttl))


class Lock(_Block[Held]):
    """A lock that one holder has at a time; see `kraft.Lock`."""

    def __init__(self, store: Store, name: str, ttl: float = DEFAULT_TTL) -> None:
        super().__init__(store, partial(locks.Lock, store.trio, name, ttl))


class Election:
    """An election among programs; see `kraft.Election`."""

    def __init__(self, store: Store, name: str, ttl: float = DEFAULT_TTL) -> None:
        self._store = store
        self._trio = locks.Election(store.trio, name, ttl)

    def campaign(self, value: bytes = b"") -> _Block[Held]:
        """Wait until this candidate leads; it leads in the block, and resigns at the end."""
        return _Block(self._store, partial(self._trio.campaign, value))

    async def leader(self, *, linearizable: bool = True) -> Leader | None:
        """The leader of now; None if nobody does."""
        return await self._store.call(partial(self._trio.leader, linearizable=linearizable))

    def observe(self) -> AsyncIterator[Leader | None]:
        """Follow who leads; see `kraft.Election.observe`."""
        return _Events(self._store, self._trio.observe().__anext__)


class Barrier:
    """A number of programs wait for each other; see `kraft.Barrier`."""

    def __init__(self, store: Store, name: str, parties: int, ttl: float = DEFAULT_TTL) -> None:
        self._store = store
        self._trio = recipes.Barrier(store.trio, name, parties, ttl)

    async def wait(self) -> None:
        """Wait until all parties wait."""
        await self._store.call(self._trio.wait)


class Counter:
    """A number that many programs add to; see `kraft.Counter`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._trio = recipes.Counter(store.trio, name)

    async def add(self, amount: int = 1) -> int:
        """Add to the number, and return what it is then."""
        return await self._store.call(partial(self._trio.add, amount))

    async def value(self, *, linearizable: bool = True) -> int:
        """The number."""
        return await self._store.call(partial(self._trio.value, linearizable=linearizable))


class Queue:
    """A queue of values, each of which is taken once; see `kraft.Queue`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._trio = recipes.Queue(store.trio, name)

    async def put(self, value: bytes) -> None:
        """Add a value at the end."""
        await self._store.call(partial(self._trio.put, value))

    async def get(self) -> bytes:
        """Take the first value, and wait for one if there is none."""
        return await self._store.call(self._trio.get)


class WorkQueue:
    """A queue of jobs, which come again when their worker dies or fails; see `kraft.WorkQueue`."""

    def __init__(self, store: Store, name: str, *, attempts: int = DEFAULT_ATTEMPTS, ttl: float = DEFAULT_TTL) -> None:
        self._store = store
        self._trio = work_queue.WorkQueue(store.trio, name, attempts=attempts, ttl=ttl)

    async def put(self, value: bytes) -> int:
        """Add a job at the end, and return its number."""
        return await self._store.call(partial(self._trio.put, value))

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Job]:
        """Take the first job that nobody has, and settle it at the end of the block; see `kraft.WorkQueue.take`."""
        async with _Block(self._store, self._trio.take) as job:
            with job.unless_it_fails():
                yield job

    async def dead(self, *, limit: int = 1000) -> tuple[DeadLetter, ...]:
        """The first dead letters, in the order of their jobs."""
        return await self._store.call(partial(self._trio.dead, limit=limit))

    async def retry(self, letter: DeadLetter) -> int:
        """Make a dead letter a new job, and return its number; see `kraft.WorkQueue.retry`."""
        return await self._store.call(partial(self._trio.retry, letter))

    async def forget(self, letter: DeadLetter) -> None:
        """Delete a dead letter; see `kraft.WorkQueue.forget`."""
        await self._store.call(partial(self._trio.forget, letter))


class ShareConsumer(_Remote):
    """A member of a share group in the other thread; see `kraft.client.ShareConsumer`. `open_share_consumer` makes it.

    `accept`, `release`, `reject` and `renew` do not wait, as there.
    """

    def __init__(self, thread: TrioThread[Any], consumer: trio_shares.ShareConsumer) -> None:
        super().__init__(thread)
        self.trio = consumer
        """The member in the other thread."""

    @property
    def member(self) -> str:
        """The id of this member in the group."""
        return self.trio.member

    @property
    def lock_ms(self) -> int | None:
        """How long a record is locked for this member, in ms; None before a leader has answered."""
        return self.trio.lock_ms

    async def batch(self) -> Sequence[ConsumedRecord]:
        """Wait for the next records; see `kraft.client.ShareConsumer.batch`."""
        return await self.call(self.trio.batch)

    def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Each record, without an end; unless `explicit`, it is accepted when the next one is asked for."""
        return _Events(self, aiter(self.trio).__anext__)

    def accept(self, record: ConsumedRecord) -> None:
        """Say that a record is done; see `kraft.client.ShareConsumer.accept`."""
        self.thread.do(self.trio.accept, record)

    def release(self, record: ConsumedRecord) -> None:
        """Give a record back; see `kraft.client.ShareConsumer.release`."""
        self.thread.do(self.trio.release, record)

    def reject(self, record: ConsumedRecord) -> None:
        """Say that no member is to get a record again; see `kraft.client.ShareConsumer.reject`."""
        self.thread.do(self.trio.reject, record)

    def renew(self, record: ConsumedRecord) -> None:
        """Keep a record for longer; see `kraft.client.ShareConsumer.renew`."""
        self.thread.do(self.trio.renew, record)

    async def commit(self) -> tuple[Acknowledged, ...]:
        """Send what was acknowledged, and wait for the outcomes; see `kraft.client.ShareConsumer.commit`."""
        return await self.call(self.trio.commit)


@overload
def open_node(
    config: Config, *, state_machine: Callable[[], StateMachine[C, R]]
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]: ...


@overload
def open_node(config: Config) -> AbstractAsyncContextManager[Node]: ...


def open_node(config: Config, *, state_machine: Callable[[], StateMachine[Any, Any]] | None = None) -> Any:
    """Run a node in a thread of its own, for the duration of the block; see `kraft.open_node`.

    An error of the node ends the block only at its end; until then methods raise `NodeStopped` or `LoopEnded`. If the
    block ends without an error, the node shuts down gracefully.
    """
    if state_machine is None:
        return _opened(embed.open_node(config), Node)
    return _opened(embed.open_node(config, state_machine=state_machine), StateMachineNode)


@overload
def create(
    directory: str, *, state_machine: Callable[[], StateMachine[C, R]], **given: Unpack[NodeSettings]
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]: ...


@overload
def create(directory: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Node]: ...


def create(
    directory: str, *, state_machine: Callable[[], StateMachine[Any, Any]] | None = None, **given: Unpack[NodeSettings]
) -> Any:
    """Run the first node of a quorum in a thread of its own; see `kraft.create`, and `open_node`."""
    if state_machine is None:
        return _opened(joining.create(directory, **given), Node)
    return _opened(joining.create(directory, state_machine=state_machine, **given), StateMachineNode)


@overload
def join(
    address: str, directory: str, *, state_machine: Callable[[], StateMachine[C, R]], **given: Unpack[NodeSettings]
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]: ...


@overload
def join(address: str, directory: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Node]: ...


def join(
    address: str,
    directory: str,
    *,
    state_machine: Callable[[], StateMachine[Any, Any]] | None = None,
    **given: Unpack[NodeSettings],
) -> Any:
    """Run a node that joins a quorum in a thread of its own; see `kraft.join`, and `open_node`."""
    if state_machine is None:
        return _opened(joining.join(address, directory, **given), Node)
    return _opened(joining.join(address, directory, state_machine=state_machine, **given), StateMachineNode)


def observe(
    address: str, *, state_machine: Callable[[], StateMachine[C, R]], **given: Unpack[NodeSettings]
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]:
    """Run a node without a vote, a directory and a listener in a thread of its own; see `kraft.observe`."""
    return _opened(joining.observe(address, state_machine=state_machine, **given), StateMachineNode)


def open_store(config: Config) -> AbstractAsyncContextManager[Store]:
    """Run a node with a store in a thread of its own; see `kraft.open_store`, and `open_node`."""
    return _opened(trio_store.open_store(config), Store, "kraft-store")


def create_store(directory: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Store]:
    """Run the first node of a replicated store in a thread of its own; see `kraft.create_store`, and `open_node`."""
    return _opened(trio_store.create_store(directory, **given), Store, "kraft-store")


def join_store(address: str, directory: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Store]:
    """Run a node that joins a replicated store in a thread of its own; see `kraft.join_store`, and `open_node`."""
    return _opened(trio_store.join_store(address, directory, **given), Store, "kraft-store")


def connect_store(address: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Store]:
    """Use a replicated store without a vote and a directory, by a thread; see `kraft.connect_store`."""
    return _opened(trio_store.connect_store(address, **given), Store, "kraft-store")


def open_share_consumer(
    bootstrap: Iterable[Endpoint],
    topic: str,
    group: str,
    settings: ShareSettings = ShareSettings(),
    *,
    on_acknowledged: Callable[[Acknowledged], None] | None = None,
) -> AbstractAsyncContextManager[ShareConsumer]:
    """A member of a share group with a client and a thread of its own; see `kraft.client.Client.share`.

    Args:
        bootstrap: The addresses of some brokers.
        topic: The name of the topic.
        group: The name of the share group.
        settings: Whether records are accepted without a word, how many come at once, the time-out.
        on_acknowledged: Called in the other thread with each outcome of acknowledgements.
    """
    opened = trio_client.open_share_consumer(bootstrap, topic, group, settings, on_acknowledged=on_acknowledged)
    return _opened(opened, ShareConsumer, "kraft-shares")


@asynccontextmanager
async def _opened(
    manager: AbstractAsyncContextManager[V], wrap: Callable[[TrioThread[V], V], T], name: str = "kraft-node"
) -> AsyncIterator[T]:
    """Open something of Trio in a thread of its own.

    An error of the node ends the block only at its end; until then methods raise `NodeStopped` or `LoopEnded`. If the
    block ends without an error, the node shuts down gracefully.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("this runs in asyncio: in a Trio program use the same name of kraft") from None
    thread = TrioThread(manager, name)
    try:
        yield wrap(thread, await asyncio.wrap_future(thread.opened))
        thread.close()
        await _failure_of(thread.ended)
    finally:
        thread.cancel()
        failure = await _failure_of(thread.ended)
        if failure is not None:
            raise failure


async def _failure_of(ended: Future[None]) -> BaseException | None:
    """Wait for an end, and return its error. To cancel this is not to cancel the future."""
    waiting = asyncio.wrap_future(ended)
    await asyncio.wait([waiting])
    return waiting.exception()
