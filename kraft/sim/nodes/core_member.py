"""A simulated node that is a bare `RaftCore` over a log in memory. A run of bare cores takes much less time than one of
whole replicas (Kafka: `RaftClientTestContext` over `MockLog`).
"""

from __future__ import annotations

import errno
from random import Random
from typing import Final

from msgspec.structs import replace

from kraft.invariants.observation import LogBatch, SnapshotContent
from kraft.quorum.core import CoreStart, RaftCore
from kraft.quorum.effects import (
    AppendBatch,
    AppendControl,
    AppendFetched,
    Effect,
    FlushLog,
    HighWatermarkMoved,
    LeaderChanged,
    PeerFault,
    PersistElection,
    ReadConfirmed,
    SendRecords,
    SendReply,
    SendRequest,
    StateChanged,
    TruncateLog,
    VotersChanged,
)
from kraft.quorum.events import (
    Event,
    FailureCause,
    LogFlushed,
    ReadIndex,
    Received,
    Replied,
    RequestFailed,
)
from kraft.quorum.messages import Fetch, FetchReply, Reply, Request, Vote, VoteReply
from kraft.quorum.values import DEFAULT_LISTENER, ElectionState, Endpoints, QuorumConfig, ReplicaKey
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.replica.rpc.rpc import Rpc
from kraft.sim.nodes.addresses import endpoints_of
from kraft.sim.nodes.core_log import (
    CoreLog,
    changes_in,
    control_content,
    data_content,
    pack_batches,
    unpack_batches,
    values_in,
)
from kraft.sim.nodes.effects import PlannedFailure, granting_answer, report_of
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.member_interface import (
    CLUSTER_ID,
    Answer,
    Crashed,
    Done,
    Flush,
    Output,
    ReadAnswered,
    SimulatedRequest,
    SteppedMember,
    WriteOutcome,
)
from kraft.wire import WireRequest
from metadata_log.errors import DecodeError
from metadata_log.serde import Message, decode
from metadata_log.types import OffsetAndEpoch
from transport.protocol.apis import APIS
from transport.protocol.errors import Error

_RPC: Final = Rpc(cluster_id=CLUSTER_ID, listener=DEFAULT_LISTENER)
"""Translates the frames of strangers; what cores send each other has no wire form."""


