"""A node that is a bare `RaftCore` over a log in memory: many more seeds per second than with a whole `Replica` (Kafka:
`RaftClientTestContext` over `MockLog`).
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter
from random import Random
from struct import Struct as Layout
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
from kraft.quorum.messages import BatchFacts, Fetch, FetchReply, Reply, Request, Vote, VoteReply
from kraft.quorum.values import (
    DEFAULT_LISTENER,
    ElectionState,
    Endpoints,
    ListenerAddress,
    QuorumConfig,
    ReplicaKey,
)
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.replica.interface.events import WireRequest
from kraft.replica.rpc.rpc import Rpc
from kraft.sim.faults.hostile.target import CLUSTER_ID
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.member_interface import (
    Answer,
    Changed,
    Crashed,
    Done,
    Flush,
    Outcome,
    Output,
    PeerFaultReported,
    SimulatedRequest,
    SteppedMember,
)
from metadata_log.errors import DecodeError
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.control import KRaftVersionRecord, VotersRecord
from metadata_log.records.frame import decode_control, encode_control
from metadata_log.serde import Message, decode
from metadata_log.types import OffsetAndEpoch
from transport.protocol.apis import APIS
from transport.protocol.errors import Error

_FRAME: Final = Layout(">qqiI")
_DATA: Final = b"d"
_CONTROL: Final = b"c"
REMEMBERED: Final = 1024
"""So many control batches are not taken apart again."""
_base_offset = attrgetter("base_offset")
_RPC: Final = Rpc(cluster_id=CLUSTER_ID, listener=DEFAULT_LISTENER)
"""Translates the frames of strangers; what cores send each other has no wire form."""


class CoreLog:
    """Batches as the process sees them, and which of them an fsync has made sure of.

    What was done since the last fsync, truncations too, survives a crash up to a random point, in the order of doing.
    """

    def __init__(self, batches: tuple[LogBatch, ...] = ()) -> None:
        self.batches = list(batches)
        self._durable = list(batches)
        self._unsynced: list[LogBatch | int] = []
        self._synced_count = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.batches[-1].next_offset if self.batches else 0

    def append(self, batch: LogBatch) -> None:
        """Add a batch, which must begin where the log ends."""
        assert batch.base_offset == self.end_offset, (batch, self.end_offset)
        self.batches.append(batch)
        self._unsynced.append(batch)

    def truncate(self, offset: int) -> None:
        """Cut the log at `offset`, which must be between two batches."""
        _cut(self.batches, offset)
        assert self.end_offset == offset, (self.end_offset, offset)
        self._unsynced.append(offset)

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from the one that holds `offset` on."""
        first = bisect_right(self.batches, offset, key=_base_offset) - 1
        return self.batches[max(first, 0) :] if offset < self.end_offset else []

    def sync_point(self) -> int:
        """What an fsync that begins now will make sure of."""
        return self._synced_count + len(self._unsynced)

    def synced(self, point: int) -> None:
        """The fsync that began at `point` is done; a later one may have been done before."""
        count = max(point - self._synced_count, 0)
        for operation in self._unsynced[:count]:
            if isinstance(operation, LogBatch):
                self._durable.append(operation)
            else:
                _cut(self._durable, operation)
        del self._unsynced[:count]
        self._synced_count += count

    def crash(self, rng: Random) -> None:
        """Lose what was not fsynced, or some of it; what is left is on disk."""
        self.synced(self._synced_count + rng.randint(0, len(self._unsynced)))
        self._synced_count += len(self._unsynced)
        self._unsynced.clear()
        self.batches = list(self._durable)

    def epochs(self) -> EpochHistory:
        """Where every epoch begins."""
        history = EpochHistory()
        for batch in self.batches:
            history = history.assign(batch.epoch, batch.base_offset)
        return history


def _answer(request_id: int, message: object, granted: Vote | None) -> Answer:
    """An answer, which may give a vote or a pre-vote."""
    if granted is None:
        return Answer(request_id, message)
    if granted.pre_vote:
        return Answer(request_id, message, pre_granted=granted.epoch)
    return Answer(request_id, message, granted=(granted.epoch, granted.candidate.id))


