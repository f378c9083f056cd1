"""Unattached: an epoch is known, its leader cannot be followed (yet), and no vote was given (Kafka:
`UnattachedState`).
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NO_NODE


class UnattachedState(Struct):
    """`leader_id` may be known from the quorum-state file while the address of that leader is unknown."""

    epoch: int
    leader_id: int
    election_deadline_ms: int

    name: ClassVar[str] = "Unattached"
    voted: ClassVar[ReplicaKey | None] = None
    endpoints: ClassVar[Endpoints] = Endpoints()

    def deadline_ms(self) -> int:
        """When to stand for election; never for an observer."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """What others have said while this process stood still comes first."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """What quorum-state says of this state."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """A pre-vote depends on the log alone; a vote is withheld where the leader's id is known."""
        return up_to_date and (vote.pre_vote or self.leader_id == NO_NODE)
