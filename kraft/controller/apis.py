"""The table of controller APIs: the function that serves each, and the one that refuses (Kafka: `ControllerApis`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps, answered_with
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey

Decide = Callable[[RequestContext, Any], ControllerResult | Steps]
"""From a request to records and an answer."""


class Write(Struct, frozen=True):
    """An API that only the active controller serves.

    If `is_empty` is true for a request, the request changes nothing and any controller answers it. `at_once` names a
    function that decides as `decide` does, in one call; it returns None for a request that may be long, or that it does
    not know to be short. It changes nothing, not even a session.
    """

    key: ApiKey
    decision: str
    """The module and the name of the function that decides. It is loaded for the first such request, as a start needs
    few of them.
    """
    is_empty: Callable[[Any], bool] = lambda request: False
    at_once: str = ""

    @property
    def decide(self) -> Decide:
        """The function that decides."""
        return function_of(self.decision)


class Read(Struct, frozen=True):
    """An API that each controller serves from committed metadata."""

    key: ApiKey
    decision: str
    is_shared: bool = False
    """Whether brokers answer by the same function, which makes an answer and no decision."""

    @property
    def decide(self) -> Decide:
        """The function that decides."""
        return _answering(self.decision) if self.is_shared else function_of(self.decision)


@cache
def function_of(named: str) -> Callable[..., Any]:
    """Load a function of the table."""
    module, _, name = named.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"kraft.{module}"), name)
    return function


@cache
def _answering(named: str) -> Decide:
    """A read as a decision."""
    read = function_of(named)
    return lambda context, request: answered_with(read(context.reading, request))


def load_decisions() -> None:
    """Load all functions of the table, and what refuses: a node calls this in a thread once it has run for a while."""
    for api in APIS.values():
        function_of(api.decision)
    import_module("kraft.access.refusals")


@cache
def at_once_of(asked: type[Message]) -> Callable[[RequestContext, Any], ControllerResult | None] | None:
    """The decision in one call on requests of this type; None if there is none."""
    api = APIS.get(asked.__name__)
    return function_of(api.at_once) if isinstance(api, Write) and api.at_once else None


APIS: Final[dict[str, Write | Read]] = {
    "IncrementalAlterConfigsRequest": Write(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "controller.configs.incremental_configs:incremental_alter_configs",
        lambda request: not request.resources,
        at_once="controller.configs.incremental_configs:alter_one_at_once",
    ),
    "ControllerRegistrationRequest": Write(
        ApiKey.CONTROLLER_REGISTRATION, "controller.features.controller_registration:register_controller"
    ),
    "CreateTopicsRequest": Write(
        ApiKey.CREATE_TOPICS, "controller.topics.topics:create_topics", lambda request: not request.topics
    ),
    "DeleteTopicsRequest": Write(
        ApiKey.DELETE_TOPICS,
        "controller.topics.topics:delete_topics",
        lambda request: not request.topics and not request.topic_names,
    ),
    "CreatePartitionsRequest": Write(
        ApiKey.CREATE_PARTITIONS, "controller.topics.topics:create_partitions", lambda request: not request.topics
    ),
    "BrokerRegistrationRequest": Write(
        ApiKey.BROKER_REGISTRATION, "controller.brokers.broker_registration:register_broker"
    ),
    "BrokerHeartbeatRequest": Write(ApiKey.BROKER_HEARTBEAT, "controller.brokers.broker_heartbeat:broker_heartbeat"),
    "UnregisterBrokerRequest": Write(
        ApiKey.UNREGISTER_BROKER, "controller.brokers.broker_registration:unregister_broker"
    ),
    "UnregisterControllerRequest": Write(
        ApiKey.UNREGISTER_CONTROLLER, "controller.features.controller_registration:unregister_controller"
    ),
    "AlterPartitionRequest": Write(ApiKey.ALTER_PARTITION, "controller.topics.isr:alter_partition"),
    "AssignReplicasToDirsRequest": Write(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS, "controller.topics.directories:assign_replicas_to_dirs"
    ),
    "AllocateProducerIdsRequest": Write(ApiKey.ALLOCATE_PRODUCER_IDS, "controller.producer_ids:allocate_producer_ids"),
    "ElectLeadersRequest": Write(
        ApiKey.ELECT_LEADERS, "controller.topics.elect_leaders:elect", lambda request: request.topic_partitions == []
    ),
    "AlterPartitionReassignmentsRequest": Write(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "controller.topics.alter_reassignments:alter_reassignments",
        lambda request: not request.topics,
    ),
    "ListPartitionReassignmentsRequest": Read(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, "controller.topics.alter_reassignments:list_reassignments"
    ),
    "CreateAclsRequest": Write(ApiKey.CREATE_ACLS, "controller.security.acls:create_acls"),
    "DeleteAclsRequest": Write(ApiKey.DELETE_ACLS, "controller.security.acls:delete_acls"),
    "DescribeAclsRequest": Read(ApiKey.DESCRIBE_ACLS, "reads.acls:describe_acls", is_shared=True),
    "DescribeConfigsRequest": Read(ApiKey.DESCRIBE_CONFIGS, "reads.configs:describe_configs", is_shared=True),
    "AlterUserScramCredentialsRequest": Write(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "controller.security.scram:alter_scram_credentials"
    ),
    "DescribeUserScramCredentialsRequest": Read(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "reads.scram:describe_scram_credentials", is_shared=True
    ),
    "AlterConfigsRequest": Write(
        ApiKey.ALTER_CONFIGS, "controller.configs.legacy_configs:alter_configs", lambda request: not request.resources
    ),
    "CreateDelegationTokenRequest": Write(ApiKey.CREATE_DELEGATION_TOKEN, "controller.security.tokens:create_token"),
    "RenewDelegationTokenRequest": Write(ApiKey.RENEW_DELEGATION_TOKEN, "controller.security.tokens:renew_token"),
    "ExpireDelegationTokenRequest": Write(ApiKey.EXPIRE_DELEGATION_TOKEN, "controller.security.tokens:expire_token"),
    "DescribeDelegationTokenRequest": Read(
        ApiKey.DESCRIBE_DELEGATION_TOKEN, "controller.security.tokens:describe_tokens"
    ),
    "UpdateFeaturesRequest": Write(ApiKey.UPDATE_FEATURES, "controller.features.update_features:update_features"),
    "AlterClientQuotasRequest": Write(
        ApiKey.ALTER_CLIENT_QUOTAS, "controller.configs.quotas:alter_client_quotas", lambda request: not request.entries
    ),
}
"""The APIs that are each served by one function, by the name of the request."""
