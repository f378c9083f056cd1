"""Follower: fetches from the leader of its epoch (Kafka: `FollowerState`)."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from kraft.quorum.messages import Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NEVER_MS, OffsetAndEpoch


class Download(Struct, frozen=True):
    """A snapshot download: `position` bytes have arrived; the host checks the snapshot once `is_whole`."""

    snapshot: OffsetAndEpoch
    position: int = 0
    is_whole: bool = False


class LeaderContact(StrEnum):
    """How this follower last heard its leader. Only the methods of `FollowerState` change the value."""

    NONE = "none"
    """The leader has not answered in this epoch; for an observer: not within the fetch timeout."""
    DIRECT = "direct"
    """The leader's last answer came from its own address."""
    INDIRECT = "indirect"
    """The leader's last answer came from a bootstrap server's address."""
    REFUSED = "refused"
    """The leader's own address has refused a connection since its last answer: the leader's process has ended."""


class FollowerState(Struct):
    """A follower. After the leader's first reply the follower refuses pre-votes; an observer does so until the fetch
    timeout. During a `download` the follower fetches the snapshot and no records.
    """

    epoch: int
    leader_id: int
    endpoints: Endpoints
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    contact: LeaderContact = LeaderContact.NONE
    download: Download | None = None
    report_at_ms: int = NEVER_MS
    """The time of the next voter request to the leader, which replaces one Fetch."""
    has_reported: bool = False
    """Whether this leader has the report of this voter, which counts as long as the log lacks the voter's data."""

    name: ClassVar[str] = "Follower"

    def heard_leader(self, peer_id: int, deadline_ms: int) -> None:
        """Record a reply of the leader from `peer_id`: the leader's own address or a bootstrap server's. A former
        refused connection does not count any more (`FollowerState.resetFetchTimeoutForSuccessfulFetch`).
        """
        self.contact = LeaderContact.DIRECT if peer_id == self.leader_id else LeaderContact.INDIRECT
        self.fetch_deadline_ms = deadline_ms

    def leader_refused(self, deadline_ms: int) -> None:
        """Shorten the fetch timeout, as the address of the leader's last reply refuses connections."""
        assert self.contact is LeaderContact.DIRECT, self.contact
        self.contact = LeaderContact.REFUSED
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, deadline_ms)

    def leader_resigned(self, deadline_ms: int) -> None:
        """Set the time to campaign after EndQuorumEpoch, by rank (`FollowerState.overrideFetchTimeout`)."""
        self.fetch_deadline_ms = deadline_ms

    def leader_is_silent(self) -> None:
        """Record that an observer had no reply of the leader within the fetch timeout."""
        self.contact = LeaderContact.NONE

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timer after a pause of this process, as replies of the leader may wait in the socket."""
        self.fetch_deadline_ms = max(self.fetch_deadline_ms, deadline_ms)

    def deadline_ms(self) -> int:
        """The end of the fetch timeout."""
        return self.fetch_deadline_ms

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state: the leader, and the vote of this replica in the epoch."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: only a pre-vote, and only before the leader's first reply (see also `on_vote`)."""
        return vote.pre_vote and up_to_date and self.contact is LeaderContact.NONE
