"""Groups as an administrator sees and changes them (Kafka: `ConsumerGroupCommand`, `Admin.describeConsumerGroups`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kraft.client import described_groups
from kraft.client.questions import ClusterView, Questions, TopicPartition
from kraft.client.share_groups import SHARE
from kraft.client.state.assigning import assignment_of
from kraft.client.state.coordinators import KeyType
from kraft.client.state.errors import refused
from kraft.client.streams_groups import partitions_read
from metadata_log.types import EARLIEST_TIMESTAMP as EARLIEST
from metadata_log.types import LATEST_TIMESTAMP as LATEST
from metadata_log.types import NO_OFFSET, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import share_group_describe
from transport.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from transport.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from transport.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
IDLE: Final = frozenset({"Empty", DEAD})
"""The states of groups without members."""
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    DEAD,
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
"""The states of groups of any type (Kafka: `GroupState`)."""
STREAMS: Final = "streams"
TYPES: Final = (CLASSIC, CONSUMER, SHARE, STREAMS)
"""The types of groups (Kafka: `GroupType`)."""


class ListedGroup(Struct, frozen=True):
    """A group in a list."""

    group: str
    type: str
    """`classic`, `consumer`, `share` or `streams`; empty from brokers before 3.8."""
    state: str
    protocol_type: str


class GroupMember(Struct, frozen=True):
    """A member of a group with its partitions by topic."""

    id: str
    instance: str | None
    client_id: str
    host: str
    epoch: int | None
    """None for a classic group, which has one generation."""
    assignment: Mapping[str, tuple[int, ...]]


class GroupDescription(Struct, frozen=True):
    """A group with its members."""

    group: str
    type: str
    state: str
    assignor: str
    epoch: int | None
    members: tuple[GroupMember, ...]


class CommittedOffset(Struct, frozen=True):
    """The offset that a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str


async def list_groups(
    ask: Questions, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> tuple[ListedGroup, ...]:
    """The groups of all coordinators, by name.

    Raises:
        ClientError: A broker did not answer in time, or refused.
    """
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answers = await ask.ask_brokers(request, ListGroupsResponse, lambda answer: Error.of(answer.error_code))
    listed: dict[str, ListedGroup] = {}
    for broker, answer in answers.items():
        if answer.error_code:
            raise refused(f"the groups of broker {broker}", Error.of(answer.error_code))
        for one in answer.groups:
            listed[one.group_id] = ListedGroup(one.group_id, one.group_type, one.group_state, one.protocol_type)
    return tuple(listed[name] for name in sorted(listed))


async def describe_group(ask: Questions, group: str) -> GroupDescription:
    """A group of any type with its members; state `Dead` for a group that does not exist.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    if (consumer := await described_groups.consumer_group(ask, group)) is not None:
        return _description(CONSUMER, consumer, [_partitions(one.assignment) for one in consumer.members])
    classic = await _describe_classic_group(ask, group)
    if classic.state != DEAD:
        return classic
    if (share := await described_groups.share_group(ask, group)) is not None:
        return _description(SHARE, share, [_partitions(one.assignment) for one in share.members])
    if (streams := await described_groups.streams_group(ask, group)) is not None:
        cluster = await ask.cluster()
        tasks = [one.assignment.active_tasks for one in streams.members]
        return _description(STREAMS, streams, [partitions_read(streams.topology, one, cluster) for one in tasks])
    return classic


def _description(
    kind: str, one: described_groups.Described, assignments: Sequence[Mapping[str, tuple[int, ...]]]
) -> GroupDescription:
    """A group as its coordinator describes it, with the partitions of each member."""
    own: Sequence[described_groups.Member] = one.members
    members = tuple(
        GroupMember(
            each.member_id,
            None if isinstance(each, share_group_describe.Member) else each.instance_id,
            each.client_id,
            each.client_host,
            each.member_epoch,
            assignment,
        )
        for each, assignment in zip(own, assignments, strict=True)
    )
    return GroupDescription(one.group_id, kind, one.group_state, one.assignor_name or "", one.group_epoch, members)


def _partitions(assigned: described_groups.Assigned) -> dict[str, tuple[int, ...]]:
    return {topic.topic_name: tuple(topic.partitions) for topic in assigned.topic_partitions}


async def _describe_classic_group(ask: Questions, group: str) -> GroupDescription:
    answer = await ask.ask_coordinator(
        KeyType.GROUP,
        group,
        DescribeGroupsRequest(groups=[group]),
        DescribeGroupsResponse,
        lambda answer: [one.error_code for one in answer.groups],
    )
    [one] = answer.groups
    error = Error.of(one.error_code)
    if error not in {Error.NONE, Error.GROUP_ID_NOT_FOUND}:
        raise refused(f"group {group}", error, one.error_message)
    members = tuple(
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            None,
            assignment_of(each.member_assignment) if one.protocol_type == CONSUMER else {},
        )
        for each in one.members
    )
    return GroupDescription(group, CLASSIC, one.group_state, one.protocol_data, None, members)


async def committed_offsets(ask: Questions, group: str, cluster: ClusterView) -> dict[TopicPartition, CommittedOffset]:
    """All offsets of a group. `cluster` has all topics: newer brokers name topics by their ids.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = await ask.ask_coordinator(
        KeyType.GROUP, group, request, OffsetFetchResponse, lambda answer: [one.error_code for one in answer.groups]
    )
    [committed] = answer.groups
    if committed.error_code:
        raise refused(f"the offsets of group {group}", Error.of(committed.error_code))
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in committed.topics:
        name = cluster.name_of(topic.topic_id, topic.name)
        for one in topic.partitions:
            if name is not None and not one.error_code and one.committed_offset != NO_OFFSET:
                offsets[name, one.partition_index] = CommittedOffset(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
    return dict(sorted(offsets.items()))


async def list_offsets(
    ask: Questions, partitions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[Error, int]]:
    """The offset of each partition at a time in ms since 1970, or at one of its ends (`EARLIEST`, `LATEST`).

    An offset of -1 stands for a time after the last record, and beside an error.
    """
    times: dict[int, list[TopicPartition]] = {}
    for one, timestamp in partitions.items():
        times.setdefault(timestamp, []).append(one)
    offsets: dict[TopicPartition, tuple[Error, int]] = {}
    for timestamp, some in times.items():

        def message(own: Sequence[TopicPartition], timestamp: int = timestamp) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        topic, [ListOffsetsPartition(number, timestamp=timestamp) for number in sorted(numbers)]
                    )
                    for topic, numbers in by_topic(own).items()
                ],
            )

        results = await ask.ask_leaders(some, message, ListOffsetsResponse, _offsets)
        offsets |= {one: (error, NO_OFFSET if offset is None else offset) for one, (error, offset) in results.items()}
    return offsets


