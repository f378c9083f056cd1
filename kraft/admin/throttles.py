"""Throttles of replication around a reassignment (Kafka: `ReassignPartitionsCommand`; KIP-73)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kraft.admin.client import AdminClient, ConfigChange, Operation, ResourceType
from kraft.admin.partitions import TopicPartition
from metadata_log.image import MetadataImage
from metadata_log.image import ResourceType as Kind

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"


async def throttle_moves(
    admin: AdminClient,
    before: Mapping[TopicPartition, Sequence[int]],
    after: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Bound what each broker sends and takes for these reassignments: their former replicas as leaders, their new ones
    as followers. Replicas in sync are not held back.

    Args:
        admin: The client.
        before: The brokers of each partition.
        after: The brokers that each partition is to have.
        bytes_per_second: The bound for each broker and direction.

    Raises:
        RequestRefused: The controller refused a setting.
        NoController: No controller answered in time.
    """
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    for one, replicas in sorted(after.items()):
        leaders[one.topic] += [f"{one.partition}:{broker}" for broker in before[one]]
        followers[one.topic] += [f"{one.partition}:{broker}" for broker in replicas if broker not in before[one]]
    brokers = sorted({broker for replicas in (*before.values(), *after.values()) for broker in replicas})
    changes = [_set(ResourceType.TOPIC, topic, _LEADERS, ",".join(pairs)) for topic, pairs in leaders.items()]
    changes += [
        _set(ResourceType.TOPIC, topic, _FOLLOWERS, ",".join(pairs)) for topic, pairs in followers.items() if pairs
    ]
    changes += [_set(ResourceType.BROKER, str(one), key, str(bytes_per_second)) for one in brokers for key in _RATES]
    await admin.alter_configs(changes)


async def unthrottle(admin: AdminClient, image: MetadataImage) -> tuple[str, ...]:
    """Remove all throttles of replication from topics and brokers.

    Args:
        admin: The client.
        image: The metadata, which has the settings.

    Returns:
        What was throttled, such as `topic orders` and `broker 1`, in order.

    Raises:
        RequestRefused: The controller refused a setting.
        NoController: No controller answered in time.
    """
    changes = [
        *_deletions(image, ResourceType.TOPIC, Kind.TOPIC, (_LEADERS, _FOLLOWERS)),
        *_deletions(image, ResourceType.BROKER, Kind.BROKER, _RATES),
    ]
    if changes:
        await admin.alter_configs(changes)
    return tuple(dict.fromkeys(_name_of(each) for each in changes))


def _set(resource_type: ResourceType, name: str, key: str, value: str) -> ConfigChange:
    return ConfigChange(resource_type=resource_type, resource_name=name, key=key, value=value)


def _deletions(
    image: MetadataImage, resource_type: ResourceType, kind: Kind, keys: Iterable[str]
) -> Iterable[ConfigChange]:
    for (found, name), settings in sorted(image.configs.by_resource.items()):
        if found == kind:
            for key in (one for one in keys if one in settings):
                yield ConfigChange(
                    resource_type=resource_type,
                    resource_name=name,
                    key=key,
                    value=None,
                    operation=Operation.DELETE,
                )


def _name_of(change: ConfigChange) -> str:
    kind = change.resource_type.name.lower()
    return f"{kind} {change.resource_name}" if change.resource_name else "all brokers"
