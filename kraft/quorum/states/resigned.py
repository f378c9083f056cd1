"""Resigned: has led this epoch and will not write in it again (Kafka: `ResignedState`).

A leader that restarts is resigned too: its log may have lost a tail that others have seen, and going on would reuse the
offsets of that tail in the same epoch.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey


class ResignedState(Struct):
    """Tells the voters that have not yet acknowledged it, until its timer ends the epoch."""

    epoch: int
    local: ReplicaKey
    endpoints: Endpoints
    unacknowledged: tuple[int, ...]
    successors: tuple[ReplicaKey, ...]
    election_deadline_ms: int
    stay_until_ms: int = 0
    """Until when a node that stops stays for the votes of its successors, once all have heard that it resigns."""

    name: ClassVar[str] = "Resigned"
    voted: ClassVar[ReplicaKey | None] = None

    @property
    def leader_id(self) -> int:
        """This replica: it was the leader of this epoch, and an epoch has at most one leader."""
        return self.local.id

    def deadline_ms(self) -> int:
        """When to go on to the next epoch."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """What others have said while this process stood still comes first."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """What quorum-state says of this state: as of the leader it was."""
        return ElectionState(epoch=self.epoch, leader_id=self.local.id, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Its epoch has had its leader; a pre-vote depends on the log alone."""
        return vote.pre_vote and up_to_date