def _offsets(answer: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int, int]]:
    for topic in answer.topics:
        for one in topic.partitions:
            yield (topic.name, one.partition_index), one.error_code, one.offset


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return numbers


async def alter_offsets(
    ask: Questions, group: str, offsets: Mapping[TopicPartition, int], cluster: ClusterView
) -> dict[TopicPartition, Error]:
    """Commit offsets for a group without members; returns the error of each partition.

    Raises:
        ClientError: The coordinator did not answer in time.
    """
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=cluster.topics[topic].id if topic in cluster.topics else Uuid.ZERO,
                partitions=[OffsetCommitRequestPartition(one, offsets[topic, one]) for one in numbers],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )

    def errors(answer: OffsetCommitResponse) -> Iterable[int]:
        return (one.error_code for topic in answer.topics for one in topic.partitions)

    answer = await ask.ask_coordinator(KeyType.GROUP, group, request, OffsetCommitResponse, errors)
    return {
        (cluster.name_of(topic.topic_id, topic.name) or "", one.partition_index): Error.of(one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    }


async def delete_offsets(
    ask: Questions, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Error]:
    """Delete offsets of a group; returns the error of each partition.

    Raises:
        ClientError: The coordinator did not answer in time, or refused.
    """
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(one) for one in numbers])
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    answer = await ask.ask_coordinator(
        KeyType.GROUP, group, request, OffsetDeleteResponse, lambda answer: [answer.error_code]
    )
    if answer.error_code:
        raise refused(f"group {group}", Error.of(answer.error_code))
    return {
        (topic.name, one.partition_index): Error.of(one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    }


async def delete_group(ask: Questions, group: str) -> Error:
    """Delete a group with its offsets; returns the error.

    Raises:
        ClientError: The coordinator did not answer in time.
    """
    answer = await ask.ask_coordinator(
        KeyType.GROUP,
        group,
        DeleteGroupsRequest(groups_names=[group]),
        DeleteGroupsResponse,
        lambda answer: [one.error_code for one in answer.results],
    )
    return Error.of(answer.results[0].error_code)


__all__ = [
    "EARLIEST",
    "LATEST",
    "STATES",
    "TYPES",
    "CommittedOffset",
    "GroupDescription",
    "GroupMember",
    "ListedGroup",
    "alter_offsets",
    "committed_offsets",
    "delete_group",
    "delete_offsets",
    "describe_group",
    "list_groups",
    "list_offsets",
]
