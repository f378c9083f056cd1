"""The appends of a program that embeds a node: handles, and how they go to the replica.

What a program appends before the owner of the replica has its turn is one `Submit`, so one unit of the log. An append
by a task of its own costs turns of that task, and one in a group costs little more than its record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar, overload

import trio
from msgspec import Struct, field

from kraft.limits import APPEND_GROUP_WEIGHT
from kraft.node.errors import AppendRejected, AppendsFull, NodeError, NodeStopped, NotLeader, OutcomeUnknown
from kraft.node.inbox import Inbox
from kraft.node.room import Room
from kraft.process.parts import Input
from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD
from kraft.replica.interface.events import Submit, SubmitDone
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error

_NOT_LEADING: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.NOT_CONTROLLER})
_WEIGHT: Final = 1024
"""An upper estimate of the bytes that an append takes besides its values."""
_FULL: Final = "the outstanding appends take as much memory as they may"


class Append(Struct, eq=False):
    """An append under way. Each kind of program waits for it in its own way."""

    count: int
    """The number of values."""
    is_done: bool = False
    """Whether the append is committed, or has failed."""
    first: int = NO_OFFSET
    failure: Callable[[], NodeError] | None = None
    tasks: list[trio.lowlevel.Task] | None = None
    then: Callable[[Any], object] | None = None
    """Called with it once it is done, in the thread of the node, before any task that awaits it; must not raise."""

    def outcome(self) -> int:
        """The offset of the first value of an append that is done; raises its error."""
        if self.failure is not None:
            raise self.failure()
        return self.first

    def tell(self) -> None:
        """Tell whoever waits that it is done."""
        if self.then is not None:
            self.then(self)
        if self.tasks is not None:
            for task in self.tasks:
                trio.lowlevel.reschedule(task)


H = TypeVar("H", bound=Append)


class AppendHandle(Append):
    """An append under way, of `Node.append_soon`. `await` it for the offset of its first value.

    To await a handle that is done is no checkpoint. To cancel what awaits it does not take the append back. The errors
    of an append are those of `Node.append`; one that nobody asks for is lost.
    """

    @property
    def offset(self) -> int:
        """The offset of the first value. Raises the error of the append, and `trio.WouldBlock` while it is not done."""
        if not self.is_done:
            raise trio.WouldBlock
        return self.outcome()

    def __await__(self) -> Generator[Any, Any, int]:
        """Wait until the append is done; returns the offset of the first value."""
        if not self.is_done:
            tasks = self.tasks
            if tasks is None:
                tasks = self.tasks = []
            task = trio.lowlevel.current_task()
            tasks.append(task)

            def forget(_: Callable[[], None]) -> trio.lowlevel.Abort:
                tasks.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            yield from trio.lowlevel.wait_task_rescheduled(forget).__await__()  # noqa: ASYNC105 - this is no coroutine
        if self.failure is not None:
            raise self.failure()
        return self.first


class AwaitableAppend(Protocol):
    """A handle that a stream of appends awaits, with Trio or with asyncio."""

    @property
    def is_done(self) -> bool:
        """Whether the append is committed, or has failed."""

    def __await__(self) -> Generator[Any, Any, int]:
        """Wait until the append is done; returns the offset of the first value."""


class _Group(Struct, eq=False):
    """The appends of one `Submit`, whose values still grow while nothing comes after it in the inbox."""

    submit: Submit
    handles: list[Append] = field(default_factory=list)
    weight: int = BATCH_OVERHEAD


class Appends:
    """The outstanding appends of one node; their limit is in bytes. A group of several fits into `batch_bytes`."""

    def __init__(self, inbox: Inbox[Input], *, limit: int, batch_bytes: int) -> None:
        self._inbox = inbox
        self.room = Room(limit)
        """The room for more appends."""
        self._group_weight = min(batch_bytes, APPEND_GROUP_WEIGHT)
        self._next_id = 1
        self._last: _Group | None = None
        """The last group."""
        self._groups: dict[int, _Group] = {}
        """The groups that are not done, by the ids of their events."""
        self.outstanding = 0
        """How many appends are under way."""
        self._lock = threading.Lock()
        """Held while what other threads append is gathered, and while it is taken."""
        self._gathered: list[tuple[Sequence[bytes], Append]] = []
        self._gathered_weight = 0

    @overload
    def append_soon(self, values: Sequence[bytes]) -> AppendHandle: ...

    @overload
    def append_soon(self, values: Sequence[bytes], gathered: H) -> H: ...

    def append_soon(self, values: Sequence[bytes], gathered: Append | None = None) -> Append:
        """Submit one atomic unit; raises `AppendsFull` beyond the limit, `NodeStopped`, `AppendRejected` if empty.

        What was `gathered` has a handle already, and was let in by then. `TypeError`
        for a value that is no bytes; nothing is submitted then.
        """
        room, events, group = self.room, self._inbox.events, self._last
        if room.is_closed:
            raise NodeStopped("the node has stopped")
        if room.weight >= room.limit and gathered is None:
            raise AppendsFull(_FULL)
        count = len(values)
        if not count:
            # It may have waited for room, and then others wait for it.
            room.let_in()
            raise AppendRejected(Error.INVALID_REQUEST)
        # TypeError for what is no bytes comes here, in its caller: the owner of the replica would end with it.
        length = len(b"".join(values))
        weight = _WEIGHT + RECORD_OVERHEAD * count + length
        # What stands last in the inbox has not been taken by the owner. The weight is more than the size in the batch.
        if group is None or not events or events[-1] is not group.submit or group.weight + weight > self._group_weight:
            self._inbox.check_caller()
            submit = Submit(self._next_id, [])
            self._next_id += 1
            group = self._last = self._groups[submit.submit_id] = _Group(submit)
            self._inbox.put(submit)
            room.weight += BATCH_OVERHEAD
        handle = AppendHandle(count) if gathered is None else gathered
        group.submit.values.extend(values)
        group.handles.append(handle)
        group.weight += weight
        room.weight += weight
        if room.crowd:
            room.let_in()
        self.outstanding += 1
        return handle

    def gather(self, values: Sequence[bytes], handle: Append) -> int:
        """Gather one atomic unit in any thread, until `take_gathered`; returns how many are gathered.

        Raises `AppendsFull` beyond the limit, `NodeStopped`, and `AppendRejected` if there are no values.
        """
        if not handle.count:
            raise AppendRejected(Error.INVALID_REQUEST)
        weight = _WEIGHT + RECORD_OVERHEAD * handle.count + len(b"".join(values))
        room = self.room
        with self._lock:
            if room.is_closed:
                raise NodeStopped("the node has stopped")
            if room.weight + self._gathered_weight >= room.limit:
                raise AppendsFull(_FULL)
            # A copy: the caller may change its list before the values are taken.
            self._gathered.append((tuple(values), handle))
            self._gathered_weight += weight
            return len(self._gathered)

    async def wait_for_room(self) -> None:
        """Wait until there is room, for a program in another thread, which appends later or never."""
        await self.room.wait()
        self.room.let_in()

    def take_gathered(self) -> None:
        """Submit what was gathered, in its order."""
        if not self._gathered:
            return
        with self._lock:
            gathered, self._gathered, self._gathered_weight = self._gathered, [], 0
        for values, handle in gathered:
            try:
                self.append_soon(values, handle)
            except NodeStopped:
                handle.failure, handle.is_done = _stopped, True
                handle.tell()

    def finish(self, done: SubmitDone) -> None:
        """Settle the appends of a group."""
        group = self._groups.pop(done.submit_id)
        failure = None
        if done.is_uncertain or done.error is not Error.NONE:
            failure = partial(_error, done)
        self._settle(group, done.base_offset, failure)
        self.room.add(-group.weight)

    def _settle(self, group: _Group, first: int, failure: Callable[[], NodeError] | None) -> None:
        self.outstanding -= len(group.handles)
        for handle in group.handles:
            handle.first, handle.failure, handle.is_done = first, failure, True
            first += handle.count
            if handle.tasks is not None or handle.then is not None:
                handle.tell()

    def stop(self) -> None:
        """Fail all appends that are not done, as no outcome follows any more."""
        groups, self._groups = self._groups, {}
        for group in groups.values():
            self._settle(group, NO_OFFSET, _stopped)
        with self._lock:
            self.room.close()
        # Nothing is gathered any more.
        self.take_gathered()


class AppendedOffsets(AsyncIterator[int]):
    """The offsets of appends, in their order, of `Node.append_many`. Trio or asyncio runs it, as its parts do."""

    __slots__ = ("_append_soon", "_handles", "_has_more", "_later", "_now", "_outstanding", "_unit", "_wait_for_room")

    def __init__(
        self,
        append_soon: Callable[[Sequence[bytes]], AwaitableAppend],
        wait_for_room: Callable[[], Awaitable[None]],
        units: Iterable[Sequence[bytes]] | AsyncIterable[Sequence[bytes]],
        outstanding: int,
    ) -> None:
        self._append_soon = append_soon
        self._wait_for_room = wait_for_room
        self._outstanding = outstanding
        self._later = units.__aiter__() if isinstance(units, AsyncIterable) else None
        self._now: Iterator[Sequence[bytes]] = iter(() if isinstance(units, AsyncIterable) else units)
        self._handles: deque[AwaitableAppend] = deque()
        self._has_more = True
        self._unit: Sequence[bytes] | None = None
        """The values that were taken from the source, and wait for room."""

    def __aiter__(self) -> AppendedOffsets:
        return self

    async def __anext__(self) -> int:
        handles = self._handles
        while self._has_more and len(handles) < self._outstanding:
            unit = self._unit
            try:
                if unit is not None:
                    self._unit = None
                elif self._later is None:
                    unit = next(self._now)
                elif handles and handles[0].is_done:
                    # The source may take its time, and must not hold back what is committed.
                    break
                else:
                    unit = await self._later.__anext__()
            except (StopIteration, StopAsyncIteration):
                self._has_more = False
                break
            try:
                handles.append(self._append_soon(unit))
            except AppendsFull:
                # Others may have taken the room while the source took its time.
                self._unit = unit
                if handles:
                    break
                await self._wait_for_room()
        if not handles:
            raise StopAsyncIteration
        offset = await handles[0]
        handles.popleft()
        return offset


def _error(done: SubmitDone) -> NodeError:
    if done.is_uncertain:
        return OutcomeUnknown(done.leader)
    if done.error in _NOT_LEADING:
        return NotLeader(done.leader)
    return AppendRejected(done.error)


def _stopped() -> NodeError:
    return NodeStopped("the node stopped before the append was committed; it may or may not be in the log")
