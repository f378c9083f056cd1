"""Carries out what the application wants: records to append, answers, requests to other nodes, confirmed reads."""

from __future__ import annotations

from typing import assert_never

from kraft.quorum.events import ReadIndex, Received
from kraft.replica.commits import Commits
from kraft.replica.effects import Effects
from kraft.replica.interface.application import (
    Action,
    Confirm,
    ForSubmit,
    OutboundRequest,
    Parked,
    Proposal,
    Redirect,
    RefuseSubmit,
)
from kraft.replica.interface.events import Noted, Returned
from kraft.replica.outbound_requests import OutboundRequests
from kraft.replica.proposals import Proposals
from kraft.replica.quorum_requests import QuorumRequests
from kraft.wire import Answer, Drop, LeaveUnanswered
from metadata_log.serde import Message
from metadata_log.types import NO_NODE


class Actions:
    """Carries out the actions of one application, in the order in which it returns them."""

    def __init__(
        self,
        effects: Effects,
        proposals: Proposals,
        requests: QuorumRequests,
        commits: Commits,
        request_timeout_ms: int,
    ) -> None:
        self._effects = effects
        self._application = effects.application
        self._outbox = effects.outbox
        self._proposals = proposals
        self._requests = requests
        self._commits = commits
        self._request_timeout_ms = request_timeout_ms
        self._outbound_requests = OutboundRequests()

    def perform(self, action: Action, now_ms: int) -> None:
        """Carry out one action."""
        match action:
            case Proposal():
                self._proposals.propose(self._effects, action, now_ms)
            case Redirect():
                flat = self._requests.receive_forwarded(action)
                if flat is not None:
                    self._effects.step_core(Received(action.request.request_id, flat), now_ms)
            case OutboundRequest():
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

    def answered(self, request_id: int, response: Message | None, now_ms: int) -> None:
        """Give the application the answer to its request to another node; None if the request has failed."""
        self._application.on_answer(self._outbound_requests.take(request_id), response, now_ms)

    def _send(self, ask: OutboundRequest, now_ms: int) -> None:
        target = self._leader_address() if ask.target is None else ask.target
        if target is None:
            self._application.on_answer(ask.token, None, now_ms)
        else:
            self._outbox.outputs.append(self._outbound_requests.send(ask, target, self._request_timeout_ms))

    def _confirm(self, token: int, now_ms: int) -> None:
        if not self._proposals.is_open:
            self._application.on_confirmed(token, is_leader=False)
            return
        self._commits.confirmations.wait(token)
        self._effects.step_core(ReadIndex(token), now_ms)

    def _leader_address(self) -> tuple[int, str, int] | None:
        """The id, host and port of the leader; None if the leader is unknown or is this node."""
        core = self._effects.core
        leader_id, address = core.leader.leader_id, core.leader_address
        if leader_id in (NO_NODE, core.local.id) or address is None:
            return None
        return leader_id, address.host, address.port
