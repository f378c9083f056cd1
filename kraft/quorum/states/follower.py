"""Follower: fetches from the leader of its epoch (Kafka: `FollowerState`)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NEVER_MS, OffsetAndEpoch


class Download(Struct, frozen=True):
    """A snapshot on its way: `position` bytes are here; once it is whole, it is being checked."""

    snapshot: OffsetAndEpoch
    position: int = 0
    is_whole: bool = False


class LeaderContact(StrEnum):
    """What this follower knows of its leader's life. Only the methods of `FollowerState` change it."""

    NONE = "none"
    """The leader has not answered in this epoch; to an observer not for a fetch timeout."""
    DIRECT = "direct"
    """The leader's last answer came from its own address."""
    INDIRECT = "indirect"
    """The leader's last answer came from a bootstrap server's address."""
    REFUSED = "refused"
    """The leader's own address has refused a connection since its last answer: the leader's process has ended."""


class FollowerState(Struct):
    """From the leader's first answer on pre-votes of others are refused, by an observer until the leader is silent for
    too long. While there is a `download`, the leader is asked for a snapshot and for no records.
    """

    epoch: int
    leader_id: int
    endpoints: Endpoints
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    contact: LeaderContact = LeaderContact.NONE
    download: Download | None = None
    report_at_ms: int = NEVER_MS
    """When to tell the leader about oneself, instead of fetching."""
    has_reported: bool = False
    """Whether this leader knows, which matters as long as the log does not."""

    name: ClassVar[str] = "Follower"

    def heard_leader(self, peer_id: int, deadline_ms: int) -> None:
        """The leader has answered, reached as `peer_id`; whatever its address refused before, the leader lives
        (`FollowerState.resetFetchTimeoutForSuccessfulFetch`).
        """
        self.contact = LeaderContact.DIRECT if peer_id == self.leader_id else LeaderContact.INDIRECT
        self.fetch_deadline_ms = deadline_ms

    def leader_refused(self, deadline_ms: int) -> None:
        """The address that the leader's last answer came from refuses connections: do not wait for longer than this."""
        assert self.contact is LeaderContact.DIRECT, self.contact
        self.contact = LeaderContact.REFUSED
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, deadline_ms)

    def leader_resigned(self, deadline_ms: int) -> None:
        """The leader leads no more: its successors take their turns (`FollowerState.overrideFetchTimeout`)."""
        self.fetch_deadline_ms = deadline_ms

    def leader_is_silent(self) -> None:
        """An observer has not heard the leader for a fetch timeout."""
        self.contact = LeaderContact.NONE

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """The leader's answer may have come while this process stood still."""
        self.fetch_deadline_ms = max(self.fetch_deadline_ms, deadline_ms)

    def deadline_ms(self) -> int:
        """When the leader has been silent for too long."""
        return self.fetch_deadline_ms

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """What quorum-state says of this state: the leader, and still the vote given in this epoch."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Only a pre-vote, and only while this leader has not been heard; or to its heir, as `on_vote` says."""
        return vote.pre_vote and up_to_date and self.contact is LeaderContact.NONE
