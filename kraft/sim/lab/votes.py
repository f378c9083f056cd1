"""Reasons of votes: why a node grants or refuses one, in a sentence with the rule of Raft that decides."""

from __future__ import annotations

from msgspec import Struct

from kraft.quorum.messages import VoteReply
from kraft.sim.nodes.frames import Frame, is_granted, requested_vote
from kraft.sim.pictures.execution import NodeState
from kraft.sim.world.actions import Action, Deliver, RoundTrip
from kraft.sim.world.world import World


class Asked(Struct, frozen=True):
    """A request for a vote: who wants it, in which epoch, and where the candidate's log ends."""

    voter: int
    candidate: int
    epoch: int
    log_epoch: int
    log_end: int
    is_pre_vote: bool


def asked_in(world: World, action: Action) -> Asked | None:
    """The request for a vote that reaches a node with an action; None if there is none."""
    match action:
        case (
            Deliver(node=voter, sender=candidate, number=number) | RoundTrip(peer=voter, node=candidate, number=number)
        ) if action.kind in ("Vote", "PreVote"):
            exchange = world.exchanges[candidate, number]
            wire = world.hosts[candidate].member.wire_request(exchange.message)
            part = None if wire is None else requested_vote(wire[2])
            if part is None:
                return None
            return Asked(voter, candidate, part.replica_epoch, part.last_offset_epoch, part.last_offset, part.pre_vote)
        case _:
            return None


def answer_in(world: World, action: Action) -> bool | None:
    """Whether the answer to a request for a vote grants it, after the action; None if there is no answer yet."""
    match action:
        case Deliver(sender=candidate, number=number) | RoundTrip(node=candidate, number=number):
            answers = world.exchanges[candidate, number].answers
        case _:
            return None
    match answers[-1] if answers else None:
        case VoteReply(granted=granted):
            return granted
        case Frame() as frame:
            return is_granted(frame.response())
        case _:
            return None


def why(asked: Asked, before: NodeState, after: NodeState, grants: bool | None) -> str:
    """The answer of the node to the request, and the rule, in one sentence.

    A vote is granted if the quorum-state on disk names the candidate now; a pre-vote if the answer says so.
    """
    against = _against(asked, before)
    if asked.is_pre_vote:
        rule = "does not answer" if grants is None else _pre_vote_rule(asked, before, against, grants)
        return f"node {asked.voter} is asked by node {asked.candidate} whether it would vote, and {rule}"
    is_voted = after.vote == asked.candidate and after.epoch == asked.epoch
    verb = "votes" if is_voted else "does not vote"
    subject = f"node {asked.voter} {verb} for node {asked.candidate} in epoch {asked.epoch}"
    if is_voted:
        rule = (
            f", against the rule: {against}"
            if against
            else ": its first vote in this epoch, and the candidate's log is not shorter"
        )
        return subject + rule
    return f"{subject}: {against or 'its vote is not on its disk yet'}"


def _pre_vote_rule(asked: Asked, before: NodeState, against: str, grants: bool) -> str:
    """The kind of an answer to a request for a pre-vote, with its reason."""
    if not grants:
        return f"refuses: {against}" if against else "refuses"
    is_led = before.state == "Follower" and asked.epoch >= before.epoch
    against = _behind(asked, before) if is_led else against
    if against:
        return f"grants that, against the rule: {against}"
    if is_led:
        return f"grants that: its leader, node {before.leader}, is gone, or has not answered it in this epoch"
    return "grants that: the candidate's log is not shorter, and it hears of no leader"


def _against(asked: Asked, before: NodeState) -> str:
    """The rule by which the node must refuse; empty for none."""
    if asked.epoch < before.epoch:
        return f"its own epoch {before.epoch} is later"
    if asked.epoch == before.epoch and not asked.is_pre_vote:
        if before.vote is not None and before.vote != asked.candidate:
            return f"it has voted for node {before.vote} in this epoch, which its quorum-state on disk says"
        if before.leader >= 0 and before.leader != asked.candidate:
            return f"node {before.leader} leads this epoch already"
    if asked.is_pre_vote and before.state in ("Follower", "Leader"):
        return "it leads itself" if before.state == "Leader" else f"it hears of its leader, node {before.leader}"
    return _behind(asked, before)


def _behind(asked: Asked, before: NodeState) -> str:
    """How the candidate's log is behind that of the node; empty if it is not."""
    own_epoch, own_end = _log_end(before)
    if (asked.log_epoch, asked.log_end) >= (own_epoch, own_end):
        return ""
    return (
        f"the candidate's log ends at offset {asked.log_end} in epoch {asked.log_epoch}, "
        f"before its own at {own_end} in epoch {own_epoch}"
    )


def _log_end(state: NodeState) -> tuple[int, int]:
    """The epoch of the last batch, and the offset after it."""
    return (state.log[-1][2], state.log[-1][1]) if state.log else (0, max(state.log_end_offset, 0))
