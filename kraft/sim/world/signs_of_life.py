"""Checks leader stickiness: a voter with contact to its leader neither campaigns nor grants pre-votes (KIP-996; ours: a
refused connection shows the end of a leader's process).

A refused connection counts as the end of the leader's process under two conditions: the leader has not answered since,
and its last response came from the refusing address. All times are those of the follower's own clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from kraft.invariants.observation import View
from kraft.invariants.violation import InvariantViolated
from kraft.quorum.values import LeaderAndEpoch
from kraft.sim.world.driver import Exchange
from kraft.sim.world.member_interface import Member

LEADER_GONE: Final = "Follower->Prospective leader-gone"
"""The log line of a voter that campaigns because its leader's process has ended."""
_LEAVES: Final = "Follower->"
_REMEMBERED: Final = 40
"""The least number of remembered responses of a peer. A leader that resigned answers with any number of errors."""
_FETCHES: Final = frozenset(("Fetch", "FetchSnapshot"))


class Sign(Struct):
    """The last response of one peer to one node."""

    answered_ms: int
    message: object
    asked_in: int
    request_id: int
    is_indirect: bool
    is_refused: bool = False
    """Whether the address that sent the response has refused a connection since."""


class SignsOfLife:
    """The last responses to fetches, by node and peer. Methods raise `InvariantViolated`."""

    def __init__(self, fetch_timeout_ms: int) -> None:
        self._fetch_timeout_ms = fetch_timeout_ms
        self._signs: dict[int, dict[int, deque[Sign]]] = {}
        self._deceived: dict[int, None] = {}
        """The nodes that have received forged responses since they became followers."""
        self._left: dict[int, int] = {}
        """By node the number of its requests when it last stopped following. Responses to these do not count."""
        self._resigned: dict[int, LeaderAndEpoch] = {}
        """By node the leader that has last told it of its own resignation."""

    def answered(self, exchange: Exchange, message: object, now_ms: int) -> None:
        """A peer has answered a request of a node."""
        if exchange.kind in _FETCHES and exchange.number > self._left.get(exchange.sender, 0):
            signs = self._signs.setdefault(exchange.sender, {}).setdefault(exchange.target, deque())
            signs.append(Sign(now_ms, message, exchange.asked_in, exchange.request_id, exchange.is_indirect))
            while len(signs) > _REMEMBERED and now_ms - signs[0].answered_ms > 2 * self._fetch_timeout_ms:
                signs.popleft()

    def refused(self, member: Member, exchange: Exchange) -> None:
        """An address has refused a connection of a node."""
        for is_strict in (False, True):
            sign = self._last(member, exchange.target, is_strict=is_strict)
            if sign is not None and sign.is_indirect == exchange.is_indirect:
                sign.is_refused = True

    def resigned(self, node_id: int, leader: LeaderAndEpoch) -> None:
        """A node has received the EndQuorumEpoch of a leader. A voter campaigns a little later. A node that is no voter
        by its own log refuses no more pre-votes then, as it may be a voter by the log of the leader.
        """
        self._resigned[node_id] = leader

    def forged(self, node_id: int) -> None:
        """A node has received a forged response, which the node may regard as its leader's."""
        self._deceived[node_id] = None

    def died(self, node_id: int) -> None:
        """A node crashes and forgets all responses."""
        self._signs.pop(node_id, None)
        self._deceived.pop(node_id, None)
        self._resigned.pop(node_id, None)

    def changed(self, member: Member, what: str, requests: int) -> None:
        """A node that has sent `requests` requests changes its state. A node that stops following forgets the responses
        of its leader.
        """
        if what == LEADER_GONE and member.node_id not in self._deceived:
            self._check_gone(member)
        if what.startswith(_LEAVES):
            self.died(member.node_id)
            self._left[member.node_id] = requests

    def _check_gone(self, member: Member) -> None:
        signs = {peer_id: self._last(member, peer_id) for peer_id in self._signs.get(member.node_id, {})}
        if not any(sign is not None and sign.is_refused for sign in signs.values()):
            known = [
                f"node {peer_id} at {one.answered_ms} ms" + (" from a bootstrap address" if one.is_indirect else "")
                for peer_id, one in signs.items()
                if one is not None
            ]
            raise InvariantViolated(
                f"node {member.node_id} campaigns as if its leader's process had ended, but no address of the last"
                f" responses has refused a connection; the last responses: {', '.join(known) or 'none'}"
            )

    def pre_granted(self, member: Member, view: View | None, now_ms: int) -> None:
        """A node grants a pre-vote to another node."""
        if view is None or view.state != "Follower" or self._resigned.get(member.node_id) == view.leader:
            return
        leader_id = view.leader.leader_id
        sign = self._last(member, leader_id)
        if sign is None or sign.is_refused or sign.asked_in != view.epoch:
            return
        if now_ms - sign.answered_ms < self._fetch_timeout_ms // 2:
            raise InvariantViolated(
                f"node {member.node_id} grants a pre-vote, though its leader {leader_id} has answered"
                f" {now_ms - sign.answered_ms} ms ago"
            )

    def _last(self, member: Member, peer_id: int, *, is_strict: bool = True) -> Sign | None:
        """The last response of a peer that a node regards as its leader's, or a later refused connection of that peer.

        An error response does not count, nor does a response with records that the node still judges: the core of the
        node has not received that response yet (decision 0031). A node may or may not remember a request from before it
        became a follower: with `is_strict` only the requests of a follower count.
        """
        for sign in reversed(self._signs.get(member.node_id, {}).get(peer_id, ())):
            if sign.is_refused:
                return sign
            if member.is_judging(sign.request_id):
                continue
            epoch = member.epoch_of_leader(sign.message)
            if epoch is not None and (epoch == sign.asked_in or not is_strict):
                return sign
        return None


class UncheckedSigns(SignsOfLife):
    """Accepts every campaign and every pre-vote."""

    def changed(self, member: Member, what: str, requests: int) -> None:
        """A node may campaign at any time."""

    def pre_granted(self, member: Member, view: View | None, now_ms: int) -> None:
        """A node may grant any pre-vote."""
