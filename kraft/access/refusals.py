"""The response to a request that fails as a whole (Kafka: `AbstractRequest.getErrorResponse`).

A response with an entry for each item of the request is made in steps. Where a response has no message field, the text
is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar

from kraft.access.errors import ApiError
from kraft.steps import Answering, made_of
from metadata_log.serde import Message
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from transport.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from transport.protocol.messages.alter_configs import AlterConfigsResourceResponse as ReplacedConfigs
from transport.protocol.messages.alter_partition_reassignments import (
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from transport.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResult
from transport.protocol.messages.create_acls import AclCreationResult
from transport.protocol.messages.create_partitions import CreatePartitionsTopicResult
from transport.protocol.messages.create_topics import CreatableTopicResult
from transport.protocol.messages.delete_acls import DeleteAclsFilterResult
from transport.protocol.messages.delete_topics import DeletableTopicResult
from transport.protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResult
from transport.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from transport.protocol.messages.incremental_alter_configs import AlterConfigsResource, AlterConfigsResourceResponse
from transport.protocol.messages.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

T = TypeVar("T")
NEVER: Final = -1
"""The times of a delegation token that does not exist."""


def refusal(request: Message, refused: ApiError) -> Answering:
    """The response to a request of any API that the controller decides, with this error."""
    made = REFUSALS[type(request)](request, refused.error, refused.text)
    return made if isinstance(made, Message) else (yield from made)


def _of_resources(
    make: Callable[..., T],
    resources: Sequence[AlterConfigsResource | ReplacedResource | DescribeConfigsResource],
    error: Error,
    text: str | None,
) -> Generator[None, None, list[T]]:
    """An entry with the error for each resource."""
    return made_of(
        resources,
        lambda one: make(
            error_code=error, error_message=text, resource_type=one.resource_type, resource_name=one.resource_name
        ),
    )


def refuse_incremental_configs(
    request: m.IncrementalAlterConfigsRequest, error: Error, text: str | None
) -> Generator[None, None, m.IncrementalAlterConfigsResponse]:
    """The response that refuses each resource of a request; the response has no error field of its own."""
    responses = yield from _of_resources(AlterConfigsResourceResponse, request.resources, error, text)
    return m.IncrementalAlterConfigsResponse(responses=responses)


def _replaced_configs(request: m.AlterConfigsRequest, error: Error, text: str | None) -> Answering:
    responses = yield from _of_resources(ReplacedConfigs, request.resources, error, text)
    return m.AlterConfigsResponse(responses=responses)


def _described_configs(request: m.DescribeConfigsRequest, error: Error, text: str | None) -> Answering:
    results = yield from _of_resources(DescribeConfigsResult, request.resources, error, text)
    return m.DescribeConfigsResponse(results=results)


def _quotas(request: m.AlterClientQuotasRequest, error: Error, text: str | None) -> Answering:
    told = _unless_denied(error, text)

    def refused(entry: AlterClientQuotasRequestEntryData) -> AlterClientQuotasResponseEntryData:
        names = {part.entity_type: part.entity_name for part in entry.entity}
        entity = [
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ]
        return AlterClientQuotasResponseEntryData(error_code=error, error_message=told, entity=entity)

    entries = yield from made_of(request.entries, refused)
    return m.AlterClientQuotasResponse(entries=entries)


def _credentials(request: m.AlterUserScramCredentialsRequest, error: Error, text: str | None) -> Answering:
    users = dict.fromkeys([one.name for one in request.deletions] + [one.name for one in request.upsertions])
    results = yield from made_of(
        users, lambda user: AlterUserScramCredentialsResult(user=user, error_code=error, error_message=text)
    )
    return m.AlterUserScramCredentialsResponse(results=results)


def _creations(request: m.CreateTopicsRequest, error: Error, text: str | None) -> Answering:
    told = text or error.message
    results = yield from made_of(
        request.topics, lambda topic: CreatableTopicResult(name=topic.name, error_code=error, error_message=told)
    )
    return m.CreateTopicsResponse(topics=results)


def _growth(request: m.CreatePartitionsRequest, error: Error, text: str | None) -> Answering:
    told = text or error.message
    results = yield from made_of(
        request.topics, lambda topic: CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=told)
    )
    return m.CreatePartitionsResponse(results=results)


def _deletions(request: m.DeleteTopicsRequest, error: Error, text: str | None) -> Answering:
    # Kafka's exception for disabled deletion has no message.
    told = None if error == Error.TOPIC_DELETION_DISABLED else text or error.message
    named = yield from made_of(
        request.topic_names, lambda name: DeletableTopicResult(name=name, error_code=error, error_message=text)
    )
    others = yield from made_of(
        request.topics,
        lambda topic: DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=told
        ),
    )
    return m.DeleteTopicsResponse(responses=named + others)


def _elections(request: m.ElectLeadersRequest, error: Error, text: str | None) -> Answering:
    told = text or error.message
    results = []
    for asked in request.topic_partitions or ():
        yield None
        outcomes = yield from made_of(
            asked.partitions,
            lambda number: PartitionResult(partition_id=number, error_code=error, error_message=told),
        )
        results.append(ReplicaElectionResult(topic=asked.topic, partition_result=outcomes))
    return m.ElectLeadersResponse(error_code=error, replica_election_results=results)


def _reassignments(request: m.AlterPartitionReassignmentsRequest, error: Error, text: str | None) -> Answering:
    told = text or error.message
    topics = []
    for topic in request.topics:
        yield None
        partitions = yield from made_of(
            topic.partitions,
            lambda one: ReassignablePartitionResponse(
                partition_index=one.partition_index, error_code=error, error_message=told
            ),
        )
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return m.AlterPartitionReassignmentsResponse(error_code=error, error_message=told, responses=topics)


def _listed_reassignments(request: m.ListPartitionReassignmentsRequest, error: Error, text: str | None) -> Answering:
    """The named partitions, without replicas."""
    # One list for all entries: to free three lists of each takes 0.1 s where a request names 960,000 partitions.
    none: list[int] = []
    topics = []
    for topic in request.topics or ():
        yield None
        partitions = yield from made_of(
            topic.partition_indexes,
            lambda number: OngoingPartitionReassignment(
                partition_index=number, replicas=none, adding_replicas=none, removing_replicas=none
            ),
        )
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return m.ListPartitionReassignmentsResponse(error_code=error, error_message=text, topics=topics)


def _unless_denied(error: Error, text: str | None) -> str | None:
    """The text; for an unauthorized caller no more than the message of the error, as in Kafka's response."""
    return error.message if error == Error.CLUSTER_AUTHORIZATION_FAILED else text


