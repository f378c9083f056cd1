"""A node with a state machine of the user's own: commands, reads and changes, from any node of the quorum."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import trio

from kraft.calls import Call, CancelCall, Returned
from kraft.committed import Noted
from kraft.limits import OUTSTANDING_APPEND_BYTES, UNREAD_CHANGES
from kraft.node.errors import AppendRejected, ChangesSkipped, NodeStopped, SessionExpired, Superseded
from kraft.node.node import BUSY, Node, NodeParts
from kraft.node.waiters import Waiters
from kraft.replica.interface.events import Output
from kraft.state_machine import C, Change, CommandRefused, R, StateMachine, log
from kraft.state_machine.calls import MaybeApplied, OpenCall, SubmitCall, TooLarge
from kraft.state_machine.server import Changes, ReadCall, Skipped, StateMachineServer
from transport.protocol.errors import Error

T = TypeVar("T")
_WEIGHT: Final = 1024
"""An upper estimate of the bytes that a call takes besides its command."""


class Watch(AsyncIterator[Change[C, R]], Generic[C, R]):
    """An asynchronous iterator over the commands that a node applies from now on, each once and in order.

    The iteration ends when the node stops.

    Raises:
        ChangesSkipped: Some changes are missing; the watcher must read the state and begin a new watch.
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
        """Add applied commands."""
        wanted = [one for one in changes if not self._types or type(one.command).__name__ in self._types]
        if self._skipped is None and wanted:
            self._unread.extend(wanted)
            if len(self._unread) > UNREAD_CHANGES:
                self._unread.clear()
                self.skip("more changes are unread than are kept", wanted[-1].at.offset + 1)
            self._news.unpark_all()

    def skip(self, why: str, end_offset: int) -> None:
        """Report that undelivered changes below this offset are missing."""
        if end_offset > self._from_offset and self._skipped is None:
            self._skipped = ChangesSkipped(why, end_offset)
            self._news.unpark_all()

    def end(self) -> None:
        """Wake all who wait, as the node has stopped."""
        self._ended = True
        self._news.unpark_all()


class ClientSession(Generic[C, R]):
    """The session of a client that numbers its commands itself (Raft dissertation §6.3).

    The client submits one command after the other. It can repeat a command at any node, even after a restart.
    """

    def __init__(self, node: StateMachineNode[C, R], client: str, opened: log.Opened) -> None:
        self.client = client
        self.id = opened.session
        """The session id; another id than before means that the former session has expired."""
        self.last_sequence = opened.last_sequence
        """The highest sequence number of a command applied in the session."""
        self._node = node

    async def submit(self, command: C, sequence: int) -> R:
        """Apply a command exactly once, however often the client repeats it; each repetition returns the same result.

        Args:
            command: The command.
            sequence: The command's number. The client has received the results of all lower numbers.

        Returns:
            The result of `StateMachine.apply`.

        Raises:
            SessionExpired: The session has expired.
            Superseded: The client has already sent a higher number.
            CommandRefused: `StateMachine.apply` refused the command.
            AppendRejected: The command is too large.
            TypeError: The command cannot be encoded.
            NodeStopped: The node has stopped; the command may or may not be applied.
        """
        result = await self._node.submit_in(self.id, sequence, command)
        self.last_sequence = max(self.last_sequence, sequence)
        return result


