"""The table of controller APIs: the function that serves each, and the one that refuses (Kafka: `ControllerApis`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from kraft.controller.brokers.broker_heartbeat import broker_heartbeat, refuse_heartbeat
from kraft.controller.brokers.broker_registration import (
    refuse_registration,
    refuse_unregistration,
    register_broker,
    unregister_broker,
)
from kraft.controller.configs.describe_configs import describe_configs, refuse_describe_configs
from kraft.controller.configs.incremental_configs import incremental_alter_configs, refuse_incremental_configs
from kraft.controller.configs.legacy_configs import alter_configs, refuse_alter_configs
from kraft.controller.configs.quotas import alter_client_quotas, refuse_client_quotas
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Refusing, Steps
from kraft.controller.features.controller_registration import refuse_controller, register_controller
from kraft.controller.features.update_features import refuse_features, update_features
from kraft.controller.producer_ids import allocate_producer_ids, refuse_producer_ids
from kraft.controller.security.acls import (
    create_acls,
    delete_acls,
    describe_acls,
    refuse_create_acls,
    refuse_delete_acls,
    refuse_describe_acls,
)
from kraft.controller.security.scram import (
    alter_scram_credentials,
    describe_scram_credentials,
    refuse_describe_scram,
    refuse_scram_credentials,
)
from kraft.controller.security.tokens import (
    create_token,
    describe_tokens,
    expire_token,
    refuse_create_token,
    refuse_describe_tokens,
    refuse_expire_token,
    refuse_renew_token,
    renew_token,
)
from kraft.controller.topics.alter_reassignments import (
    alter_reassignments,
    list_reassignments,
    refuse_alter_reassignments,
    refuse_list_reassignments,
)
from kraft.controller.topics.directories import assign_replicas_to_dirs, refuse_assignment
from kraft.controller.topics.elect_leaders import elect, refuse_elections
from kraft.controller.topics.isr import alter_partition, refuse_alter_partition
from kraft.controller.topics.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    refuse_create_partitions,
    refuse_create_topics,
    refuse_delete_topics,
)
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
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
    UpdateFeaturesRequest,
)


class Write(Struct, frozen=True):
    """An API that only the active controller serves. `refuse` turns an `ApiError` from `decide` into a response.

    If `is_empty` is true for a request, the request changes nothing and any controller answers it.
    """

    key: ApiKey
    decide: Callable[[RequestContext, Any], ControllerResult | Steps]
    refuse: Callable[[Any, Error, str | None], Message | Refusing[Any]]
    is_empty: Callable[[Any], bool] = lambda request: False


class Read(Struct, frozen=True):
    """An API that each controller serves from committed metadata. `refuse` answers a caller without permission."""

    key: ApiKey
    decide: Callable[[RequestContext, Any], ControllerResult | Steps]
    refuse: Callable[[Any, Error, str | None], Message | Refusing[Any]]


APIS: Final[dict[type[Message], Write | Read]] = {
    IncrementalAlterConfigsRequest: Write(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        incremental_alter_configs,
        refuse_incremental_configs,
        lambda request: not request.resources,
    ),
    ControllerRegistrationRequest: Write(
        ApiKey.CONTROLLER_REGISTRATION,
        lambda context, request: register_controller(context.image, request),
        refuse_controller,
    ),
    CreateTopicsRequest: Write(
        ApiKey.CREATE_TOPICS, create_topics, refuse_create_topics, lambda request: not request.topics
    ),
    DeleteTopicsRequest: Write(
        ApiKey.DELETE_TOPICS,
        delete_topics,
        refuse_delete_topics,
        lambda request: not request.topics and not request.topic_names,
    ),
    CreatePartitionsRequest: Write(
        ApiKey.CREATE_PARTITIONS, create_partitions, refuse_create_partitions, lambda request: not request.topics
    ),
    BrokerRegistrationRequest: Write(ApiKey.BROKER_REGISTRATION, register_broker, refuse_registration),
    BrokerHeartbeatRequest: Write(ApiKey.BROKER_HEARTBEAT, broker_heartbeat, refuse_heartbeat),
    UnregisterBrokerRequest: Write(ApiKey.UNREGISTER_BROKER, unregister_broker, refuse_unregistration),
    AlterPartitionRequest: Write(ApiKey.ALTER_PARTITION, alter_partition, refuse_alter_partition),
    AssignReplicasToDirsRequest: Write(ApiKey.ASSIGN_REPLICAS_TO_DIRS, assign_replicas_to_dirs, refuse_assignment),
    AllocateProducerIdsRequest: Write(ApiKey.ALLOCATE_PRODUCER_IDS, allocate_producer_ids, refuse_producer_ids),
    ElectLeadersRequest: Write(
        ApiKey.ELECT_LEADERS, elect, refuse_elections, lambda request: request.topic_partitions == []
    ),
    AlterPartitionReassignmentsRequest: Write(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        alter_reassignments,
        refuse_alter_reassignments,
        lambda request: not request.topics,
    ),
    ListPartitionReassignmentsRequest: Read(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda context, request: list_reassignments(context.committed, request),
        refuse_list_reassignments,
    ),
    CreateAclsRequest: Write(ApiKey.CREATE_ACLS, create_acls, refuse_create_acls),
    DeleteAclsRequest: Write(ApiKey.DELETE_ACLS, delete_acls, refuse_delete_acls),
    DescribeAclsRequest: Read(ApiKey.DESCRIBE_ACLS, describe_acls, refuse_describe_acls),
    DescribeConfigsRequest: Read(ApiKey.DESCRIBE_CONFIGS, describe_configs, refuse_describe_configs),
    AlterUserScramCredentialsRequest: Write(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, alter_scram_credentials, refuse_scram_credentials
    ),
    DescribeUserScramCredentialsRequest: Read(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe_scram_credentials, refuse_describe_scram
    ),
    AlterConfigsRequest: Write(
        ApiKey.ALTER_CONFIGS, alter_configs, refuse_alter_configs, lambda request: not request.resources
    ),
    CreateDelegationTokenRequest: Write(ApiKey.CREATE_DELEGATION_TOKEN, create_token, refuse_create_token),
    RenewDelegationTokenRequest: Write(ApiKey.RENEW_DELEGATION_TOKEN, renew_token, refuse_renew_token),
    ExpireDelegationTokenRequest: Write(ApiKey.EXPIRE_DELEGATION_TOKEN, expire_token, refuse_expire_token),
    DescribeDelegationTokenRequest: Read(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_tokens, refuse_describe_tokens),
    UpdateFeaturesRequest: Write(ApiKey.UPDATE_FEATURES, update_features, refuse_features),
    AlterClientQuotasRequest: Write(
        ApiKey.ALTER_CLIENT_QUOTAS, alter_client_quotas, refuse_client_quotas, lambda request: not request.entries
    ),
}
"""The APIs that are each served by one function."""
