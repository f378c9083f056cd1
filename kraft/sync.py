"""Nodes, the store and its recipes for programs without an event loop: the names of `kraft`, with methods that wait.

A thread of its own runs the node, with Trio. Any thread may call; a program may have many callers at a time. After a
fork the child must open a store of its own: a call raises `Forked` there. What a block holds, as a lock, may be lost
while the block runs: `Held.is_held` says so, and the end of the block raises `LeaseLost`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack, overload

from kraft.admin.descriptions import QuorumDescription
from kraft.client import Acknowledged, ConsumedRecord, ShareSettings
from kraft.client import client as trio_client
from kraft.client import share_consumer as trio_shares
from kraft.committed import CommittedBatch
from kraft.config import Config, NodeSettings
from kraft.node import embed, joining
from kraft.node import node as trio_node
from kraft.node import state_machine_node as trio_machine
from kraft.node.appends import Append
from kraft.node.committed import LogSnapshot
from kraft.node.errors import AppendsFull, NodeStopped
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
from kraft.trio_thread import Kept, LoopEnded, TrioThread, wait_for
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

    def __init__(self, thread: TrioThread[Any], timeout: float | None = None) -> None:
        self.thread = thread
        self.timeout = timeout
        """How long a call waits, in seconds; None for as long as it takes."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function in the thread of the node."""
        return self.thread.call(function, timeout=self.timeout)


