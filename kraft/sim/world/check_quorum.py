"""Checks that a leader without contact to a majority of the voters resigns in time (Kafka: the check-quorum timer of
`LeaderState`).

Kafka's timer runs for one and a half fetch timeouts and restarts with each contact to a majority. So two of its periods
may pass between two contacts that count. Each period may have expired some time before the leader reads its clock and
receives a fetch of one more voter. All times are those of the leader's own clock.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.invariants.majorities import is_majority, reached_by_majority
from kraft.invariants.violation import InvariantViolated
from kraft.quorum.voters import VoterSet

FETCH_TIMEOUTS: Final = 4
"""Twice Kafka's one and a half, and twice the half that the leader may be late."""


class Leadership(Struct):
    """An uninterrupted leadership: the epoch, the voters, and its times by the clock of the leader."""

    epoch: int
    voters: VoterSet
    since_ms: int
    stepped_ms: int
    """The time of the last step of the leader."""
    safe_until_ms: int
    """Until then the leader need not resign, even without further requests of voters."""


class CheckQuorum:
    """The time of the last request of each voter at each leader."""

    def __init__(self, fetch_timeout_ms: int) -> None:
        self.fetch_timeout_ms = fetch_timeout_ms
        self._longest_pause_ms = fetch_timeout_ms // 2
        self._patience_ms = FETCH_TIMEOUTS * fetch_timeout_ms
        self._heard: dict[tuple[int, int], int] = {}
        self._led: dict[int, Leadership] = {}

    def heard(self, node_id: int, voter_id: int, now_ms: int) -> None:
        """A request of a voter reaches a node at this time by the clock of the node."""
        self._heard[node_id, voter_id] = now_ms

    def disturbed(self, node_id: int) -> None:
        """The clock of a node jumps: what the ledger knows of its leadership no longer counts."""
        self._led.pop(node_id, None)

    def led(self, node_id: int, epoch: int, voters: VoterSet, now_ms: int) -> None:
        """The leader of an epoch, with these voters by its log, has completed a step.

        A leader takes a step at least twice in a fetch timeout, as it announces its leadership. A leader without a step
        for longer was paused, and receives the requests of that time in any order. Its leadership then counts anew. A
        leader without contact to a majority of the voters for too long violates an invariant.
        """
        led = self._led.get(node_id)
        if (
            led is None
            or led.epoch != epoch
            or led.voters is not voters
            or now_ms - led.stepped_ms > self._longest_pause_ms
        ):
            self._led[node_id] = Leadership(epoch, voters, now_ms, now_ms, now_ms + self._patience_ms)
            return
        led.stepped_ms = now_ms
        if now_ms <= led.safe_until_ms:
            return
        earliest_ms = now_ms - self._patience_ms
        voter_ids = voters.ids
        heard_ms = {one: self._heard.get((node_id, one), led.since_ms - 1) for one in voter_ids if one != node_id}
        heard = [one for one, at_ms in heard_ms.items() if at_ms >= earliest_ms]
        # The leader itself counts, if it is a voter.
        if not is_majority(len(heard) + (node_id in voter_ids), len(voter_ids)):
            raise InvariantViolated(
                f"node {node_id} leads epoch {epoch} on, though it has heard only {heard} since {earliest_ms}"
            )
        heard_last_ms = [heard_ms.get(one, now_ms) for one in voter_ids]
        led.safe_until_ms = reached_by_majority(heard_last_ms) + self._patience_ms
