"""The table of controller APIs: the function that serves each, and the one that refuses (Kafka: `ControllerApis`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from kraft.controller.brokers.broker_heartbeat import broker_heartbeat
from kraft.controller.brokers.broker_registration import register_broker, unregister_broker
from kraft.controller.configs.incremental_configs import alter_one_at_once, incremental_alter_configs
from kraft.controller.configs.legacy_configs import alter_configs
from kraft.controller.configs.quotas import alter_client_quotas
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps, answered_with
from kraft.controller.features.controller_registration import register_controller, unregister_controller
from kraft.controller.features.update_features import update_features
from kraft.controller.producer_ids import allocate_producer_ids
from kraft.controller.security.acls import create_acls, delete_acls
from kraft.controller.security.scram import alter_scram_credentials
from kraft.controller.security.tokens import (
    create_token,
    describe_tokens,
    expire_token,
    renew_token,
)
from kraft.controller.topics.alter_reassignments import alter_reassignments, list_reassignments
from kraft.controller.topics.directories import assign_replicas_to_dirs
from kraft.controller.topics.elect_leaders import elect
from kraft.controller.topics.isr import alter_partition
from kraft.controller.topics.topics import create_partitions, create_topics, delete_topics
from kraft.reads.acls import describe_acls
from kraft.reads.configs import describe_configs
from kraft.reads.reading import Reading
from kraft.reads.scram import describe_scram_credentials
from kraft.steps import Answering
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.messages import (
    AllocateProducerIdsRequest,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterUserScramCredentialsRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    RenewDelegationTokenRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UpdateFeaturesRequest,
)


class Write(Struct, frozen=True):
    """An API that only the active controller serves.

    If `is_empty` is true for a request, the request changes nothing and any controller answers it. `at_once` decides
    as `decide` does, in one call; it returns None for a request that may be long, or that it does not know to be short.
    It changes nothing, not even a session.
    """

    key: ApiKey
    decide: Callable[[RequestContext, Any], ControllerResult | Steps]
    is_empty: Callable[[Any], bool] = lambda request: False
    at_once: Callable[[RequestContext, Any], ControllerResult | None] | None = None


class Read(Struct, frozen=True):
    """An API that each controller serves from committed metadata."""

    key: ApiKey
    decide: Callable[[RequestContext, Any], ControllerResult | Steps]


def _answering(read: Callable[[Reading, Any], Answering]) -> Callable[[RequestContext, Any], Steps]:
    """A read as a decision."""
    return lambda context, request: answered_with(read(context.reading, request))


APIS: Final[dict[type[Message], Write | Read]] = {
    IncrementalAlterConfigsRequest: Write(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        incremental_alter_configs,
        lambda request: not request.resources,
        at_once=alter_one_at_once,
    ),
    ControllerRegistrationRequest: Write(
        ApiKey.CONTROLLER_REGISTRATION, lambda context, request: register_controller(context.image, request)
    ),
    CreateTopicsRequest: Write(ApiKey.CREATE_TOPICS, create_topics, lambda request: not request.topics),
    DeleteTopicsRequest: Write(
        ApiKey.DELETE_TOPICS, delete_topics, lambda request: not request.topics and not request.topic_names
    ),
    CreatePartitionsRequest: Write(ApiKey.CREATE_PARTITIONS, create_partitions, lambda request: not request.topics),
    BrokerRegistrationRequest: Write(ApiKey.BROKER_REGISTRATION, register_broker),
    BrokerHeartbeatRequest: Write(ApiKey.BROKER_HEARTBEAT, broker_heartbeat),
    UnregisterBrokerRequest: Write(ApiKey.UNREGISTER_BROKER, unregister_broker),
    UnregisterControllerRequest: Write(ApiKey.UNREGISTER_CONTROLLER, unregister_controller),
    AlterPartitionRequest: Write(ApiKey.ALTER_PARTITION, alter_partition),
    AssignReplicasToDirsRequest: Write(ApiKey.ASSIGN_REPLICAS_TO_DIRS, assign_replicas_to_dirs),
    AllocateProducerIdsRequest: Write(ApiKey.ALLOCATE_PRODUCER_IDS, allocate_producer_ids),
    ElectLeadersRequest: Write(ApiKey.ELECT_LEADERS, elect, lambda request: request.topic_partitions == []),
    AlterPartitionReassignmentsRequest: Write(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_reassignments, lambda request: not request.topics
    ),
    ListPartitionReassignmentsRequest: Read(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda context, request: list_reassignments(context.committed, request)
    ),
    CreateAclsRequest: Write(ApiKey.CREATE_ACLS, create_acls),
    DeleteAclsRequest: Write(ApiKey.DELETE_ACLS, delete_acls),
    DescribeAclsRequest: Read(ApiKey.DESCRIBE_ACLS, _answering(describe_acls)),
    DescribeConfigsRequest: Read(ApiKey.DESCRIBE_CONFIGS, _answering(describe_configs)),
    AlterUserScramCredentialsRequest: Write(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, alter_scram_credentials),
    DescribeUserScramCredentialsRequest: Read(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _answering(describe_scram_credentials)
    ),
    AlterConfigsRequest: Write(ApiKey.ALTER_CONFIGS, alter_configs, lambda request: not request.resources),
    CreateDelegationTokenRequest: Write(ApiKey.CREATE_DELEGATION_TOKEN, create_token),
    RenewDelegationTokenRequest: Write(ApiKey.RENEW_DELEGATION_TOKEN, renew_token),
    ExpireDelegationTokenRequest: Write(ApiKey.EXPIRE_DELEGATION_TOKEN, expire_token),
    DescribeDelegationTokenRequest: Read(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_tokens),
    UpdateFeaturesRequest: Write(ApiKey.UPDATE_FEATURES, update_features),
    AlterClientQuotasRequest: Write(
        ApiKey.ALTER_CLIENT_QUOTAS, alter_client_quotas, lambda request: not request.entries
    ),
}
"""The APIs that are each served by one function."""
AT_ONCE: Final = {
    asked: api.at_once for asked, api in APIS.items() if isinstance(api, Write) and api.at_once is not None
}
"""The decisions in one call, by the type of the request."""
