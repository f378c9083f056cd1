"""The answer to a search for the coordinator of a group or a transactional id (Kafka:
`KafkaApis.handleFindCoordinator`).
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.handling.coordinators import GROUP, SHARE, TOPICS, TRANSACTION, coordinator_of
from kraft.handling.rights import Permissions
from kraft.limits import NAME_CHARACTERS_PER_STEP
from metadata_log.image import MetadataImage
from metadata_log.types import NO_NODE, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE: Final = 4
"""The first version with several keys in a request."""
SHARES_SINCE: Final = 6
"""The first version with coordinators of share groups."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
"""A number as Java reads one, without the zeros that may stand before it."""
_NO_ERROR: Final = "NONE"
"""Kafka names the error of an answer without one, in the versions for one key."""


def find_coordinator(
    image: MetadataImage,
    request: FindCoordinatorRequest,
    *,
    version: int,
    listener: str,
    permissions: Permissions,
) -> Generator[None, None, FindCoordinatorResponse]:
    """The leader of the partition of the coordinators' topic that each key belongs to.

    COORDINATOR_NOT_AVAILABLE while the partition of the key has no leader: a client asks again. A client without the
    right to describe the group or the transactional id has the error for that instead.

    Args:
        image: The metadata.
        request: The request.
        version: Its version.
        listener: The listener of the request: addresses of brokers are those of this listener.
        permissions: The rights of the client.

    Raises:
        ApiError: A client without the right to act for the cluster looks for the coordinator of a share group.
    """

    def find(key: str) -> Coordinator:
        error = _refusal(request.key_type, key, version, permissions)
        coordinator = coordinator_of(image, request.key_type, key, listener) if error is Error.NONE else None
        if coordinator is None:
            return _absent(key, error or Error.COORDINATOR_NOT_AVAILABLE)
        broker, at = coordinator
        return Coordinator(key=key, node_id=broker.id, host=at.host, port=at.port, error_message="")

    if version < BATCHED_SINCE:
        one = find(request.key)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message or _NO_ERROR,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    coordinators = []
    for key in request.coordinator_keys:
        coordinators.append(find(key))
        for _ in range(1 + len(key) // NAME_CHARACTERS_PER_STEP):
            yield None
    return FindCoordinatorResponse(coordinators=coordinators)


def is_sought(answer: FindCoordinatorResponse) -> bool:
    """Whether a client that may know of a coordinator found none."""
    sought = Error.COORDINATOR_NOT_AVAILABLE
    return answer.error_code == sought or any(one.error_code == sought for one in answer.coordinators)


def refuse_coordinator(request: FindCoordinatorRequest, error: Error, version: int) -> FindCoordinatorResponse:
    """The answer to a FindCoordinator request with the same error for each key."""
    if version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_code=error, error_message=error.message, node_id=NO_NODE, host="", port=NO_NODE
        )
    return FindCoordinatorResponse(coordinators=[_absent(key, error) for key in request.coordinator_keys])


def _absent(key: str, error: Error, text: str | None = None) -> Coordinator:
    text = error.message if text is None else text
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error, error_message=text)


def _refusal(key_type: int, key: str, version: int, permissions: Permissions) -> Error:
    """Why a client is not told of a coordinator; NONE if it is."""
    if key_type == GROUP and not permissions.may(AclOperation.DESCRIBE, AclResource.GROUP, key):
        return Error.GROUP_AUTHORIZATION_FAILED
    if key_type == TRANSACTION and not permissions.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, key):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type not in TOPICS or (key_type == SHARE and version < SHARES_SINCE):
        return Error.INVALID_REQUEST
    if key_type == SHARE and not permissions.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
        raise ApiError(Error.CLUSTER_AUTHORIZATION_FAILED)
    return Error.INVALID_REQUEST if key_type == SHARE and not _is_share_partition(key) else Error.NONE


def _is_share_partition(key: str) -> bool:
    """Whether a key is `group:topic id:partition`; the name of the group may have colons."""
    group_id, _, rest = key.rpartition(":")[0].rpartition(":")
    number = key.rpartition(":")[2]
    try:
        Uuid.parse(rest)
    except ValueError:
        return False
    return bool(group_id) and _NUMBER.fullmatch(number) is not None and -(2**31) <= int(number) < 2**31
