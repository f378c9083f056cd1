"""The one task that owns a replica, and the node's interface for other tasks (Kafka: `KafkaRaftClientDriver`).

All inputs are events in the owner's inbox. The owner takes events in bursts, steps the replica, carries out the outputs
in order, and sleeps until the next event or deadline. Between two steps of a burst it never waits. While it sleeps, the
transport's own task handles the events that the transport delivers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NoReturn, assert_never

import trio
from msgspec import Struct

from kraft.access.failures import RequestFailure
from kraft.committed import Committed, CommittedBatch, Noted
from kraft.limits import OUTSTANDING_APPEND_BYTES
from kraft.node.appends import Appends
from kraft.node.background import Flusher
from kraft.node.clock import NodeClock
from kraft.node.committed import CommittedBatches, read_committed
from kraft.node.inbound import Inbound
from kraft.node.inbox import Inbox
from kraft.node.logging import NodeLog
from kraft.node.monitoring import NodeMeter
from kraft.node.turns import LongestTurn, Turns
from kraft.node.watching import MetadataWatch
from kraft.process.process import Process
from kraft.quorum.effects import VotersChanged
from kraft.quorum.events import BeginShutdown, Resumed, Tick
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.application import Application, RawLog
from kraft.replica.interface.events import Input, Output, Returned, StartFlush, SubmitDone, Trace
from kraft.replica.interface.status import ReplicaStatus
from kraft.wire import Answer, Drop, LeaveUnanswered, Part, WireSend
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_NODE
from transport.interface import Endpoint, Transport
from transport.protocol.messages.fetch import FetchRequest

SHUTDOWN_BUDGET_MS: Final = 5000
"""How long a graceful shutdown may take."""
BROKER_SHUTDOWN_BUDGET_MS: Final = 30_000
"""The same for a broker, which stops only after other brokers know the new leaders of its partitions."""
_TICK: Final = Tick()
_TICKS_PER_BURST: Final = 100
DUE_AT_ONCE: Final = 0
"""The deadline of long work, which has a portion to do at any time: a turn does those that it has room for."""
_PORTIONS: Final = 50
"""The most portions of a turn where time does not end it: in virtual time."""
LATE_MS: Final = 100
"""A node that wakes up so long after its deadline was paused, and peers have sent messages meanwhile."""
GRACE_MS: Final = 50
"""How long the answers of peers may take after a pause."""
_RESUMES_EVERY_MS: Final = 1000
"""The least interval of two grace periods. A node that is always late is too slow to lead."""
_LOOKS: Final = 16
"""How often a late node polls its sockets, at most."""
BUSY: Final = 4
"""With more unanswered requests and appends than this, the node goes on with them while the log is flushed."""
_OBLIGED: Final = frozenset({"Leader", "Resigned"})
"""The states in which other voters may wait for this node."""


class NodeParts(Struct, frozen=True, eq=False, kw_only=True):
    """The parts of a node; see `kraft.node.run`."""

    replica: Process
    clock: NodeClock
    inbox: Inbox[Input]
    inbound: Inbound
    transport: Transport
    flusher: Flusher
    log: NodeLog
    endpoints: tuple[Endpoint, ...]
    meter: NodeMeter | None = None
    """Counts for the metrics listener; None if the listener is off."""


class Node:
    """A running node (Kafka: `KafkaRaftClientDriver`). `run_node` and `open_node` create it.

    All methods must be called in the Trio thread.
    """

    def __init__(self, parts: NodeParts) -> None:
        self.endpoints = parts.endpoints
        """The addresses of the node's listeners, in the order of the configuration."""
        self._replica = parts.replica
        self._clock = parts.clock
        self._inbox = parts.inbox
        self._inbound = parts.inbound
        self._transport = parts.transport
        self._flusher = parts.flusher
        self._log = parts.log
        self._meter = parts.meter
        self._node_id = parts.replica.options.node_id
        self._raft_client_id = f"raft-client-{self._node_id}"
        self._client_id = str(self._node_id)
        self._fetcher_client_id = f"broker-{self._node_id}-fetcher-0"
        """As in Kafka's channel from a node to the active controller, which also has a connection of its own."""
        self._appends = Appends(parts.inbox, limit=OUTSTANDING_APPEND_BYTES)
        self._changed = trio.lowlevel.ParkingLot()
        self._deadline_ms = NEVER_MS
        """When the deadline of `_scope` wakes the owner."""
        self._wanted_ms = NEVER_MS
        """The deadline of the replica at the end of the last burst. Only bursts step the replica."""
        self._resumed_ms = 0
        """The time of the last grace period."""
        self._scope = trio.CancelScope()
        self._failure: BaseException | None = None
        self._turns = Turns(parts.log, parts.meter)
        self._was_active = False
        self._leaving = False
        self._stop = trio.Event()
        self._ended = False

    # The interface for other tasks

    def status(self) -> ReplicaStatus:
        """The current state of this node's replica: leader, epoch and offsets."""
        return self._replica.status()

    @property
    def is_active(self) -> bool:
        """Whether this node leads and takes requests and appends."""
        return self._replica.is_active

    @property
    def longest_turn(self) -> LongestTurn:
        """The longest time so far, in milliseconds, for which this node has blocked all other tasks, with its cause."""
        return self._turns.longest

    @property
    def is_stopping(self) -> bool:
        """Whether the node shuts down or has ended."""
        return self._leaving or self._ended

    @property
    def overdue_ms(self) -> int:
        """How long ago the owner should have woken up, in milliseconds; 0 or less if it is not late."""
        return 0 if self._wanted_ms >= NEVER_MS else self._clock.now_ms() - self._wanted_ms

    @property
    def application(self) -> Application:
        """The replica's application; read-only."""
        return self._replica.application

    async def wait_for_leader(self) -> LeaderAndEpoch:
        """Wait until this node knows a leader that accepts appends: another node, or this node once it is active.

        Returns:
            The id and the epoch of the leader.
        """
        while (leader := self._known_leader()) is None:
            await self._changed.park()
        return leader

    def _known_leader(self) -> LeaderAndEpoch | None:
        leader = self._replica.core.leader
        if leader.leader_id == NO_NODE or (leader.leader_id == self._node_id and not self._replica.is_active):
            return None
        return leader

    async def append(self, values: Sequence[bytes]) -> int:
        """Append raw record values as one atomic unit and wait for the commit (Kafka: `RaftClient.prepareAppend`).

        On a new leader the call waits until the leader is active. While the outstanding appends exceed a memory limit,
        the call waits, too. A cancelled append may still be committed.

        Args:
            values: The record values, which are written in one batch.

        Returns:
            The offset of the first value, once all values are committed.

        Raises:
            NotLeader: This node does not lead; the values are not appended.
            OutcomeUnknown: The node lost its leadership before the commit.
            AppendRejected: The values cannot be appended.
            NodeStopped: The node has stopped.
        """
        replica = self._replica
        while not replica.is_active and replica.core.is_leader and not self._ended:
            await self._changed.park()
        return (await self._appends.append(values)).base_offset

    def committed(self, from_offset: int = 0) -> CommittedBatches:
        """Iterate over the committed batches of data records, and wait for more, on any node.

        The iteration ends when the node stops.

        Args:
            from_offset: The first offset to read.

        Raises:
            OffsetOutOfRange: During the iteration: the log begins after the next offset.
        """
        return CommittedBatches(from_offset, self._read_committed, self.wait_for_change)

    def watch(self, types: Sequence[str] = ()) -> AsyncIterator[Any]:
        """Iterate over the metadata records that a controller or a broker commits from now on, as `MetadataChange`.

        The iteration ends when the node stops.

        Args:
            types: The names of the record types to return; empty for all types.

        Raises:
            TypeError: The node hosts a raw log, which `committed` reads.
            OffsetOutOfRange: During the iteration: a snapshot has replaced the next records.
        """
        if isinstance(self._replica.application, RawLog):
            raise TypeError("a raw log has no types to watch: iterate over `committed`")
        status = self.status()
        return MetadataWatch(self.committed(max(status.high_watermark, status.log_start_offset)), types)

    def _read_committed(self, offset: int) -> tuple[list[CommittedBatch], int]:
        if self._ended:
            return [], offset
        return read_committed(self._replica.log, offset, self._replica.core.log.high_watermark)

    async def wait_for_change(self) -> bool:
        """Wait until the state, the leader or the high watermark changes; False once the node has ended."""
        if not self._ended:
            await self._changed.park()
        return not self._ended

    async def shutdown(self) -> None:
        """Shut down gracefully. A leader resigns in favour of its best successors, within at most five seconds.

        A broker hands over its leaderships within at most thirty seconds. The call returns when `run_node` is about to
        return. If the caller is cancelled meanwhile, the node stops at once.
        """
        self._leaving = True
        self._inbox.put(BeginShutdown())
        try:
            is_broker = self._replica.options.broker is not None
            with trio.move_on_after((BROKER_SHUTDOWN_BUDGET_MS if is_broker else SHUTDOWN_BUDGET_MS) / 1000):
                await self._stop.wait()
        finally:
            self._stop.set()

    # The tasks

    async def run(self, outputs: Sequence[Output], task_status: trio.TaskStatus[Node]) -> None:
        """Run until `shutdown`; raises the error that stopped the node. `outputs` are those of `Process.open`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._flusher.run)
                nursery.start_soon(self._own, outputs)
                task_status.started(self)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._ended = True
            self._appends.stop()
            self._changed.unpark_all()
            if self._failure is not None:
                # The owner was cancelled before it could raise the error of a burst in the transport's task.
                raise self._failure

    async def _own(self, outputs: Sequence[Output]) -> NoReturn:
        """Own the replica. A cancel scope lasts until a deadline passes: a scope for each burst would be expensive."""
        inbox = self._inbox
        self._keep_connections()
        self._carry_out(outputs)
        inbox.in_place = self._burst_in_place
        while True:
            self._deadline_ms = NEVER_MS
            with trio.CancelScope() as self._scope:
                while True:
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    if self._wanted_ms < NEVER_MS and _is_late(self._wanted_ms, self._clock.now_ms()):
                        # The tasks of a transport that has no `poll_nowait` run first.
                        await trio.lowlevel.checkpoint()
                    self._burst()
                    await inbox.wait()

    def _burst_in_place(self) -> None:
        """Run a burst in the transport's task. Waking the owner would cost a tenth of the time of a message.

        The owner waits meanwhile. It raises the error of the burst, if there is one.
        """
        try:
            self._burst()
        except BaseException as failure:
            self._failure = failure
            self._inbox.wake()

    def _burst(self) -> None:
        """Handle the events in the inbox, the due deadlines and the wanted flush, as far as a turn has room.

        The Tick at the end writes the appends, so that a burst is one batch.
        """
        replica, events, flusher, turns = self._replica, self._inbox.events, self._flusher, self._turns
        turns.begin()
        now_ms = self._clock.now_ms()
        wanted_ms = self._wanted_ms
        if wanted_ms <= now_ms:
            self._resume_if_late(wanted_ms, now_ms)
        ticks = 0
        has_looked = False
        has_room = True
        while True:
            # After a pause all events that arrived meanwhile come before any deadline, even beyond the room of a turn.
            while events and (has_room or now_ms < self._resumed_ms + GRACE_MS):
                event = events.popleft()
                if outputs := replica.step(event, now_ms):
                    self._carry_out(outputs)
                has_room = turns.did(event)
            # A leader waits for this flush, but not for the other work of a follower.
            if flusher.wanted is not None and not replica.core.is_leader and flusher.begin(is_busy=self._is_busy):
                now_ms = self._after_flush(now_ms)
                continue
            wanted_ms = replica.deadline_ms()
            if wanted_ms <= now_ms and (wanted_ms != DUE_AT_ONCE or not ticks or (has_room and ticks < _PORTIONS)):
                assert ticks < _TICKS_PER_BURST, f"a deadline stays in the past: {wanted_ms} <= {now_ms}"
                ticks += 1
                self._carry_out(replica.step(_TICK, now_ms))
                has_room = turns.did(_TICK) and has_room
                continue
            if flusher.wanted is None:
                break
            is_busy = self._is_busy
            if not (has_looked or is_busy) and has_room:
                # A fetch that has arrived meanwhile would otherwise get its records only after the flush.
                has_looked = True
                self._transport.poll_nowait()
                if events:
                    continue
            # The flush comes last, so that all messages leave before it.
            if not flusher.begin(is_busy=is_busy):
                break
            now_ms = self._after_flush(now_ms)
        self._wanted_ms = wanted_ms
        if wanted_ms < self._deadline_ms:
            self._deadline_ms = wanted_ms
            self._scope.deadline = self._clock.trio_time(wanted_ms)
        turns.end()
        if self._meter is not None:
            self._meter.log_end(replica.core)
        if events:
            # The owner handles the rest of a long burst after the turns of other tasks.
            self._inbox.wake()
        if replica.is_active is not self._was_active:
            self._was_active = replica.is_active
            self._changed.unpark_all()
        if self._leaving and not self._is_obliged and replica.may_stop:
            self._stop.set()

    def _after_flush(self, began_ms: int) -> int:
        """The time after a flush in place, which may have taken so long that a deadline has passed."""
        now_ms = self._clock.now_ms()
        if now_ms > began_ms:
            wanted_ms = self._replica.deadline_ms()
            if wanted_ms <= now_ms:
                self._resume_if_late(wanted_ms, now_ms)
        return now_ms

    def _resume_if_late(self, wanted_ms: int, now_ms: int) -> None:
        """After a pause or a long turn of this process, let messages that arrived meanwhile come before any deadline.

        A leader that seems silent for too long may have answered in time (decision 0016).
        """
        if not _is_late(wanted_ms, now_ms) or now_ms < self._resumed_ms + _RESUMES_EVERY_MS:
            return
        self._resumed_ms = now_ms
        events = self._inbox.events
        for _ in range(_LOOKS):
            before = len(events)
            self._transport.poll_nowait()
            if len(events) == before:
                break
        events.appendleft(Resumed(GRACE_MS))

    @property
    def _is_busy(self) -> bool:
        """Whether there is other work to do while the log is flushed."""
        return len(self._inbound.unanswered) + len(self._appends.waiting) > BUSY

    def _on_told(self, told: Returned | Noted) -> None:
        """Take an output of the application for its host. Most applications have none but failures."""
        match told:
            case Noted(RequestFailure(request=request, what=what, where=where)):
                facts: dict[str, object] = {"request": request, "cause": repr(what), "at": where}
                self._log.warn("request-failed", facts, kind=request)
            case _:
                raise AssertionError(f"no handler for {told}")

    @property
    def _is_obliged(self) -> bool:
        """Whether other voters wait for this node."""
        core = self._replica.core
        return core.state_name in _OBLIGED and not core.may_stop

    def _keep_connections(self) -> None:
        """Keep connections to the other voters open. An election is a few small requests between voters that may have
        had no connection before; opening connections first would double the duration.
        """
        core = self._replica.core
        peers = core.voters.voters if core.is_voter else ()
        addresses = [one.endpoints.default for one in peers if one.id != self._node_id]
        self._transport.keep_connected(
            [Endpoint(at.host, at.port) for at in addresses if at is not None], self._raft_client_id
        )

    def _name_for(self, message: Message) -> str:
        """The client id for a request of the application. A Fetch waits at a broker, and has its own connection."""
        return self._fetcher_client_id if isinstance(message, FetchRequest) else self._client_id

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            # As in `Process.step`: the outputs of a commit are compared by their types.
            if type(output) is Answer:
                self._inbound.answer(output.request_id, output.message)
            elif type(output) is WireSend:
                target = output.target
                is_of_quorum = output.part is Part.QUORUM
                self._transport.request(
                    Endpoint(target.host, target.port),
                    output.request_id,
                    output.message,
                    timeout_ms=output.timeout_ms,
                    client_id=self._raft_client_id if is_of_quorum else self._name_for(output.message),
                )
            elif type(output) is Trace:
                self._log.trace(output.effect)
                if self._meter is not None:
                    self._meter.trace(output)
                if self._changed:
                    self._changed.unpark_all()
                if type(output.effect) is VotersChanged:
                    self._keep_connections()
            elif type(output) is StartFlush:
                if self._meter is not None:
                    self._meter.log_end(self._replica.core)
                self._flusher.start(output)
            else:
                match output:
                    case LeaveUnanswered():
                        self._inbound.leave_unanswered(output.request_id, output.mute_ms)
                    case SubmitDone():
                        self._appends.finish(output.submit_id, output)
                    case Committed():
                        # Readers read the log at their own pace. The Trace of the high watermark wakes them.
                        pass
                    case Returned() | Noted():
                        self._on_told(output)
                    case Drop():
                        self._inbound.drop(output.request_id, output.why)
                    case _:
                        assert_never(output)


def _is_late(wanted_ms: int, now_ms: int) -> bool:
    """Whether a deadline passed so long ago that this process must have been paused; 0 is due at once."""
    return DUE_AT_ONCE < wanted_ms <= now_ms - LATE_MS