class StateMachineNode(Node, Generic[C, R]):
    """One running node with a log that drives a state machine; `open_node(config, state_machine=…)` yields the node.

    All methods work on any node of the quorum, and must be called in the Trio thread (Kafka: `RaftClient.Listener`).
    """

    def __init__(self, parts: NodeParts) -> None:
        super().__init__(parts)
        host = parts.process.application
        assert isinstance(host, StateMachineServer), host
        self._host = host
        host.watch(self._turns.watched)
        self._calls: Waiters[Returned] = Waiters(parts.inbox, limit=OUTSTANDING_APPEND_BYTES)
        self._watches: WeakSet[Watch[C, R]] = WeakSet()
        self._applied = trio.lowlevel.ParkingLot()
        self._seen_at = float("-inf")
        """When the last linearizable read began: the state has everything that was acknowledged before."""

    @property
    def machine(self) -> StateMachine[C, R]:
        """This node's state machine in its current state; read-only."""
        return self._host.machine

    async def submit(self, command: C) -> R:
        """Apply a command exactly once, and wait until the command is committed and this node has applied it.

        Without a reachable leader the call waits, and repeats the request as often as necessary. The command of a
        cancelled call may still be applied.

        Args:
            command: The command.

        Returns:
            The result of `StateMachine.apply`.

        Raises:
            CommandRefused: `StateMachine.apply` refused the command.
            AppendRejected: The command is too large.
            TypeError: The command cannot be encoded.
            SessionExpired: This node was cut off from the quorum for an hour.
            NodeStopped: The node has stopped; the command may or may not be applied.
        """
        return await self._submit(SubmitCall(self._host.codec.encode(command)))

    async def submit_in(self, session: int, sequence: int, command: C) -> R:
        """Apply the command with this number in a session; see `ClientSession.submit`."""
        return await self._submit(SubmitCall(self._host.codec.encode(command), session, sequence))

    async def _submit(self, ask: SubmitCall) -> R:
        match await self._call(ask):
            case log.Result(result):
                decoded: R = self._host.codec.result(result)
                return decoded
            case log.Refusal(why):
                raise CommandRefused(why)
            case log.Superseded():
                raise Superseded("the session has gone on to later commands")
            case log.Expired() | MaybeApplied():
                raise SessionExpired("the session is forgotten: it was not used for too long")
            case TooLarge():
                raise AppendRejected(Error.MESSAGE_TOO_LARGE)
            case other:
                raise AssertionError(other)

    async def open_session(self, client: str) -> ClientSession[C, R]:
        """Open the session of a client, or resume the client's existing session.

        Args:
            client: A name that no other client uses.

        Raises:
            NodeStopped: The node has stopped.
        """
        opened = await self._call(OpenCall(client))
        assert isinstance(opened, log.Opened), opened
        return ClientSession(self, client, opened)

    def age(self) -> float:
        """How old the state of this node may be, in seconds: it has everything that was acknowledged longer ago.

        The time since the last linearizable read of this node began; it is infinite before the first one. No clock of
        another machine counts.
        """
        return trio.current_time() - self._seen_at

    async def read(
        self, look: Callable[[Any], T] | None = None, *, linearizable: bool = True, max_age: float | None = None
    ) -> T:
        """Read this node's state machine. A read writes nothing to the log (Raft dissertation §6.4).

        Args:
            look: Computes the result from the state machine; by default `StateMachine.value`.
            linearizable: Whether the read sees every command acknowledged to any client before the call. Such a read
                waits until a majority has confirmed the leader and this node has applied the log up to the leader's
                read index. Otherwise the read returns the local state of this node at once.
            max_age: Return the local state at once if its `age` is below so many seconds, and otherwise read it
                linearizably. Ignored with `linearizable=False`.

        Returns:
            The result of `look`, or of `StateMachine.value`.

        Raises:
            NodeStopped: The node has stopped.
        """
        if linearizable and (max_age is None or self.age() >= max_age):
            began = trio.current_time()
            await self._call(ReadCall())
            self._seen_at = max(self._seen_at, began)
        else:
            await trio.lowlevel.checkpoint()
        machine: Any = self._host.machine
        seen: T = machine.value() if look is None else look(machine)
        return seen

    async def backup(self, folder: str) -> str:
        """See `Node.backup`; the state is one that has everything that was acknowledged before."""
        await self._call(ReadCall())
        return await super().backup(folder)

    def watch(self, types: Sequence[str] = ()) -> Watch[C, R]:
        """Iterate over the commands that this node applies from now on.

        A caller that begins the watch before it reads the state misses no command.

        Args:
            types: The class names of the commands to return; empty for all commands.
        """
        watch: Watch[C, R] = Watch(types, self._host.applied_offset)
        self._watches.add(watch)
        return watch

    async def wait_for_applied(self) -> bool:
        """Wait until this node applies further commands, or takes a snapshot; False once the node has ended."""
        if not self._ended:
            self._inbox.check_caller()
            await self._applied.park()
        return not self._ended

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
            self._applied.unpark_all()
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
                self._applied.unpark_all()
                for watch in list(self._watches):
                    watch.put(changes)
            case Noted(Skipped(end_offset)):
                self._applied.unpark_all()
                for watch in list(self._watches):
                    watch.skip("a snapshot has taken the place of the state", end_offset)
            case _:
                super()._on_told(told)
