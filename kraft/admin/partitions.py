"""Reassigns partitions and elects their leaders (Kafka: `Admin.alterPartitionReassignments`, `electLeaders`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from kraft.admin.client import REQUEST_TIMEOUT_MS, AdminClient, Refusal, Verdict
from kraft.admin.errors import RequestRefused
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
    """A reassignment in progress (Kafka: `PartitionReassignment`, KIP-455)."""

    of: TopicPartition
    replicas: tuple[int, ...]
    """All current replicas of the partition, those of the two other fields included."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ElectionType(IntEnum):
    """The kind of an election of a partition's leader (Kafka: `ElectionType`, KIP-460)."""

    PREFERRED = 0
    """Elect the first replica of the list."""
    UNCLEAN = 1
    """Elect any live replica, even with loss of records, if no replica in sync is alive."""


class ElectionOutcome(Struct, frozen=True):
    """The outcome of an election for each partition. An election of all partitions lists only those that needed one."""

    elected: tuple[TopicPartition, ...]
    """The partitions that have another leader now."""
    not_needed: tuple[TopicPartition, ...]
    """The partitions that needed no election."""
    refused: dict[str, RequestRefused]
    """The refusals by names such as `orders-0`."""


async def alter_reassignments(
    admin: AdminClient,
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> None:
    """Begin to reassign partitions (Kafka: `Admin.alterPartitionReassignments`, KIP-455).

    Returns once the change is committed. The brokers copy data afterwards; see `list_reassignments`.

    Args:
        admin: The client.
        wanted: The brokers of each partition. None cancels a reassignment and restores the former brokers.
        allow_replication_factor_change: Whether a partition may get more or fewer replicas than before (KIP-860).

    Raises:
        SomeRefused: The controller refused some partitions, by names such as `orders-0`.
        NoController: No controller answered in time.
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
    """The reassignments in progress (Kafka: `Admin.listPartitionReassignments`, KIP-455).

    Args:
        admin: The client.

    Returns:
        The reassignments, ordered by topic and partition.

    Raises:
        RequestRefused: The caller has no permission.
        NoController: No controller answered in time.
    """
    request = ListPartitionReassignmentsRequest(timeout_ms=REQUEST_TIMEOUT_MS, topics=None)
    answer = await admin.ask_active(request, ListPartitionReassignmentsResponse, _list_refusal)
    reassignments = [
        Reassignment(
            TopicPartition(topic.name, each.partition_index),
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
    return tuple(sorted(reassignments, key=lambda one: one.of))


async def elect_leaders(
    admin: AdminClient, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> ElectionOutcome:
    """Elect leaders of partitions (Kafka: `Admin.electLeaders`, KIP-460).

    Args:
        admin: The client.
        election: The kind of election.
        partitions: The partitions; None for all partitions of the cluster.

    Returns:
        The outcome for each partition. Refusals are a part of it.

    Raises:
        NoController: No controller answered in time.
    """
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
    outcomes = sorted(
        (TopicPartition(each.topic, one.partition_id), one.error_code)
        for each in answer.replica_election_results
        for one in each.partition_result
    )
    return ElectionOutcome(
        tuple(one for one, code in outcomes if code == Error.NONE),
        tuple(one for one, code in outcomes if code == Error.ELECTION_NOT_NEEDED),
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
