"""A leader that hears from no majority of the voters gives up in time (Kafka: the check-quorum timer of `LeaderState`).

Kafka's timer is one and a half fetch timeouts long and begins anew with each majority heard, so that two of them may
pass between two contacts that count. Time is that of the leader's own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.quorum.voters import VoterSet, majority
from kraft.sim.invariants import InvariantViolated
from kraft.sim.member import View

FETCH_TIMEOUTS: Final = 3


class Contacts:
    """When each leader has last heard each voter."""

    def __init__(self, fetch_timeout_ms: int) -> None:
        self._fetch_timeout_ms = fetch_timeout_ms
        self._heard: dict[tuple[int, int], int] = {}
        self._led: dict[int, tuple[int, VoterSet, int]] = {}
        """Of each leader the epoch, the voters, and since when it has led them without a break."""
        self._stepped: dict[int, int] = {}

    def heard(self, node_id: int, voter_id: int, now_ms: int) -> None:
        """A request of a voter reaches a node."""
        self._heard[node_id, voter_id] = now_ms

    def disturbed(self, node_id: int) -> None:
        """The node's clock is another one from now on."""
        self._led.pop(node_id, None)

    def stepped(self, node_id: int, view: View, voters_of: Callable[[int], VoterSet], now_ms: int) -> None:
        """A node has done something; `voters_of` tells the voters by its log. Raises `InvariantViolated`.

        A leader looks at its clock more often than once in a fetch timeout: if it has not, it was paused, and hears of
        what has come meanwhile in any order.
        """
        before_ms = self._stepped.get(node_id, now_ms)
        self._stepped[node_id] = now_ms
        if view.state != "Leader":
            self._led.pop(node_id, None)
            return
        voters = voters_of(node_id)
        epoch, known, since_ms = self._led.get(node_id, (-1, voters, now_ms))
        if epoch != view.epoch or known is not voters or now_ms - before_ms > self._fetch_timeout_ms:
            since_ms = now_ms
            self._led[node_id] = (view.epoch, voters, since_ms)
        earliest_ms = now_ms - FETCH_TIMEOUTS * self._fetch_timeout_ms
        if since_ms >= earliest_ms:
            return
        voter_ids = voters.ids
        heard = [one for one in voter_ids if self._heard.get((node_id, one), since_ms - 1) >= earliest_ms]
        own = {node_id}.intersection(voter_ids)
        if len(own.union(heard)) < majority(len(voter_ids)):
            raise InvariantViolated(
                f"node {node_id} leads epoch {view.epoch} on, though it has heard only {heard} since {earliest_ms}"
            )
