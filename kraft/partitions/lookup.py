"""Finds the partition of a request, or the error that Kafka has for one that is not here (Kafka:
`ReplicaManager.getPartitionOrError`, `KafkaApis.getCurrentLeader`).
"""

from __future__ import annotations

from msgspec import Struct

from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from metadata_log.image import MetadataImage
from metadata_log.types import NO_EPOCH
from transport.protocol.errors import Error


class BrokerAddress(Struct, frozen=True):
    """Where clients of one listener reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(Struct, frozen=True):
    """The leader of a partition as this broker knows it; without an endpoint if the leader is fenced or unknown."""

    leader_id: int
    leader_epoch: int
    endpoint: BrokerAddress | None


def is_known(image: MetadataImage, key: PartitionKey) -> bool:
    """Whether the metadata has a partition."""
    topic = image.topics.by_id.get(key[0])
    return topic is not None and 0 <= key[1] < len(topic.partitions)


def hosted(
    manager: ReplicaManager, image: MetadataImage, key: PartitionKey, epoch: int = NO_EPOCH, *, needs_leader: bool
) -> HostedPartition | Error:
    """The replica of this broker that serves a request, or the error for a partition that is not served here.

    Args:
        manager: The replicas of this broker.
        image: The metadata.
        key: The partition.
        epoch: The leader epoch that the client knows; -1 for none.
        needs_leader: Whether only the leader may answer.
    """
    served = manager.hosting.served(key, epoch, needs_leader=needs_leader)
    return served if isinstance(served, HostedPartition) else not_served(manager, image, key, served)


def not_served(manager: ReplicaManager, image: MetadataImage, key: PartitionKey, refused: RefusedAppend) -> Error:
    """The error for a partition for which `Hosting.served` has found no replica."""
    is_unknown = key not in manager.partitions and not is_known(image, key)
    return Error.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else refused.error


def current_leader(manager: ReplicaManager, image: MetadataImage, key: PartitionKey, listener: str) -> CurrentLeader:
    """The leader to which a client should turn, with its address for the listener of the request."""
    replica = manager.partitions.get(key)
    if replica is not None and not replica.is_offline:
        leader_id, epoch = replica.leader_id, replica.leader_epoch
    elif is_known(image, key):
        partition = image.topics.by_id[key[0]].partitions[key[1]]
        leader_id, epoch = partition.leader, partition.leader_epoch
    else:
        return CurrentLeader(-1, -1, None)
    return CurrentLeader(leader_id, epoch, endpoint_of(image, leader_id, listener))


def endpoint_of(image: MetadataImage, broker_id: int, listener: str) -> BrokerAddress | None:
    """The address of a broker that is not fenced, for a listener."""
    broker = image.brokers.by_id.get(broker_id)
    if broker is None or broker.fenced:
        return None
    return next(
        (BrokerAddress(broker_id, one.host, one.port, broker.rack) for one in broker.endpoints if one.name == listener),
        None,
    )
