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

from kraft.calls import Call, CancelCall, LeaveCluster, Left, Returned
from kraft.committed import LogReader, Noted
from kraft.process.any_part import answer_of_any
from kraft.process.options import ProcessOptions
from kraft.process.parts import (
    Application,
    ApplicationFactory,
    Broker,
    Called,
    ControllerAndBroker,
    Deciding,
    Input,
    Serving,
    Timed,
    kind_of,
)
from kraft.quorum.core import RaftCore
from kraft.quorum.events import (
    BeginShutdown,
    LogFlushed,
    Resign,
    Resumed,
    SnapshotChecked,
    Tick,
)
from kraft.replica.interface.actions import Action, Confirm, ForSubmit, Proposal, Redirect, RefuseSubmit
from kraft.replica.interface.events import FlushDone, MakeSnapshot, Output, PeerRequest, Submit, Trace
from kraft.replica.interface.leading import Leading
from kraft.replica.replica import Replica, core_of
from kraft.replica.rpc.api_versions import KEYS_OF_QUORUM
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.replica.storage.storage import Storage
from kraft.state_machine.raw_log import RawLog
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
from metadata_log.disk import Disk
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS, NO_NODE
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error

_TICK: Final = Tick()


class Process:
    """A process, opened by `Process.open`. Its methods are for one owner, and never wait."""

    def __init__(
        self,
        *,
        options: ProcessOptions,
        disk: Disk,
        storage: Storage,
        core: RaftCore,
        application: Application,
        now_ms: int,
    ) -> None:
        self.options = options
        self.application = application
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
        self._timed = leading if isinstance(leading, Timed) else None
        """The part at the listeners of the quorum, if it has work of its own."""
        self._called = leading if isinstance(leading, Called) else None
        readers: tuple[LogReader, ...] = tuple(one for one in (leading, self._broker) if one is not None)
        self.replica = Replica(
            options=options.replica,
            disk=disk,
            storage=storage,
            core=core,
            readers=readers,
            leading=leading,
            now_ms=now_ms,
        )
        self._outbox, self._in_flight = self.replica.outbox, self.replica.in_flight

    @classmethod
    def open(
        cls, *, options: ProcessOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> tuple[Process, list[Output]]:
        """Recover a formatted directory and enter the first state. The caller carries out the outputs.

        Raises `MetadataLogError` where a file or the directory is not as it should be, `OSError` where the disk fails.
        """
        return finished(cls.opening(options=options, disk=disk, rng=rng, application=application, now_ms=now_ms))

    @classmethod
    def opening(
        cls, *, options: ProcessOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
    ) -> Generator[None, None, tuple[Process, list[Output]]]:
        """As `open`, in steps of some milliseconds. No other code uses the directory between two steps.

        A generator that is closed before its end closes the files and releases the directory.
        """
        storage = yield from Storage.opening(disk, options.replica, rng, now_ms)
        try:
            core = core_of(options.replica, storage, rng)
            hosted = application(options, storage.cluster_id, storage.bootstrap(), rng)
            storage.check_kind(kind_of(hosted))
            process = cls(options=options, disk=disk, storage=storage, core=core, application=hosted, now_ms=now_ms)
            yield from process.replica.starting(now_ms)
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
    def served(self) -> Serving | None:
        """The part at the listeners of the quorum, or a broker alone; None for a raw log."""
        return self._broker if self._deciding is None else self._deciding

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The APIs of that part, besides those of the quorum."""
        return () if self.served is None else self.served.apis

    @property
    def may_stop(self) -> bool:
        """Whether the node may end: no part objects, and no answer waits for a turn.

        A broker beside a controller has left before.
        """
        part = self.served
        return (part is None or part.may_stop) and not self.replica.proposals.has_more_to_tell

    def deadline_ms(self) -> int:
        """The time of the next `step(Tick())` if no event comes before; may be in the past at the end of a burst.

        While the application has committed batches to apply, at once or in a millisecond, its own deadline does not
        count, nor do those of snapshots and of the shutdown.
        """
        replica = self.replica
        deadline_ms = replica.core.deadline_ms()
        if deadline_ms <= self._stepped_at_ms:
            # Appends are to be written: the Tick of now comes, whatever else is due.
            return deadline_ms
        proposals, apply_ms = replica.proposals, replica.commits.deadline_ms
        deadline_ms = min(
            deadline_ms, replica.replies.deadline_ms, proposals.deadline_ms, replica.activation.deadline_ms
        )
        # The leader, and so its clients, wait for a follower's flush; no request waits for a follower's application.
        if apply_ms < NEVER_MS and (replica.core.is_leader or not replica.storage.is_flushing):
            return min(deadline_ms, apply_ms)
        if self._timed is not None:
            deadline_ms = min(deadline_ms, self._timed.deadline_ms())
        if self._broker is not None:
            deadline_ms = min(deadline_ms, self._broker.deadline_ms())
            if self._is_leaving and self._broker.may_stop:
                return 0
        return min(
            deadline_ms,
            replica.snapshots.maker.deadline_ms,
            replica.snapshots.cleaner.deadline_ms,
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
                self._report_audited(self._deciding)
            else:
                self.replica.on_request(event, now_ms)
        elif type(event) is Tick:
            # The core comes last, so that it writes what the parts append in the same Tick.
            self.replica.catch_up(now_ms)
            timed, broker = self._timed, self._broker
            if timed is not None and now_ms >= timed.deadline_ms():
                self._tick_part(timed, now_ms)
            if broker is not None and now_ms >= broker.deadline_ms():
                self._tick_part(broker, now_ms)
            if self._is_leaving:
                self._leave_if_free()
            self.replica.on_tick(now_ms)
        elif type(event) is WireReply:
            reply_to = self._in_flight.reply_to.pop(event.request_id, None)
            if reply_to is None:
                pass
            elif type(reply_to.key) is PeerRequest:
                self.replica.on_reply(event, reply_to.key, now_ms)
            else:
                self._part_of(reply_to).on_reply(reply_to, event.message, now_ms)
        elif type(event) is FlushDone:
            self.replica.on_flushed(event.ticket, now_ms)
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
                        self.replica.on_failed(asked, event.cause, now_ms)
                    else:
                        self._part_of(reply_to).on_reply(reply_to, None, now_ms)
                case WireGone():
                    if not self.replica.withdraw(event.request_id) and self._broker is not None:
                        self._broker.on_gone(event.request_id)
                case MakeSnapshot():
                    assert event.state is None or self._raw_log is not None, "only a raw log has a program's state"
                    self.replica.make_snapshot(event, now_ms)
                case Resign() | Resumed():
                    self.replica.step_core(event, now_ms)
                case BeginShutdown():
                    if self._has_only_broker and self._broker is not None:
                        self._broker.on_begin_shutdown(now_ms)
                    self.replica.begin_shutdown(now_ms)
                case _:
                    assert_never(event)
        outbox = self._outbox
        if outbox.follow_ups:
            self._follow_up(now_ms)
        outputs, outbox.outputs = outbox.outputs, []
        return outputs

    def _follow_up(self, now_ms: int) -> None:
        """Do what comes after all that the event itself caused."""
        follow_ups, activation = self._outbox.follow_ups, self.replica.activation
        while follow_ups:
            next_one = follow_ups.popleft()
            if isinstance(next_one, (LogFlushed, SnapshotChecked)):
                self.replica.step_core(next_one, now_ms)
            elif not isinstance(next_one, WireRequest):
                self._perform(next_one, now_ms)
            elif activation.claim_offset is not None:
                activation.early.append(next_one)
            else:
                self._decide(next_one, now_ms)

    def abandon(self) -> None:
        """Unlock the directory and write nothing more: what failed once cannot be trusted with a last flush."""
        self.replica.storage.abandon()

    def close(self) -> None:
        """Flush, close the files and unlock the directory."""
        self.replica.storage.close()

    # Events

    def _on_request(self, request: WireRequest, now_ms: int) -> None:
        """A request at a listener of the quorum that is none of the quorum's own."""
        activation = self.replica.activation
        if request.api_key not in self._decided:
            self._outbox.outputs.append(answer_of_any(self.replica, self._deciding, request, is_broker=False))
        elif activation.early or activation.claim_offset is not None:
            activation.early.append(request)
        else:
            self._decide(request, now_ms)

    def _decide(self, request: WireRequest, now_ms: int) -> None:
        """Give a request to the controller or the state machine."""
        part = self._deciding
        assert part is not None, request
        replica = self.replica
        if now_ms >= replica.commits.deadline_ms:
            # The next request must see everything that was answered before.
            replica.commits.apply(now_ms)
        answer = part.on_full if replica.proposals.is_full else part.on_request
        self._perform(answer(request, replica.core.leader, now_ms), now_ms)
        if part.audited:
            self._report_audited(part)

    def _on_broker_request(self, request: WireRequest, now_ms: int) -> None:
        """A request at a listener of the broker; the quorum has no part in it."""
        broker = self._broker
        assert broker is not None, request.listener
        if request.api_key not in self._served_by_broker:
            self._outbox.outputs.append(answer_of_any(self.replica, broker, request, is_broker=True))
            return
        commits = self.replica.commits
        if now_ms >= commits.deadline_ms:
            commits.apply(now_ms)
        outcome = broker.on_request(request, now_ms)
        if outcome is not None:
            self._outbox.outputs.append(outcome)
        if broker.audited:
            self._report_audited(broker)

    def _report_audited(self, part: Timed) -> None:
        self._outbox.outputs.extend(map(Trace, part.audited))
        part.audited.clear()

    def _part_of(self, reply_to: ReplyTo) -> Serving:
        """The part that has asked."""
        part: Serving | None = self._broker if reply_to.part is Part.BROKER else self._deciding
        assert part is not None, reply_to
        return part

    def _tick_part(self, part: Timed, now_ms: int) -> None:
        """Do the timed work of a part."""
        for action in part.on_tick(now_ms):
            self._perform(action, now_ms)
        if part.audited:
            self._report_audited(part)

    def _leave_if_free(self) -> None:
        """Tell the node once the broker beside a controller has handed over what it led."""
        if self._broker is not None and self._broker.may_stop:
            self._is_leaving = False
            self._outbox.outputs.append(Noted(Left()))

    # What parts want

    def _perform(self, action: Action, now_ms: int) -> None:
        """Carry out what a part wants, one action after the other."""
        # As in `step`: each write has a Proposal.
        if type(action) is Proposal:
            self.replica.propose(action, now_ms)
            return
        match action:
            case Answer() | Drop() | LeaveUnanswered() | Returned() | Noted():
                self._outbox.outputs.append(action)
            case Redirect():
                self.replica.on_forwarded(action, now_ms)
            case Send():
                self._send(action, now_ms)
            case Confirm(token=token):
                self.replica.confirm(token, now_ms)
            case RefuseSubmit():
                self.replica.proposals.refuse(ForSubmit(action.submit_id), action.error, now_ms)
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
        if part is Part.BROKER and self._own is not None and self.replica.is_active:
            return self._own
        core = self.replica.core
        leader_id, address = core.leader.leader_id, core.leader_address
        if leader_id in (NO_NODE, core.local.id) or address is None:
            return None
        return Target(leader_id, address.host, address.port)
