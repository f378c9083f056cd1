"""The common parts of the quorum's requests and replies: sending, the named leader, errors (Kafka:
`KafkaRaftClient.maybeTransition`, `maybeHandleCommonResponse`).

A message that names a contradictory or unreachable leader ends a Kafka process. Here the core refuses and reports such
a message instead: a peer's mistake must not stop this node.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from kraft.quorum.effects import SendRequest
from kraft.quorum.messages import (
    LeaderReply,
    Request,
)
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState, ResignedState
from kraft.quorum.values import Endpoints, ReplicaKey
from metadata_log.types import NO_NODE
from transport.protocol.errors import Error

_NO_ENDPOINTS: Final = Endpoints()


class Verdict(Enum):
    """The next step after the common part of a reply."""

    HANDLED = auto()
    """Nothing; the next request to the peer may follow at once."""
    BACK_OFF = auto()
    """The reply is of no use; the next request to the peer follows after a backoff."""
    CONTINUE = auto()
    """The caller handles the rest of the reply."""


def known_leader(quorum: QuorumState) -> tuple[int, Endpoints]:
    """The leader to name in a reply; no leader without a known address, as such a reply would end a Kafka process."""
    state = quorum.state
    endpoints = state.endpoints if state.endpoints.listeners else quorum.endpoints_of(state.leader_id)
    return (state.leader_id, endpoints) if endpoints.listeners else (NO_NODE, _NO_ENDPOINTS)


def send(quorum: QuorumState, peer_id: int, message: Request, now_ms: int) -> None:
    """Send a request to a peer with a known address."""
    address = quorum.address_of(peer_id)
    assert address is not None, peer_id
    request_id = quorum.peers.sent(peer_id, now_ms)
    quorum.emit(SendRequest(request_id, peer_id, address, message, quorum.config.request_timeout_ms))


def learn_leader(
    quorum: QuorumState, peer_id: int, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int, cause: str
) -> Error:
    """Adopt the leader or higher epoch that a message names; returns the reason for a refusal (`maybeTransition`)."""
    if not quorum.believes_epoch(peer_id, epoch, now_ms):
        return Error.UNKNOWN_LEADER_EPOCH
    if leader_id < NO_NODE:
        quorum.report_peer_fault(peer_id, f"it names leader {leader_id} of epoch {epoch}, which is the id of no node")
        return Error.INVALID_REQUEST
    if leader_id == quorum.local.id:
        if isinstance(quorum.state, LeaderState | ResignedState) and epoch == quorum.epoch:
            return Error.NONE
        quorum.report_peer_fault(peer_id, f"it takes this node for the leader of epoch {epoch}, which it is not")
        return Error.INVALID_REQUEST
    resolved = endpoints if endpoints.listeners else quorum.endpoints_of(leader_id)
    if leader_id == quorum.leader_id and not len(resolved):
        # A leader that was removed from the voters names no address when it resigns (KAFKA-17608).
        resolved = quorum.state.endpoints
    if leader_id != NO_NODE and not len(resolved):
        quorum.report_peer_fault(peer_id, f"it names leader {leader_id} of epoch {epoch}, with no known address")
        return Error.INVALID_REQUEST
    if epoch > quorum.epoch:
        if leader_id == NO_NODE:
            quorum.become_unattached(epoch, now_ms, cause)
        else:
            quorum.become_follower(epoch, leader_id, resolved, now_ms, cause)
    elif leader_id != NO_NODE:
        if quorum.leader_id not in (NO_NODE, leader_id):
            quorum.report_peer_fault(
                peer_id, f"it names {leader_id} as leader of epoch {epoch}, which {quorum.leader_id} leads"
            )
            return Error.INVALID_REQUEST
        if quorum.leader_id == NO_NODE or len(resolved) > len(quorum.state.endpoints):
            quorum.become_follower(epoch, leader_id, resolved, now_ms, cause)
    return Error.NONE


def on_common_reply(quorum: QuorumState, peer_id: int, reply: LeaderReply, now_ms: int) -> Verdict:
    """Handle the common part of a reply: errors, a higher epoch, a leader (`maybeHandleCommonResponse`).

    Kafka repeats the request at once after a reply without news, and so loops while there is no leader. The short
    backoff here saves both nodes work, and the peer cannot observe a difference.
    """
    top_error = getattr(reply, "top_error", Error.NONE)
    if top_error != Error.NONE:
        if top_error != Error.BROKER_NOT_AVAILABLE:
            quorum.report_peer_fault(peer_id, f"it refuses our request with {top_error.name}")
        return Verdict.BACK_OFF
    state = quorum.state
    error = reply.error
    if reply.epoch < state.epoch or error == Error.UNKNOWN_LEADER_EPOCH:
        return Verdict.BACK_OFF
    endpoints = getattr(reply, "endpoints", _NO_ENDPOINTS)
    if reply.epoch > state.epoch or error in (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER):
        learn_leader(quorum, peer_id, reply.epoch, reply.leader_id, endpoints, now_ms, f"told-by-{peer_id}")
        return Verdict.HANDLED if quorum.state is not state else Verdict.BACK_OFF
    is_news = state.leader_id == NO_NODE or (not state.endpoints.listeners and endpoints.listeners)
    if reply.leader_id != NO_NODE and is_news:
        refused = learn_leader(quorum, peer_id, reply.epoch, reply.leader_id, endpoints, now_ms, f"told-by-{peer_id}")
        if refused != Error.NONE:
            return Verdict.BACK_OFF
        return Verdict.CONTINUE if error == Error.NONE else Verdict.HANDLED
    if error in (Error.BROKER_NOT_AVAILABLE, Error.INVALID_REQUEST, Error.INVALID_VOTER_KEY):
        if error == Error.INVALID_REQUEST:
            quorum.report_peer_fault(peer_id, "it calls our request invalid")
        return Verdict.BACK_OFF
    return Verdict.CONTINUE


def settle(quorum: QuorumState, peer_id: int, verdict: Verdict, now_ms: int) -> None:
    """Record the outcome of a peer's reply."""
    if verdict is Verdict.BACK_OFF:
        quorum.peers.back_off(peer_id, now_ms)
    else:
        quorum.peers.answered(peer_id)


def epoch_error(quorum: QuorumState, epoch: int) -> Error:
    """The error for the epoch of a request to the leader; the request's epoch changes no state."""
    if epoch < quorum.state.epoch:
        return Error.FENCED_LEADER_EPOCH
    return Error.UNKNOWN_LEADER_EPOCH if epoch > quorum.state.epoch else Error.NONE


def is_addressed(quorum: QuorumState, voter: ReplicaKey) -> bool:
    """Whether a request addressed to this voter has reached the right replica; unknown parts match any replica."""
    return voter.id == NO_NODE or voter.matches(quorum.local)
