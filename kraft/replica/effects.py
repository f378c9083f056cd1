"""Carries out the effects of the core, strictly in order (Kafka: `KafkaRaftClient` with its log, quorum state store,
network channel and listener).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import assert_never

from kraft.committed import CommittedBatch, Noted
from kraft.limits import SERVED_AT_ONCE_BYTES
from kraft.quorum.core import RaftCore
from kraft.quorum.effects import (
    AbandonDownload,
    AppendBatch,
    AppendControl,
    AppendDownload,
    AppendFetched,
    BeginDownload,
    CheckDownload,
    Effect,
    FlushLog,
    HighWatermarkMoved,
    InstallSnapshot,
    LeaderChanged,
    PeerFault,
    PersistElection,
    ReadConfirmed,
    SendRecords,
    SendReply,
    SendRequest,
    SendSnapshot,
    StateChanged,
    TruncateLog,
    VotersChanged,
)
from kraft.quorum.events import Event, SnapshotChecked
from kraft.replica.activation import Activation
from kraft.replica.applier import Applier
from kraft.replica.commits import Commits
from kraft.replica.in_flight import InFlightRequests
from kraft.replica.interface.application import Leading, LogReader
from kraft.replica.interface.events import PeerRequest, Trace
from kraft.replica.outbox import Outbox
from kraft.replica.proposals import Proposals
from kraft.replica.quorum_requests import QuorumRequests
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.snapshot_schedule import SnapshotSchedule
from kraft.replica.storage.storage import Storage
from kraft.wire import Answer, Part, ReplyTo, Target, WireSend
from metadata_log.records.control import LeaderChangeMessage


class Effects:
    """Steps the core of one replica. The effects on the disk are done when a step returns."""

    def __init__(
        self,
        *,
        core: RaftCore,
        reader: LogReader,
        leading: Leading | None,
        storage: Storage,
        rpc: Rpc,
        requests: QuorumRequests,
        proposals: Proposals,
        activation: Activation,
        commits: Commits,
        snapshots: SnapshotSchedule,
        outbox: Outbox,
        in_flight: InFlightRequests,
        inline_flush: bool,
    ) -> None:
        self.core = core
        self.reader = reader
        """Judges records before they are appended: all parts read the same."""
        self._leading = leading
        self.outbox = outbox
        self._storage = storage
        self._rpc = rpc
        self._requests = requests
        self._proposals = proposals
        self._activation = activation
        self._commits = commits
        self._snapshots = snapshots
        self._inline_flush = inline_flush
        self._in_flight = in_flight

    @property
    def applier(self) -> Applier:
        """The part that gets the batches once they are committed."""
        return self._commits.applier

    def step_core(self, event: Event, now_ms: int) -> None:
        """Step the core with an event, and carry out the effects."""
        if effects := self.core.step(event, now_ms):
            self.carry_out(effects, now_ms)

    def carry_out(self, effects: Iterable[Effect], now_ms: int) -> None:
        """Carry out effects in their order; disk effects are done when this returns."""
        storage, outputs, follow_ups = self._storage, self.outbox.outputs, self.outbox.follow_ups
        in_flight = self._in_flight
        last_read: tuple[int, int] | None = None
        data = b""
        served_bytes = 0
        for effect in effects:
            # What every commit has is compared by its type: a `case` that does not match takes four times as long.
            if type(effect) is SendRecords:
                request = self._requests.received.pop(effect.request_id)
                # Followers that keep up all fetch the same records.
                if (effect.offset, effect.max_bytes) != last_read:
                    last_read = (effect.offset, effect.max_bytes)
                    data = storage.read(effect.offset, effect.max_bytes)
                served_bytes += len(data)
                if served_bytes - len(data) >= SERVED_AT_ONCE_BYTES:
                    # One of many fetches that waited: its sender fetches again at once, and has its turn.
                    last_read, data = None, b""
                answer = self._rpc.fetch_replies.to_wire(request, effect.reply, data)
                outputs.append(Answer(effect.request_id, answer))
            elif type(effect) is FlushLog:
                if self._inline_flush:
                    follow_ups.append(storage.flush_now(effect))
                elif (start := storage.request_flush(effect)) is not None:
                    outputs.append(start)
            elif type(effect) is AppendBatch:
                size = storage.append_batch(effect)
                self._proposals.backlog.written(effect.base_offset + len(effect.values), size)
                if self.reader.reads_batches:
                    self._commits.applier.remember(_own_batch(effect, effect.values, size))
            elif type(effect) is HighWatermarkMoved:
                self._proposals.release(effect.offset, now_ms)
                outputs.append(Trace(effect))
                if self.reader.reads_batches:
                    # Clients wait for their answers, but not for the application, so its own Tick comes last.
                    self._commits.deadline_ms = now_ms
                else:
                    self._commits.apply(now_ms)
            elif type(effect) is AppendFetched:
                storage.append_fetched(effect)
            elif type(effect) is SendRequest:
                message = self._rpc.request_to_wire(effect.message)
                target = Target(effect.peer_id, effect.address.host, effect.address.port)
                # As `InFlightRequests.send`, without a call for each message of the quorum.
                in_flight.last_id = request_id = in_flight.last_id + 1
                key = PeerRequest(effect.request_id, effect.peer_id)
                in_flight.reply_to[request_id] = ReplyTo(Part.QUORUM, key)
                outputs.append(WireSend(request_id, target, message, effect.timeout_ms, Part.QUORUM))
            else:
                match effect:
                    case SendReply():
                        self._requests.answer(effect)
                    case StateChanged():
                        outputs.append(Trace(effect))
                        if effect.source == "Leader":
                            self._lose_leadership(now_ms)
                    case LeaderChanged() | VotersChanged() | PeerFault():
                        outputs.append(Trace(effect))
                    case PersistElection():
                        storage.persist_election(effect.state, effect.kraft_version)
                    case TruncateLog():
                        storage.truncate(effect)
                    case AppendControl():
                        size = storage.append_control(effect)
                        self._commits.applier.remember(_own_batch(effect, (), size))
                        if isinstance(effect.records[0], LeaderChangeMessage):
                            self._activation.claim_offset = effect.base_offset
                    case SendSnapshot():
                        self._requests.answer_with_piece(effect)
                    case BeginDownload():
                        storage.snapshots.begin(effect.snapshot, partial(self.reader.check, in_snapshot=True))
                    case AppendDownload():
                        problem = storage.snapshots.append(effect.data)
                        if problem is not None:
                            follow_ups.append(SnapshotChecked(effect.snapshot, problem))
                    case CheckDownload():
                        follow_ups.append(storage.snapshots.check(self.reader.check_snapshot))
                    case AbandonDownload():
                        storage.snapshots.abandon()
                    case InstallSnapshot():
                        self._snapshots.install(effect.snapshot, now_ms)
                        self._commits.load_snapshot(effect.snapshot)
                        self._commits.deadline_ms = now_ms + 1
                        outputs.extend(map(Noted, self._snapshots.take_made()))
                    case ReadConfirmed():
                        self._commits.confirmations.confirm(effect)
                        self._commits.report_confirmed()
                    case _:
                        assert_never(effect)

    def _lose_leadership(self, now_ms: int) -> None:
        self._activation.abandon(now_ms)
        self._commits.applier.forget()
        has_led = self._proposals.is_open
        self._proposals.close()
        if has_led:
            assert self._leading is not None, "only a part that leads can lose its leadership"
            self._leading.on_lost_leadership()
            self._commits.abandon()
            self._proposals.refuse_waiting(now_ms)


def _own_batch(effect: AppendBatch | AppendControl, values: tuple[bytes, ...], size_bytes: int) -> CommittedBatch:
    """A batch that this leader appends, as the application gets it after the commit."""
    count = len(effect.values) if isinstance(effect, AppendBatch) else len(effect.records)
    base_offset = effect.base_offset
    return CommittedBatch(base_offset, base_offset + count, effect.epoch, effect.timestamp_ms, values, size_bytes)
