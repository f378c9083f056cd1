"""Leaders and coordinators of a live cluster, which move when a test says so."""

from __future__ import annotations

from collections.abc import Callable

from kraft.admin import ElectionType, TopicPartition, alter_reassignments, elect_leaders
from kraft.handling.coordinators import GROUP, TOPICS, partition_of
from kraft.testing.faults import FailNext
from kraft.testing.live import LiveCluster
from kraft.testing.looking import described_group
from metadata_log.image import MetadataImage
from metadata_log.image.topics import Partition
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error


async def move_leader(cluster: LiveCluster, topic: str, partition: int, to: int | None) -> int:
    """Let this replica lead, or the first other one in sync, as an administrator does; returns its id."""
    place = TopicPartition(topic, partition)
    state = cluster.image.topics[topic].partitions[partition]
    others = [one for one in state.isr if one != state.leader]
    if to is None and not others:
        raise ValueError(f"no other replica of {topic}-{partition} is in sync")
    if to is not None and to not in state.isr:
        raise ValueError(f"broker {to} is no replica of {topic}-{partition} in sync, which are {list(state.isr)}")
    wanted = others[0] if to is None else to

    async with cluster.admin() as admin:
        await alter_reassignments(admin, {place: [wanted, *[one for one in state.replicas if one != wanted]]})
        await cluster.wait_until_known(_has(place, lambda one: one.replicas[0] == wanted))
        await elect_leaders(admin, ElectionType.PREFERRED, [place])
    await cluster.wait_until_known(_has(place, lambda one: one.leader == wanted))
    return wanted


def _has(place: TopicPartition, holds: Callable[[Partition], bool]) -> Callable[[MetadataImage], bool]:
    topic, number = place
    return lambda image: topic in image.topics and holds(image.topics[topic].partitions[number])


def coordinator_place(image: MetadataImage, group: str) -> TopicPartition | None:
    """The partition whose leader coordinates a group; None before any group was used."""
    topic = TOPICS[GROUP]
    if topic not in image.topics:
        return None
    return TopicPartition(topic, partition_of(group, len(image.topics[topic].partitions)))


async def rebalance(cluster: LiveCluster, group: str, coordinator: int) -> None:
    """Let the next heartbeat of each member be answered so that the member joins again."""
    members = {one.id for one in (await described_group(cluster, group)).members}
    if not members:
        raise ValueError(f"group {group} has no members")
    for api, error in (
        (ApiKey.HEARTBEAT, Error.REBALANCE_IN_PROGRESS),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, Error.FENCED_MEMBER_EPOCH),
    ):
        rule = FailNext(
            api=api, error=error, times=len(members), node_id=coordinator, group=group, members=set(members)
        )
        cluster.wires.failures.append(rule)