class CoreMember(SteppedMember):
    """One core over a log and a quorum-state in memory, which outlive crashes."""

    def __init__(
        self,
        node_id: int,
        *,
        voters: VoterSet,
        config: QuorumConfig,
        log: tuple[LogBatch, ...] = (),
        election: ElectionState | None = None,
        formatted: tuple[QuorumChange, ...] = (),
    ) -> None:
        """`formatted` are the changes of the quorum in a formatted directory, before the first record of the log."""
        self.node_id = node_id
        self.key = ReplicaKey(node_id)
        """The node id; without a disk there is no directory id."""
        self._formatted = formatted
        self._voters = voters
        self._config = config
        self._election = election
        self.log = CoreLog(log)
        self.effects: list[Effect] = []
        """The effects of the core in the last step."""
        self._core: RaftCore | None = None
        self._flushes: dict[int, tuple[int, FlushLog]] = {}
        self._asked: dict[int, int] = {}
        self._candidates: dict[int, Vote] = {}
        self._submitted: dict[int, int] = {}
        """The offsets of the pending submissions, by id."""
        self._next_ticket = 1
        self._planned_failure: PlannedFailure | None = None
        self._old_copy = (log, election)

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints that the node advertises."""
        voter = self._voters.find(self.node_id)
        return endpoints_of(self.node_id) if voter is None else voter.endpoints

    @property
    def core(self) -> RaftCore:
        """The core since the last start."""
        assert self._core is not None, f"node {self.node_id} is not running"
        return self._core

    @property
    def is_running(self) -> bool:
        """Whether the node is running."""
        return self._core is not None

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk."""
        assert self._core is None, self.node_id
        self._old_copy = (tuple(self.log.batches), self._election)
        self._core = self.make_core(
            config=self._config,
            local=self.key,
            voters=self._voters,
            endpoints=self.endpoints,
            start=CoreStart(
                election=self._election,
                log_start_offset=0,
                log_end_offset=self.log.end_offset,
                epochs=self.log.epochs(),
                changes=(*self._formatted, *(one for batch in self.log.batches for one in changes_in(batch))),
            ),
            rng=rng,
        )
        return self._carry_out(self._core.begin(now_ms))

    def crash(self, rng: Random) -> None:
        """Crash the node; the crash may lose any part of the data that is not fsynced."""
        self._core = None
        self._flushes.clear()
        self._asked.clear()
        self._candidates.clear()
        self._submitted.clear()
        self._planned_failure = None
        self.log.crash(rng)

    def crash_soon(self, operations: int) -> None:
        """Crash before a later effect, counted from now."""
        self._planned_failure = PlannedFailure(operations, lambda *_: Crashed(f"before effect {operations}"))

    def fail_soon(self, operations: int) -> None:
        """Let a later effect fail, counted from now."""
        self._planned_failure = PlannedFailure(operations, lambda *_: OSError(errno.EIO, "input/output error"))

    def limit_disk(self, free_bytes: int | None) -> None:
        """A log in memory is never full."""

    def fill_directory(self, path: str) -> None:
        """A log in memory is never full."""

    def damage(self, what: Damage, rng: Random) -> str:
        """A log in memory can lose only everything, or everything since the last start."""
        if what not in (Damage.WIPED, Damage.FOREIGN, Damage.OLD_COPY):
            return ""
        batches, election = self._old_copy if what is Damage.OLD_COPY else ((), None)
        self.log, self._election = CoreLog(batches), election
        return "the log"

    def must_refuse(self) -> str:
        """Always empty: a log in memory is lost as a whole, and no remaining data proves the loss."""
        return ""

    def would_vote_alone(self) -> bool:
        """Always False: bare cores have static voters."""
        return False

    def damaged_files(self) -> tuple[str, ...]:
        """Always empty: a log in memory is lost as a whole."""
        return ()

    def move(self, port: int) -> None:
        """Never called: a bare core has no port."""
        raise AssertionError(f"core {self.node_id} listens nowhere but in memory")

    # Events

    def step(self, event: Event, now_ms: int) -> list[Output]:
        """Hand an event to the core."""
        core = self._core
        assert core is not None, self.node_id
        return self._carry_out(core.step(event, now_ms))

    def on_request(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """Receive a request of a peer."""
        assert isinstance(message, Request), message
        if type(message) is Vote:
            self._candidates[request_id] = message
        return self.step(Received(request_id, message), now_ms)

    def on_reply(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """A peer answers."""
        assert isinstance(message, Reply), message
        return self.step(Replied(request_id, self._asked[request_id], message), now_ms)

    def on_frame(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a request from outside of the quorum, translated from its frame as in a replica."""
        message = decode(APIS[api_key].request, version, body)
        wire = WireRequest(
            request_id=request_id, api_key=api_key, version=version, message=message, listener=DEFAULT_LISTENER
        )
        flat = _RPC.request_from_wire(wire)
        if isinstance(flat, Request):
            return self.on_request(request_id, flat, now_ms)
        return [Answer(request_id, flat)]

    def on_forged_reply(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a forged response, without its records: this log does not hold batches in wire format."""
        try:
            reply = _RPC.reply_from_wire(decode(APIS[api_key].response, version, body))
        except DecodeError:
            return self.on_failed(request_id, FailureCause.BAD_BYTES, now_ms)
        if isinstance(reply, FetchReply):
            reply = replace(reply, batches=(), data=b"")
        return self.on_reply(request_id, reply, now_ms)

    def corrupted(self, message: object, rng: Random) -> None:
        """Always None: messages between bare cores have no wire form."""

    def epoch_of_leader(self, message: object) -> int | None:
        """The epoch in an answer of a leader to a fetch."""
        assert isinstance(message, FetchReply), message
        is_good = message.error is Error.NONE and message.top_error is Error.NONE
        return message.epoch if is_good else None

    def is_judging(self, request_id: int) -> bool:
        """Always false: a core judges each answer at once."""
        return False

    def measure(self, *, is_on: bool) -> None:
        """Ignored: a bare core makes no decisions and applies no records."""

    def take_work(self) -> int:
        """Always 0."""
        return 0

    def wire_request(self, message: object) -> tuple[int, int, Message] | None:
        """The API key, the version and the wire form of a request that this node has sent."""
        assert isinstance(message, Request), message
        wire = _RPC.request_to_wire(message)
        key = type(wire).__schema__.api_key
        assert key is not None, wire
        return key, APIS[key].versions.highest, wire

    def on_failed(self, request_id: int, cause: FailureCause, now_ms: int) -> list[Output]:
        """A request will not be answered."""
        return self.step(RequestFailed(request_id, self._asked[request_id], cause), now_ms)

    def on_flushed(self, ticket: int, now_ms: int) -> list[Output]:
        """An fsync is done."""
        point, flush = self._flushes.pop(ticket)
        self.log.synced(point)
        return self.step(LogFlushed(flush.offset, flush.epoch), now_ms)

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Hand over a record for the log."""
        core = self.core
        base_offset = core.append((value,), now_ms) if core.is_leader else None
        if base_offset is None:
            return [Done(submit_id, WriteOutcome.REFUSED)]
        self._submitted[submit_id] = base_offset
        return []

    def administer(self, request_id: int, message: Message, version: int, now_ms: int) -> list[Output]:
        """Never called: a bare core serves no clients."""
        raise AssertionError(f"a bare core is asked for {message}")

    def read_index(self, read_id: int, now_ms: int) -> list[Output]:
        """A client requests a read; only a leader answers it."""
        return self.step(ReadIndex(read_id), now_ms) if self.core.is_leader else []

    # Effects

    def _carry_out(self, effects: list[Effect]) -> list[Output]:
        self.effects = effects
        outputs: list[Output] = []
        for effect in effects:
            if self._planned_failure is not None:
                self._planned_failure.count("effect")
            match effect:
                case SendRequest():
                    message = effect.message
                    self._asked[effect.request_id] = effect.peer_id
                    offset = message.offset if type(message) is Fetch else None
                    kind = "PreVote" if type(message) is Vote and message.pre_vote else type(message).__name__
                    outputs.append(
                        SimulatedRequest(effect.request_id, effect.peer_id, message, effect.timeout_ms, offset, kind)
                    )
                case SendReply(request_id=request_id, message=message):
                    outputs.append(self._answer(request_id, message))
                case StateChanged() | PeerFault():
                    report = report_of(effect)
                    assert report is not None, effect
                    outputs.append(report)
                    if isinstance(effect, StateChanged) and effect.source == "Leader":
                        outputs.extend(Done(submit_id, WriteOutcome.UNKNOWN) for submit_id in self._submitted)
                        self._submitted.clear()
                case LeaderChanged() | VotersChanged():
                    pass
                case PersistElection(state=state):
                    self._election = state
                case FlushLog():
                    self._flushes[self._next_ticket] = (self.log.sync_point(), effect)
                    outputs.append(Flush(self._next_ticket))
                    self._next_ticket += 1
                case SendRecords():
                    outputs.append(Answer(effect.request_id, self._with_records(effect)))
                case AppendBatch() | AppendControl() | AppendFetched() | TruncateLog():
                    self._write(effect)
                case ReadConfirmed(read_ids=read_ids, offset=offset):
                    outputs.extend(ReadAnswered(read_id, offset) for read_id in read_ids)
                case HighWatermarkMoved(offset=offset):
                    outputs.extend(self._committed(offset))
        return outputs

    def _answer(self, request_id: int, message: Reply) -> Answer:
        vote = self._candidates.pop(request_id, None)
        if vote is None or not (isinstance(message, VoteReply) and message.granted):
            return Answer(request_id, message)
        return granting_answer(request_id, message, vote.epoch, vote.candidate.id, is_pre_vote=vote.pre_vote)

    def _write(self, effect: AppendBatch | AppendControl | AppendFetched | TruncateLog) -> None:
        match effect:
            case AppendBatch(base_offset, epoch, timestamp_ms, values):
                content = data_content(timestamp_ms, values)
                self.log.append(LogBatch(base_offset, base_offset + len(values), epoch, content))
            case AppendControl(base_offset, epoch, timestamp_ms, records):
                content = control_content(timestamp_ms, records)
                self.log.append(LogBatch(base_offset, base_offset + len(records), epoch, content))
            case AppendFetched(data=data):
                for batch in unpack_batches(data):
                    self.log.append(batch)
            case TruncateLog(offset=offset):
                self.log.truncate(offset)

    def _with_records(self, effect: SendRecords) -> FetchReply:
        facts, data = pack_batches(self.log.read(effect.offset), effect.max_bytes)
        return replace(effect.reply, batches=facts, data=data)

    def _committed(self, high_watermark: int) -> list[Output]:
        done = [(submit_id, offset) for submit_id, offset in self._submitted.items() if offset < high_watermark]
        for submit_id, _ in done:
            del self._submitted[submit_id]
        return [Done(submit_id, WriteOutcome.COMMITTED, offset) for submit_id, offset in done]

    # Questions

    def deadline_ms(self) -> int:
        """The time of the next `tick`, by the clock of the node."""
        core = self._core
        assert core is not None, self.node_id
        return core.deadline_ms()

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from `offset` to the end of the log."""
        return self.log.read(offset)

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        """The submitted values in a batch."""
        return values_in(batch)

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        """The changes of the quorum in a batch."""
        return changes_in(batch)

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """None: a bare core has no snapshots."""
        return ()

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """Never called: a bare core has no snapshots."""
        raise AssertionError(f"a bare core has no snapshot {snapshot}")
