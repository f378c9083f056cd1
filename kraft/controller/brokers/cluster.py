"""Serves DescribeCluster, the first request of an admin client (Kafka: `ControllerApis.handleDescribeCluster`,
KIP-919).
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.access.authorizer import OF_A_CLUSTER, AclOperation
from kraft.access.endpoint_types import CONTROLLERS, NOT_ASKED, refuse_others
from kraft.access.errors import ApiError
from kraft.controller.features.controller_registration import REGISTRATION_SINCE
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.image.persistent_map import in_key_order
from transport.protocol.errors import Error
from transport.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def describe_cluster(
    image: MetadataImage,
    request: DescribeClusterRequest,
    *,
    version: int,
    may: Callable[[AclOperation], bool],
    cluster_id: str,
    leader_id: int,
    listener: str,
    voters: tuple[tuple[int, str, int], ...],
) -> DescribeClusterResponse:
    """The controllers' endpoints at one listener: static voters as (id, host, port), and other registered controllers.

    `listener` is that of the request, so that a client gets addresses of the security protocol that it speaks.

    On request, the response includes the caller's permitted operations on the cluster, as a bit field from `may`.

    The configured address of a voter overrides its registration. Kafka reads only registrations. In a directory that a
    Kafka controller used before, the registration may be outdated.
    """
    if (refusal := refuse_others(request, version, CONTROLLERS)) is not None:
        return refusal
    addresses = {
        node_id: (endpoint.host, endpoint.port)
        for node_id, registration in in_key_order(image.controllers.by_id)
        for endpoint in registration.endpoints
        if endpoint.name == listener
    }
    addresses |= {node_id: (host, port) for node_id, host, port in voters}
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=leader_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, (host, port) in sorted(addresses.items())
        ],
        cluster_authorized_operations=(
            sum(1 << operation for operation in OF_A_CLUSTER if may(operation))
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def check_described(image: MetadataImage) -> None:
    """Raise `ApiError` if clients cannot yet reach controllers directly. This check precedes the permission check.

    A controller that has just started knows no metadata.version. The controller answers with an error that makes a
    client try another controller. Kafka answers that the version is too old, which makes its admin client give up.
    """
    if image.features.metadata_version is None:
        raise ApiError(Error.NOT_CONTROLLER, "The metadata of the cluster is not known here yet.")
    if image.features.level(METADATA_VERSION) < REGISTRATION_SINCE:
        raise ApiError(
            Error.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
