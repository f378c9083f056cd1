"""The partitions that members of streams groups read (Kafka: `StreamsGroupCommand`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft.client.questions import ClusterView
from transport.protocol.messages.streams_group_describe import TaskIds, Topology


def partitions_read(
    topology: Topology | None, tasks: Iterable[TaskIds], cluster: ClusterView
) -> Mapping[str, tuple[int, ...]]:
    """The partitions that active tasks read, by topic: each task those of its number."""
    subtopologies = {} if topology is None else {one.subtopology_id: one for one in topology.subtopologies or ()}
    found: dict[str, tuple[int, ...]] = {}
    for one in tasks:
        subtopology = subtopologies.get(one.subtopology_id)
        if subtopology is None:
            continue
        for topic in (*subtopology.source_topics, *(each.name for each in subtopology.repartition_source_topics)):
            known = cluster.topics.get(topic)
            count = 0 if known is None else len(known.partitions)
            numbers = tuple(number for number in sorted(one.partitions) if number < count)
            if numbers:
                found[topic] = numbers
    return {topic: found[topic] for topic in sorted(found)}
