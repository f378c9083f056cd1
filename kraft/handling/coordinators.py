"""The broker that coordinates a group or a transactional id (Kafka: `KafkaApis.getCoordinator`,
`TransactionStateManager.partitionFor`, `GroupCoordinator.partitionFor`).

A coordinator is the leader of a partition of an internal topic; the hash of the name selects the partition.
"""

from __future__ import annotations

import struct
from operator import mul
from typing import Final

from msgspec import Struct

from metadata_log.image import Broker, MetadataImage
from metadata_log.records.metadata import BrokerEndpoint

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
TOPICS: Final = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state", SHARE: "__share_group_state"}
"""The topic of the coordinators, by the key type of FindCoordinator."""
_INT_MIN: Final = -(2**31)
_BLOCK: Final = 256
"""How many units of a text one sum covers: clients choose names of 32 KB."""
_POWERS: Final = tuple(pow(31, _BLOCK - 1 - at, 1 << 32) for at in range(_BLOCK))


class Counted(Struct):
    """Counters of the groups of a broker, of any protocol, since its start."""

    commits: int = 0
    """The committed offsets."""
    expired: int = 0
    deleted: int = 0
    """The offsets that somebody has deleted."""
    rebalances: int = 0
    """The completed rebalances of classic groups."""
    epochs: int = 0
    """The new epochs of consumer groups."""
    share_epochs: int = 0
    """The new epochs of share groups."""
    streams_epochs: int = 0
    """The new epochs of streams groups that their members have caused."""


def java_hash(text: str, before: int = 0) -> int:
    """`String.hashCode` of Java: over the UTF-16 units of the text, as a signed number of 32 bits.

    Args:
        text: The text.
        before: The hash of a text that stands before it.
    """
    data = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(data) // 2}H", data)
    value = before & 0xFFFFFFFF
    for at in range(0, len(units), _BLOCK):
        block = units[at : at + _BLOCK]
        value = (value * pow(31, len(block), 1 << 32) + sum(map(mul, block, _POWERS[-len(block) :]))) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(name: str, count: int) -> int:
    """The partition for a group or a transactional id, of a topic with `count` partitions."""
    value = java_hash(name)
    return (0 if value == _INT_MIN else abs(value)) % count


def partition_of_hash(value: int, count: int) -> int:
    """The partition for a name with this hash."""
    return (0 if value == _INT_MIN else abs(value)) % count


def coordinator_of(image: MetadataImage, kind: int, name: str, listener: str) -> tuple[Broker, BrokerEndpoint] | None:
    """The broker that coordinates a group or a transactional id, with its address; None if there is none now.

    Args:
        image: The metadata.
        kind: The key type of FindCoordinator.
        name: The group, the transactional id, or the group of a share partition (`group:topic:partition`).
        listener: The listener at which the caller would reach the coordinator.
    """
    topic_id = image.topics.by_name.get(TOPICS.get(kind, ""))
    if topic_id is None:
        return None
    partitions = image.topics.by_id[topic_id].partitions
    return place_of(image, partitions[partition_of(name, len(partitions))].leader, listener)


def place_of(image: MetadataImage, broker_id: int, listener: str) -> tuple[Broker, BrokerEndpoint] | None:
    """A live broker with its address at a listener."""
    broker = image.brokers.by_id.get(broker_id)
    if broker is None or broker.fenced:
        return None
    at = next((one for one in broker.endpoints if one.name == listener), None)
    return None if at is None else (broker, at)
