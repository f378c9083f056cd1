"""Voted: has voted in this epoch, and the vote is on disk (Kafka 4: `UnattachedState` with a voted key)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey


class VotedState(Struct):
    """The state of a replica that has given its vote in this epoch.

    No other candidate gets a vote. The same one gets it again, as the reply may be lost.
    """

    epoch: int
    leader_id: int
    voted: ReplicaKey
    election_deadline_ms: int

    name: ClassVar[str] = "Voted"
    endpoints: ClassVar[Endpoints] = Endpoints()

    def deadline_ms(self) -> int:
        """The time at which the replica campaigns itself."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timer after a pause of this process, as messages may wait in the sockets."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: to the candidate that already has the vote, with any log. A pre-vote depends only on
        the log.
        """
        return up_to_date if vote.pre_vote else self.voted.matches(vote.candidate)
