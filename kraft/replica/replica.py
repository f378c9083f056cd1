"""One replica as one synchronous object: feeds the core and the application, carries out disk effects in order, and
returns what leaves the node (Kafka: `KafkaRaftClient` with its log, store, network channel and listener).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from random import Random
from typing import Final, assert_never

from msgspec import Struct, structs

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
    AnswerHeld,
    BeginShutdown,
    Event,
    FailureCause,
    LogFlushed,
    LogStartRaised,
    ReadIndex,
    Received,
    Replied,
    RequestFailed,
    Resign,
    Resumed,
    SnapshotChecked,
    SnapshotTaken,
    Tick,
)
from kraft.quorum.messages import FetchReply, Request
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.applier import Applier
from kraft.replica.confirmations import Confirmations
from kraft.replica.interface.application import (
    Action,
    Application,
    ApplicationFactory,
    Confirm,
    ForSubmit,
    OutboundRequest,
    Proposal,
    Redirect,
    RefuseSubmit,
    Respond,
)
from kraft.replica.interface.events import (
    Answer,
    Call,
    CancelCall,
    CommittedBatch,
    Drop,
    FlushDone,
    Input,
    Noted,
    Output,
    Returned,
    SendWire,
    StartFlush,
    Submit,
    Trace,
    WireFailed,
    WireGone,
    WireReply,
    WireRequest,
)
from kraft.replica.interface.held import GRACE_MS, Basis, Begin, HeldReply, records_of
from kraft.replica.interface.options import ReplicaOptions
from kraft.replica.outbound_requests import OutboundRequests
from kraft.replica.proposals import Proposals
from kraft.replica.rpc.api_versions import describe_versions, quorum_apis
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.storage.fetched import Follows, Judged, judging
from kraft.replica.storage.snapshots import SnapshotCleaner, SnapshotMaker
from kraft.replica.storage.storage import Storage
from metadata_log.disk import Disk
from metadata_log.errors import DecodeError
from metadata_log.log.log import MetadataLog
from metadata_log.records.control import LeaderChangeMessage
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS, NO_NODE, OffsetAndEpoch, Uuid
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import ApiVersionsRequest, FetchResponse

_TICK: Final = Tick()
_OwnEvent = LogFlushed | SnapshotChecked
"""What comes of an effect and must not overtake the effects behind it."""
RECORDS_PER_TURN: Final = 1000
"""After so many committed records whatever else there is to do has its turn."""
SERVED_AT_ONCE_BYTES: Final = 16 << 20
"""After so many bytes, other fetches that waited for the same records are answered without any."""
FINISH_MS: Final = 1000
"""How long a leader that stops waits for what it has written to be committed."""


EARLY_PER_TURN: Final = 16
"""How many requests that came before the application led are decided on in a turn."""


class ReplicaStatus(Struct, frozen=True, kw_only=True):
    """A replica at one moment. Offsets are exclusive ends; the high watermark is -1 while it is not known."""

    node_id: int
    directory_id: Uuid
    cluster_id: str
    state: str
    leader: LeaderAndEpoch
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    applied_offset: int


class Replica:
    """Open one with `Replica.open`. Only its owner touches it, and never waits in between."""

    def __init__(
        self,
        *,
        options: ReplicaOptions,
        disk: Disk,
        storage: Storage,
        core: RaftCore,
        application: Application,
        now_ms: int,
    ) -> None:
        self.options = options
        self.core = core
        self.application = application
        self._disk = disk
        self._storage = storage
        self._rpc = Rpc(
            cluster_id=storage.cluster_id,
            listener=options.listener,
            timeout_ms=options.quorum.request_timeout_ms,
            facts_of=self._facts_of,
        )
        self._applier = Applier(storage.log, storage.log.start_offset)
        self._maker = SnapshotMaker(disk, storage.log.directory, options.snapshots, now_ms)
        self._cleaner = SnapshotCleaner(len(storage.snapshots.ids()), now_ms, options.snapshots.clean_every_ms)
        self._proposals = Proposals(options)
        self._confirmations = Confirmations()
        self._outbound_requests = OutboundRequests()
        self._received: dict[int, WireRequest] = {}
        self._seals: dict[int, Callable[[Message], Message]] = {}
        """By the request's id, what becomes of its answer."""
        self._asked: dict[int, int] = {}
        self._quorum_apis = quorum_apis(application)
        self._claim_offset: int | None = None
        """Where this leader's LeaderChange record is: once that is applied, the application leads, too."""
        self._early: deque[WireRequest] = deque()
        self._early_at_ms = NEVER_MS
        """When the next of `_early` are dealt with, after some of them were."""
        """The requests between the election and that moment: a refused client would return much later."""
        self._finish_by_ms = NEVER_MS
        """When a leader that stops resigns at the latest. Meanwhile it takes nothing new and finishes what it has."""
        self._applied_offset = storage.log.start_offset
        """Everything below was applied."""
        self._held: deque[HeldReply] = deque()
        """The replies with records to check: first the one that is being checked, then the others."""
        self._judged: tuple[bytes, Judged] | None = None
        """The records that were judged last, and what came of that."""
        self._judge_at_ms = NEVER_MS
        """When to judge more of what is held."""
        self._apply_at_ms = NEVER_MS
        """When to hand more of what is committed to the application."""
        self._outputs: list[Output] = []
        self._todo: deque[Action | WireRequest | _OwnEvent] = deque()

    @classmethod
    def open(
        cls, *, options: ReplicaOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> tuple[Replica, list[Output]]:
        """Recover a formatted directory and take the first state; the outputs are to be carried out.

        Raises `MetadataLogError` where a file or the directory is not as it should be, `OSError` where the disk fails.
        """
        return finished(cls.opening(options=options, disk=disk, rng=rng, application=application, now_ms=now_ms))

    @classmethod
    def opening(
        cls, *, options: ReplicaOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> Generator[None, None, tuple[Replica, list[Output]]]:
        """As `open`, in steps of some milliseconds. No other code uses the directory between two steps.

        A generator that is closed before its end closes the files and releases the directory.
        """
        storage = yield from Storage.opening(disk, options, rng, now_ms)
        try:
            core = RaftCore(
                config=options.quorum,
                local=storage.local,
                voters=options.voters,
                endpoints=options.endpoints,
                start=storage.start(),
                rng=rng,
                bootstrap=options.bootstrap,
            )
            hosted = application(options, storage.cluster_id, storage.bootstrap(), rng)
            replica = cls(options=options, disk=disk, storage=storage, core=core, application=hosted, now_ms=now_ms)
            snapshots = storage.snapshots.ids()
            if snapshots and snapshots[-1].offset > 0:
                with storage.naming_snapshot(snapshots[-1]):
                    replica._load_snapshot(snapshots[-1])
                    while hosted.is_applying:
                        yield None
                        hosted.apply_more()
                replica._applied_offset = replica._applier.next_offset
            if hosted.reads_batches:
                yield from storage.checking_records(hosted.check)
            replica._carry_out(core.begin(now_ms), now_ms)
            replica._work_off(now_ms)
            outputs, replica._outputs = replica._outputs, []
            return replica, outputs
        except GeneratorExit:
            storage.close()
            raise
        except BaseException:
            storage.abandon()
            raise

    def _load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        self.application.on_snapshot(self._storage.snapshots.values(snapshot), snapshot)
        self._applier.begin_at(snapshot.offset)

    # Questions

    @property
    def cluster_id(self) -> str:
        """The cluster that the directory was formatted for."""
        return self._storage.cluster_id

    @property
    def is_active(self) -> bool:
        """Whether the application leads: then it takes requests and submits."""
        return self._proposals.is_open

    @property
    def log(self) -> MetadataLog:
        """The log, for readers in the owner's thread; only what is below the high watermark is final."""
        return self._storage.log

    @property
    def recovered(self) -> tuple[str, ...]:
        """What the start had to cut off the log, as sentences for an operator."""
        return self._storage.log.recovered

    @property
    def outstanding_flush(self) -> StartFlush | None:
        """The flush that was handed out and has not come back; a fork has one of its own."""
        return self._storage.outstanding_flush

    def is_judging(self, request_id: int) -> bool:
        """Whether the answer to a request of the quorum has come, and not all of its records are judged."""
        return any(held.event.request_id == request_id for held in self._held)

    def status(self) -> ReplicaStatus:
        """What this replica knows right now."""
        core = self.core
        return ReplicaStatus(
            node_id=core.local.id,
            directory_id=core.local.directory_id,
            cluster_id=self.cluster_id,
            state=core.state_name,
            leader=core.leader,
            high_watermark=core.high_watermark,
            log_start_offset=core.log_start_offset,
            log_end_offset=core.log_end_offset,
            flushed_offset=core.flushed_offset,
            applied_offset=self._applied_offset,
        )

    def deadline_ms(self) -> int:
        """When `step(Tick())` is wanted if nothing happens before; may be in the past at the end of a burst.

        While something committed is to be applied, at once or in a millisecond, no deadline but the core's counts.
        """
        core = self.core
        core_ms = core.deadline_ms()
        # The leader, and so its clients, wait for a follower's flush; no request waits for a follower's application.
        if self._apply_at_ms < NEVER_MS and (core.is_leader or not self._storage.is_flushing):
            return min(core_ms, self._apply_at_ms, self._judge_at_ms, self._proposals.deadline_ms, self._early_at_ms)
        return min(
            self._judge_at_ms,
            core_ms,
            self.application.deadline_ms(),
            self._maker.deadline_ms,
            self._cleaner.deadline_ms,
            self._finish_by_ms,
            self._proposals.deadline_ms,
            self._early_at_ms,
        )

    # Life

    def step(self, event: Input, now_ms: int) -> list[Output]:
        """Let one thing happen; returns what is to be done, in order.

        Raises `MetadataLogError` or `OSError` if the disk or the log fails; the replica must not be used then.
        """
        match event:
            case WireRequest() if event.api_key in self._quorum_apis:
                denial = self.application.denial(event)
                if denial is None:
                    self._on_quorum_request(event, now_ms)
                else:
                    self._outputs.append(Answer(event.request_id, refuse_quorum_request(event, denial)))
                    self._tell_denials()
            case WireRequest():
                self._on_request(event, now_ms)
            case Tick():
                self._on_tick(now_ms)
            case WireReply():
                self._on_reply(event, now_ms)
            case FlushDone():
                flushed, following = self._storage.flush_done(event.ticket)
                if following is not None:
                    self._outputs.append(following)
                if effects := self.core.step(flushed, now_ms):
                    self._carry_out(effects, now_ms)
            case Submit():
                self._perform(self.application.on_submit(event), now_ms)
            case Call() | CancelCall():
                self.application.on_call(event, now_ms)
            case WireFailed() if event.request_id < 0:
                self.application.on_answer(self._outbound_requests.take(event.request_id), None, now_ms)
            case WireFailed():
                peer_id = self._asked.pop(event.request_id, None)
                if peer_id is not None:
                    self.step_core(RequestFailed(event.request_id, peer_id, event.cause), now_ms)
            case WireGone():
                if self.core.withdraw(event.request_id):
                    del self._received[event.request_id]
            case Resign() | Resumed():
                self.step_core(event, now_ms)
            case BeginShutdown():
                self.application.on_begin_shutdown(now_ms)
                self._finish_by_ms = now_ms + FINISH_MS
                self._leave_if_finished(now_ms)
            case _:
                assert_never(event)
        if self._todo:
            self._work_off(now_ms)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _work_off(self, now_ms: int) -> None:
        """What the application wants comes after all that the event itself caused."""
        todo = self._todo
        while todo:
            next_one = todo.popleft()
            if isinstance(next_one, _OwnEvent):
                self.step_core(next_one, now_ms)
            elif isinstance(next_one, WireRequest):
                if self._is_claiming:
                    self._early.append(next_one)
                else:
                    self._ask_application(next_one, now_ms)
            else:
                self._perform(next_one, now_ms)

    def _leave_if_finished(self, now_ms: int) -> None:
        """Begin the core's shutdown, with which a leader resigns, unless it has written what is not committed."""
        core, proposals = self.core, self._proposals
        is_done = core.high_watermark >= core.next_append_offset and not proposals.has_more_to_tell
        if core.is_leader and not is_done and now_ms < self._finish_by_ms:
            return
        self._finish_by_ms = NEVER_MS
        self.step_core(BeginShutdown(), now_ms)

    @property
    def may_stop(self) -> bool:
        """Whether the node may end: the application does not object, and every answer that can be told was told."""
        return self.application.may_stop and not self._proposals.has_more_to_tell

    def abandon(self) -> None:
        """Unlock the directory and write nothing more: what failed once cannot be trusted with a last flush."""
        self._storage.abandon()

    def close(self) -> None:
        """Flush, close the files and unlock the directory."""
        self._storage.close()

    # Inputs

    def _on_request(self, request: WireRequest, now_ms: int) -> None:
        key = request.api_key
        if key == ApiKey.API_VERSIONS:
            message = request.message
            assert isinstance(message, ApiVersionsRequest), message
            level = self.core.history.kraft_version
            versions = describe_versions(self.application, message, request.version, level)
            self._outputs.append(Answer(request.request_id, versions))
        elif key in self.application.apis:
            if self._early or self._is_claiming:
                self._early.append(request)
            else:
                self._ask_application(request, now_ms)
        else:
            self._outputs.append(Drop(request.request_id, f"this node does not serve API {key}"))

    @property
    def _is_claiming(self) -> bool:
        """Whether this replica was elected, and its application does not lead yet."""
        return self._claim_offset is not None and not self.is_active

    def _ask_application(self, request: WireRequest, now_ms: int) -> None:
        if now_ms >= self._apply_at_ms:
            # The next request must see everything that was answered before.
            self._apply(now_ms)
        answer = self.application.on_full if self._proposals.is_full(self.core) else self.application.on_request
        self._perform(answer(request, self.core.leader, now_ms), now_ms)
        self._tell_denials()

    def _tell_denials(self) -> None:
        for denial in self.application.take_denials():
            self._outputs.append(Trace(denial))

    def _on_quorum_request(self, request: WireRequest, now_ms: int) -> None:
        flat = self._rpc.request_from_wire(request)
        if isinstance(flat, Request):
            self._received[request.request_id] = request
            if effects := self.core.step(Received(request.request_id, flat), now_ms):
                self._carry_out(effects, now_ms)
        else:
            self._outputs.append(Answer(request.request_id, self._sealed(request.request_id, flat)))

    def _sealed(self, request_id: int, answer: Message) -> Message:
        """The answer as its receiver gets it: in an envelope, if a broker forwarded the request."""
        if not self._seals:
            return answer
        seal = self._seals.pop(request_id, None)
        return answer if seal is None else seal(answer)

    def _on_reply(self, event: WireReply, now_ms: int) -> None:
        if event.request_id < 0:
            self.application.on_answer(self._outbound_requests.take(event.request_id), event.message, now_ms)
            return
        peer_id = self._asked.pop(event.request_id, None)
        if peer_id is None:
            return
        message = event.message
        data = records_of(message)
        if not data:
            self._take_reply(event, peer_id, now_ms)
        elif not self._held and len(data) <= self.options.judged_per_turn and isinstance(message, FetchResponse):
            # So few bytes hold fewer records than a turn has room for: nothing has to be held.
            self._judged = data, finished(judging(data, self._follows(), self.application.check))
            self._take_reply(event, peer_id, now_ms)
            self._judged = None
        else:
            self._held.append(HeldReply(event, peer_id, self._begin_of(event)))
            if len(self._held) == 1:
                self._judge(now_ms)

    def _take_reply(self, event: WireReply, peer_id: int, now_ms: int) -> None:
        """Hand an answer of the quorum to the core."""
        try:
            reply = self._rpc.reply_from_wire(event.message)
        except DecodeError as bad:
            self._outputs.append(Trace(PeerFault(peer_id, str(bad))))
            failed = RequestFailed(event.request_id, peer_id, FailureCause.BAD_BYTES)
            self.step_core(failed, now_ms)
        else:
            if isinstance(reply, FetchReply) and reply.diverging is not None:
                cut = self.core.truncation_point(reply.diverging)
                reply = structs.replace(reply, splits_batch=self._storage.splits_batch(cut))
            self._carry_out(self.core.step(Replied(event.request_id, peer_id, reply), now_ms), now_ms)

    def _judge(self, now_ms: int) -> None:
        """Judge what is held for one turn. Whatever has happened since an answer came, the core sees the answer as one
        that comes when it is judged.
        """
        left = self.options.judged_per_turn
        while self._held:
            held = self._held[0]
            if held.has_begun and not self.core.awaits(held.peer_id, held.event.request_id):
                self._held.popleft()
                continue
            if left <= 0:
                break
            left = held.go_on(left)
            if held.is_judged:
                self._held.popleft()
                self._take_reply(held.event, held.peer_id, now_ms)
                self._judged = None
        if self._held:
            held = self._held[0]
            self._judge_at_ms = now_ms + 1
            self.step_core(AnswerHeld(held.event.request_id, held.peer_id, GRACE_MS), now_ms)
        else:
            self._judge_at_ms = NEVER_MS

    def _begin_of(self, event: WireReply) -> Begin:
        """How the records of an answer are judged."""
        data = records_of(event.message)
        if isinstance(event.message, FetchResponse):
            return partial(self._begin_fetched, data)
        return lambda: self._storage.snapshots.judging(data)

    def _begin_fetched(self, data: bytes) -> tuple[Basis, Iterator[int]]:
        """Judge what may be appended of the records that the leader sends."""
        follows = self._follows()
        return follows, self._judge_fetched(data, follows)

    def _follows(self) -> Follows:
        """What fetched records have to follow."""
        core = self.core
        leader, sets = core.leader, core.history.sets
        voters = sets[-1][1] if sets else None
        return Follows(core.log_end_offset, core.last_epoch, leader.epoch, leader.leader_id, voters)

    def _judge_fetched(self, data: bytes, follows: Follows) -> Iterator[int]:
        judged = yield from judging(data, follows, self.application.check)
        self._judged = data, judged

    def _facts_of(self, data: bytes) -> Judged:
        """What was judged of the records of an answer that the core gets now."""
        assert self._judged is not None, "nothing was judged"
        judged_data, judged = self._judged
        assert judged_data is data, "other records were judged"
        return judged

    def _on_tick(self, now_ms: int) -> None:
        """Timed work of the application first, so that what it appends is written by the same Tick."""
        if now_ms >= self._proposals.deadline_ms:
            self._proposals.tell_more(self, now_ms)
        if now_ms >= self._early_at_ms:
            self._take_up_early(now_ms)
        if now_ms >= self._apply_at_ms:
            self._apply(now_ms)
        if self._finish_by_ms < NEVER_MS:
            self._leave_if_finished(now_ms)
        if now_ms >= self.application.deadline_ms():
            for action in self.application.on_tick(now_ms):
                self._perform(action, now_ms)
            self._tell_denials()
        if now_ms >= self._maker.deadline_ms or now_ms >= self._cleaner.deadline_ms:
            self._tend_snapshots(now_ms)
        if now_ms >= self._judge_at_ms:
            self._judge(now_ms)
        if now_ms >= self.core.deadline_ms():
            self._carry_out(self.core.step(_TICK, now_ms), now_ms)

    # Effects

    def step_core(self, event: Event, now_ms: int) -> None:
        """Let something happen to the core, and carry out what it asks for."""
        self._carry_out(self.core.step(event, now_ms), now_ms)

    def tell(self, output: Output) -> None:
        """Let something leave this replica with the step that is under way."""
        self._outputs.append(output)

    def _carry_out(self, effects: Iterable[Effect], now_ms: int) -> None:
        """Do what the core asks for, strictly in order; disk effects are done when this returns."""
        storage, outputs = self._storage, self._outputs
        last_read: tuple[int, int] | None = None
        data = b""
        served_bytes = 0
        for effect in effects:
            match effect:
                case SendRecords():
                    request = self._received.pop(effect.request_id)
                    # Followers that keep up all fetch the same records.
                    if (effect.offset, effect.max_bytes) != last_read:
                        last_read = (effect.offset, effect.max_bytes)
                        data = storage.read(effect.offset, effect.max_bytes)
                    served_bytes += len(data)
                    if served_bytes - len(data) >= SERVED_AT_ONCE_BYTES:
                        # One of many fetches that waited: without records it asks again at once, and has its turn.
                        last_read, data = None, b""
                    answer = self._rpc.fetch_replies.to_wire(request, effect.reply, data)
                    outputs.append(Answer(effect.request_id, answer))
                case SendReply():
                    request = self._received.pop(effect.request_id)
                    reply = self._rpc.reply_to_wire(request, effect.message)
                    outputs.append(Answer(effect.request_id, self._sealed(effect.request_id, reply)))
                case SendRequest():
                    self._asked[effect.request_id] = effect.peer_id
                    message = self._rpc.request_to_wire(effect.message)
                    to = effect.address
                    outputs.append(
                        SendWire(effect.request_id, effect.peer_id, to.host, to.port, message, effect.timeout_ms)
                    )
                case AppendBatch():
                    size = storage.append_batch(effect)
                    self._proposals.backlog.written(effect.base_offset + len(effect.values), size)
                    if self.application.reads_batches:
                        self._applier.remember(_own_batch(effect.base_offset, effect, effect.values, size))
                case AppendFetched():
                    storage.append_fetched(effect)
                case FlushLog() if self.options.inline_flush:
                    # The answer is an event of its own: it must not overtake the effects that follow this one.
                    self._todo.append(storage.flush_now(effect))
                case FlushLog():
                    if (start := storage.request_flush(effect)) is not None:
                        outputs.append(start)
                case HighWatermarkMoved():
                    self._proposals.release(self, effect.offset, now_ms)
                    outputs.append(Trace(effect))
                    if self.application.reads_batches:
                        # Clients wait for their answers, but not for the application, so its own Tick comes last.
                        self._apply_at_ms = now_ms
                    else:
                        self._apply(now_ms)
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
                    self._applier.remember(_own_batch(effect.base_offset, effect, (), size))
                    if isinstance(effect.records[0], LeaderChangeMessage):
                        self._claim_offset = effect.base_offset
                case SendSnapshot():
                    self._send_snapshot(effect)
                case BeginDownload():
                    storage.snapshots.begin(effect.snapshot, partial(self.application.check, in_snapshot=True))
                case AppendDownload():
                    problem = storage.snapshots.append(effect.data)
                    if problem is not None:
                        self._todo.append(SnapshotChecked(effect.snapshot, problem))
                case CheckDownload():
                    self._todo.append(storage.snapshots.check(self.application.check_snapshot))
                case AbandonDownload():
                    storage.snapshots.abandon()
                case InstallSnapshot():
                    self._install(effect.snapshot, now_ms)
                case ReadConfirmed():
                    self._confirmations.confirm(effect)
                    self._tell_confirmed()
                case _:
                    assert_never(effect)

    # Commits

    def _apply(self, now_ms: int) -> None:
        """Hand what is committed to the application."""
        high_watermark = self.core.high_watermark
        applier, application = self._applier, self.application
        if application.reads_batches:
            if application.is_applying:
                self._outputs.extend(application.apply_more())
            self._apply_batches(high_watermark)
            if application.is_applying:
                self._apply_at_ms = now_ms + 1
                self._tell_confirmed()
                return
            if self._maker.is_due(now_ms):
                self._begin_snapshot(now_ms)
        else:
            applier.skip(high_watermark)
        self._applied_offset = applier.next_offset
        if applier.next_offset < high_watermark:
            self._apply_at_ms = now_ms + 1
        else:
            self._apply_at_ms = NEVER_MS
            application.on_caught_up()
        if self._confirmations.confirmed:
            self._tell_confirmed()
        claim = self._claim_offset
        if claim is not None and applier.next_offset > claim and not self._proposals.is_open:
            self._proposals.is_open = True
            self._todo.extend(application.on_leader(self.core.epoch, self.core.next_append_offset, now_ms))
            self._take_up_early(now_ms)

    def _apply_batches(self, high_watermark: int) -> None:
        """Hand over batches, as many as one turn has room for, and at least one."""
        application = self.application
        if application.is_applying:
            return
        left = RECORDS_PER_TURN
        for batch in self._applier.advance(high_watermark):
            # The application has applied all batches before this one, and may need several turns for this one.
            self._applied_offset = batch.base_offset
            if batch.values:
                self._outputs.extend(application.on_committed(batch))
                self._maker.note(batch)
                left -= len(batch.values)
            if left <= 0 or application.is_applying:
                break

    def _take_up_early(self, now_ms: int) -> None:
        """Deal with some of what came too early, now that it is known whether this replica leads.

        What comes meanwhile waits behind the rest, which has turns of its own.
        """
        self._early_at_ms = NEVER_MS
        if self._is_claiming:
            return
        early = self._early
        self._todo.extend([early.popleft() for _ in range(min(EARLY_PER_TURN, len(early)))])
        if early:
            self._early_at_ms = now_ms + 1

    def _tell_confirmed(self) -> None:
        """Tell the application what is confirmed and applied."""
        for token in self._confirmations.take(self._applied_offset):
            self.application.on_confirmed(token, is_leader=True)

    # Snapshots

    def _send_snapshot(self, effect: SendSnapshot) -> None:
        request = self._received.pop(effect.request_id)
        size, data = self._storage.snapshots.piece(effect.snapshot, effect.position, effect.max_bytes)
        error = Error.NONE if effect.position < size else Error.POSITION_OUT_OF_RANGE
        reply = structs.replace(effect.reply, error=error, size=size, data=data)
        self._outputs.append(Answer(effect.request_id, self._rpc.reply_to_wire(request, reply)))

    def _install(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        """A snapshot of the leader's takes the place of the log, and of what the application knows."""
        self._maker.abandon()
        self._maker.restart(now_ms)
        self._cleaner.mark(self._storage.snapshots.install(snapshot), now_ms)
        self._load_snapshot(snapshot)
        self._apply_at_ms = now_ms + 1

    def _begin_snapshot(self, now_ms: int) -> None:
        """Begin to write what is committed, if the application has something to write and is between transactions."""
        source = self.application.snapshot()
        if source is not None:
            self._maker.begin(source, self.core.history, now_ms)

    def _tend_snapshots(self, now_ms: int) -> None:
        """Write a piece of the own snapshot; clean away what is too much."""
        storage, cleaner = self._storage, self._cleaner
        if now_ms >= self._maker.deadline_ms:
            taken = self._maker.write_some(now_ms, storage.log.flushed_offset)
            if taken is not None:
                self.step_core(SnapshotTaken(taken), now_ms)
                cleaner.wait(len(storage.snapshots.ids()), now_ms)
        if cleaner.is_round_due(now_ms):
            cleaned = storage.snapshots.clean(self.options.snapshots.retention, now_ms)
            if cleaned.snapshots:
                start = LogStartRaised(storage.log.start_offset)
                self.step_core(start, now_ms)
            cleaner.mark(cleaned.files, now_ms)
            cleaner.wait(len(storage.snapshots.ids()), now_ms)
        for files in cleaner.take_due(now_ms):
            storage.snapshots.remove(files)

    def _lose_leadership(self, now_ms: int) -> None:
        self._claim_offset = None
        self._take_up_early(now_ms)
        self._applier.forget()
        has_led = self.is_active
        self._proposals.close()
        if has_led:
            self.application.on_lost_leadership()
            for token in self._confirmations.abandon():
                self.application.on_confirmed(token, is_leader=False)
            self._proposals.refuse_waiting(self, now_ms)

    # What the application wants

    def _perform(self, action: Action, now_ms: int) -> None:
        match action:
            case Proposal():
                is_leaving = self._finish_by_ms < NEVER_MS
                if is_leaving and action.waiting is not None:
                    self._proposals.refuse(self, action.waiting, Error.NOT_LEADER_OR_FOLLOWER, now_ms)
                else:
                    self._proposals.propose(self, action, now_ms)
            case Respond():
                self._outputs.append(Answer(action.request_id, action.response))
            case Redirect():
                self._redirect(action, now_ms)
            case OutboundRequest():
                self._ask(action, now_ms)
            case Confirm():
                self._confirm(action.token, now_ms)
            case Returned() | Noted():
                self._outputs.append(action)
            case RefuseSubmit():
                self._proposals.refuse(self, ForSubmit(action.submit_id), action.error, now_ms)
            case _:
                assert_never(action)

    def _ask(self, ask: OutboundRequest, now_ms: int) -> None:
        target = self._leader_target() if ask.target is None else ask.target
        if target is None:
            self.application.on_answer(ask.token, None, now_ms)
        else:
            self._outputs.append(self._outbound_requests.send(ask, target, self.options.quorum.request_timeout_ms))

    def _confirm(self, token: int, now_ms: int) -> None:
        if not self.is_active:
            self.application.on_confirmed(token, is_leader=False)
            return
        self._confirmations.wait(token)
        self.step_core(ReadIndex(token), now_ms)

    def _leader_target(self) -> tuple[int, str, int] | None:
        """The id, host and port of the leader; None if the leader is unknown or is this node."""
        leader_id, address = self.core.leader.leader_id, self.core.leader_endpoints.default
        if leader_id in (NO_NODE, self.core.local.id) or address is None:
            return None
        return leader_id, address.host, address.port

    def _redirect(self, action: Redirect, now_ms: int) -> None:
        self._seals[action.request.request_id] = action.seal
        self._on_quorum_request(action.request, now_ms)


def _own_batch(
    base_offset: int, effect: AppendBatch | AppendControl, values: tuple[bytes, ...], size_bytes: int
) -> CommittedBatch:
    count = len(effect.values) if isinstance(effect, AppendBatch) else len(effect.records)
    return CommittedBatch(base_offset, base_offset + count, effect.epoch, effect.timestamp_ms, values, size_bytes)
