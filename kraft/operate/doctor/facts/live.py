"""What a live cluster reports of itself. Times are milliseconds."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.types import Uuid

FETCHES_MS: Final = 10_000
"""A replica without a fetch for that long is gone: replicas fetch twice a second, even if there are no records."""


class LiveReplica(Struct, frozen=True, kw_only=True):
    """A voter or an observer as the leader reports it; None means "not known to the leader"."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    caught_up_ms_ago: int | None = None
    fetched_ms_ago: int | None = None


class LiveAnswer(Struct, frozen=True, kw_only=True):
    """What one controller answered when it was asked directly.

    Args:
        id: The id of the controller; -1 if only its address is known.
        address: The address; empty if it is not known.
        problem: Why there is no answer; empty if there is one.
        epoch: The epoch of the controller.
        leader_id: The leader that the controller knows; -1 for none.
    """

    id: int
    address: str
    problem: str = ""
    epoch: int = -1
    leader_id: int = -1


class LiveFacts(Struct, frozen=True, kw_only=True):
    """A live quorum. Without a leader, `leader_id` is -1 and the replicas are empty."""

    bootstrap: str
    cluster_id: str = ""
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    voters: tuple[LiveReplica, ...] = ()
    observers: tuple[LiveReplica, ...] = ()
    answers: tuple[LiveAnswer, ...] = ()
    epochs_seen: tuple[int, ...] = ()
    """The epochs that were seen while the cluster was watched, oldest first."""
    clock_ms: int | None = None
    """The difference between the time of the leader's newest record and the clock of this host."""
    problem: str = ""
    """Why the leader could not be asked."""

    @property
    def fetching(self) -> tuple[LiveReplica, ...]:
        """The observers that fetch now. A leader of Kafka lists an observer for five minutes after its last fetch."""
        return tuple(one for one in self.observers if one.fetched_ms_ago is None or one.fetched_ms_ago <= FETCHES_MS)

    @property
    def leader(self) -> LiveReplica | None:
        """The leader among the voters."""
        return next((one for one in self.voters if one.id == self.leader_id), None)
