"""Share groups as an administrator sees and changes them (Kafka: `ShareGroupCommand`, `Admin.describeShareGroups`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from kraft.client.questions import Questions, TopicPartition
from kraft.client.state.coordinators import KeyType
from kraft.client.state.errors import refused
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error
from transport.protocol.messages import alter_share_group_offsets as alterations
from transport.protocol.messages import delete_share_group_offsets as deletions
from transport.protocol.messages import describe_share_group_offsets as descriptions

SHARE: Final = "share"
NO_LAG: Final = -1


class StartOffset(Struct, frozen=True):
    """How far a share group is with a partition."""

    offset: int | None
    """The first offset that is not consumed; None while the leader of the partition has not chosen one."""
    lag: int | None
    """How many records are left; None if nobody knows it."""


async def start_offsets(ask: Questions, group: str) -> dict[TopicPartition, StartOffset]:
    """How far a share group is with each of its partitions.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    asked = descriptions.DescribeShareGroupOffsetsRequestGroup(group, None)
    answer = await ask.ask_coordinator(
        KeyType.GROUP,
        group,
        descriptions.DescribeShareGroupOffsetsRequest([asked]),
        descriptions.DescribeShareGroupOffsetsResponse,
        lambda answer: [one.error_code for one in answer.groups],
    )
    [found] = answer.groups
    if found.error_code:
        raise refused(f"the offsets of group {group}", Error.of(found.error_code), found.error_message)
    offsets = {
        (topic.topic_name, one.partition_index): StartOffset(
            None if one.start_offset == NO_OFFSET else one.start_offset, None if one.lag == NO_LAG else one.lag
        )
        for topic in found.topics
        for one in topic.partitions
        if not one.error_code
    }
    return dict(sorted(offsets.items()))


async def alter_start_offsets(
    ask: Questions, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Error]:
    """Let a share group without members begin at other offsets; returns the error of each partition.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    topics: dict[str, list[alterations.AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, number), offset in offsets.items():
        part = alterations.AlterShareGroupOffsetsRequestPartition(number, offset)
        topics.setdefault(topic, []).append(part)
    request = alterations.AlterShareGroupOffsetsRequest(
        group, [alterations.AlterShareGroupOffsetsRequestTopic(name, parts) for name, parts in topics.items()]
    )
    answer = await ask.ask_coordinator(
        KeyType.GROUP,
        group,
        request,
        alterations.AlterShareGroupOffsetsResponse,
        lambda answer: [answer.error_code],
    )
    if answer.error_code:
        raise refused(f"group {group}", Error.of(answer.error_code), answer.error_message)
    return {
        (topic.topic_name, one.partition_index): Error.of(one.error_code)
        for topic in answer.responses
        for one in topic.partitions
    }


async def delete_start_offsets(ask: Questions, group: str, topics: Collection[str]) -> dict[str, Error]:
    """Forget how far a share group without members is with topics; returns the error of each topic.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    request = deletions.DeleteShareGroupOffsetsRequest(
        group, [deletions.DeleteShareGroupOffsetsRequestTopic(one) for one in topics]
    )
    answer = await ask.ask_coordinator(
        KeyType.GROUP,
        group,
        request,
        deletions.DeleteShareGroupOffsetsResponse,
        lambda answer: [answer.error_code],
    )
    if answer.error_code:
        raise refused(f"group {group}", Error.of(answer.error_code), answer.error_message)
    return {one.topic_name: Error.of(one.error_code) for one in answer.responses}
