"""When a write with acks=all is complete (Kafka: `Partition.checkEnoughReplicasReachOffset`)."""

from __future__ import annotations

from msgspec import Struct

from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.lookup import not_served
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from metadata_log.image import MetadataImage
from metadata_log.types import NO_EPOCH
from transport.protocol.errors import Error


class Awaited(Struct, frozen=True, gc=False):
    """A write that waits for the replicas in sync: the offset after its last record, and the epoch of that record."""

    offset: int
    epoch: int | None

    def is_kept(self, partition: HostedPartition) -> bool:
        """Whether the log still holds the record; one below the log start was committed, and then deleted."""
        log = partition.log
        return self.offset <= log.start_offset or log.epochs.epoch_at(self.offset - 1) == self.epoch


def awaited(partition: HostedPartition, last_offset: int) -> Awaited:
    """The wait of a write whose last record has this offset."""
    return Awaited(last_offset + 1, partition.log.epochs.epoch_at(last_offset))


def acknowledgement(manager: ReplicaManager, image: MetadataImage, key: PartitionKey, write: Awaited) -> Error | None:
    """How a write ends that waits for the replicas in sync.

    Kafka does not compare epochs: it looks at the watermark in the call that has appended. Here a long request has many
    turns in between, in which another leader may have put another record at the offset.

    Args:
        manager: The replicas of this broker.
        image: The metadata.
        key: The partition.
        write: The write.

    Returns:
        NONE once the high watermark has reached the offset, an error if this broker cannot acknowledge the write any
        more, and None while the write waits.
    """
    partition = manager.hosting.served(key, NO_EPOCH, needs_leader=True)
    if isinstance(partition, RefusedAppend):
        return not_served(manager, image, key, partition)
    log = partition.log
    # A record of the last epoch is here: a leader removes no record of its own epoch but below the log start.
    if write.epoch != log.last_epoch and not write.is_kept(partition):
        return Error.NOT_LEADER_OR_FOLLOWER
    if log.high_watermark < write.offset:
        return None
    is_enough = len(partition.maximal_isr) >= partition.min_isr
    return Error.NONE if is_enough else Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
