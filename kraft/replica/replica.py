"""One replica of the metadata log: the quorum over a disk and the wire (Kafka: `KafkaRaftClient` with its log, quorum
state store, network channel and listener; etcd calls it a driver).

The core decides, and `Replica` carries its effects out, strictly in order. Above it are the parts of the process that
follow the log; the replica knows them as readers, and the one that leads as `Leading`. It knows neither controller nor
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from random import Random
from typing import Final, assert_never

from kraft.committed import CommittedBatch, LogReader, Noted
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
from kraft.quorum.events import (
    BeginShutdown,
    Event,
    FailureCause,
    ReadIndex,
    Received,
    RequestFailed,
    SnapshotChecked,
    Tick,
)
from kraft.replica.activation import Activation
from kraft.replica.commits import Commits
from kraft.replica.in_flight import InFlightRequests
from kraft.replica.interface.actions import Redirect
from kraft.replica.interface.events import LogState, MakeSnapshot, PeerRequest, StartFlush, Trace
from kraft.replica.interface.leading import Leading
from kraft.replica.interface.options import ReplicaOptions
from kraft.replica.interface.status import ReplicaStatus
from kraft.replica.outbox import Outbox
from kraft.replica.peer_replies import PeerReplies
from kraft.replica.proposals import Proposals
from kraft.replica.quorum_requests import QuorumRequests
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.snapshot_schedule import SnapshotSchedule
from kraft.replica.storage.storage import Storage
from kraft.wire import Answer, Part, ReplyTo, Target, WireRequest, WireSend
from metadata_log.disk import Disk, File
from metadata_log.log.log import MetadataLog
from metadata_log.records.control import LeaderChangeMessage
from metadata_log.types import NEVER_MS, NO_NODE, OffsetAndEpoch

_TICK: Final = Tick()


def core_of(options: ReplicaOptions, storage: Storage, rng: Random) -> RaftCore:
    """The core of the replica in an opened directory."""
    make_core: Callable[..., RaftCore] = options.make_core or RaftCore
    return make_core(
        config=options.quorum,
        local=storage.local,
        voters=options.voters,
        endpoints=options.endpoints,
        start=storage.start(),
        rng=rng,
        bootstrap=options.bootstrap,
        listener=options.listener,
    )


class Replica:
    """A replica in an opened directory. Its methods are for one owner, and never wait.

    What a call causes is in `outbox`, in order. The effects on the disk are done when a call returns.

    Args:
        readers: The parts that follow the log; the first one judges records before they are appended.
        leading: The part that appends to the log where this replica leads the quorum, if it is of the process.
    """

    def __init__(
        self,
        *,
        options: ReplicaOptions,
        disk: Disk,
        storage: Storage,
        core: RaftCore,
        readers: tuple[LogReader, ...],
        leading: Leading | None,
        now_ms: int,
    ) -> None:
        self.options = options
        self.storage = storage
        self.core = core
        self.reader = readers[0]
        self.outbox = outbox = Outbox()
        self.in_flight = InFlightRequests()
        self._leading = leading
        self._inline_flush = options.inline_flush
        self._guarding = leading if leading is not None and leading.guards_quorum else None
        self._rpc = Rpc(
            cluster_id=storage.cluster_id,
            listener=options.listener,
            timeout_ms=options.quorum.request_timeout_ms,
        )
        self.requests = QuorumRequests(self._rpc, storage.snapshots, outbox)
        self.proposals = Proposals(options, core, leading, outbox, self.step_core)
        self.activation = Activation(core, leading, self.proposals, outbox)
        self.snapshots = SnapshotSchedule(disk, storage, core, self.reader, options.snapshots, now_ms)
        self.commits = Commits(core, readers, leading, storage, self.snapshots, self.activation, outbox)
        self.replies = PeerReplies(
            core,
            self.reader,
            storage,
            self._rpc,
            self.commits.applier,
            outbox,
            self.carry_out,
            self.step_core,
            options.judged_per_turn,
        )
        # Each commit has these two: a method here would be one more call.
        self.on_reply = self.replies.receive
        self.propose = self.proposals.propose

    def starting(self, now_ms: int) -> Generator[None, None, None]:
        """Give the readers the newest snapshot, check the records of the log, and enter the first state.

        In steps of some milliseconds. Raises `MetadataLogError` where a file is not as it should be, `OSError` where
        the disk fails.
        """
        commits, storage, reader = self.commits, self.storage, self.reader
        newest = storage.snapshots.newest
        if newest.offset > 0:
            with storage.naming_snapshot(newest):
                commits.load_snapshot(newest)
                while commits.is_applying:
                    yield None
                    commits.apply_more()
            commits.applied_offset = commits.applier.next_offset
        if reader.reads_batches:
            yield from storage.checking_records(reader.check)
        self.carry_out(self.core.begin(now_ms), now_ms)

    # Questions

    @property
    def is_active(self) -> bool:
        """Whether the part that leads has taken its leadership: then it takes requests and submits."""
        return self.proposals.is_open

    def active_controller(self, asker: Part) -> Target | None:
        """The leader of the quorum; None if the leader is unknown, or is the part that asks.

        Requests of a broker to an active controller in its own process take the network, too.
        """
        core = self.core
        leader_id, address = core.leader.leader_id, core.leader_address
        if asker is Part.BROKER and self.proposals.is_open:
            leader_id, address = core.local.id, self.options.endpoints.default
        elif leader_id == core.local.id:
            return None
        if leader_id == NO_NODE or address is None:
            return None
        return Target(leader_id, address.host, address.port)

    @property
    def log(self) -> MetadataLog:
        """The log, for readers in the owner's thread; only what is below the high watermark is final."""
        return self.storage.log

    @property
    def newest_snapshot(self) -> OffsetAndEpoch:
        """The newest snapshot on disk; one of offset 0 holds nothing of the log."""
        return self.storage.snapshots.newest

    def open_snapshot(self, snapshot: OffsetAndEpoch) -> File:
        """The file of a snapshot, to read; it stays readable when the snapshot is removed. Raises `OSError`."""
        return self.storage.snapshots.open(snapshot)

    @property
    def outstanding_flush(self) -> StartFlush | None:
        """The flush that was handed out and has not come back; a fork has one of its own."""
        return self.storage.outstanding_flush

    def is_judging(self, request_id: int) -> bool:
        """Whether the answer to a request of the quorum has arrived, and not all of its records are judged."""
        return self.replies.is_judging(request_id)

    def status(self) -> ReplicaStatus:
        """The state, the leader and the offsets of this replica now."""
        core = self.core
        return ReplicaStatus(
            node_id=core.local.id,
            directory_id=core.local.directory_id,
            cluster_id=self.storage.cluster_id,
            state=core.state_name,
            leader=core.leader,
            voters=core.voters,
            is_voter=core.is_voter,
            high_watermark=core.log.high_watermark,
            log_start_offset=core.log.start_offset,
            log_end_offset=core.log.end_offset,
            flushed_offset=core.log.flushed_offset,
            applied_offset=self.commits.applied_offset,
        )

    # Events

    def on_request(self, request: WireRequest, now_ms: int) -> None:
        """A request to the quorum, of a peer or of an administrator."""
        if self._guarding is not None and (denial := self._guarding.denial(request)) is not None:
            self.outbox.outputs.append(Answer(request.request_id, refuse_quorum_request(request, denial)))
            return
        flat = self.requests.receive(request)
        if flat is not None and (effects := self.core.step(Received(request.request_id, flat), now_ms)):
            self.carry_out(effects, now_ms)

    def on_forwarded(self, redirect: Redirect, now_ms: int) -> None:
        """The same, forwarded by a broker."""
        flat = self.requests.receive_forwarded(redirect)
        if flat is not None:
            self.step_core(Received(redirect.request.request_id, flat), now_ms)

    def on_failed(self, asked: PeerRequest, cause: FailureCause, now_ms: int) -> None:
        """A request to a peer has failed."""
        self.step_core(RequestFailed(asked.request_id, asked.peer_id, cause), now_ms)

    def on_flushed(self, ticket: int, now_ms: int) -> None:
        """The flush with this ticket is done."""
        flushed, following = self.storage.flush_done(ticket)
        if following is not None:
            self.outbox.outputs.append(following)
        if effects := self.core.step(flushed, now_ms):
            self.carry_out(effects, now_ms)

    def withdraw(self, request_id: int) -> bool:
        """Forget a request whose connection is closed; returns whether it was one of the quorum."""
        if not self.core.withdraw(request_id):
            return False
        del self.requests.received[request_id]
        return True

    def confirm(self, token: int, now_ms: int) -> None:
        """Find out whether this replica still leads; the part that asks is told by `on_confirmed`."""
        if self.proposals.is_open:
            self.commits.confirmations.wait(token)
            self.step_core(ReadIndex(token), now_ms)
        else:
            self.commits.tell_confirmed(token, is_leader=False)

    def make_snapshot(self, call: MakeSnapshot, now_ms: int) -> None:
        """Write a snapshot of what is applied, or of the state that the program of a raw log gives."""
        if isinstance(call.state, LogState):
            self.snapshots.take_state(call.call_id, call.state, now_ms)
        else:
            self.snapshots.want(call.call_id)
            self.commits.apply(now_ms)
        self._tell_snapshots()

    def begin_shutdown(self, now_ms: int) -> None:
        """Take no new proposals of clients; a leader resigns once its records are committed."""
        self.proposals.begin_shutdown(now_ms)
        self._leave_if_finished(now_ms)

    def catch_up(self, now_ms: int) -> None:
        """In a Tick before the parts have their time: tell and apply what is committed, as far as it is due."""
        proposals = self.proposals
        if now_ms >= proposals.deadline_ms:
            proposals.tell_more(now_ms)
        if now_ms >= self.activation.deadline_ms:
            self.activation.take_early(now_ms)
        if now_ms >= self.commits.deadline_ms:
            self.commits.apply(now_ms)
        if proposals.finish_by_ms < NEVER_MS:
            self._leave_if_finished(now_ms)

    def on_tick(self, now_ms: int) -> None:
        """In a Tick after the parts: snapshots, judged replies and the core, which writes what the parts appended."""
        snapshots = self.snapshots
        if now_ms >= snapshots.maker.deadline_ms or now_ms >= snapshots.cleaner.deadline_ms:
            snapshots.work(self.step_core, now_ms)
            self._tell_snapshots()
            if snapshots.maker.is_wanted:
                self.commits.apply(now_ms)
        if now_ms >= self.replies.deadline_ms:
            self.replies.judge(now_ms)
        if now_ms >= self.core.deadline_ms() and (effects := self.core.step(_TICK, now_ms)):
            self.carry_out(effects, now_ms)

    def _tell_snapshots(self) -> None:
        """Tell the calls that wanted a snapshot of it."""
        self.outbox.outputs.extend(map(Noted, self.snapshots.take_made()))

    def _leave_if_finished(self, now_ms: int) -> None:
        """Begin the core's shutdown, with which a leader resigns, unless this leader has records to commit."""
        if self.proposals.finish(now_ms):
            self.step_core(BeginShutdown(), now_ms)

    # The core

    def step_core(self, event: Event, now_ms: int) -> None:
        """Step the core with an event, and carry out the effects."""
        if effects := self.core.step(event, now_ms):
            self.carry_out(effects, now_ms)

    def carry_out(self, effects: Iterable[Effect], now_ms: int) -> None:
        """Carry out effects in their order; disk effects are done when this returns."""
        storage, outputs, follow_ups = self.storage, self.outbox.outputs, self.outbox.follow_ups
        in_flight = self.in_flight
        last_read: tuple[int, int] | None = None
        data = b""
        served_bytes = 0
        for effect in effects:
            # What every commit has is compared by its type: a `case` that does not match takes four times as long.
            if type(effect) is SendRecords:
                request = self.requests.received.pop(effect.request_id)
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
                self.proposals.backlog.written(effect.base_offset + len(effect.values), size)
                if self.reader.reads_batches:
                    self.commits.applier.remember(_own_batch(effect, effect.values, size))
            elif type(effect) is HighWatermarkMoved:
                self.proposals.release(effect.offset, now_ms)
                outputs.append(Trace(effect))
                if self.reader.reads_batches:
                    # Clients wait for their answers, but not for the application, so its own Tick comes last.
                    self.commits.deadline_ms = now_ms
                else:
                    self.commits.apply(now_ms)
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
                        self.requests.answer(effect)
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
                        self.commits.applier.remember(_own_batch(effect, (), size))
                        if isinstance(effect.records[0], LeaderChangeMessage):
                            self.activation.claim_offset = effect.base_offset
                    case SendSnapshot():
                        self.requests.answer_with_piece(effect)
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
                        self.snapshots.install(effect.snapshot, now_ms)
                        self.commits.load_snapshot(effect.snapshot)
                        self.commits.deadline_ms = now_ms + 1
                        outputs.extend(map(Noted, self.snapshots.take_made()))
                    case ReadConfirmed():
                        self.commits.confirmations.confirm(effect)
                        self.commits.report_confirmed()
                    case _:
                        assert_never(effect)

    def _lose_leadership(self, now_ms: int) -> None:
        self.activation.abandon(now_ms)
        self.commits.applier.forget()
        has_led = self.proposals.is_open
        self.proposals.close()
        if has_led:
            assert self._leading is not None, "only a part that leads can lose its leadership"
            self._leading.on_lost_leadership()
            self.commits.abandon()
            self.proposals.refuse_waiting(now_ms)


def _own_batch(effect: AppendBatch | AppendControl, values: tuple[bytes, ...], size_bytes: int) -> CommittedBatch:
    """A batch that this leader appends, as the application gets it after the commit."""
    count = len(effect.values) if isinstance(effect, AppendBatch) else len(effect.records)
    base_offset = effect.base_offset
    return CommittedBatch(base_offset, base_offset + count, effect.epoch, effect.timestamp_ms, values, size_bytes)