class _Block(Generic[T]):
    """A block of `with` around a block of `async with` in the other thread."""

    def __init__(self, remote: _Remote, manager: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._remote = remote
        self._manager = manager
        self._kept: Kept[T] | None = None

    def __enter__(self) -> T:
        """Wait until it is held. Raises `RuntimeError` in a block of the same object."""
        if self._kept is not None:
            raise RuntimeError("this object is in use: each holder makes its own")
        kept = self._kept = self._remote.thread.keep(self._manager())
        try:
            return wait_for(kept.opened, self._remote.timeout)
        except BaseException:
            self._kept = None
            kept.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        kept, self._kept = self._kept, None
        assert kept is not None
        if not kept.ended.done():
            kept.close()
        kept.ended.result()


class _Events(Iterator[E], Generic[E]):
    """An iterator over an asynchronous one in the other thread. A call that gave up at its time may be repeated."""

    def __init__(self, remote: _Remote, events: Callable[[], Awaitable[E]]) -> None:
        self._remote = remote
        self._next = events

    def __iter__(self) -> _Events[E]:
        return self

    def __next__(self) -> E:
        try:
            return self._remote.call(self._next)
        except (StopAsyncIteration, LoopEnded):
            raise StopIteration from None


class AppendHandle(Append, kw_only=True):
    """An append under way, of `Node.append_soon`; `result` waits for it, in any thread."""

    thread: TrioThread[Any]
    event: threading.Event | None = None
    """Set when it is done, if somebody waits."""

    def result(self, timeout: float | None = None) -> int:
        """Wait until the append is done, for so many seconds; None for as long as it takes.

        Returns:
            The offset of the first value.

        Raises:
            TimeoutError: It is not done yet. The append goes on.
            NotLeader: And the other errors of `Node.append`.
            Forked: This process is a fork of the one that appends.
        """
        if not self.is_done:
            self.thread.check_process()
            with _LOCK:
                if self.event is None:
                    self.event = threading.Event()
                    self.then = _set_event
            # The thread of the node sets `is_done`, and looks at `then` after that.
            if not self.is_done and not self.event.wait(timeout) and not self.is_done:
                raise TimeoutError
        return self.outcome()


_LOCK = threading.Lock()
"""Held while the first one begins to wait for a handle."""


def _set_event(handle: AppendHandle) -> None:
    assert handle.event is not None
    handle.event.set()


class _Offsets(Iterator[int]):
    """The offsets of appends, in their order. A call that gave up at its time may be repeated."""

    def __init__(self, node: Node, units: Iterable[Sequence[bytes]], outstanding: int) -> None:
        self._node = node
        self._units = iter(units)
        self._outstanding = outstanding
        self._handles: deque[AppendHandle] = deque()
        self._unit: Sequence[bytes] | None = None
        """The values that were taken from the source, and wait for room."""

    def __iter__(self) -> _Offsets:
        return self

    def __next__(self) -> int:
        node, handles = self._node, self._handles
        while len(handles) < self._outstanding:
            unit, self._unit = self._unit, None
            if unit is None and (unit := next(self._units, None)) is None:
                break
            try:
                handles.append(node.append_soon(unit))
            except AppendsFull:
                self._unit = unit
                if handles:
                    break
                node.call(node.trio.appends.wait_for_room)
        if not handles:
            raise StopIteration
        offset = handles[0].result(node.timeout)
        handles.popleft()
        return offset


class Node(_Remote):
    """A node that runs in the other thread; see `kraft.Node`. `open_node`, `create` and `join` make it.

    Every method raises `TimeoutError` if the node was made by `within` and the time is over; what was asked may or may
    not have been done then. After the end of the block methods raise `LoopEnded`.
    """

    def __init__(self, thread: TrioThread[Any], node: trio_node.Node, timeout: float | None = None) -> None:
        super().__init__(thread, timeout)
        self.trio = node
        """The node of the other thread."""
        # What is asked after an append happens after it.
        thread.ahead = node.appends.take_gathered

    def within(self, timeout: float | None) -> Node:
        """The same node, with another time for each call, in seconds."""
        return Node(self.thread, self.trio, timeout)

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

    def status(self) -> ReplicaStatus:
        """The current state of this node's replica: leader, epoch and offsets."""
        return wait_for(self.thread.do(self.trio.status), self.timeout)

    def wait_for_leader(self) -> LeaderAndEpoch:
        """Wait until this node knows a leader that accepts appends."""
        return self.call(self.trio.wait_for_leader)

    def leaders(self) -> Iterator[LeaderAndEpoch]:
        """Follow who leads; see `kraft.Node.leaders`."""
        return _Events(self, self.trio.leaders().__anext__)

    def memberships(self) -> Iterator[tuple[Voter, ...]]:
        """Follow who votes; see `kraft.Node.memberships`."""
        return _Events(self, self.trio.memberships().__anext__)

    def append(self, values: Sequence[bytes]) -> int:
        """Append raw record values as one atomic unit and wait for the commit; see `kraft.Node.append`."""
        return self.call(partial(self.trio.append, values))

    def append_soon(self, values: Sequence[bytes]) -> AppendHandle:
        """Append raw record values as one atomic unit, and return at once; see `kraft.Node.append_soon`.

        What threads append while the thread of the node is busy goes to it together, and to the log as one batch.

        Returns:
            A handle, whose `result` is the offset of the first value.

        Raises:
            AppendsFull: The outstanding appends exceed a memory limit; the values are not appended.
            AppendRejected: There are no values.
            NodeStopped: The node has stopped.
            LoopEnded: Its thread has ended, too.
            Forked: This process is a fork of the one that has the node.
        """
        thread = self.thread
        thread.check_process()
        handle = AppendHandle(len(values), thread=thread)
        try:
            if self.trio.appends.gather(values, handle) == 1:
                thread.wake()
        except NodeStopped:
            thread.wake()
            raise
        return handle

    def append_many(self, units: Iterable[Sequence[bytes]], *, outstanding: int = 1024) -> Iterator[int]:
        """Append one unit after the other, while earlier ones are under way; see `kraft.Node.append_many`.

        Args:
            units: Units of record values. While the source takes its time, no offset is returned.
            outstanding: The most units that are under way.

        Returns:
            An iterator over the offset of the first value of each unit, in their order, once it is committed.
        """
        return _Offsets(self, units, outstanding)

    def committed(self, from_offset: int = 0) -> Iterator[CommittedBatch]:
        """Iterate over the committed batches, and wait for more; see `kraft.Node.committed`."""
        return _Events(self, self.trio.committed(from_offset).__anext__)

    def describe_quorum(self) -> QuorumDescription:
        """Ask the leader how far each voter and each observer is; see `kraft.Node.describe_quorum`."""
        return self.call(self.trio.describe_quorum)

    def add_voter(self, node_id: int | None = None, address: str | None = None) -> None:
        """Make an observer that has caught up a voter; see `kraft.Node.add_voter`."""
        self.call(partial(self.trio.add_voter, node_id, address))

    def remove_voter(self, node_id: int, *, force: bool = False) -> None:
        """Make a voter an observer; see `kraft.Node.remove_voter`."""
        self.call(partial(self.trio.remove_voter, node_id, force=force))

    def snapshot(self, state: bytes | None = None, *, offset: int | None = None) -> OffsetAndEpoch | None:
        """Write a snapshot; see `kraft.Node.snapshot`."""
        return self.call(partial(self.trio.snapshot, state, offset=offset))

    def load_snapshot(self) -> LogSnapshot | None:
        """The newest snapshot of a raw log; see `kraft.Node.load_snapshot`."""
        return self.call(self.trio.load_snapshot)

    def backup(self, folder: str) -> str:
        """Write what this node has into a file; see `kraft.Node.backup`."""
        return self.call(partial(self.trio.backup, folder))

    def transfer_leadership(self, node_id: int | None = None) -> LeaderAndEpoch:
        """Hand the leadership of this node over; see `kraft.Node.transfer_leadership`."""
        return self.call(partial(self.trio.transfer_leadership, node_id))


class ClientSession(_Remote, Generic[C, R]):
    """The session of a client that numbers its commands itself; see `kraft.ClientSession`."""

    def __init__(
        self, thread: TrioThread[Any], session: trio_machine.ClientSession[C, R], timeout: float | None = None
    ) -> None:
        super().__init__(thread, timeout)
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

    def submit(self, command: C, sequence: int) -> R:
        """Apply a command exactly once, however often it is repeated; see `kraft.ClientSession.submit`."""
        return self.call(partial(self.trio.submit, command, sequence))


class StateMachineNode(Node, Generic[C, R]):
    """A node with a log that drives a state machine; see `kraft.StateMachineNode`."""

    trio: trio_machine.StateMachineNode[C, R]

    def __init__(
        self, thread: TrioThread[Any], node: trio_machine.StateMachineNode[C, R], timeout: float | None = None
    ) -> None:
        super().__init__(thread, node, timeout)

    def within(self, timeout: float | None) -> StateMachineNode[C, R]:
        """The same node, with another time for each call, in seconds."""
        return StateMachineNode(self.thread, self.trio, timeout)

    def submit(self, command: C) -> R:
        """Apply a command exactly once, and wait until it is applied; see `kraft.StateMachineNode.submit`."""
        return self.call(partial(self.trio.submit, command))

    def open_session(self, client: str) -> ClientSession[C, R]:
        """Open the session of a client, or resume it; see `kraft.StateMachineNode.open_session`."""
        return ClientSession(self.thread, self.call(partial(self.trio.open_session, client)), self.timeout)

    def age(self) -> float:
        """How old the state of this node may be, in seconds; see `kraft.StateMachineNode.age`."""
        return wait_for(self.thread.do(self.trio.age), self.timeout)

    def read(
        self, look: Callable[[Any], T] | None = None, *, linearizable: bool = True, max_age: float | None = None
    ) -> T:
        """Read this node's state machine; see `kraft.StateMachineNode.read`. The thread of the node calls `look`."""
        return self.call(partial(self.trio.read, look, linearizable=linearizable, max_age=max_age))

    def watch(self, types: Sequence[str] = ()) -> Iterator[Change[C, R]]:
        """Iterate over the commands that this node applies from now on; see `kraft.StateMachineNode.watch`."""
        made = self.thread.do(self.trio.watch, types)
        # The thread has made it before it does what is asked later.
        return _Events(self, lambda: made.result().__anext__())


class StoreWatch(_Events[Event]):
    """The changes after a revision, each once and in order; see `kraft.store.StoreWatch`."""


class Store(_Remote):
    """A replicated key-value store; see `kraft.Store`. `open_store` makes it.

    Every method raises `TimeoutError` if the store was made by `within` and the time is over; a change may or may not
    have been made then. After the end of `open_store` methods raise `LoopEnded`.
    """

    def __init__(self, thread: TrioThread[Any], store: trio_store.Store, timeout: float | None = None) -> None:
        super().__init__(thread, timeout)
        self.trio = store
        """The store of the other thread."""
        self.node: StateMachineNode[Command, Result] = StateMachineNode(thread, store.node, timeout)
        """The node of this store."""

    def within(self, timeout: float | None) -> Store:
        """The same store, with another time for each call, in seconds."""
        return Store(self.thread, self.trio, timeout)

    def age(self) -> float:
        """How old what this node has may be, in seconds; see `kraft.Store.age`."""
        return wait_for(self.thread.do(self.trio.age), self.timeout)

    def get(self, key: str, *, linearizable: bool = True, max_age: float | None = None) -> Entry | None:
        """Read a key; see `kraft.Store.get`."""
        return self.call(partial(self.trio.get, key, linearizable=linearizable, max_age=max_age))

    def scan(
        self,
        prefix: str = "",
        *,
        after: str = "",
        limit: int = 1000,
        linearizable: bool = True,
        max_age: float | None = None,
    ) -> Page:
        """Read the first keys with a prefix; see `kraft.Store.scan`."""
        return self.call(
            partial(self.trio.scan, prefix, after=after, limit=limit, linearizable=linearizable, max_age=max_age)
        )

    def entries(self, prefix: str = "", *, linearizable: bool = True) -> Iterator[Entry]:
        """Iterate over all keys with a prefix, a page at a time; see `kraft.Store.entries`."""
        page = self.scan(prefix, linearizable=linearizable)
        while True:
            yield from page.entries
            if page.is_last:
                return
            page = self.scan(prefix, after=page.entries[-1].key, linearizable=linearizable)

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

    def put(
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
        return self.call(
            partial(put, key, value, if_version=if_version, if_absent=if_absent, if_value=if_value, lease=lease)
        )

    def delete(self, key: str, *, if_version: int | None = None, if_value: bytes | None = None) -> bool:
        """Delete a key; see `kraft.Store.delete`."""
        return self.call(partial(self.trio.delete, key, if_version=if_version, if_value=if_value))

    def clear(self, prefix: str) -> int:
        """Delete all keys with a prefix; see `kraft.Store.clear`."""
        return self.call(partial(self.trio.clear, prefix))

    def transact(self, *operations: Operation, conditions: tuple[Condition, ...] = ()) -> int:
        """Change several keys at once; see `kraft.Store.transact`."""
        return self.call(partial(self.trio.transact, *operations, conditions=conditions))

    def lease(self, ttl: float = DEFAULT_TTL) -> _Block[Lease]:
        """Hold a lease for the duration of the block; see `kraft.Store.lease`."""
        return _Block(self, partial(self.trio.lease, ttl))

    def grant(self, ttl: float = DEFAULT_TTL) -> Lease:
        """Begin a lease that its holder renews by itself; see `kraft.Store.grant`."""
        return self.call(partial(self.trio.grant, ttl))

    def renew(self, lease: Lease) -> None:
        """Begin the time of a lease anew; see `kraft.Store.renew`."""
        self.call(partial(self.trio.renew, lease))

    def revoke(self, lease: Lease) -> None:
        """End a lease, with its keys; see `kraft.Store.revoke`."""
        self.call(partial(self.trio.revoke, lease))


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

    def leader(self, *, linearizable: bool = True) -> Leader | None:
        """The leader of now; None if nobody does."""
        return self._store.call(partial(self._trio.leader, linearizable=linearizable))

    def observe(self) -> Iterator[Leader | None]:
        """Follow who leads; see `kraft.Election.observe`."""
        return _Events(self._store, self._trio.observe().__anext__)


class Barrier:
    """A number of programs wait for each other; see `kraft.Barrier`."""

    def __init__(self, store: Store, name: str, parties: int, ttl: float = DEFAULT_TTL) -> None:
        self._store = store
        self._trio = recipes.Barrier(store.trio, name, parties, ttl)

    def wait(self) -> None:
        """Wait until all parties wait."""
        self._store.call(self._trio.wait)


class Counter:
    """A number that many programs add to; see `kraft.Counter`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._trio = recipes.Counter(store.trio, name)

    def add(self, amount: int = 1) -> int:
        """Add to the number, and return what it is then."""
        return self._store.call(partial(self._trio.add, amount))

    def value(self, *, linearizable: bool = True) -> int:
        """The number."""
        return self._store.call(partial(self._trio.value, linearizable=linearizable))


class Queue:
    """A queue of values, each of which is taken once; see `kraft.Queue`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._trio = recipes.Queue(store.trio, name)

    def put(self, value: bytes) -> None:
        """Add a value at the end."""
        self._store.call(partial(self._trio.put, value))

    def get(self) -> bytes:
        """Take the first value, and wait for one if there is none."""
        return self._store.call(self._trio.get)


class WorkQueue:
    """A queue of jobs, which come again when their worker dies or fails; see `kraft.WorkQueue`."""

    def __init__(self, store: Store, name: str, *, attempts: int = DEFAULT_ATTEMPTS, ttl: float = DEFAULT_TTL) -> None:
        self._store = store
        self._trio = work_queue.WorkQueue(store.trio, name, attempts=attempts, ttl=ttl)

    def put(self, value: bytes) -> int:
        """Add a job at the end, and return its number."""
        return self._store.call(partial(self._trio.put, value))

    @contextmanager
    def take(self) -> Iterator[Job]:
        """Take the first job that nobody has, and settle it at the end of the block; see `kraft.WorkQueue.take`."""
        with _Block(self._store, self._trio.take) as job, job.unless_it_fails():
            yield job

    def dead(self, *, limit: int = 1000) -> tuple[DeadLetter, ...]:
        """The first dead letters, in the order of their jobs."""
        return self._store.call(partial(self._trio.dead, limit=limit))

    def retry(self, letter: DeadLetter) -> int:
        """Make a dead letter a new job, and return its number; see `kraft.WorkQueue.retry`."""
        return self._store.call(partial(self._trio.retry, letter))

    def forget(self, letter: DeadLetter) -> None:
        """Delete a dead letter; see `kraft.WorkQueue.forget`."""
        self._store.call(partial(self._trio.forget, letter))


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

    def batch(self) -> Sequence[ConsumedRecord]:
        """Wait for the next records; see `kraft.client.ShareConsumer.batch`."""
        return self.call(self.trio.batch)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Each record, without an end; unless `explicit`, it is accepted when the next one is asked for."""
        return _Events(self, aiter(self.trio).__anext__)

    def accept(self, record: ConsumedRecord) -> None:
        """Say that a record is done; see `kraft.client.ShareConsumer.accept`."""
        wait_for(self.thread.do(self.trio.accept, record), self.timeout)

    def release(self, record: ConsumedRecord) -> None:
        """Give a record back; see `kraft.client.ShareConsumer.release`."""
        wait_for(self.thread.do(self.trio.release, record), self.timeout)

    def reject(self, record: ConsumedRecord) -> None:
        """Say that no member is to get a record again; see `kraft.client.ShareConsumer.reject`."""
        wait_for(self.thread.do(self.trio.reject, record), self.timeout)

    def renew(self, record: ConsumedRecord) -> None:
        """Keep a record for longer; see `kraft.client.ShareConsumer.renew`."""
        wait_for(self.thread.do(self.trio.renew, record), self.timeout)

    def commit(self) -> tuple[Acknowledged, ...]:
        """Send what was acknowledged, and wait for the outcomes; see `kraft.client.ShareConsumer.commit`."""
        return self.call(self.trio.commit)


@overload
def open_node(
    config: Config, *, state_machine: Callable[[], StateMachine[C, R]]
) -> AbstractContextManager[StateMachineNode[C, R]]: ...


@overload
def open_node(config: Config) -> AbstractContextManager[Node]: ...


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
) -> AbstractContextManager[StateMachineNode[C, R]]: ...


@overload
def create(directory: str, **given: Unpack[NodeSettings]) -> AbstractContextManager[Node]: ...


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
) -> AbstractContextManager[StateMachineNode[C, R]]: ...


@overload
def join(address: str, directory: str, **given: Unpack[NodeSettings]) -> AbstractContextManager[Node]: ...


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
) -> AbstractContextManager[StateMachineNode[C, R]]:
    """Run a node without a vote, a directory and a listener in a thread of its own; see `kraft.observe`."""
    return _opened(joining.observe(address, state_machine=state_machine, **given), StateMachineNode)


def open_store(config: Config) -> AbstractContextManager[Store]:
    """Run a node with a store in a thread of its own; see `kraft.open_store`, and `open_node`."""
    return _opened(trio_store.open_store(config), Store, "kraft-store")


def create_store(directory: str, **given: Unpack[NodeSettings]) -> AbstractContextManager[Store]:
    """Run the first node of a replicated store in a thread of its own; see `kraft.create_store`, and `open_node`."""
    return _opened(trio_store.create_store(directory, **given), Store, "kraft-store")


def join_store(address: str, directory: str, **given: Unpack[NodeSettings]) -> AbstractContextManager[Store]:
    """Run a node that joins a replicated store in a thread of its own; see `kraft.join_store`, and `open_node`."""
    return _opened(trio_store.join_store(address, directory, **given), Store, "kraft-store")


def connect_store(address: str, **given: Unpack[NodeSettings]) -> AbstractContextManager[Store]:
    """Use a replicated store without a vote and a directory, by a thread; see `kraft.connect_store`."""
    return _opened(trio_store.connect_store(address, **given), Store, "kraft-store")


def open_share_consumer(
    bootstrap: Iterable[Endpoint],
    topic: str,
    group: str,
    settings: ShareSettings = ShareSettings(),
    *,
    on_acknowledged: Callable[[Acknowledged], None] | None = None,
) -> AbstractContextManager[ShareConsumer]:
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


@contextmanager
def _opened(
    manager: AbstractAsyncContextManager[V], wrap: Callable[[TrioThread[V], V], T], name: str = "kraft-node"
) -> Iterator[T]:
    """Open something of Trio in a thread of its own.

    An error of the node ends the block only at its end; until then methods raise `NodeStopped` or `LoopEnded`. If the
    block ends without an error, the node shuts down gracefully.
    """
    thread = TrioThread(manager, name)
    try:
        yield wrap(thread, wait_for(thread.opened))
        thread.close()
        wait_for(thread.ended)
    finally:
        thread.stop()
