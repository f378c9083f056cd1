"""Prospective: collects pre-votes before it begins a new epoch (Kafka: `ProspectiveState`, KIP-996)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.states.election import Tally
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NO_NODE


class ProspectiveState(Struct):
    """A replica in a round of pre-votes. The known leader and the vote stay; the transition writes nothing to disk."""

    epoch: int
    leader_id: int
    endpoints: Endpoints
    voted: ReplicaKey | None
    tally: Tally
    election_deadline_ms: int

    name: ClassVar[str] = "Prospective"

    def deadline_ms(self) -> int:
        """The end of this round of pre-votes."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timer after a pause of this process, as messages may wait in the sockets."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: to the replica that already has the vote, or if no leader is known. A pre-vote
        depends only on the log.
        """
        if vote.pre_vote:
            return up_to_date
        if self.voted is not None:
            return self.voted.matches(vote.candidate)
        return up_to_date and self.leader_id == NO_NODE
