"""The one task that owns a replica, and the node's interface for other tasks (Kafka: `KafkaRaftClientDriver`).

All inputs are events in the owner's inbox. The owner takes events in bursts, steps the replica, carries out the outputs
in order, and sleeps until the next event or deadline. Between two steps of a burst it never waits. While it sleeps, the
transport's own task handles the events that the transport delivers.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, assert_never

import trio
from msgspec import Struct

from kraft.access.failures import RequestFailure
from kraft.calls import Returned
from kraft.committed import Committed, CommittedBatch, Noted
from kraft.config.listener_settings import TO_BROKERS, TO_CONTROLLERS
from kraft.limits import APPENDED_BYTES_PER_TURN, OUTSTANDING_APPEND_BYTES
from kraft.node.appends import AppendedOffsets, AppendHandle, Appends
from kraft.node.background import Flusher
from kraft.node.clock import NodeClock
from kraft.node.committed import CommittedBatches, LogSnapshot, read_committed
from kraft.node.errors import NodeError, NodeStopped, NotLeader, TransferFailed
from kraft.node.inbound import Inbound
from kraft.node.inbox import Inbox
from kraft.node.logging import NodeLog
from kraft.node.monitoring import NodeMeter
from kraft.node.turns import LongestTurn, Turns
from kraft.node.waiters import Waiters
from kraft.node.watching import MetadataWatch
from kraft.process.parts import Application, Input
from kraft.process.process import Process
from kraft.quorum.effects import VotersChanged
from kraft.quorum.events import BeginShutdown, Resign, Resumed, Tick
from kraft.quorum.values import LeaderAndEpoch
from kraft.quorum.voters import Voter
from kraft.replica.interface.events import (
    LogState,
    MakeSnapshot,
    Output,
    SnapshotMade,
    StartFlush,
    Submit,
    SubmitDone,
    Trace,
)
from kraft.replica.interface.status import ReplicaStatus
from kraft.state_machine.raw_log import RawLog
from kraft.state_machine.raw_snapshot import raw_snapshot_values
from kraft.wire import Answer, Drop, LeaveUnanswered, Part, WireSend
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_NODE, OffsetAndEpoch
from transport.interface import Endpoint, Transport
from transport.protocol.messages.alter_partition import AlterPartitionRequest
from transport.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from transport.protocol.messages.broker_registration import BrokerRegistrationRequest
from transport.protocol.messages.controller_registration import ControllerRegistrationRequest
from transport.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from kraft.admin.descriptions import QuorumDescription
    from kraft.node.administration import Administration

T = TypeVar("T")

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
SNAPSHOT_CALLS: Final = 100
"""So many callers may wait for a snapshot at a time; further ones wait for their turn."""
CATCH_UP_S: Final = 1.0
"""How long a leader that hands over waits until its successor has everything."""
TRANSFER_S: Final = 10.0
"""After this time a leader that is elected again and again does not hand over any more."""
_OBLIGED: Final = frozenset({"Leader", "Resigned"})
"""The states in which other voters may wait for this node."""

_LANES: Final[Mapping[type[Message], int]] = {
    BrokerRegistrationRequest: 1,
    BrokerHeartbeatRequest: 1,
    AlterPartitionRequest: 2,
    AssignReplicasToDirsRequest: 3,
    ControllerRegistrationRequest: 4,
}
"""The lanes to the active controller, as Kafka has a `NodeToControllerChannelManager` for each. A heartbeat without an
answer closes its connection, on which no other request may wait: one that is sent again may have been done already.
"""


class Line(Struct, frozen=True):
    """The client id and the lane of a request, which have a connection of their own to each peer."""

    client_id: str
    lane: int


class NodeParts(Struct, frozen=True, eq=False, kw_only=True):
    """The parts of a node; see `kraft.node.run`."""

    process: Process
    clock: NodeClock
    inbox: Inbox[Input]
    inbound: Inbound
    transport: Transport
    flusher: Flusher
    log: NodeLog
    endpoints: tuple[Endpoint, ...]
    meter: NodeMeter | None = None
    """Counts for the metrics listener; None if the listener is off."""


class Latest(AsyncIterator[T], Generic[T]):
    """The present value of something that a node follows, and each change of it: `Node.leaders`, `Node.memberships`.

    A value of a short time may be left out. The iteration ends when the node stops.
    """

    def __init__(self, now: Callable[[], T], wait_for_change: Callable[[], Awaitable[bool]]) -> None:
        self._now = now
        self._wait_for_change = wait_for_change
        self._told: T | None = None

    def __aiter__(self) -> Latest[T]:
        return self

    async def __anext__(self) -> T:
        while (now := self._now()) == self._told:
            if not await self._wait_for_change():
                raise StopAsyncIteration
        self._told = now
        return now


class Node:
    """A running node (Kafka: `KafkaRaftClientDriver`). `run_node` and `open_node` create it.

    All methods must be called in the Trio thread.
    """

    def __init__(self, parts: NodeParts) -> None:
        self.endpoints = parts.endpoints
        """The addresses of the node's listeners, in the order of the configuration."""
        self._process = parts.process
        self._replica = parts.process.replica
        self._clock = parts.clock
        self._inbox = parts.inbox
        self._inbound = parts.inbound
        self._transport = parts.transport
        self._flusher = parts.flusher
        self._log = parts.log
        self._meter = parts.meter
        self._node_id = parts.process.options.replica.node_id
        self._raft_client_id = f"raft-client-{self._node_id}"
        self._lines: dict[type[Message], Line] = {
            FetchRequest: Line(f"broker-{self._node_id}-fetcher-0", 0),
            **{kind: Line(str(self._node_id), lane) for kind, lane in _LANES.items()},
        }
        """The connections of the application, by the type of the request."""
        self._line = Line(str(self._node_id), 0)
        """The connection for the other requests of the application, those of clients among them."""
        self.appends = Appends(
            parts.inbox,
            limit=OUTSTANDING_APPEND_BYTES,
            batch_bytes=parts.process.options.replica.quorum.max_batch_bytes,
        )
        """The appends under way, for programs in other threads."""
        self._snapshots: Waiters[SnapshotMade] = Waiters(parts.inbox, limit=SNAPSHOT_CALLS)
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
        self._is_listening = False
        """Whether a task waits until this node hears the leader that it knows."""
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
        return self._process.application

    async def wait_for_leader(self) -> LeaderAndEpoch:
        """Wait until this node hears a leader that accepts appends: another node, or this node once it is active.

        A leader that this node remembers from its former life, and that has not answered it since, does not count.

        Returns:
            The id and the epoch of the leader.

        Raises:
            NodeStopped: The node has stopped.
        """
        while self._ended or not self.has_quorum:
            self._is_listening = True
            if not await self.wait_for_change():
                raise NodeStopped("the node has stopped")
        return self._replica.core.leader

    def _known_leader(self) -> LeaderAndEpoch | None:
        leader = self._replica.core.leader
        if leader.leader_id == NO_NODE or (leader.leader_id == self._node_id and not self._replica.is_active):
            return None
        return leader

    @property
    def has_quorum(self) -> bool:
        """Whether this node leads a majority, or follows a leader that has answered it, as far as it knows.

        A follower that is cut off learns that after `controller.quorum.fetch.timeout.ms`, a leader after half as long
        again.
        """
        return self._known_leader() is not None and (self._replica.core.is_leader or self._replica.core.hears_leader)

    def leaders(self) -> Latest[LeaderAndEpoch]:
        """Follow who leads: the present leader at once, then each change that this node comes to know.

        The id of the leader is -1 while none is known. A leader of a short time may be left out. The iteration ends
        when the node stops.
        """
        return Latest(self._leader_now, self.wait_for_change)

    def _leader_now(self) -> LeaderAndEpoch:
        known = self._known_leader()
        return LeaderAndEpoch(NO_NODE, self._replica.core.leader.epoch) if known is None else known

    # The voters

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The committed voters that this node knows, by id; those of the configuration in a static quorum."""
        history, high_watermark = self._replica.core.history, self._replica.core.log.high_watermark
        committed = history.voters_at(max(high_watermark, 0) - 1)
        return (history.static_voters if committed is None else committed).voters

    def memberships(self) -> Latest[tuple[Voter, ...]]:
        """Follow who votes: the present voters at once, then each committed change that this node comes to know.

        The iteration ends when the node stops.
        """
        return Latest(lambda: self.voters, self.wait_for_change)

    async def describe_quorum(self) -> QuorumDescription:
        """Ask the leader how far each voter and each observer is (Kafka: `Admin.describeMetadataQuorum`).

        Raises:
            NoController: No leader answered within 30 seconds.
            NodeStopped: The node has stopped.
        """
        return await self._administration.describe()

    async def add_voter(self, node_id: int | None = None, address: str | None = None) -> None:
        """Make an observer that has caught up a voter (Kafka: `Admin.addRaftVoter`).

        The call returns once that is committed, and this node knows it. Any node may ask. The quorum must be dynamic,
        as `kraft.create` makes it.

        Args:
            node_id: The id of the observer; by default this node.
            address: Where other nodes reach the observer, as `host:port`; needed for another node than this one.

        Raises:
            AdminError: The node votes already, or does not follow the leader.
            RequestRefused: The leader refused the change.
            NoController: No leader made the change within 30 seconds; it may do so yet.
            NodeStopped: The node has stopped.
        """
        key = await self._administration.add(node_id, address)
        await self._until(lambda: any(voter.key == key for voter in self.voters))

    async def remove_voter(self, node_id: int, *, force: bool = False) -> None:
        """Make a voter an observer (Kafka: `Admin.removeRaftVoter`).

        The call returns once that is committed, and this node knows it. Any node may ask, the voter itself included. A
        leader that removes itself hands over.

        Args:
            node_id: The id of the voter.
            force: Whether to do so although too few of the voters that remain keep up with the leader: then nothing is
                committed before enough of them are back.

        Raises:
            AdminError: No voter has this id, or too few of those that would remain keep up.
            RequestRefused: The leader refused the change, such as the removal of the last voter.
            NoController: No leader made the change within 30 seconds; it may do so yet.
            NodeStopped: The node has stopped.
        """
        key = await self._administration.remove(node_id, force=force)
        await self._until(lambda: all(voter.key != key for voter in self.voters))

    async def transfer_leadership(self, node_id: int | None = None) -> LeaderAndEpoch:
        """Hand the leadership of this node over, and wait until the other node leads.

        The successor campaigns first, and wins if its log is as long as those of a majority. With more than three
        voters those that have heard this leader a moment ago may refuse it, as in Kafka, so that another one wins. If
        this node is elected again instead, it hands over again. If a third one is elected, this node does no more: no
        request of Kafka's asks another leader to resign, so that only the program of that node can hand over there.

        Args:
            node_id: The id of a voter; by default the one that has most of the log, or whoever else wins.

        Returns:
            The node that leads now, with its epoch; it is the one that was asked for, if one was.

        Raises:
            NotLeader: This node does not lead.
            TransferFailed: A node leads that was not asked for, or this one does after ten seconds.
            NodeError: The other node is no voter.
            NodeStopped: The node has stopped.
        """
        core = self._replica.core
        if not core.is_leader:
            raise NotLeader(core.leader)
        if node_id is not None and (node_id == self._node_id or node_id not in core.voters.ids):
            others = ", ".join(str(one) for one in core.voters.ids if one != self._node_id) or "none"
            raise NodeError(f"node {node_id} is no other voter; the other voters are: {others}")
        if core.voters.ids == (self._node_id,):
            raise NodeError("this node is the only voter")
        gives_up = trio.current_time() + TRANSFER_S
        while True:
            epoch = core.epoch
            with trio.move_on_after(CATCH_UP_S):
                while core.is_leader and not core.has_everything(node_id) and await self.wait_for_change():
                    pass
            self._inbox.put(Resign(epoch, "transfer", node_id))
            await self._until(partial(self._leads_after, epoch))
            leader = self._leader_now()
            if leader.leader_id == node_id or (node_id is None and leader.leader_id != self._node_id):
                return leader
            if leader.leader_id != self._node_id or trio.current_time() >= gives_up:
                raise TransferFailed(node_id, leader, len(core.voters.ids))

    def _leads_after(self, epoch: int) -> bool:
        """Whether somebody leads another epoch."""
        known = self._known_leader()
        return known is not None and known.epoch != epoch

    async def _until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            if not await self.wait_for_change():
                raise NodeStopped("the node has stopped")

    # Snapshots

    async def snapshot(self, state: bytes | None = None, *, offset: int | None = None) -> OffsetAndEpoch | None:
        """Write a snapshot, unless there is one that reaches as far (Kafka: `RaftClient.createSnapshot`).

        A node with a state machine, or with metadata, writes what it has applied. Only the program of a raw log knows
        what the values mean: it gives the state that it has made of them. The log up to there may be removed later, and
        nodes that need what was removed get the snapshot; see `load_snapshot`.

        Args:
            state: For a raw log: what the program has made of all values below `offset`.
            offset: For a raw log: a `CommittedBatch.next_offset`.

        Returns:
            The end offset and the epoch of the snapshot, which is on disk; None if nothing was applied so far. It may
            reach further than `offset`, if another node has sent it.

        Raises:
            TypeError: A raw log without these arguments, or another node with them.
            NodeError: The offset is not committed, as far as this node knows, or inside of a batch.
            NodeStopped: The node has stopped.
        """
        is_raw = isinstance(self._process.application, RawLog)
        if (state is not None, offset is not None) != (is_raw, is_raw):
            raise TypeError(
                "the program of a raw log gives the state of the log and the offset at which it ends"
                if is_raw
                else "this node makes its snapshot of what it has applied: there is no state to give"
            )
        given = None if state is None or offset is None else LogState(offset, raw_snapshot_values(state))
        made = await self._snapshots.ask(lambda call_id: MakeSnapshot(call_id, given), weight=1)
        if made is None:
            raise NodeStopped("the node has stopped; there may or may not be a snapshot")
        if made.refused:
            raise NodeError(made.refused)
        return made.snapshot

    async def load_snapshot(self) -> LogSnapshot | None:
        """The newest snapshot of a raw log: what was made of all values before `LogSnapshot.offset`.

        A program reads it when it starts, and when `committed` raises `OffsetOutOfRange`; then it goes on with
        `committed(snapshot.offset)`.

        Returns:
            The snapshot; None if there is none yet, so that the log begins at offset 0.

        Raises:
            TypeError: The node hosts no raw log.
            CorruptBatch: The file is damaged.
            OSError: The disk has failed.
            NodeStopped: The node has stopped.
        """
        self._check_raw("load_snapshot")
        newest = self._replica.newest_snapshot
        if newest.offset == 0:
            await trio.lowlevel.checkpoint()
            return None
        # Loaded here, because most nodes read no snapshot.
        from kraft.node.backup import read_state

        # Closed here, because a call that is cancelled starts no thread.
        with closing(self._replica.open_snapshot(newest)) as file:
            state = await trio.to_thread.run_sync(read_state, file)
        return LogSnapshot(newest.offset, newest.epoch, state)

    def _check_raw(self, what: str) -> None:
        if not isinstance(self._process.application, RawLog):
            raise TypeError(f"only a raw log has {what}")
        if self._ended:
            raise NodeStopped("the node has stopped")

    async def backup(self, folder: str) -> str:
        """Write what this node has applied into a file, from which `restore` begins another quorum.

        With a state machine that is everything that was acknowledged before the call. Of a raw log it is the newest
        snapshot, and all records of the log that this node knows to be committed: at the leader, everything that was
        acknowledged before.

        Args:
            folder: The directory for the file, which gets the name of a snapshot that ends where the backup does.

        Returns:
            The path of the file, which is on disk.

        Raises:
            NodeError: Nothing was applied so far.
            OSError: The disk has failed, or the folder is no directory.
            NodeStopped: The node has stopped.
        """
        # Loaded here, because most nodes make no backup.
        from kraft.node.backup import check_folder, copy_log, copy_snapshot

        check_folder(folder)
        if isinstance(self._process.application, RawLog):
            self._check_raw("backup")
            return await copy_log(self._replica, folder, lambda: self._ended)
        snapshot = await self.snapshot()
        if snapshot is None:
            raise NodeError("there is nothing to back up: nothing was committed so far")
        # The newest snapshot stays for a minute after a newer one is there.
        with closing(self._replica.open_snapshot(snapshot)) as file:
            return await trio.to_thread.run_sync(copy_snapshot, file, snapshot, folder)

    @cached_property
    def _administration(self) -> Administration:
        # Loaded here, because most nodes ask nothing.
        from kraft.node.administration import Administration

        made = Administration(self._replica, self._transport)
        self._inbound.own = made.client.deliver
        if self._ended:
            made.stop()
        return made

    # The log

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
            TypeError: A value is not bytes.
            NodeStopped: The node has stopped.
        """
        replica = self._replica
        while not replica.is_active and replica.core.is_leader and not self._ended:
            await self._changed.park()
        room = self.appends.room
        if room.weight >= room.limit:
            await room.wait()
        return await self.appends.append_soon(values)

    def append_soon(self, values: Sequence[bytes]) -> AppendHandle:
        """Append raw record values as one atomic unit, and return at once.

        Nothing waits: there is no task for the append, and what a program appends between two checkpoints goes to the
        log as one batch. So many small appends cost a fraction of what they do with `append`. Appends to one leader
        keep their order.

        Args:
            values: The record values, which are written in one batch.

        Returns:
            A handle. `await` it for the offset of the first value. It raises the errors of `append`; `NotLeader` also
            on a new leader that is not active yet.

        Raises:
            AppendsFull: The outstanding appends exceed a memory limit; the values are not appended.
            AppendRejected: There are no values.
            TypeError: A value is not bytes.
            NodeStopped: The node has stopped.
        """
        return self.appends.append_soon(values)

    def append_many(
        self, units: Iterable[Sequence[bytes]] | AsyncIterable[Sequence[bytes]], *, outstanding: int = 1024
    ) -> AppendedOffsets:
        """Append one unit after the other, as `append_soon` does, while earlier ones are under way.

        The next unit is taken from its source only while fewer than `outstanding` are not committed, and while their
        memory has a limit. Iterate over what this returns to the end: nothing is taken from the source otherwise.

        Args:
            units: Units of record values, each of which is written in one batch. An asynchronous source may wait, but
                not for the offsets of what it has given.
            outstanding: The most units that are under way.

        Returns:
            An asynchronous iterator over the offset of the first value of each unit, in their order, once it is
            committed. It raises the errors of `append` for the first unit that fails; later ones that are under way may
            be committed or not.
        """
        return AppendedOffsets(self.appends.append_soon, self.appends.room.wait, units, outstanding)

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
        if isinstance(self._process.application, RawLog):
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
            self._inbox.check_caller()
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
            is_broker = self._process.options.broker is not None
            with trio.move_on_after((BROKER_SHUTDOWN_BUDGET_MS if is_broker else SHUTDOWN_BUDGET_MS) / 1000):
                await self._stop.wait()
        finally:
            self._stop.set()

    # The tasks

    async def run(self, outputs: Sequence[Output], task_status: trio.TaskStatus[Node]) -> None:
        """Run until `shutdown`; raises the error that stopped the node. `outputs` are those of `open_process`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._flusher.run)
                nursery.start_soon(self._own, outputs)
                task_status.started(self)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._ended = True
            self.appends.stop()
            self._snapshots.stop()
            if "_administration" in self.__dict__:
                self._administration.stop()
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
        process, replica, events, flusher, turns = (
            self._process,
            self._replica,
            self._inbox.events,
            self._flusher,
            self._turns,
        )
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
                if outputs := process.step(event, now_ms):
                    self._carry_out(outputs)
                has_room = turns.did(event)
                if type(event) is Submit and events and replica.core.pending_bytes >= APPENDED_BYTES_PER_TURN:
                    # What is appended so far is written at the end of this turn, and more would make it long.
                    has_room = False
            # A leader waits for this flush, but not for the other work of a follower.
            if flusher.wanted is not None and not replica.core.is_leader and flusher.begin(is_busy=self._is_busy):
                now_ms = self._after_flush(now_ms)
                continue
            wanted_ms = process.deadline_ms()
            if wanted_ms <= now_ms and (wanted_ms != DUE_AT_ONCE or not ticks or (has_room and ticks < _PORTIONS)):
                assert ticks < _TICKS_PER_BURST, f"a deadline stays in the past: {wanted_ms} <= {now_ms}"
                ticks += 1
                self._carry_out(process.step(_TICK, now_ms))
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
        if self._is_listening and self.has_quorum:
            self._is_listening = False
            self._changed.unpark_all()
        if self._leaving and not self._is_obliged and process.may_stop:
            self._stop.set()

    def _after_flush(self, began_ms: int) -> int:
        """The time after a flush in place, which may have taken so long that a deadline has passed."""
        now_ms = self._clock.now_ms()
        if now_ms > began_ms:
            wanted_ms = self._process.deadline_ms()
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
        return len(self._inbound.unanswered) + self.appends.outstanding > BUSY

    def _on_told(self, told: Returned | Noted) -> None:
        """Take an output of the application for its host. Most applications have none but failures."""
        match told:
            case Noted(SnapshotMade() as made):
                self._snapshots.finish(made.call_id, made)
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

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            # As in `Process.step`: the outputs of a commit are compared by their types.
            if type(output) is Answer:
                self._inbound.answer(output.request_id, output.message)
            elif type(output) is WireSend:
                target = output.target
                line = None if output.part is Part.QUORUM else self._lines.get(type(output.message), self._line)
                self._transport.request(
                    Endpoint(target.host, target.port),
                    output.request_id,
                    output.message,
                    timeout_ms=output.timeout_ms,
                    client_id=self._raft_client_id if line is None else line.client_id,
                    lane=0 if line is None else line.lane,
                    peers=TO_BROKERS if output.is_for_broker else TO_CONTROLLERS,
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
                        self.appends.finish(output)
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
