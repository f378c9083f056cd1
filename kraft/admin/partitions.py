"""Reassigns partitions and elects their leaders (Kafka: `Admin.alterPartitionReassignments`, `electLeaders`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from kraft.admin.client import REQUEST_TIMEOUT_MS, AdminClient, Refusal, RequestRefused, Verdict
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from transport.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from transport.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


class TopicPartition(NamedTuple):
    """A partition by topic and number; its text is like `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Reassignment(Struct, frozen=True):
    """A reassignment in progress; `replicas` are all current replicas of the partition."""

    of: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ElectionType(IntEnum):
    """The kind of election: the first replica of the list, or any live replica, even with loss of records."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionOutcome(Struct, frozen=True):
    """The partitions that have another leader now, those that needed no election, and the refusals by names like
    `orders-0`.

    The outcome of an election of all partitions lists only those that needed one.
    """

    elected: tuple[TopicPartition, ...]
    not_needed: tuple[TopicPartition, ...]
    refused: dict[str, RequestRefused]


async def alter_reassignments(
    admin: AdminClient,
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> None:
    """Begin to reassign each partition to these brokers. None cancels a reassignment and restores the former brokers.

    Returns once the change is committed; the brokers copy data afterwards, see `list_reassignments`. Raises
    `SomeRefused` with names such as `orders-0`, and `NoController`.
    """
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for one, replicas in wanted.items():
        target = None if replicas is None else list(replicas)
        topics[one.topic].append(ReassignablePartition(partition_index=one.partition, replicas=target))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=REQUEST_TIMEOUT_MS,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    await admin.ask_about_each(request, AlterPartitionReassignmentsResponse, _altered)


async def list_reassignments(admin: AdminClient) -> tuple[Reassignment, ...]:
    """The reassignments in progress, by topic and partition; raises `RequestRefused` and `NoController`."""
    request = ListPartitionReassignmentsRequest(timeout_ms=REQUEST_TIMEOUT_MS, topics=None)
    answer = await admin.ask_active(request, ListPartitionReassignmentsResponse, _list_refusal)
    found = [
        Reassignment(
            TopicPartition(topic.name, each.partition_index),
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
    return tuple(sorted(found, key=lambda one: one.of))


async def elect_leaders(
    admin: AdminClient, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> ElectionOutcome:
    """Elect leaders of these partitions, or of all partitions if None; raises `NoController`."""
    topics: dict[str, list[int]] = defaultdict(list)
    for one in partitions or ():
        topics[one.topic].append(one.partition)
    asked = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=None if partitions is None else asked,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    answer, refused = await admin.ask_for_verdicts(request, ElectLeadersResponse, _elected)
    told = sorted(
        (TopicPartition(each.topic, one.partition_id), one.error_code)
        for each in answer.replica_election_results
        for one in each.partition_result
    )
    return ElectionOutcome(
        tuple(one for one, code in told if code == Error.NONE),
        tuple(one for one, code in told if code == Error.ELECTION_NOT_NEEDED),
        refused,
    )


def _altered(answer: AlterPartitionReassignmentsResponse) -> Iterator[Verdict]:
    if answer.error_code:
        yield "", answer.error_code, answer.error_message
        return
    for topic in answer.responses:
        for each in topic.partitions:
            yield str(TopicPartition(topic.name, each.partition_index)), each.error_code, each.error_message


def _list_refusal(answer: ListPartitionReassignmentsResponse) -> Refusal:
    return Error.of(answer.error_code), answer.error_message


def _elected(answer: ElectLeadersResponse) -> Iterator[Verdict]:
    if answer.error_code:
        yield "", answer.error_code, None
        return
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            code = Error.NONE if each.error_code == Error.ELECTION_NOT_NEEDED else each.error_code
            yield str(TopicPartition(topic.topic, each.partition_id)), code, each.error_message
