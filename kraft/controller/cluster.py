"""The description of the cluster that admin clients ask a controller for first (Kafka:
`ControllerApis.handleDescribeCluster`, KIP-919).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.controller.authorizer import OF_A_CLUSTER, AclOperation
from kraft.controller.registration import REGISTRATION_SINCE
from kraft.controller.result import ApiError
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.image.persistent_map import in_key_order
from transport.protocol.errors import Error
from transport.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

CONTROLLERS: Final = 2
NOT_ASKED: Final = -(2**31)

_MISMATCH: Final = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"


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
    """Where the controllers listen: static voters, as (id, host, port), and others that have registered; and on wish
    what the caller `may` do to the cluster, as the bits of those operations.

    The configured address of a voter wins: a registration, which is all that Kafka looks at, is only as new as the last
    controller of Kafka's own that ran on this directory.
    """
    if request.endpoint_type != CONTROLLERS:
        # Version 0 has no endpoint type, so its clients would not know the error that is about it.
        error = Error.MISMATCHED_ENDPOINT_TYPE if version >= 1 else Error.INVALID_REQUEST
        return refuse_describe_cluster(request, error, _MISMATCH)
    found = {
        node_id: (endpoint.host, endpoint.port)
        for node_id, registration in in_key_order(image.controllers.by_id)
        for endpoint in registration.endpoints
        if endpoint.name == listener
    }
    found |= {node_id: (host, port) for node_id, host, port in voters}
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=leader_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, (host, port) in sorted(found.items())
        ],
        cluster_authorized_operations=(
            sum(1 << operation for operation in OF_A_CLUSTER if may(operation))
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def refuse_describe_cluster(
    _: DescribeClusterRequest, error: Error, text: str | None = None
) -> DescribeClusterResponse:
    """The answer that tells nothing."""
    return DescribeClusterResponse(error_code=error, error_message=text)


def check_described(image: MetadataImage) -> None:
    """Raise `ApiError` while controllers cannot be talked to directly, which comes before any permission.

    Who has just started knows no metadata.version, and says so with an error after which clients ask another one.
    Kafka says that it is too old, and its admin client takes a controller's word for that and never asks again.
    """
    if image.features.metadata_version is None:
        raise ApiError(Error.NOT_CONTROLLER, "The metadata of the cluster is not known here yet.")
    if image.features.level(METADATA_VERSION) < REGISTRATION_SINCE:
        raise ApiError(
            Error.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
