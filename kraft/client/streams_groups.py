"""Streams groups as an administrator sees them (Kafka: `Admin.describeStreamsGroups`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft.client.questions import ClusterView, Questions
from kraft.client.state.coordinators import KeyType
from kraft.client.state.errors import ClientError, refused
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause
from transport.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
    Topology,
)


async def described_streams_group(ask: Questions, group: str) -> DescribedGroup | None:
    """A streams group as its coordinator describes it; None if there is none.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    request = StreamsGroupDescribeRequest(group_ids=[group])
    try:
        answer = await ask.ask_coordinator(
            KeyType.GROUP,
            group,
            request,
            StreamsGroupDescribeResponse,
            lambda answer: [one.error_code for one in answer.groups],
        )
    except ClientError as failed:
        if failed.cause is not Cause.UNSUPPORTED_VERSION:
            raise
        return None  # brokers before 4.1 have no streams groups
    [one] = answer.groups
    error = Error.of(one.error_code)
    if error in {Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION}:
        return None
    if error is not Error.NONE:
        raise refused(f"group {group}", error, one.error_message)
    return one


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
