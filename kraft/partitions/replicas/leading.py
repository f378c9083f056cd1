"""The state of a partition that this broker leads: followers, ISR, watermark (Kafka: `Partition`, as a leader;
`Replica`). Offsets of the own log come in as numbers.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.partitions.replicas.watermarks import (
    is_caught_up,
    maximal_isr,
    may_join,
    next_high_watermark,
)
from metadata_log.image import MetadataImage, Partition
from metadata_log.types import NEVER_MS, NO_EPOCH, NO_OFFSET, Uuid

_NEVER_MS: Final = 0
"""The time of an event that has not happened under this leadership."""


class RemoteReplica(Struct):
    """A follower as its leader sees it, from the follower's fetches. Times are ms since 1970.

    Args:
        broker_epoch: The incarnation of the broker that fetched; -1 if unknown.
        start_offset: The log start of the follower; -1 before its first fetch.
        end_offset: The end of the follower's log; -1 before its first fetch.
        caught_up_ms: When the follower last had every record of the leader; 0 if never.
        leader_end: The end of the leader's log at the last fetch; -1 before the first one.
        fetched_ms: When the follower last fetched.
    """

    broker_epoch: int = NO_EPOCH
    start_offset: int = NO_OFFSET
    end_offset: int = NO_OFFSET
    caught_up_ms: int = _NEVER_MS
    leader_end: int = NO_OFFSET
    fetched_ms: int = _NEVER_MS

    def on_fetch(self, fetch_offset: int, start_offset: int, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """Note a fetch (`Replica.updateFetchStateOrThrow`).

        A fetch at the end of the leader's log proves that the follower is caught up now. A fetch at the end that the
        log had at the fetch before proves that the follower was caught up then: a leader that grows all the time is
        never reached exactly.
        """
        if fetch_offset >= leader_end:
            proven_ms = now_ms
        else:
            proven_ms = self.fetched_ms if fetch_offset >= self.leader_end else _NEVER_MS
        self.caught_up_ms = max(self.caught_up_ms, proven_ms)
        self.start_offset, self.end_offset = start_offset, fetch_offset
        self.leader_end = max(self.leader_end, leader_end)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower has the whole log, or had it within `replica.lag.time.max.ms`."""
        return is_caught_up(self.end_offset, leader_end, self.caught_up_ms, now_ms, lag_time_max_ms)


def at_new_epoch(known: RemoteReplica | None, *, is_in_isr: bool, leader_end: int, now_ms: int) -> RemoteReplica:
    """A follower at the start of a leader epoch (`Replica.resetReplicaState`).

    Args:
        known: What this broker knew under its last leadership, if that ended with the epoch before; else None.
        is_in_isr: Whether the follower is in the ISR; a member has the full lag time to fetch.
        leader_end: The end of the leader's log.
        now_ms: The time in ms since 1970.
    """
    since_ms = now_ms if is_in_isr else _NEVER_MS
    if known is None:
        return RemoteReplica(caught_up_ms=since_ms)
    return RemoteReplica(known.broker_epoch, known.start_offset, known.end_offset, since_ms, leader_end, since_ms)


