"""Carries out what the application wants: records to append, answers, requests to other nodes, confirmed reads."""

from __future__ import annotations

from typing import assert_never

from kraft.quorum.events import ReadIndex, Received
from kraft.replica.commits import Commits
from kraft.replica.effects import Effects
from kraft.replica.in_flight import InFlightRequests
from kraft.replica.interface.application import (
    Action,
    Confirm,
    ForSubmit,
    Parked,
    Proposal,
    Redirect,
    RefuseSubmit,
)
from kraft.replica.interface.events import Noted, Returned
from kraft.replica.proposals import Proposals
from kraft.replica.quorum_requests import QuorumRequests
from kraft.wire import Answer, Drop, LeaveUnanswered, Send, Target
from metadata_log.types import NO_NODE


class Actions:
    """Carries out the actions of one application, in the order in which it returns them."""

    def __init__(
        self,
        effects: Effects,
        proposals: Proposals,
        requests: QuorumRequests,
        commits: Commits,
        in_flight: InFlightRequests,
    ) -> None:
        self._effects = effects
        self._application = effects.application
        self._outbox = effects.outbox
        self._proposals = proposals
        self._requests = requests
        self._commits = commits
        self._in_flight = in_flight

    def perform(self, action: Action, now_ms: int) -> None:
        """Carry out one action."""
        match action:
            case Proposal():
                self._proposals.propose(self._effects, action, now_ms)
            case Redirect():
                flat = self._requests.receive_forwarded(action)
                if flat is not None:
                    self._effects.step_core(Received(action.request.request_id, flat), now_ms)
            case Send():
                self._send(action, now_ms)
            case Confirm():
                self._confirm(action.token, now_ms)
            case Answer() | Drop() | LeaveUnanswered() | Returned() | Noted():
                self._outbox.outputs.append(action)
            case Parked():
                pass
            case RefuseSubmit():
                self._proposals.refuse(self._effects, ForSubmit(action.submit_id), action.error, now_ms)
            case _:
                assert_never(action)

    def _send(self, send: Send, now_ms: int) -> None:
        target = self._active_controller() if send.target is None else send.target
        if target is None:
            self._application.on_reply(send.reply_to, None, now_ms)
        else:
            self._outbox.outputs.append(self._in_flight.send(send, target))

    def _confirm(self, token: int, now_ms: int) -> None:
        if not self._proposals.is_open:
            self._application.on_confirmed(token, is_leader=False)
            return
        self._commits.confirmations.wait(token)
        self._effects.step_core(ReadIndex(token), now_ms)

    def _active_controller(self) -> Target | None:
        """The leader; None if the leader is unknown or is this node."""
        core = self._effects.core
        leader_id, address = core.leader.leader_id, core.leader_address
        if leader_id in (NO_NODE, core.local.id) or address is None:
            return None
        return Target(leader_id, address.host, address.port)
