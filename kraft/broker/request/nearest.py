"""The replica from which a consumer should read, by racks (KIP-392; Kafka: `RackAwareReplicaSelector`,
`ReplicaManager.findPreferredReadReplica`).
"""

from __future__ import annotations

from kraft.partitions.replicas.hosted_partition import HostedPartition
from metadata_log.image import MetadataImage


def preferred_replica(
    partition: HostedPartition, image: MetadataImage, rack: str, offset: int, broker_id: int
) -> int | None:
    """The follower in the rack of a consumer that holds the offset, the most caught up of them.

    Args:
        partition: The replica of this broker.
        image: The metadata, with the racks of the brokers.
        rack: The rack of the consumer; empty for none.
        offset: The offset from which the consumer reads.
        broker_id: This broker.

    Returns:
        The broker; None if the consumer should read here: this broker is in the rack, or no such follower is.
    """
    leading = partition.leading
    if leading is None or not rack:
        return None
    own = image.brokers.by_id.get(broker_id)
    if own is None or own.rack == rack:
        return None
    candidates = [
        (remote.end_offset, remote.caught_up_ms, one)
        for one, remote in leading.remotes.items()
        if one in leading.isr
        and remote.start_offset <= offset <= remote.end_offset
        and (broker := image.brokers.by_id.get(one)) is not None
        and not broker.fenced
        and broker.rack == rack
    ]
    return max(candidates)[2] if candidates else None