Refuse = Callable[[Any, Error, str | None], Message | Answering]
REFUSALS: Final[dict[type[Message], Refuse]] = {
    m.AllocateProducerIdsRequest: lambda _, error, text: m.AllocateProducerIdsResponse(error_code=error),
    m.AlterClientQuotasRequest: _quotas,
    m.AlterConfigsRequest: _replaced_configs,
    m.AlterPartitionReassignmentsRequest: _reassignments,
    m.AlterPartitionRequest: lambda _, error, text: m.AlterPartitionResponse(error_code=error),
    m.AlterUserScramCredentialsRequest: _credentials,
    m.AssignReplicasToDirsRequest: lambda _, error, text: m.AssignReplicasToDirsResponse(error_code=error),
    m.BrokerHeartbeatRequest: lambda _, error, text: m.BrokerHeartbeatResponse(error_code=error),
    m.BrokerRegistrationRequest: lambda _, error, text: m.BrokerRegistrationResponse(error_code=error),
    m.ControllerRegistrationRequest: lambda _, error, text: m.ControllerRegistrationResponse(
        error_code=error, error_message=_unless_denied(error, text) or error.message
    ),
    m.CreateAclsRequest: lambda request, error, text: m.CreateAclsResponse(
        results=[AclCreationResult(error_code=error, error_message=text)] * len(request.creations)
    ),
    m.CreateDelegationTokenRequest: lambda _, error, text: m.CreateDelegationTokenResponse(
        error_code=error, issue_timestamp_ms=NEVER, expiry_timestamp_ms=NEVER, max_timestamp_ms=NEVER
    ),
    m.CreatePartitionsRequest: _growth,
    m.CreateTopicsRequest: _creations,
    m.DeleteAclsRequest: lambda request, error, text: m.DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error, error_message=text)] * len(request.filters)
    ),
    m.DeleteTopicsRequest: _deletions,
    m.DescribeAclsRequest: lambda _, error, text: m.DescribeAclsResponse(error_code=error, error_message=text),
    m.DescribeClusterRequest: lambda _, error, text: m.DescribeClusterResponse(error_code=error, error_message=text),
    m.DescribeConfigsRequest: _described_configs,
    m.DescribeDelegationTokenRequest: lambda _, error, text: m.DescribeDelegationTokenResponse(error_code=error),
    m.DescribeUserScramCredentialsRequest: lambda _, error, text: m.DescribeUserScramCredentialsResponse(
        error_code=error, error_message=text
    ),
    m.ElectLeadersRequest: _elections,
    m.EnvelopeRequest: lambda _, error, text: m.EnvelopeResponse(error_code=error),
    m.ExpireDelegationTokenRequest: lambda _, error, text: m.ExpireDelegationTokenResponse(
        error_code=error, expiry_timestamp_ms=NEVER
    ),
    m.IncrementalAlterConfigsRequest: refuse_incremental_configs,
    m.ListPartitionReassignmentsRequest: _listed_reassignments,
    m.RenewDelegationTokenRequest: lambda _, error, text: m.RenewDelegationTokenResponse(
        error_code=error, expiry_timestamp_ms=NEVER
    ),
    m.UnregisterControllerRequest: lambda _, error, text: m.UnregisterControllerResponse(
        error_code=error, error_message=text or error.message
    ),
    m.UnregisterBrokerRequest: lambda _, error, text: m.UnregisterBrokerResponse(
        error_code=error, error_message=text or error.message
    ),
    m.UpdateFeaturesRequest: lambda _, error, text: m.UpdateFeaturesResponse(
        error_code=error, error_message=text or error.message
    ),
}
"""The refusal of each API that the controller decides."""
