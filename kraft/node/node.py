"""The nursery of a node and the one task that owns its replica (Kafka: `KafkaRaftClientDriver` and its thread).

Everything else puts events into the owner's inbox. The owner takes them in bursts, steps the replica, carries out what
it asks for in order, and sleeps until the next event or deadline; between two steps of a burst it never waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import trio
from msgspec import Struct

from kraft.node.appends import Appends
from kraft.node.background import Flusher, InlineFlusher, ThreadFlusher
from kraft.node.clock import NodeClock
from kraft.node.inbound import Inbound
from kraft.node.inbox import Inbox
from kraft.node.logging import NodeLog
from kraft.quorum.events import BeginShutdown, Tick
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.events import (
    Answer,
    Committed,
    Input,
    Output,
    SendWire,
    StartFlush,
    SubmitDone,
    Trace,
)
from kraft.replica.replica import Replica
from metadata_log.types import NO_NODE
from transport.interface import Endpoint, Transport

SHUTDOWN_BUDGET_MS: Final = 5000
"""How long a polite stop may take."""
_QUEUE_LIMIT: Final = 65_536
_TICK: Final = Tick()
_TICKS_PER_BURST: Final = 100
_LEADING: Final = frozenset({"Leader", "Resigned"})


class NodeStatus(Struct, frozen=True, kw_only=True):
    """A node at one moment. `high_watermark` is -1 while not known, `leader_id` while nobody is known to lead."""

    node_id: int
    state: str
    epoch: int
    leader_id: int
    high_watermark: int
    log_end_offset: int
    endpoints: tuple[Endpoint, ...]


class Node:
    """One running node; all its methods belong to the Trio thread. `run_node` makes it and hands it out."""

    def __init__(
        self,
        *,
        replica: Replica,
        outputs: Sequence[Output],
        transport: Transport,
        endpoints: tuple[Endpoint, ...],
        clock: NodeClock,
        inline_flush: bool,
    ) -> None:
        self._replica = replica
        self._first_outputs = outputs
        self._transport = transport
        self._clock = clock
        self._node_id = replica.core.local.id
        self._endpoints = endpoints
        self._client_id = f"raft-client-{self._node_id}"
        self._log = NodeLog(self._node_id)
        self._inbox: Inbox[Input] = Inbox()
        self._inbound = Inbound(self._inbox, transport, self._log, limit=_QUEUE_LIMIT)
        self._appends = Appends(self._inbox, limit=_QUEUE_LIMIT)
        self._flusher: Flusher = (InlineFlusher if inline_flush else ThreadFlusher)(self._inbox.put)
        self._changed = trio.lowlevel.ParkingLot()
        self._leaving = False
        self._done = trio.Event()

    # For everybody

    def status(self) -> NodeStatus:
        """What this node knows right now."""
        core = self._replica.core
        return NodeStatus(
            node_id=self._node_id,
            state=core.state_name,
            epoch=core.epoch,
            leader_id=core.leader.leader_id,
            high_watermark=core.high_watermark,
            log_end_offset=core.log_end_offset,
            endpoints=self._endpoints,
        )

    async def wait_for_leader(self) -> LeaderAndEpoch:
        """Wait until this node knows a leader of its epoch; it may be itself."""
        while (leader := self._replica.core.leader).leader_id == NO_NODE:
            await self._changed.park()
        await trio.lowlevel.checkpoint_if_cancelled()
        return leader

    async def append(self, values: Sequence[bytes]) -> int:
        """Append raw record values as one atomic unit; returns the offset of the first once all are committed.

        Raises `NotLeader` (not appended), `OutcomeUnknown`, `AppendRejected` or `NodeStopped`. A cancelled append may
        still be committed. Beyond 65,536 outstanding appends the caller waits its turn.
        """
        return (await self._appends.append(values)).base_offset

    async def shutdown(self) -> None:
        """Stop politely: a leader resigns in favour of its best successors and tells them; at most five seconds."""
        self._leaving = True
        self._inbox.put(BeginShutdown())
        try:
            with trio.move_on_after(SHUTDOWN_BUDGET_MS / 1000):
                await self._done.wait()
        finally:
            self._done.set()

    # The tasks

    async def run(self) -> None:
        """The nursery: returns after `shutdown`, raises what stopped the node."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._transport.run, self._inbound.deliver)
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self._own)
            await self._done.wait()
            nursery.cancel_scope.cancel()

    async def _own(self) -> NoReturn:
        """The owner: one scope lasts as long as no deadline comes nearer or passes, because making one is dear."""
        replica, clock = self._replica, self._clock
        self._carry_out(self._first_outputs)
        while True:
            deadline_ms = replica.deadline_ms()
            with trio.CancelScope(deadline=clock.trio_time(deadline_ms)) as scope:
                while True:
                    self._burst()
                    wanted_ms = replica.deadline_ms()
                    if wanted_ms < deadline_ms:
                        deadline_ms = wanted_ms
                        scope.deadline = clock.trio_time(wanted_ms)
                    await self._inbox.wait()

    def _burst(self) -> None:
        """Everything there is to do now. Appends are written by the Tick at its end, so that a burst is one batch."""
        replica, events = self._replica, self._inbox.events
        now_ms = self._clock.now_ms()
        ticks = 0
        while True:
            while events:
                self._carry_out(replica.step(events.popleft(), now_ms))
            if replica.deadline_ms() > now_ms:
                break
            assert ticks < _TICKS_PER_BURST, f"a deadline stays in the past: {replica.deadline_ms()} <= {now_ms}"
            ticks += 1
            self._carry_out(replica.step(_TICK, now_ms))
        if self._leaving and (replica.core.may_stop or replica.core.state_name not in _LEADING):
            self._done.set()

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Answer():
                    self._inbound.answer(output.request_id, output.message)
                case SendWire():
                    self._transport.request(
                        Endpoint(output.host, output.port),
                        output.request_id,
                        output.message,
                        timeout_ms=output.timeout_ms,
                        client_id=self._client_id,
                    )
                case StartFlush():
                    self._flusher.start(output)
                case SubmitDone():
                    self._appends.finish(output)
                case Committed():
                    pass
                case Trace():
                    self._log.trace(output.effect, self._clock.now_ms())
                    self._changed.unpark_all()
