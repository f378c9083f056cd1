"""One replica as one synchronous object: events in, outputs out (Kafka: `KafkaRaftClient` with its log, store, network
channel and listener).

`Replica` is the loop: it passes each event to its owner, and keeps the order of what follows. `effects` carries out
what the core wants, `actions` what the application wants.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Final, assert_never

from kraft.quorum.core import RaftCore
from kraft.quorum.events import (
    BeginShutdown,
    LogFlushed,
    Received,
    RequestFailed,
    Resign,
    Resumed,
    SnapshotChecked,
    Tick,
)
from kraft.replica.actions import Actions
from kraft.replica.activation import Activation
from kraft.replica.commits import Commits
from kraft.replica.effects import Effects
from kraft.replica.in_flight import InFlightRequests
from kraft.replica.interface.application import Application, ApplicationFactory, SplitApplication
from kraft.replica.interface.events import (
    Call,
    CancelCall,
    FlushDone,
    Input,
    Output,
    PeerRequest,
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
from kraft.replica.rpc.api_versions import describe_versions, quorum_apis, refuse_login
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.snapshot_schedule import SnapshotSchedule
from kraft.replica.storage.storage import Storage
from kraft.wire import Answer, Drop, WireFailed, WireGone, WireReply, WireRequest
from metadata_log.disk import Disk
from metadata_log.log.log import MetadataLog
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS
from transport.protocol.apis import ApiKey
from transport.protocol.messages import ApiVersionsRequest

_TICK: Final = Tick()


class Replica:
    """A replica of the metadata log, opened by `Replica.open`. Its methods are for one owner, and never wait."""

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
        self._quorum_apis = quorum_apis(application)
        split = application if isinstance(application, SplitApplication) else None
        self._clients = None if split is None else split.clients
        self._client_listeners = frozenset[str]() if split is None else split.client_listeners
        rpc = Rpc(
            cluster_id=storage.cluster_id,
            listener=options.listener,
            timeout_ms=options.quorum.request_timeout_ms,
        )
        self._outbox = Outbox()
        self._in_flight = InFlightRequests()
        self._requests = QuorumRequests(rpc, storage.snapshots, self._outbox)
        self._proposals = Proposals(options)
        self._activation = Activation(core, application, self._proposals, self._outbox)
        self._snapshots = SnapshotSchedule(disk, storage, core, application, options.snapshots, now_ms)
        self._commits = Commits(core, application, storage, self._snapshots, self._activation, self._outbox)
        self._effects = Effects(
            core=core,
            application=application,
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
        self._actions = Actions(self._effects, self._proposals, self._requests, self._commits, self._in_flight)

    @classmethod
    def open(
        cls, *, options: ReplicaOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> tuple[Replica, list[Output]]:
        """Recover a formatted directory and enter the first state. The caller carries out the outputs.

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
                listener=options.listener,
            )
            hosted = application(options, storage.cluster_id, storage.bootstrap(), rng)
            replica = cls(options=options, disk=disk, storage=storage, core=core, application=hosted, now_ms=now_ms)
            commits = replica._commits
            snapshots = storage.snapshots.ids()
            if snapshots and snapshots[-1].offset > 0:
                with storage.naming_snapshot(snapshots[-1]):
                    commits.load_snapshot(snapshots[-1])
                    while hosted.is_applying:
                        yield None
                        hosted.apply_more()
                commits.applied_offset = commits.applier.next_offset
            if hosted.reads_batches:
                yield from storage.checking_records(hosted.check)
            replica._effects.carry_out(core.begin(now_ms), now_ms)
            replica._follow_up(now_ms)
            outputs, replica._outbox.outputs = replica._outbox.outputs, []
            return replica, outputs
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
    def log(self) -> MetadataLog:
        """The log, for readers in the owner's thread; only what is below the high watermark is final."""
        return self._storage.log

    @property
    def outstanding_flush(self) -> StartFlush | None:
        """The flush that was handed out and has not come back; a fork has one of its own."""
        return self._storage.outstanding_flush

    def is_judging(self, request_id: int) -> bool:
        """Whether the answer to a request of the quorum has arrived, and not all of its records are judged."""
        return self._replies.is_judging(request_id)

    @property
    def may_stop(self) -> bool:
        """Whether the node may end: the application does not object, and no answer waits for a turn."""
        return self.application.may_stop and not self._proposals.has_more_to_tell

    def status(self) -> ReplicaStatus:
        """The state, the leader and the offsets of this replica now."""
        core = self.core
        return ReplicaStatus(
            node_id=core.local.id,
            directory_id=core.local.directory_id,
            cluster_id=self._storage.cluster_id,
            state=core.state_name,
            leader=core.leader,
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
        deadline_ms = min(
            core.deadline_ms(), self._replies.deadline_ms, proposals.deadline_ms, self._activation.deadline_ms
        )
        apply_ms = self._commits.deadline_ms
        # The leader, and so its clients, wait for a follower's flush; no request waits for a follower's application.
        if apply_ms < NEVER_MS and (core.is_leader or not self._storage.is_flushing):
            return min(deadline_ms, apply_ms)
        return min(
            deadline_ms,
            self.application.deadline_ms(),
            self._snapshots.maker.deadline_ms,
            self._snapshots.cleaner.deadline_ms,
            proposals.finish_by_ms,
        )

    # Life

    def step(self, event: Input, now_ms: int) -> list[Output]:
        """Handle one event; returns the outputs to carry out, in order.

        Raises `MetadataLogError` or `OSError` if the disk or the log fails; the replica must not be used then.
        """
        match event:
            case WireRequest() if self._client_listeners and event.listener in self._client_listeners:
                self._on_client_request(event, now_ms)
            case WireRequest() if event.api_key in self._quorum_apis:
                denial = self.application.denial(event)
                if denial is not None:
                    self._outbox.outputs.append(Answer(event.request_id, refuse_quorum_request(event, denial)))
                    self._report_denials()
                elif (flat := self._requests.receive(event)) is not None:
                    self._effects.step_core(Received(event.request_id, flat), now_ms)
            case WireRequest():
                self._on_request(event, now_ms)
            case Tick():
                self._on_tick(now_ms)
            case WireReply():
                reply_to = self._in_flight.reply_to.pop(event.request_id, None)
                if reply_to is None:
                    pass
                elif isinstance(reply_to.key, PeerRequest):
                    self._replies.receive(event, reply_to.key, now_ms)
                else:
                    self.application.on_reply(reply_to, event.message, now_ms)
            case FlushDone():
                flushed, following = self._storage.flush_done(event.ticket)
                if following is not None:
                    self._outbox.outputs.append(following)
                self._effects.step_core(flushed, now_ms)
            case Submit():
                self._actions.perform(self.application.on_submit(event), now_ms)
            case Call() | CancelCall():
                self.application.on_call(event, now_ms)
            case WireFailed():
                reply_to = self._in_flight.reply_to.pop(event.request_id, None)
                if reply_to is None:
                    pass
                elif isinstance(asked := reply_to.key, PeerRequest):
                    self._effects.step_core(RequestFailed(asked.request_id, asked.peer_id, event.cause), now_ms)
                else:
                    self.application.on_reply(reply_to, None, now_ms)
            case WireGone():
                if self.core.withdraw(event.request_id):
                    del self._requests.received[event.request_id]
                else:
                    self.application.on_gone(event.request_id)
            case Resign() | Resumed():
                self._effects.step_core(event, now_ms)
            case BeginShutdown():
                self.application.on_begin_shutdown(now_ms)
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
                self._actions.perform(next_one, now_ms)
            elif self._activation.claim_offset is not None:
                self._activation.early.append(next_one)
            else:
                self._ask_application(next_one, now_ms)

    def _leave_if_finished(self, now_ms: int) -> None:
        """Begin the core's shutdown, with which a leader resigns, unless this leader has records to commit."""
        if self._proposals.finish(self.core, now_ms):
            self._effects.step_core(BeginShutdown(), now_ms)

    def abandon(self) -> None:
        """Unlock the directory and write nothing more: what failed once cannot be trusted with a last flush."""
        self._storage.abandon()

    def close(self) -> None:
        """Flush, close the files and unlock the directory."""
        self._storage.close()

    # Events

    def _on_request(self, request: WireRequest, now_ms: int) -> None:
        key, activation = request.api_key, self._activation
        if key == ApiKey.API_VERSIONS:
            message = request.message
            assert isinstance(message, ApiVersionsRequest), message
            level = self.core.history.kraft_version
            versions = describe_versions(self.application, message, request.version, level)
            self._outbox.outputs.append(Answer(request.request_id, versions))
        elif key in self.application.apis:
            if activation.early or activation.claim_offset is not None:
                activation.early.append(request)
            else:
                self._ask_application(request, now_ms)
        elif (refusal := refuse_login(request.message)) is not None:
            self._outbox.outputs.append(Answer(request.request_id, refusal))
        else:
            self._outbox.outputs.append(Drop(request.request_id, f"this node does not serve API {key}"))

    def _on_client_request(self, request: WireRequest, now_ms: int) -> None:
        """A request at a listener of the part that serves clients; the quorum has no part in it."""
        part, key = self._clients, request.api_key
        assert part is not None, request.listener
        if key == ApiKey.API_VERSIONS:
            message = request.message
            assert isinstance(message, ApiVersionsRequest), message
            broker = (self._storage.cluster_id, self.core.local.id)
            versions = describe_versions(part, message, request.version, self.core.history.kraft_version, broker)
            self._outbox.outputs.append(Answer(request.request_id, versions))
        elif key in part.apis:
            if now_ms >= self._commits.deadline_ms:
                self._commits.apply(now_ms)
            self._actions.perform(part.on_request(request, self.core.leader, now_ms), now_ms)
            self._report_denials()
        elif (refusal := refuse_login(request.message)) is not None:
            self._outbox.outputs.append(Answer(request.request_id, refusal))
        else:
            self._outbox.outputs.append(Drop(request.request_id, f"this listener does not serve API {key}"))

    def _ask_application(self, request: WireRequest, now_ms: int) -> None:
        if now_ms >= self._commits.deadline_ms:
            # The next request must see everything that was answered before.
            self._commits.apply(now_ms)
        answer = self.application.on_full if self._proposals.is_full(self.core) else self.application.on_request
        self._actions.perform(answer(request, self.core.leader, now_ms), now_ms)
        self._report_denials()

    def _report_denials(self) -> None:
        for denial in self.application.take_denials():
            self._outbox.outputs.append(Trace(denial))

    def _on_tick(self, now_ms: int) -> None:
        """Do what is due. The core comes last, so that it writes what the application appends in the same Tick."""
        proposals, snapshots = self._proposals, self._snapshots
        if now_ms >= proposals.deadline_ms:
            proposals.tell_more(self._effects, now_ms)
        if now_ms >= self._activation.deadline_ms:
            self._activation.take_early(now_ms)
        if now_ms >= self._commits.deadline_ms:
            self._commits.apply(now_ms)
        if proposals.finish_by_ms < NEVER_MS:
            self._leave_if_finished(now_ms)
        if now_ms >= self.application.deadline_ms():
            for action in self.application.on_tick(now_ms):
                self._actions.perform(action, now_ms)
            self._report_denials()
        if now_ms >= snapshots.maker.deadline_ms or now_ms >= snapshots.cleaner.deadline_ms:
            snapshots.work(self._effects.step_core, now_ms)
        if now_ms >= self._replies.deadline_ms:
            self._replies.judge(now_ms)
        if now_ms >= self.core.deadline_ms():
            self._effects.step_core(_TICK, now_ms)