def _cut(batches: list[LogBatch], offset: int) -> None:
    while batches and batches[-1].next_offset > offset:
        batches.pop()


def pack_batches(batches: list[LogBatch], max_bytes: int) -> tuple[tuple[BatchFacts, ...], bytes]:
    """What a FetchReply carries: whole batches, at least one, else up to `max_bytes`."""
    facts: list[BatchFacts] = []
    data = bytearray()
    for batch in batches:
        size = _FRAME.size + len(batch.content)
        if facts and len(data) + size > max_bytes:
            break
        data += _FRAME.pack(batch.base_offset, batch.next_offset, batch.epoch, len(batch.content)) + batch.content
        changes = changes_in(batch)
        facts.append(BatchFacts(batch.base_offset, batch.next_offset, batch.epoch, len(data), changes))
    return tuple(facts), bytes(data)


def changes_in(batch: LogBatch) -> tuple[QuorumChange, ...]:
    """What a control batch changes in the quorum."""
    return _changes_in(batch.content, batch.base_offset) if batch.content.startswith(_CONTROL) else ()


@lru_cache(REMEMBERED)
def _changes_in(content: bytes, base_offset: int) -> tuple[QuorumChange, ...]:
    """The same of the content of a control batch; several nodes have the same."""
    return tuple(_changes(content, base_offset))


def _changes(content: bytes, base_offset: int) -> Iterator[QuorumChange]:
    _, _, *lines = content.split(b"\n")
    for offset, line in enumerate(lines, base_offset):
        key, _, value = line.decode().partition(":")
        match decode_control(bytes.fromhex(key), bytes.fromhex(value))[1]:
            case KRaftVersionRecord() as version:
                yield QuorumChange(offset, version.kraft_version)
            case VotersRecord() as voters:
                yield QuorumChange(offset, VoterSet.of_record(voters))


def unpack_batches(data: bytes) -> list[LogBatch]:
    """The batches in what `pack_batches` made."""
    batches = []
    position = 0
    while position < len(data):
        base_offset, next_offset, epoch, size = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        batches.append(LogBatch(base_offset, next_offset, epoch, data[position : position + size]))
        position += size
    return batches


