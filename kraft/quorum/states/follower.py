"""Follower: fetches from the leader of its epoch (Kafka: `FollowerState`)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import NEVER_MS, ElectionState, Endpoints, ReplicaKey
from metadata_log.types import OffsetAndEpoch


class Download(Struct, frozen=True):
    """A snapshot on its way: `position` bytes are here; once it is whole, it is being checked."""

    snapshot: OffsetAndEpoch
    position: int = 0
    is_whole: bool = False


class FollowerState(Struct):
    """`has_fetched` turns true with a good answer of this leader: from then on pre-votes of others are refused, by an
    observer until the leader is silent for too long.

    `is_leader_gone` turns true when the leader's address then refuses a connection. While there is a `download`, the
    leader is asked for a snapshot and for no records.
    """

    epoch: int
    leader_id: int
    endpoints: Endpoints
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    has_fetched: bool = False
    is_leader_gone: bool = False
    download: Download | None = None
    report_at_ms: int = NEVER_MS
    """When to tell the leader about oneself, instead of fetching."""
    has_reported: bool = False
    """Whether this leader knows, which matters as long as the log does not."""

    name: ClassVar[str] = "Follower"

    def deadline_ms(self) -> int:
        """When the leader has been silent for too long."""
        return self.fetch_deadline_ms

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """What quorum-state says of this state: the leader, and still the vote given in this epoch."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Only a pre-vote, and only while this leader has not been heard; or to its heir, as `on_vote` says."""
        return vote.pre_vote and up_to_date and not self.has_fetched
