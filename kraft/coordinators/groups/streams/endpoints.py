"""Where the tasks of a group answer queries of their state (Kafka: `EndpointToPartitionsManager`)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from kraft.coordinators.groups.streams.group import StreamsMember
from kraft.coordinators.groups.streams.topology import ConfiguredSubtopology
from kraft.handling.orders import in_hash_map_order
from kraft.limits import STREAMS_TASKS_PER_STEP
from metadata_log.image import MetadataImage
from transport.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    StreamsGroupHeartbeatResponseEndpoint,
    TopicPartition,
)


def finding_endpoints(
    members: Iterable[StreamsMember], subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> Generator[None, None, list[EndpointToPartitions]]:
    """Find the partitions of the members that name an endpoint, in portions."""
    found: list[EndpointToPartitions] = []
    told = 0
    for one in members:
        if one.endpoint is None:
            continue
        held = one.assigned
        standby = {
            name: {*held.standby.get(name, ()), *held.warmup.get(name, ())} for name in {**held.standby, **held.warmup}
        }
        active = _partitions(held.active, subtopologies, image)
        passive = _partitions(standby, subtopologies, image)
        found.append(EndpointToPartitions(StreamsGroupHeartbeatResponseEndpoint(*one.endpoint), active, passive))
        told += 1 + sum([1 + len(each.partitions) for each in (*active, *passive)])
        if told >= STREAMS_TASKS_PER_STEP:
            told = 0
            yield None
    return found


def _partitions(
    tasks: Mapping[str, Iterable[int]], subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> list[TopicPartition]:
    """The partitions that tasks read. Kafka's broker fails for a topic that is gone; here it has none."""
    found: list[TopicPartition] = []
    for name in in_hash_map_order(tasks):
        of = subtopologies.get(name)
        for topic in () if of is None else in_hash_map_order(of.reads):
            known = image.topics.get(topic)
            count = 0 if known is None else len(known.partitions)
            numbers = sorted(number for number in tasks[name] if number < count)
            if numbers:
                found.append(TopicPartition(topic, numbers))
    return found
