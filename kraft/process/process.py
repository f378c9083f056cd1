"""One process as one synchronous object: events in, outputs out (Kafka: `KafkaRaftServer` with its `SharedServer`, its
`ControllerServer` and its `BrokerServer`).

`Process` is the loop. It knows the replica of the log, which takes part in the quorum, and the parts that use it: a
controller, a broker, both, a state machine or a raw log. It gives each request to the part that owns its listener and
API, each reply to the part that asked, and to each part its time. The parts do not know each other. Kafka gives each of
them threads; here one task owns all of them, and there is one log.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import assert_never

from kraft.calls import Call, CancelCall, Returned
from kraft.committed import Noted
from kraft.process.any_part import answer_of_any
from kraft.process.options import ProcessOptions
from kraft.process.parts import Application, ControllerAndBroker, Input
from kraft.quorum.core import RaftCore
from kraft.quorum.events import BeginShutdown, LogFlushed, Resign, Resumed, SnapshotChecked, Tick
from kraft.replica.interface.actions import Action, Confirm, ForSubmit, Proposal, Redirect, RefuseSubmit
from kraft.replica.interface.events import FlushDone, MakeSnapshot, Output, PeerRequest, Submit, Trace
from kraft.replica.interface.leading import Leading
from kraft.replica.replica import Replica
from kraft.replica.rpc.api_versions import KEYS_OF_QUORUM
from kraft.replica.storage.storage import Storage
from kraft.server import Server
from kraft.wire import (
    Answer,
    Drop,
    LeaveUnanswered,
    Part,
    Send,
    WireClosed,
    WireFailed,
    WireGone,
    WireReply,
    WireRequest,
)
from metadata_log.disk import Disk
from metadata_log.types import NEVER_MS


class Process:
    """A process, as `kraft.process.opening` opens it. Its methods are for one owner, and never wait."""

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
        self._stepped_at_ms = now_ms
        """The time of the last step."""
        self._beside: dict[str, Server] = {}
        """The broker beside a controller, by its listeners; all other listeners are those of the first part."""
        if isinstance(application, ControllerAndBroker):
            first, last = application.controller, application.broker
            self._beside = dict.fromkeys(application.client_listeners, last)
        else:
            first = last = application
        self.served = first
        """The part at the listeners of the quorum, or a broker alone."""
        self._last = last
        """The broker beside a controller; else the same part."""
        leading = first if isinstance(first, Leading) else None
        self._leading = None if leading is None else first
        """The part that leads where this replica leads the quorum, as all but a broker do."""
        self.replica = Replica(
            options=options.replica,
            disk=disk,
            storage=storage,
            core=core,
            readers=(first,) if first is last else (first, last),
            leading=leading,
            now_ms=now_ms,
        )
        self._outbox, self._in_flight = self.replica.outbox, self.replica.in_flight

    # Questions

    @property
    def may_stop(self) -> bool:
        """Whether the node may end: its part does not object, and no answer waits for a turn.

        A broker beside a controller has left before (`LeaveCluster`).
        """
        return self.served.may_stop and not self.replica.proposals.has_more_to_tell

    def deadline_ms(self) -> int:
        """The time of the next `step(Tick())` if no event comes before; may be in the past at the end of a burst.

        While there are committed batches to apply, at once or in a millisecond, the times of the parts do not count,
        nor do those of snapshots and of the shutdown.
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
        return min(
            deadline_ms,
            self.served.agenda.deadline_ms,
            self._last.agenda.deadline_ms,
            replica.snapshots.maker.deadline_ms,
            replica.snapshots.cleaner.deadline_ms,
            proposals.finish_by_ms,
        )

    # Life

    def starting(self, now_ms: int) -> Generator[None, None, list[Output]]:
        """Enter the first state, in steps of some milliseconds; returns the outputs to carry out."""
        yield from self.replica.starting(now_ms)
        self._follow_up(now_ms)
        outputs, self._outbox.outputs = self._outbox.outputs, []
        return outputs

    def step(self, event: Input, now_ms: int) -> list[Output]:
        """Handle one event; returns the outputs to carry out, in order.

        Raises `MetadataLogError` or `OSError` if the disk or the log fails; the replica must not be used then.
        """
        self._stepped_at_ms = now_ms
        # The events of a commit are compared by their types: a `case` that does not match takes four times as long.
        if type(event) is WireRequest:
            part = self._beside.get(event.listener, self.served)
            is_leading = part is self._leading
            if is_leading and event.api_key in KEYS_OF_QUORUM:
                self.replica.on_request(event, now_ms)
            elif event.api_key not in part.apis:
                answer = answer_of_any(self.replica, part, event, is_broker=not is_leading)
                self._outbox.outputs.append(answer)
            elif not is_leading or not self.replica.activation.holds(event):
                self._on_request(part, event, now_ms)
        elif type(event) is Tick:
            # The core comes last, so that it writes what the parts append in the same Tick.
            self.replica.catch_up(now_ms)
            if now_ms >= self.served.agenda.deadline_ms:
                self._tick(self.served, now_ms)
            if now_ms >= self._last.agenda.deadline_ms and self._beside:
                self._tick(self._last, now_ms)
            self.replica.on_tick(now_ms)
        elif type(event) is WireReply:
            reply_to = self._in_flight.reply_to.pop(event.request_id, None)
            if reply_to is None:
                pass
            elif type(reply_to.key) is PeerRequest:
                self.replica.on_reply(event, reply_to.key, now_ms)
            else:
                self._part_of(reply_to.part).on_reply(reply_to, event.message, now_ms)
        elif type(event) is FlushDone:
            self.replica.on_flushed(event.ticket, now_ms)
        else:
            match event:
                case Submit() | Call() | CancelCall():
                    outcome = self._last.on_call(event, now_ms)
                    if outcome is not None:
                        self._perform(outcome, now_ms)
                case WireFailed():
                    reply_to = self._in_flight.reply_to.pop(event.request_id, None)
                    if reply_to is None:
                        pass
                    elif isinstance(asked := reply_to.key, PeerRequest):
                        self.replica.on_failed(asked, event.cause, now_ms)
                    else:
                        self._part_of(reply_to.part).on_reply(reply_to, None, now_ms)
                case WireGone():
                    if not self.replica.withdraw(event.request_id):
                        self.served.on_gone(event.request_id)
                        self._last.on_gone(event.request_id)
                case WireClosed():
                    self.served.on_closed(event.listener, event.peer)
                    self._last.on_closed(event.listener, event.peer)
                case MakeSnapshot():
                    self.replica.make_snapshot(event, now_ms)
                case Resign() | Resumed():
                    self.replica.step_core(event, now_ms)
                case BeginShutdown():
                    self.served.on_begin_shutdown(now_ms)
                    self.replica.begin_shutdown(now_ms)
                case _:
                    assert_never(event)
        outbox = self._outbox
        if outbox.follow_ups:
            self._follow_up(now_ms)
        if self.served.audited or self._last.audited:
            self._report_audited()
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
                self._on_request(self.served, next_one, now_ms)

    def abandon(self) -> None:
        """Unlock the directory and write nothing more: what failed once cannot be trusted with a last flush."""
        self.replica.storage.abandon()

    def close(self) -> None:
        """Flush, close the files and unlock the directory."""
        self.replica.storage.close()

    # Requests, and what parts want

    def _on_request(self, part: Server, request: WireRequest, now_ms: int) -> None:
        commits = self.replica.commits
        if now_ms >= commits.deadline_ms:
            # The next request must see everything that was answered before.
            commits.apply(now_ms)
        action = part.on_request(request, now_ms)
        if type(action) is Answer:
            self._outbox.outputs.append(action)
        elif action is not None:
            self._perform(action, now_ms)

    def _tick(self, part: Server, now_ms: int) -> None:
        for action in part.on_tick(now_ms):
            self._perform(action, now_ms)

    def _report_audited(self) -> None:
        for part in (self.served, self._last):
            self._outbox.outputs.extend(map(Trace, part.audited))
            part.audited.clear()

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
            case Send(reply_to=reply_to):
                target = action.target or self.replica.active_controller(reply_to.part)
                if target is None:
                    self._part_of(reply_to.part).on_reply(reply_to, None, now_ms)
                else:
                    self._outbox.outputs.append(self._in_flight.send(action, target))
            case Confirm(token=token):
                self.replica.confirm(token, now_ms)
            case RefuseSubmit():
                self.replica.proposals.refuse(ForSubmit(action.submit_id), action.error, now_ms)
            case _:
                assert_never(action)

    def _part_of(self, asker: Part) -> Server:
        """The part that has asked."""
        return self._last if asker is Part.BROKER else self.served
