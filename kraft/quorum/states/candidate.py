"""Candidate: has voted for itself in a new epoch and asks the others (Kafka: `CandidateState`)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.states.election import Tally
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NO_NODE


class CandidateState(Struct):
    """A lost election is waited out on the timer: the randomised back-off of Kafka 4.3."""

    epoch: int
    voted: ReplicaKey
    tally: Tally
    election_deadline_ms: int

    name: ClassVar[str] = "Candidate"
    leader_id: ClassVar[int] = NO_NODE
    endpoints: ClassVar[Endpoints] = Endpoints()

    def deadline_ms(self) -> int:
        """When to fall back to pre-votes."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """What others have said while this process stood still comes first."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """What quorum-state says of this state."""
        return ElectionState(epoch=self.epoch, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Its own vote is cast; a pre-vote depends on the log alone."""
        return vote.pre_vote and up_to_date
