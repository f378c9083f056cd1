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
    """A topic as the controller creates it; `configs` are the requested settings and those that differ from
    defaults."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int
    configs: dict[str, str | None]


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
    """Create a topic; an `assignment` gives the brokers of each partition.

    Raises `SomeRefused` with the name of the topic, and `NoController`.
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
    """Delete topics, each separately; raises `SomeRefused` and `NoController`."""
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
    """Add partitions to a topic up to the given number; `assignment` gives the brokers of each new one.

    Raises `SomeRefused` with the name of the topic, and `NoController`.
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