class CoreMember(SteppedMember):
    """One core and what it needs to live; its disk, that is log and quorum-state, outlasts crashes."""

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
        """`formatted` is what the directory says of the quorum before its first record."""
        self.node_id = node_id
        self.key = ReplicaKey(node_id)
        """Its id; there is no disk that could have one."""
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
        """By id, the offsets of values that are not known to be committed."""
        self._next_ticket = 1
        self._effects_left: int | None = None
        self._failure: Exception = Crashed()
        """What ends the step when no effects are left."""
        self._old_copy = (log, election)

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints that the node advertises."""
        voter = self._voters.find(self.node_id)
        own = Endpoints((ListenerAddress("CONTROLLER", f"n{self.node_id}", 9000),))
        return own if voter is None else voter.endpoints

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
        self._core = RaftCore(
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
        self._effects_left = None
        self.log.crash(rng)

    def crash_soon(self, operations: int) -> None:
        """Crash before a later effect, counted from now."""
        self._effects_left = operations
        self._failure = Crashed(f"before effect {operations}")

    def fail_soon(self, operations: int) -> None:
        """Let a later effect fail, counted from now."""
        self._effects_left = operations
        self._failure = OSError(errno.EIO, "input/output error")

    def limit_disk(self, free_bytes: int | None) -> None:
        """A log in memory is never full."""

    def damage(self, what: Damage, rng: Random) -> str:
        """A log in memory can lose only everything, or everything since the last start."""
        if not what.needs_stop:
            return ""
        batches, election = self._old_copy if what is Damage.OLD_COPY else ((), None)
        self.log, self._election = CoreLog(batches), election
        return "the log"

    def must_refuse(self) -> str:
        """A log in memory is lost as a whole, which nothing proves."""
        return ""

    def move(self, port: int) -> None:
        """Never called: a bare core has no ports."""
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
        """A forged answer arrives. Its records are left out: batches of the wire do not fit into this log."""
        try:
            reply = _RPC.reply_from_wire(decode(APIS[api_key].response, version, body))
        except DecodeError:
            return self.on_failed(request_id, FailureCause.BAD_BYTES, now_ms)
        if isinstance(reply, FetchReply):
            reply = replace(reply, batches=(), data=b"")
        return self.on_reply(request_id, reply, now_ms)

    def epoch_of_leader(self, message: object) -> int | None:
        """The epoch in an answer of a leader to a fetch."""
        assert isinstance(message, FetchReply), message
        is_good = message.error is Error.NONE and message.top_error is Error.NONE
        return message.epoch if is_good else None

    def is_judging(self, request_id: int) -> bool:
        """Never: each answer is judged at once."""
        return False

    def measure(self, *, is_on: bool) -> None:
        """A bare core decides on nothing and applies nothing."""

    def take_work(self) -> int:
        """Nothing."""
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
            return [Done(submit_id, Outcome.REFUSED)]
        self._submitted[submit_id] = base_offset
        return []

    def administer(self, request_id: int, message: Message, now_ms: int) -> list[Output]:
        """Never called: a bare core serves no clients."""
        raise AssertionError(f"a bare core is asked for {message}")

    def read_index(self, read_id: int, now_ms: int) -> list[Output]:
        """A client requests a read from this leader."""
        return self.step(ReadIndex(read_id), now_ms)

    # Effects

    def _carry_out(self, effects: list[Effect]) -> list[Output]:
        self.effects = effects
        outputs: list[Output] = []
        for effect in effects:
            if self._effects_left is not None:
                self._effects_left -= 1
                if self._effects_left <= 0:
                    raise self._failure
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
                    vote = self._candidates.pop(request_id, None)
                    granted = isinstance(message, VoteReply) and message.granted
                    outputs.append(_answer(request_id, message, vote if granted else None))
                case StateChanged():
                    outputs.append(Changed(f"{effect.source}->{effect.target} {effect.cause}"))
                    if effect.source == "Leader":
                        outputs.extend(Done(submit_id, Outcome.UNKNOWN) for submit_id in self._submitted)
                        self._submitted.clear()
                case PeerFault(peer_id=peer_id, what=what):
                    outputs.append(PeerFaultReported(peer_id, what))
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
                case HighWatermarkMoved(offset=offset):
                    outputs.extend(self._committed(offset))
        return outputs

    def _write(self, effect: AppendBatch | AppendControl | AppendFetched | TruncateLog) -> None:
        match effect:
            case AppendBatch(base_offset, epoch, timestamp_ms, values):
                content = b"\n".join((_DATA, str(timestamp_ms).encode(), *values))
                self.log.append(LogBatch(base_offset, base_offset + len(values), epoch, content))
            case AppendControl(base_offset, epoch, timestamp_ms, records):
                lines = (f"{key.hex()}:{value.hex()}".encode() for _, key, value in map(encode_control, records))
                content = b"\n".join((_CONTROL, str(timestamp_ms).encode(), *lines))
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
        return [Done(submit_id, Outcome.COMMITTED, offset) for submit_id, offset in done]

    # Questions

    def deadline_ms(self) -> int:
        """When `tick` is wanted."""
        core = self._core
        assert core is not None, self.node_id
        return core.deadline_ms()

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from `offset` to the end of the log."""
        return self.log.read(offset)

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        """The submitted values in a batch."""
        kind, _, *values = batch.content.split(b"\n")
        return tuple(values) if kind == _DATA else ()

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        """What a batch changes in the quorum."""
        return changes_in(batch)

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """None."""
        return ()

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """Never called: a bare core has no snapshots."""
        raise AssertionError(f"a bare core has no snapshot {snapshot}")
