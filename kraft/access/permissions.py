"""The cluster permission that each controller API requires (Kafka: `ControllerApis`, `AuthHelper`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from kraft.access.authorizer import CLUSTER_NAME, AclOperation, AclResource
from kraft.access.caller import Caller
from kraft.access.errors import ApiError
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error

CLUSTER_OPERATIONS: Final[Mapping[ApiKey, AclOperation]] = {
    **dict.fromkeys(
        (
            ApiKey.FETCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.UPDATE_RAFT_VOTER,
            ApiKey.ENVELOPE,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALTER_PARTITION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.ALLOCATE_PRODUCER_IDS,
        ),
        AclOperation.CLUSTER_ACTION,
    ),
    **dict.fromkeys(
        (
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.UPDATE_FEATURES,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.UNREGISTER_CONTROLLER,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
        ),
        AclOperation.ALTER,
    ),
    **dict.fromkeys(
        (
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ),
        AclOperation.DESCRIBE,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: AclOperation.ALTER_CONFIGS,
}
"""The operation on the cluster that each API requires. In Kafka only brokers serve DescribeUserScramCredentials; the
table has their permission.
"""


class Asker(Protocol):
    """The caller of a request, and what the caller may do."""

    @property
    def caller(self) -> Caller:
        """The principal and the host."""
        ...

    def may(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, is_asked: bool = True
    ) -> bool:
        """Whether the asker may perform an operation; a denial is recorded only if `is_asked` is set."""
        ...


def check_cluster(asker: Asker, key: ApiKey) -> None:
    """Raise `ApiError` if the asker may not use the API."""
    operation = CLUSTER_OPERATIONS.get(key)
    if operation is not None and not asker.may(operation, AclResource.CLUSTER):
        caller = asker.caller
        # Kafka prints its own request object here, including ids of threads and connections.
        asked = f"{APIS[key].name}(principal={caller.principal}, host={caller.host})"
        text = f"Request {asked} needs {operation.name} permission."
        raise ApiError(Error.CLUSTER_AUTHORIZATION_FAILED, text)
