"""Unattached: knows an epoch, follows no leader and has not voted in this epoch (Kafka: `UnattachedState`)."""

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
        """The time at which the replica campaigns; never for an observer."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timer after a pause of this process, as messages may wait in the sockets."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: only while no leader id is known. A pre-vote depends only on the log."""
        return up_to_date and (vote.pre_vote or self.leader_id == NO_NODE)
