"""Candidate: has voted for itself in a new epoch and requests votes (Kafka: `CandidateState`)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.states.election import Tally
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NO_NODE


class CandidateState(Struct):
    """A candidate. After a lost election the candidate waits for its random election timer, as in Kafka 4.3."""

    epoch: int
    voted: ReplicaKey
    tally: Tally
    election_deadline_ms: int

    name: ClassVar[str] = "Candidate"
    leader_id: ClassVar[int] = NO_NODE
    endpoints: ClassVar[Endpoints] = Endpoints()

    def deadline_ms(self) -> int:
        """The time at which the candidate returns to pre-votes."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timer after a pause of this process, as messages may wait in the sockets."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state."""
        return ElectionState(epoch=self.epoch, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: never, as the candidate has voted for itself. A pre-vote depends only on the log."""
        return vote.pre_vote and up_to_date
