"""Creates, deletes and enlarges topics (Kafka: `Admin.createTopics`, `deleteTopics`, `createPartitions`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kraft.admin.client import REQUEST_TIMEOUT_MS, AdminClient, Verdict
from metadata_log.types import Uuid
from transport.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from transport.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from transport.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

AS_CONFIGURED: Final = -1
"""The number that selects the controllers' configured default for partitions or replicas."""


class CreatedTopic(Struct, frozen=True, kw_only=True):
    """A topic as the controller creates it (Kafka: `CreateTopicsResult.TopicMetadataAndConfig`)."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int
    configs: dict[str, str | None]
    """The requested settings with their values in the cluster."""


async def create_topic(
    admin: AdminClient,
    name: str,
    *,
    partitions: int = AS_CONFIGURED,
    replication_factor: int = AS_CONFIGURED,
    assignment: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Create a topic (Kafka: `Admin.createTopics`).

    Args:
        admin: The client.
        name: The name of the topic.
        partitions: The number of partitions; `AS_CONFIGURED` for the controllers' default.
        replication_factor: The replicas of each partition; `AS_CONFIGURED` for the controllers' default.
        assignment: The brokers of each partition, in place of the two numbers.
        configs: Settings of the topic, by key.
        validate_only: Whether the controller only checks the request.

    Returns:
        The topic as created.

    Raises:
        SomeRefused: The controller refused the topic, by its name.
        NoController: No controller answered in time.
    """
    wanted = configs or {}
    topic = CreatableTopic(
        name=name,
        num_partitions=AS_CONFIGURED if assignment else partitions,
        replication_factor=AS_CONFIGURED if assignment else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(assignment)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in wanted.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only)
    answer = await admin.ask_about_each(request, CreateTopicsResponse, _created)
    made = answer.topics[0]
    return CreatedTopic(
        name=made.name,
        id=made.topic_id,
        partitions=made.num_partitions,
        replication_factor=made.replication_factor,
        configs={each.name: each.value for each in made.configs or () if each.name in wanted},
    )


async def delete_topics(admin: AdminClient, names: Iterable[str]) -> None:
    """Delete topics, each separately (Kafka: `Admin.deleteTopics`).

    Args:
        admin: The client.
        names: The names of the topics.

    Raises:
        SomeRefused: The controller refused some topics, by their names.
        NoController: No controller answered in time.
    """
    wanted = list(names)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in wanted], topic_names=wanted, timeout_ms=REQUEST_TIMEOUT_MS
    )
    await admin.ask_about_each(request, DeleteTopicsResponse, _deleted)


async def grow_topic(
    admin: AdminClient,
    name: str,
    partitions: int,
    *,
    assignment: Sequence[Sequence[int]] = (),
    validate_only: bool = False,
) -> None:
    """Add partitions to a topic (Kafka: `Admin.createPartitions`, KIP-195).

    Args:
        admin: The client.
        name: The name of the topic.
        partitions: The number of partitions that the topic has afterwards.
        assignment: The brokers of each new partition; without it the controller places the replicas.
        validate_only: Whether the controller only checks the request.

    Raises:
        SomeRefused: The controller refused the topic, by its name.
        NoController: No controller answered in time.
    """
    assigned = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignment]
    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=assigned or None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only)
    await admin.ask_about_each(request, CreatePartitionsResponse, _grown)


def _created(answer: CreateTopicsResponse) -> Iterator[Verdict]:
    return ((each.name, each.error_code, each.error_message) for each in answer.topics)


def _deleted(answer: DeleteTopicsResponse) -> Iterator[Verdict]:
    return ((each.name or str(each.topic_id), each.error_code, each.error_message) for each in answer.responses)


def _grown(answer: CreatePartitionsResponse) -> Iterator[Verdict]:
    return ((each.name, each.error_code, each.error_message) for each in answer.results)
