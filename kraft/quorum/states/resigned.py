"""Resigned: has led this epoch and will not write in it again (Kafka: `ResignedState`).

A leader that restarts is Resigned too: its log may have lost a tail that other replicas have fetched. If the leader
continued, it would use the offsets of that tail again in the same epoch.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey


class ResignedState(Struct):
    """A resigned leader. It sends EndQuorumEpoch to the voters without an acknowledgement until its timer expires."""

    epoch: int
    local: ReplicaKey
    endpoints: Endpoints
    unacknowledged: tuple[int, ...]
    successors: tuple[ReplicaKey, ...]
    election_deadline_ms: int
    stay_until_ms: int = 0
    """The time until which a stopping node still grants votes, after all voters have acknowledged EndQuorumEpoch."""

    name: ClassVar[str] = "Resigned"
    voted: ClassVar[ReplicaKey | None] = None

    @property
    def leader_id(self) -> int:
        """The node id of this replica, which was the only leader of this epoch."""
        return self.local.id

    def deadline_ms(self) -> int:
        """The time at which the replica enters the next epoch."""
        return self.election_deadline_ms

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timer after a pause of this process, as messages may wait in the sockets."""
        self.election_deadline_ms = max(self.election_deadline_ms, deadline_ms)

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state, as in the state Leader."""
        return ElectionState(epoch=self.epoch, leader_id=self.local.id, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: never, as this epoch has had its leader. A pre-vote depends only on the log."""
        return vote.pre_vote and up_to_date
