"""A node with a state machine of the user's own: commands, reads and changes, from any node of the quorum."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import trio

from kraft.node.errors import AppendRejected, ChangesSkipped, NodeStopped, SessionExpired, Superseded
from kraft.node.node import BUSY, OUTSTANDING_APPEND_BYTES, Node, NodeParts
from kraft.node.waiters import Waiters
from kraft.replica.hosts import state_machine_log as log
from kraft.replica.hosts.state_machine_calls import MaybeApplied, OpenCall, SubmitCall, TooLarge
from kraft.replica.hosts.state_machine_host import Changes, ReadCall, Skipped, StateMachineHost
from kraft.replica.interface.events import Call, CancelCall, Noted, Output, Returned
from kraft.state_machine import C, Change, R, Refused, StateMachine
from transport.protocol.errors import Error

T = TypeVar("T")
_WEIGHT: Final = 1024
"""Bytes that a call takes beside its command, generously."""
MOST_UNREAD_CHANGES: Final = 65_536
"""A watcher that is further behind is told that it has missed some."""


class Watch(AsyncIterator[Change[C, R]], Generic[C, R]):
    """An asynchronous iterator over the commands that this node applies, from now on: each once, in order.

    Ends when the node stops. Raises `ChangesSkipped` where some will not come: then look at the state and watch anew.
    """

    def __init__(self, types: Sequence[str], from_offset: int) -> None:
        self._types = frozenset(types)
        self._from_offset = from_offset
        self._unread: deque[Change[C, R]] = deque()
        self._skipped: ChangesSkipped | None = None
        self._ended = False
        self._news = trio.lowlevel.ParkingLot()

    def __aiter__(self) -> Watch[C, R]:
        return self

    async def __anext__(self) -> Change[C, R]:
        while not self._unread:
            if self._skipped is not None:
                raise self._skipped
            if self._ended:
                raise StopAsyncIteration
            await self._news.park()
        return self._unread.popleft()

    def put(self, changes: Sequence[Change[C, R]]) -> None:
        """These were applied."""
        wanted = [one for one in changes if not self._types or type(one.command).__name__ in self._types]
        if self._skipped is None and wanted:
            self._unread.extend(wanted)
            if len(self._unread) > MOST_UNREAD_CHANGES:
                self._unread.clear()
                self.skip("more changes are unread than are kept", wanted[-1].at.offset + 1)
            self._news.unpark_all()

    def skip(self, why: str, end_offset: int) -> None:
        """What is below this offset, and was not told, will not be."""
        if end_offset > self._from_offset and self._skipped is None:
            self._skipped = ChangesSkipped(why, end_offset)
            self._news.unpark_all()

    def end(self) -> None:
        """The node has stopped."""
        self._ended = True
        self._news.unpark_all()


class ClientSession(Generic[C, R]):
    """The session of a client that numbers its commands by itself, one after the other, and can so repeat one at any
    node, even after it was restarted.
    """

    def __init__(self, node: StateMachineNode[C, R], client: str, opened: log.Opened) -> None:
        self.client = client
        self.id = opened.session
        """Another id than before says that the former session is forgotten."""
        self.last_sequence = opened.last_sequence
        """The highest number of a command that was applied in it."""
        self._node = node

    async def submit(self, command: C, sequence: int) -> R:
        """Have the command with this number applied, once, however often it is repeated; the result is the same.

        The number says that the client knows what came of lower ones. Raises `SessionExpired` or `Superseded`, where
        that cannot be told any more, and what `StateMachineNode.submit` raises.
        """
        result = await self._node.submit_in(self.id, sequence, command)
        self.last_sequence = max(self.last_sequence, sequence)
        return result


class StateMachineNode(Node, Generic[C, R]):
    """One running node with a log that drives a state machine; `open_node(config, state_machine=…)` yields the node."""

    def __init__(self, parts: NodeParts) -> None:
        super().__init__(parts)
        host = parts.replica.application
        assert isinstance(host, StateMachineHost), host
        self._host = host
        host.watch(self._turns.watched)
        self._calls: Waiters[Returned] = Waiters(parts.inbox, limit=OUTSTANDING_APPEND_BYTES)
        self._watches: WeakSet[Watch[C, R]] = WeakSet()

    @property
    def machine(self) -> StateMachine[C, R]:
        """This node's state machine, as it is now: only to be looked at."""
        return self._host.machine

    async def submit(self, command: C) -> R:
        """Have a command applied, exactly once if this returns; by any node. Returns what `apply` returned, once it is
        committed and this node has applied it.

        Without a reachable leader the call waits, and repeats the request as often as necessary. A cancelled submit may
        still be applied. Raises `Refused` if `apply` did, `AppendRejected` for a command that is too large, `TypeError`
        for one that cannot be encoded; `SessionExpired` after this node was cut off for an hour, `NodeStopped`.
        """
        return await self._submit(SubmitCall(self._host.codec.encode(command)))

    async def submit_in(self, session: int, sequence: int, command: C) -> R:
        """Have the command with this number in a session applied; see `ClientSession.submit`."""
        return await self._submit(SubmitCall(self._host.codec.encode(command), session, sequence))

    async def _submit(self, ask: SubmitCall) -> R:
        match await self._call(ask):
            case log.Result(result):
                decoded: R = self._host.codec.result(result)
                return decoded
            case log.Refusal(why):
                raise Refused(why)
            case log.Superseded():
                raise Superseded("the session has gone on to later commands")
            case log.Expired() | MaybeApplied():
                raise SessionExpired("the session is forgotten: it was not used for too long")
            case TooLarge():
                raise AppendRejected(Error.MESSAGE_TOO_LARGE)
            case other:
                raise AssertionError(other)

    async def open_session(self, client: str) -> ClientSession[C, R]:
        """The session of a client, by a name that is its alone: the one that it has, or a new one."""
        opened = await self._call(OpenCall(client))
        assert isinstance(opened, log.Opened), opened
        return ClientSession(self, client, opened)

    async def read(self, look: Callable[[Any], T] | None = None, *, linearizable: bool = True) -> T:
        """Look at this node's state machine: what `look` returns, or the machine's own `value`.

        A linearizable read sees every command acknowledged to any client before the call, also on a node that
        does not lead: it waits until a majority has confirmed the leader, and this node has come as far. Any other sees
        what this node knows. Nothing is written for it.
        """
        if linearizable:
            await self._call(ReadCall())
        else:
            await trio.lowlevel.checkpoint()
        machine: Any = self._host.machine
        seen: T = machine.value() if look is None else look(machine)
        return seen

    def watch(self, types: Sequence[str] = ()) -> Watch[C, R]:
        """The commands that this node applies from now on, of these types only (names of classes), if any are given.

        Begin to watch before you look at the state: then what you have seen and what you are told leave nothing out.
        """
        watch: Watch[C, R] = Watch(types, self._host.applied_offset)
        self._watches.add(watch)
        return watch

    async def _call(self, ask: SubmitCall | OpenCall | ReadCall) -> object:
        weight = _WEIGHT + (len(ask.command) if isinstance(ask, SubmitCall) else 0)
        returned = await self._calls.ask(lambda call_id: Call(call_id, ask), CancelCall, weight=weight)
        if returned is None:
            raise NodeStopped("the node stopped before this was done; a command may or may not be applied")
        return returned.outcome

    # The tasks

    async def run(self, outputs: Sequence[Output], task_status: trio.TaskStatus[Node]) -> None:
        """See `Node.run`."""
        try:
            await super().run(outputs, task_status)
        finally:
            self._calls.stop()
            for watch in list(self._watches):
                watch.end()

    @property
    def _is_busy(self) -> bool:
        return super()._is_busy or len(self._calls.waiting) > BUSY

    def _on_told(self, told: Returned | Noted) -> None:
        match told:
            case Returned():
                self._calls.finish(told.call_id, told)
            case Noted(Changes(changes)):
                for watch in list(self._watches):
                    watch.put(changes)
            case Noted(Skipped(end_offset)):
                for watch in list(self._watches):
                    watch.skip("a snapshot has taken the place of the state", end_offset)
