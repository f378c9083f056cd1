"""When a write with acks=all is complete (Kafka: `Partition.checkEnoughReplicasReachOffset`)."""

from __future__ import annotations

from kraft.broker.replica.manager import ReplicaManager
from kraft.broker.replicas import PartitionKey
from kraft.broker.request.lookup import hosted
from metadata_log.image import MetadataImage
from transport.protocol.errors import Error


def acknowledgement(manager: ReplicaManager, image: MetadataImage, key: PartitionKey, offset: int) -> Error | None:
    """How a write ends that waits for the replicas in sync.

    Args:
        manager: The replicas of this broker.
        image: The metadata.
        key: The partition.
        offset: The offset behind the last record of the write.

    Returns:
        NONE once the high watermark has reached the offset, an error if this broker cannot acknowledge the write any
        more, and None while the write waits.
    """
    partition = hosted(manager, image, key, needs_leader=True)
    if isinstance(partition, Error):
        return partition
    if partition.high_watermark < offset:
        return None
    is_enough = len(partition.maximal_isr) >= partition.min_isr
    return Error.NONE if is_enough else Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