class Leading(Struct):
    """One leadership of one partition. `isr` is committed, `proposed` is the ISR requested from the controller."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    """The log directory of each of the replicas."""
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    start_offset: int
    """The end of the log at the start of this leader epoch."""
    remotes: dict[int, RemoteReplica]
    proposed: tuple[int, ...] | None = None
    is_given_up: bool = False
    """Whether the proposal was refused for good: only newer metadata can replace it."""
    maximal_isr: tuple[int, ...] = ()
    """Every replica that the controller may hold for a member of the ISR."""

    def __post_init__(self) -> None:
        """Derive what follows from ISR and proposal."""
        self.maximal_isr = maximal_isr(self.isr, self.proposed)

    def accept(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Take the ISR that the controller has committed."""
        self.isr, self.partition_epoch = isr, partition_epoch
        self.proposed, self.is_given_up = None, False
        self.maximal_isr = maximal_isr(isr, None)

    def assign(self, partition: Partition, broker_id: int) -> None:
        """Take the assigned replicas, which have changed within the leader epoch."""
        self.replicas, self.directories = partition.replicas, partition.directories
        self.remotes = {one: self.remotes.get(one, RemoteReplica()) for one in self.replicas if one != broker_id}

    def propose(self, isr: tuple[int, ...]) -> None:
        """Request an ISR from the controller."""
        assert self.proposed is None, self
        self.proposed = tuple(sorted(isr))
        self.maximal_isr = maximal_isr(self.isr, self.proposed)

    def high_watermark(
        self, end: int, watermark: int, min_isr: int, image: MetadataImage, now_ms: int, lag_time_max_ms: int
    ) -> tuple[int, int]:
        """The high watermark that the ends of all replicas allow, and until when a follower holds it back.

        Args:
            end: The end of the log of this leader.
            watermark: The present high watermark.
            min_isr: The effective min ISR.
            image: The metadata, with the registered brokers.
            now_ms: The time in ms since 1970.
            lag_time_max_ms: The setting `replica.lag.time.max.ms`.

        Returns:
            The watermark, and the time in ms at which it may move by time alone: a follower outside of the ISR that
            lacks records is waited for no longer then. `NEVER_MS` without such a follower.
        """
        members = self.maximal_isr
        ends, until_ms = list[int](), NEVER_MS
        for one, remote in self.remotes.items():
            if one in members:
                ends.append(remote.end_offset)
            elif remote.is_caught_up(end, now_ms, lag_time_max_ms) and self._may_return(one, remote, image):
                # A follower that may join at any moment holds the watermark back: otherwise a busy leader outruns it.
                ends.append(remote.end_offset)
                if remote.end_offset < end:
                    until_ms = min(until_ms, remote.caught_up_ms + lag_time_max_ms + 1)
        return next_high_watermark(watermark, end, ends, isr_size=len(self.isr), min_isr=min_isr), until_ms

    def _may_return(self, one: int, remote: RemoteReplica, image: MetadataImage) -> bool:
        """Whether a follower outside of the ISR may get every record soon: not one whose log directory has failed."""
        return is_eligible(one, remote, image) and self.may_fetch(one, image)

    def may_fetch(self, one: int, image: MetadataImage) -> bool:
        """Whether a replica is on an active broker, in a log directory that has not failed."""
        broker = image.brokers.by_id.get(one)
        return broker is not None and broker.is_active and broker.has_online(self.directories[self.replicas.index(one)])

    def is_to_join(self, candidate: int, watermark: int, image: MetadataImage) -> bool:
        """Whether a follower is to be proposed for the ISR (`Partition.canAddReplicaToIsr`)."""
        if self.proposed is not None or candidate in self.isr:
            return False
        remote = self.remotes[candidate]
        return may_join(remote.end_offset, watermark, self.start_offset) and is_eligible(candidate, remote, image)

    def out_of_sync(self, end: int, now_ms: int, lag_time_max_ms: int) -> tuple[int, ...]:
        """The members of the ISR that are not caught up (`Partition.getOutOfSyncReplicas`)."""
        return tuple(
            one
            for one in self.isr
            if one in self.remotes and not self.remotes[one].is_caught_up(end, now_ms, lag_time_max_ms)
        )


def is_eligible(candidate: int, remote: RemoteReplica, image: MetadataImage) -> bool:
    """Whether the controller would accept a broker for the ISR: active, with the epoch of its fetch (KIP-903)."""
    broker = image.brokers.by_id.get(candidate)
    if broker is None or not broker.is_active or remote.end_offset == NO_OFFSET:
        return False
    return remote.broker_epoch in (NO_EPOCH, broker.epoch)


def new_leadership(
    partition: Partition, before: Leading | None, end_offset: int, broker_id: int, now_ms: int
) -> Leading:
    """Begin a leader epoch at the end of the log (`Partition.makeLeader`).

    Args:
        partition: The metadata of the partition.
        before: The leadership of this broker that this one follows without a gap, else None.
        end_offset: The end of the log of this replica.
        broker_id: This broker.
        now_ms: The time in ms since 1970.
    """
    known = {} if before is None else before.remotes
    remotes = {
        one: at_new_epoch(known.get(one), is_in_isr=one in partition.isr, leader_end=end_offset, now_ms=now_ms)
        for one in partition.replicas
        if one != broker_id
    }
    return Leading(
        partition.replicas,
        partition.directories,
        partition.isr,
        partition.leader_epoch,
        partition.partition_epoch,
        end_offset,
        remotes,
    )
