"""One process as one synchronous object: events in, outputs out (Kafka: `KafkaRaftServer` with its `SharedServer`, its
`ControllerServer` and its `BrokerServer`).

`Process` is the loop. It knows the parts of the process: the replica of the log, which takes part in the quorum; and
the controller, the broker, the state machine or the raw log that uses it. It gives each request to the part that owns
its listener and API, each reply to the part that asked, and to each part its time. The parts do not know each other.
Kafka gives each of them threads; here one task owns all of them, and there is one log.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Final, assert_never

from kraft.committed import Noted
from kraft.quorum.core import RaftCore
from kraft.quorum.events import (
    BeginShutdown,
    LogFlushed,
    ReadIndex,
    Received,
    RequestFailed,
    Resign,
    Resumed,
    SnapshotChecked,
    Tick,
)
from kraft.replica.activation import Activation
from kraft.replica.commits import Commits
from kraft.replica.effects import Effects
from kraft.replica.in_flight import InFlightRequests
from kraft.replica.interface.application import (
    Action,
    Application,
    ApplicationFactory,
    Broker,
    Called,
    Confirm,
    Confirming,
    ControllerAndBroker,
    Deciding,
    ForSubmit,
    Leading,
    LogReader,
    Proposal,
    RawLog,
    Redirect,
    RefuseSubmit,
    Refusing,
    Served,
    Serving,
    Timed,
    kind_of,
)
from kraft.replica.interface.events import (
    Call,
    CancelCall,
    FlushDone,
    Input,
    LeaveCluster,
    Left,
    LogState,
    MakeSnapshot,
    Output,
    PeerRequest,
    Returned,
    StartFlush,
    Submit,
    Trace,
)
from kraft.replica.interface.options import ReplicaOptions
from kraft.replica.interface.status import ReplicaStatus
from kraft.replica.outbox import Outbox
from kraft.replica.peer_replies import PeerReplies
from kraft.replica.proposals import Proposals
from kraft.replica.quorum_requests import QuorumRequests
from kraft.replica.rpc.api_versions import KEYS_OF_QUORUM, describe_versions, refuse_login
from kraft.replica.rpc.describe_rpc import describe_cluster
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.snapshot_schedule import SnapshotSchedule
from kraft.replica.storage.storage import Storage
from kraft.wire import (
    Answer,
    Drop,
    LeaveUnanswered,
    Part,
    ReplyTo,
    Send,
    Target,
    WireFailed,
    WireGone,
    WireReply,
    WireRequest,
)
from metadata_log.disk import Disk, File
from metadata_log.log.log import MetadataLog
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS, NO_NODE, OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import ApiVersionsRequest
from transport.protocol.messages.describe_cluster import DescribeClusterRequest

_TICK: Final = Tick()


class Process:
    """A process, opened by `Process.open`. Its methods are for one owner, and never wait."""

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
        self._storage = storage
        self._deciding: Deciding | None = None
        self._broker: Broker | None = None
        self._raw_log: RawLog | None = None
        self._own: Target | None = None
        """The controller of this process, as its broker reaches it."""
        self._stepped_at_ms = now_ms
        """The time of the last step."""
        self._client_listeners = frozenset[str]()
        """The names of the listeners of the broker beside a controller."""
        match application:
            case ControllerAndBroker():
                self._deciding, self._broker, self._own = application.controller, application.broker, application.own
                self._client_listeners = application.client_listeners
            case RawLog():
                self._raw_log = application
            case Deciding():
                self._deciding = application
            case _:
                self._broker = application
        # The APIs of the parts, to look up that of each request.
        self._decided = frozenset[int](() if self._deciding is None else map(int, self._deciding.apis))
        self._served_by_broker = frozenset[int](() if self._broker is None else map(int, self._broker.apis))
        self._has_only_broker = self._deciding is None and self._raw_log is None
        self._is_leaving = False
        """Whether the broker beside a controller leaves the cluster, before the node ends."""
        leading: Leading | None = self._raw_log if self._deciding is None else self._deciding
        readers: tuple[LogReader, ...] = tuple(one for one in (leading, self._broker) if one is not None)
        self._timed = leading if isinstance(leading, Timed) else None
        """The part at the listeners of the quorum, if it has work of its own."""
        refusing = leading if isinstance(leading, Refusing) else None
        confirming = leading if isinstance(leading, Confirming) else None
        self._called = leading if isinstance(leading, Called) else None
        rpc = Rpc(
            cluster_id=storage.cluster_id,
            listener=options.listener,
            timeout_ms=options.quorum.request_timeout_ms,
        )
        self._outbox = Outbox()
        self._in_flight = InFlightRequests()
        self._requests = QuorumRequests(rpc, storage.snapshots, self._outbox)
        self._proposals = Proposals(options, core, leading, refusing, self._outbox)
        self._activation = Activation(core, leading, self._proposals, self._outbox)
        self._snapshots = SnapshotSchedule(disk, storage, core, readers[0], options.snapshots, now_ms)
        self._commits = Commits(
            core, readers, leading, confirming, storage, self._snapshots, self._activation, self._outbox
        )
        self._effects = Effects(
            core=core,
            reader=readers[0],
            leading=leading,
            storage=storage,
            rpc=rpc,
            requests=self._requests,
            proposals=self._proposals,
            activation=self._activation,
            commits=self._commits,
            snapshots=self._snapshots,
            outbox=self._outbox,
            in_flight=self._in_flight,
            inline_flush=options.inline_flush,
        )
        self._replies = PeerReplies(self._effects, storage, rpc, options.judged_per_turn)

    @classmethod
    def open(
        cls, *, options: ReplicaOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> tuple[Process, list[Output]]:
        """Recover a formatted directory and enter the first state. The caller carries out the outputs.

        Raises `MetadataLogError` where a file or the directory is not as it should be, `OSError` where the disk fails.
        """
        return finished(cls.opening(options=options, disk=disk, rng=rng, application=application, now_ms=now_ms))

    @classmethod
    def opening(
        cls, *, options: ReplicaOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> Generator[None, None, tuple[Process, list[Output]]]:
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
                listener=options.listener,
            )
            hosted = application(options, storage.cluster_id, storage.bootstrap(), rng)
            storage.check_kind(kind_of(hosted))
            process = cls(options=options, disk=disk, storage=storage, core=core, application=hosted, now_ms=now_ms)
            commits = process._commits
            newest = storage.snapshots.newest
            if newest.offset > 0:
                with storage.naming_snapshot(newest):
                    commits.load_snapshot(newest)
                    while commits.is_applying:
                        yield None
                        commits.apply_more()
                commits.applied_offset = commits.applier.next_offset
            reader = process._effects.reader
            if reader.reads_batches:
                yield from storage.checking_records(reader.check)
            process._effects.carry_out(core.begin(now_ms), now_ms)
            process._follow_up(now_ms)
            outputs, process._outbox.outputs = process._outbox.outputs, []
            return process, outputs
        except GeneratorExit:
            storage.close()
            raise
        except BaseException:
            storage.abandon()
            raise

    # Questions

    @property
    def is_active(self) -> bool:
        """Whether the application leads: then it takes requests and submits."""
        return self._proposals.is_open

    @property
    def served(self) -> Serving | None:
        """The part at the listeners of the quorum, or a broker alone; None for a raw log."""
        return self._broker if self._deciding is None else self._deciding

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The APIs of that part, besides those of the quorum."""
        return () if self.served is None else self.served.apis

    @property
    def log(self) -> MetadataLog:
        """The log, for readers in the owner's thread; only what is below the high watermark is final."""
        return self._storage.log

    @property
    def newest_snapshot(self) -> OffsetAndEpoch:
        """The newest snapshot on disk; one of offset 0 holds nothing of the log."""
        return self._storage.snapshots.newest

    def open_snapshot(self, snapshot: OffsetAndEpoch) -> File:
        """The file of a snapshot, to read; it stays readable when the snapshot is removed. Raises `OSError`."""
        return self._storage.snapshots.open(snapshot)

    @property
    def outstanding_flush(self) -> StartFlush | None:
        """The flush that was handed out and has not come back; a fork has one of its own."""
        return self._storage.outstanding_flush

    def is_judging(self, request_id: int) -> bool:
        """Whether the answer to a request of the quorum has arrived, and not all of its records are judged."""
        return self._replies.is_judging(request_id)

    @property
    def may_stop(self) -> bool:
        """Whether the node may end: no part objects, and no answer waits for a turn.

        A broker beside a controller has left before.
        """
        part = self.served
        return (part is None or part.may_stop) and not self._proposals.has_more_to_tell

    def status(self) -> ReplicaStatus:
        """The state, the leader and the offsets of this replica now."""
        core = self.core
        return ReplicaStatus(
            node_id=core.local.id,
            directory_id=core.local.directory_id,
            cluster_id=self._storage.cluster_id,
            state=core.state_name,
            leader=core.leader,
            voters=core.voters,
            is_voter=core.is_voter,
            high_watermark=core.log.high_watermark,
            log_start_offset=core.log.start_offset,
            log_end_offset=core.log.end_offset,
            flushed_offset=core.log.flushed_offset,
            applied_offset=self._commits.applied_offset,
        )

    def deadline_ms(self) -> int:
        """The time of the next `step(Tick())` if no event comes before; may be in the past at the end of a burst.

        While the application has committed batches to apply, at once or in a millisecond, its own deadline does not
        count, nor do those of snapshots and of the shutdown.
        """
        core, proposals = self.core, self._proposals
        deadline_ms = core.deadline_ms()
        if deadline_ms <= self._stepped_at_ms:
            # Appends are to be written: the Tick of now comes, whatever else is due.
            return deadline_ms
        deadline_ms = min(deadline_ms, self._replies.deadline_ms, proposals.deadline_ms, self._activation.deadline_ms)
        apply_ms = self._commits.deadline_ms
        # The leader, and so its clients, wait for a follower's flush; no request waits for a follower's application.
        if apply_ms < NEVER_MS and (core.is_leader or not self._storage.is_flushing):
            return min(deadline_ms, apply_ms)
        if self._timed is not None:
            deadline_ms = min(deadline_ms, self._timed.deadline_ms())
        if self._broker is not None:
            deadline_ms = min(deadline_ms, self._broker.deadline_ms())
            if self._is_leaving and self._broker.may_stop:
                return 0
        return min(
            deadline_ms,
            self._snapshots.maker.deadline_ms,
            self._snapshots.cleaner.deadline_ms,
            proposals.finish_by_ms,
        )

    # Life

    def step(self, event: Input, now_ms: int) -> list[Output]:
        """Handle one event; returns the outputs to carry out, in order.

        Raises `MetadataLogError` or `OSError` if the disk or the log fails; the replica must not be used then.
        """
        self._stepped_at_ms = now_ms
        # The events of a commit are compared by their types: a `case` that does not match takes four times as long.
        if type(event) is WireRequest:
            if self._has_only_broker or event.listener in self._client_listeners:
                self._on_broker_request(event, now_ms)
            elif event.api_key not in KEYS_OF_QUORUM:
                self._on_request(event, now_ms)
            elif self._deciding is not None and (denial := self._deciding.denial(event)) is not None:
                self._outbox.outputs.append(Answer(event.request_id, refuse_quorum_request(event, denial)))
                self._report_denials(self._deciding)
            elif (flat := self._requests.receive(event)) is not None:
                self._effects.step_core(Received(event.request_id, flat), now_ms)
        elif type(event) is Tick:
            self._on_tick(now_ms)
        elif type(event) is WireReply:
            reply_to = self._in_flight.reply_to.pop(event.request_id, None)
            if reply_to is None:
                pass
            elif type(reply_to.key) is PeerRequest:
                self._replies.receive(event, reply_to.key, now_ms)
            else:
                self._part_of(reply_to).on_reply(reply_to, event.message, now_ms)
        elif type(event) is FlushDone:
            flushed, following = self._storage.flush_done(event.ticket)
            if following is not None:
                self._outbox.outputs.append(following)
            self._effects.step_core(flushed, now_ms)
        else:
            match event:
                case Submit() if self._raw_log is not None:
                    self._perform(self._raw_log.on_submit(event), now_ms)
                case Submit():
                    # Nothing but decisions of the controller, or commands, goes into such a log.
                    self._perform(RefuseSubmit(event.submit_id, Error.INVALID_REQUEST), now_ms)
                case Call(ask=LeaveCluster()) if self._broker is not None:
                    self._is_leaving = True
                    self._broker.on_begin_shutdown(now_ms)
                case Call() | CancelCall():
                    assert self._called is not None, event
                    self._called.on_call(event, now_ms)
                case WireFailed():
                    reply_to = self._in_flight.reply_to.pop(event.request_id, None)
                    if reply_to is None:
                        pass
                    elif isinstance(asked := reply_to.key, PeerRequest):
                        self._effects.step_core(RequestFailed(asked.request_id, asked.peer_id, event.cause), now_ms)
                    else:
                        self._part_of(reply_to).on_reply(reply_to, None, now_ms)
                case WireGone():
                    if self.core.withdraw(event.request_id):
                        del self._requests.received[event.request_id]
                    elif self._broker is not None:
                        self._broker.on_gone(event.request_id)
                case MakeSnapshot(call_id, LogState() as state):
                    assert self._raw_log is not None, "only a raw log has the state of its program"
                    self._snapshots.take_state(call_id, state, now_ms)
                    self._tell_snapshots()
                case MakeSnapshot(call_id):
                    self._snapshots.want(call_id)
                    self._commits.apply(now_ms)
                    self._tell_snapshots()
                case Resign() | Resumed():
                    self._effects.step_core(event, now_ms)
                case BeginShutdown():
                    if self._has_only_broker and self._broker is not None:
                        self._broker.on_begin_shutdown(now_ms)
                    self._proposals.begin_shutdown(now_ms)
                    self._leave_if_finished(now_ms)
                case _:
                    assert_never(event)
        outbox = self._outbox
        if outbox.follow_ups:
            self._follow_up(now_ms)
        outputs, outbox.outputs = outbox.outputs, []
        return outputs

    def _follow_up(self, now_ms: int) -> None:
        """Do what comes after all that the event itself caused."""
        follow_ups = self._outbox.follow_ups
        while follow_ups:
            next_one = follow_ups.popleft()
            if isinstance(next_one, (LogFlushed, SnapshotChecked)):
                self._effects.step_core(next_one, now_ms)
            elif not isinstance(next_one, WireRequest):
                self._perform(next_one, now_ms)
            elif self._activation.claim_offset is not None:
                self._activation.early.append(next_one)
            else:
                self._decide(next_one, now_ms)

    def _tell_snapshots(self) -> None:
        """Tell the calls that wanted a snapshot of it."""
        self._outbox.outputs.extend(Noted(made) for made in self._snapshots.take_made())

    def _leave_if_finished(self, now_ms: int) -> None:
        """Begin the core's shutdown, with which a leader resigns, unless this leader has records to commit."""
        if self._proposals.finish(now_ms):
            self._effects.step_core(BeginShutdown(), now_ms)

    def abandon(self) -> None:
        """Unlock the directory and write nothing more: what failed once cannot be trusted with a last flush."""
        self._storage.abandon()

    def close(self) -> None:
        """Flush, close the files and unlock the directory."""
        self._storage.close()

    # Events

    def _on_request(self, request: WireRequest, now_ms: int) -> None:
        """A request at a listener of the quorum that is none of the quorum's own."""
        activation = self._activation
        if request.api_key not in self._decided:
            self._answer_for(self._deciding, request, "node")
        elif activation.early or activation.claim_offset is not None:
            activation.early.append(request)
        else:
            self._decide(request, now_ms)

    def _decide(self, request: WireRequest, now_ms: int) -> None:
        """Give a request to the controller or the state machine."""
        part = self._deciding
        assert part is not None, request
        if now_ms >= self._commits.deadline_ms:
            # The next request must see everything that was answered before.
            self._commits.apply(now_ms)
        answer = part.on_full if self._proposals.is_full else part.on_request
        self._perform(answer(request, self.core.leader, now_ms), now_ms)
        self._report_denials(part)

    def _on_broker_request(self, request: WireRequest, now_ms: int) -> None:
        """A request at a listener of the broker; the quorum has no part in it."""
        broker = self._broker
        assert broker is not None, request.listener
        if request.api_key not in self._served_by_broker:
            self._answer_for(broker, request, "listener")
            return
        if now_ms >= self._commits.deadline_ms:
            self._commits.apply(now_ms)
        outcome = broker.on_request(request, now_ms)
        if outcome is not None:
            self._outbox.outputs.append(outcome)
        self._report_denials(broker)

    def _answer_for(self, part: Served | None, request: WireRequest, where: str) -> None:
        """Answer a request that each listener knows, or close the connection."""
        if request.api_key == ApiKey.API_VERSIONS:
            message = request.message
            assert isinstance(message, ApiVersionsRequest), message
            is_of_broker = part is not None and part is self._broker
            broker = (self._storage.cluster_id, self.core.local.id) if is_of_broker else None
            versions = describe_versions(part, message, request.version, self.core.history.kraft_version, broker)
            self._outbox.outputs.append(Answer(request.request_id, versions))
        elif isinstance(message := request.message, DescribeClusterRequest):
            described = describe_cluster(
                message,
                version=request.version,
                listener=request.listener,
                cluster_id=self._storage.cluster_id,
                leader_id=self.core.leader.leader_id,
                voters=self.core.voters,
            )
            self._outbox.outputs.append(Answer(request.request_id, described))
        elif (refusal := refuse_login(request.message)) is not None:
            self._outbox.outputs.append(Answer(request.request_id, refusal))
        else:
            self._outbox.outputs.append(Drop(request.request_id, f"this {where} does not serve API {request.api_key}"))

    def _report_denials(self, part: Serving | None) -> None:
        if part is not None:
            for denial in part.take_denials():
                self._outbox.outputs.append(Trace(denial))

    def _part_of(self, reply_to: ReplyTo) -> Serving:
        """The part that has asked."""
        part: Serving | None = self._broker if reply_to.part is Part.BROKER else self._deciding
        assert part is not None, reply_to
        return part

    def _on_tick(self, now_ms: int) -> None:
        """Do what is due. The core comes last, so that it writes what the application appends in the same Tick."""
        proposals, snapshots = self._proposals, self._snapshots
        if now_ms >= proposals.deadline_ms:
            proposals.tell_more(now_ms)
        if now_ms >= self._activation.deadline_ms:
            self._activation.take_early(now_ms)
        if now_ms >= self._commits.deadline_ms:
            self._commits.apply(now_ms)
        if proposals.finish_by_ms < NEVER_MS:
            self._leave_if_finished(now_ms)
        if self._timed is not None or self._broker is not None:
            self._tick_parts(now_ms)
        if now_ms >= snapshots.maker.deadline_ms or now_ms >= snapshots.cleaner.deadline_ms:
            snapshots.work(self._effects.step_core, now_ms)
            self._tell_snapshots()
            if snapshots.maker.is_wanted:
                self._commits.apply(now_ms)
        if now_ms >= self._replies.deadline_ms:
            self._replies.judge(now_ms)
        if now_ms >= self.core.deadline_ms():
            self._effects.step_core(_TICK, now_ms)

    def _tick_parts(self, now_ms: int) -> None:
        """Give each part its time, if it is due: first the one at the listeners of the quorum."""
        timed, broker = self._timed, self._broker
        has_ticked = False
        if timed is not None and now_ms >= timed.deadline_ms():
            has_ticked = True
            for action in timed.on_tick(now_ms):
                self._perform(action, now_ms)
        if broker is not None:
            if now_ms >= broker.deadline_ms():
                has_ticked = True
                for action in broker.on_tick(now_ms):
                    self._perform(action, now_ms)
            if self._is_leaving and broker.may_stop:
                self._is_leaving = False
                self._outbox.outputs.append(Noted(Left()))
        if has_ticked:
            self._report_denials(self._deciding)
            self._report_denials(broker)

    # What parts want

    def _perform(self, action: Action, now_ms: int) -> None:
        """Carry out what a part wants, one action after the other."""
        # As in `step`: each write has a Proposal.
        if type(action) is Proposal:
            self._proposals.propose(self._effects.step_core, action, now_ms)
            return
        match action:
            case Answer() | Drop() | LeaveUnanswered() | Returned() | Noted():
                self._outbox.outputs.append(action)
            case Redirect():
                flat = self._requests.receive_forwarded(action)
                if flat is not None:
                    self._effects.step_core(Received(action.request.request_id, flat), now_ms)
            case Send():
                self._send(action, now_ms)
            case Confirm(token=token):
                if self._proposals.is_open:
                    self._commits.confirmations.wait(token)
                    self._effects.step_core(ReadIndex(token), now_ms)
                else:
                    self._commits.tell_confirmed(token, is_leader=False)
            case RefuseSubmit():
                self._proposals.refuse(ForSubmit(action.submit_id), action.error, now_ms)
            case _:
                assert_never(action)

    def _send(self, send: Send, now_ms: int) -> None:
        target = self._active_controller(send.reply_to.part) if send.target is None else send.target
        if target is None:
            self._part_of(send.reply_to).on_reply(send.reply_to, None, now_ms)
        else:
            self._outbox.outputs.append(self._in_flight.send(send, target))

    def _active_controller(self, part: Part) -> Target | None:
        """The leader of the quorum; None if the leader is unknown, or is the part that asks.

        Requests of the broker to an active controller in this process take the network, too.
        """
        if part is Part.BROKER and self._own is not None and self._proposals.is_open:
            return self._own
        core = self.core
        leader_id, address = core.leader.leader_id, core.leader_address
        if leader_id in (NO_NODE, core.local.id) or address is None:
            return None
        return Target(leader_id, address.host, address.port)
