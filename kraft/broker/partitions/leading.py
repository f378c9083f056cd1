"""The state of a partition that this broker leads: followers, ISR, watermark (Kafka: `Partition`, as a leader)."""

from __future__ import annotations

from msgspec import Struct

from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.partitions.remote_replica import RemoteReplica, at_new_epoch
from kraft.broker.partitions.watermarks import (
    UNKNOWN_OFFSET,
    effective_min_isr,
    maximal_isr,
    may_join,
    next_high_watermark,
)
from kraft.broker.settings import NO_EPOCH
from metadata_log.image import MetadataImage, Partition
from metadata_log.types import NEVER_MS, Uuid


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

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every replica that the controller may hold for a member of the ISR."""
        return maximal_isr(self.isr, self.proposed)

    def min_isr(self, setting: int) -> int:
        """The effective min ISR, of the setting `min.insync.replicas`."""
        return effective_min_isr(setting, len(self.replicas))

    def accept(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has committed an ISR."""
        self.isr, self.partition_epoch = isr, partition_epoch
        self.proposed, self.is_given_up = None, False

    def assign(self, partition: Partition, broker_id: int) -> None:
        """The assigned replicas have changed within the leader epoch."""
        self.replicas, self.directories = partition.replicas, partition.directories
        self.remotes = {one: self.remotes.get(one, RemoteReplica()) for one in self.replicas if one != broker_id}

    def propose(self, isr: tuple[int, ...]) -> None:
        """Request an ISR from the controller."""
        assert self.proposed is None, self
        self.proposed = tuple(sorted(isr))

    def high_watermark(
        self, log: PartitionLog, min_isr: int, image: MetadataImage, now_ms: int, lag_time_max_ms: int
    ) -> tuple[int, int]:
        """The high watermark that the ends of all replicas allow, and until when a follower holds it back.

        Args:
            log: The log of this leader.
            min_isr: The setting `min.insync.replicas`.
            image: The metadata, with the registered brokers.
            now_ms: The time in ms since 1970.
            lag_time_max_ms: The setting `replica.lag.time.max.ms`.

        Returns:
            The watermark, and the time in ms at which it may move by time alone: a follower outside of the ISR that
            lacks records is waited for no longer then. `NEVER_MS` without such a follower.
        """
        end, members = log.end_offset, self.maximal_isr
        ends, until_ms = list[int](), NEVER_MS
        for one, remote in self.remotes.items():
            if one in members:
                ends.append(remote.end_offset)
            elif remote.is_caught_up(end, now_ms, lag_time_max_ms) and self._may_return(one, remote, image):
                # A follower that may join at any moment holds the watermark back: otherwise a busy leader outruns it.
                ends.append(remote.end_offset)
                if remote.end_offset < end:
                    until_ms = min(until_ms, remote.caught_up_ms + lag_time_max_ms + 1)
        offset = next_high_watermark(
            log.high_watermark, end, ends, isr_size=len(self.isr), min_isr=self.min_isr(min_isr)
        )
        return offset, until_ms

    def _may_return(self, one: int, remote: RemoteReplica, image: MetadataImage) -> bool:
        """Whether a follower outside of the ISR may get every record soon: not one whose log directory has failed."""
        return is_eligible(one, remote, image) and self.may_fetch(one, image)

    def may_fetch(self, one: int, image: MetadataImage) -> bool:
        """Whether a replica is on an active broker, in a log directory that has not failed."""
        broker = image.brokers.by_id.get(one)
        return broker is not None and broker.is_active and broker.has_online(self.directories[self.replicas.index(one)])

    def is_to_join(self, candidate: int, log: PartitionLog, image: MetadataImage) -> bool:
        """Whether a follower is to be proposed for the ISR (`Partition.canAddReplicaToIsr`)."""
        remote = self.remotes[candidate]
        return (
            self.proposed is None
            and candidate not in self.isr
            and may_join(remote.end_offset, log.high_watermark, self.start_offset)
            and is_eligible(candidate, remote, image)
        )

    def out_of_sync(self, log: PartitionLog, now_ms: int, lag_time_max_ms: int) -> tuple[int, ...]:
        """The members of the ISR that are not caught up (`Partition.getOutOfSyncReplicas`)."""
        return tuple(
            one
            for one in self.isr
            if one in self.remotes and not self.remotes[one].is_caught_up(log.end_offset, now_ms, lag_time_max_ms)
        )


def is_eligible(candidate: int, remote: RemoteReplica, image: MetadataImage) -> bool:
    """Whether the controller would accept a broker for the ISR: active, with the epoch of its fetch (KIP-903)."""
    broker = image.brokers.by_id.get(candidate)
    if broker is None or not broker.is_active or remote.end_offset == UNKNOWN_OFFSET:
        return False
    return remote.broker_epoch in (NO_EPOCH, broker.epoch)


def new_leadership(
    partition: Partition, before: Leading | None, log: PartitionLog, broker_id: int, now_ms: int
) -> Leading:
    """Begin a leader epoch at the end of the log (`Partition.makeLeader`); raises `OSError`.

    The epoch enters the epoch cache even without a record: a later leader then answers a follower that asks for the end
    of this epoch.

    Args:
        partition: The metadata of the partition.
        before: The leadership of this broker that this one follows without a gap, else None.
        log: The log of this replica.
        broker_id: This broker.
        now_ms: The time in ms since 1970.
    """
    log.assign_epoch(partition.leader_epoch)
    remotes = {
        one: at_new_epoch(
            None if before is None else before.remotes.get(one),
            is_in_isr=one in partition.isr,
            leader_end=log.end_offset,
            now_ms=now_ms,
        )
        for one in partition.replicas
        if one != broker_id
    }
    return Leading(
        partition.replicas,
        partition.directories,
        partition.isr,
        partition.leader_epoch,
        partition.partition_epoch,
        log.end_offset,
        remotes,
    )
