"""Prospective: collects pre-votes before it begins a new epoch (Kafka: `ProspectiveState`, KIP-996)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.states.election import Tally
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NO_NODE


class ProspectiveState(Struct):
    """It keeps what it knew of the leader and its vote; entering it changes nothing on disk."""

    epoch: int
    leader_id: int
    endpoints: Endpoints
    voted: ReplicaKey | None
    tally: Tally
    election_deadline_ms: int

    name: ClassVar[str] = "Prospective"

    def deadline_ms(self) -> int:
        """When to give up this round of pre-votes."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """What others have said while this process stood still comes first."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """What quorum-state says of this state."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """A pre-vote depends on the log alone; a vote goes to the one already voted for, or if no leader is known."""
        if vote.pre_vote:
            return up_to_date
        if self.voted is not None:
            return self.voted.matches(vote.candidate)
        return up_to_date and self.leader_id == NO_NODE
