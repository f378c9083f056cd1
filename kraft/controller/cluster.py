"""The description of the cluster that admin clients ask a controller for first (Kafka:
`ControllerApis.handleDescribeCluster`, KIP-919).
"""

from __future__ import annotations

from typing import Final

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
ALL_OPERATIONS: Final = 8096
"""What may be done to a cluster without an authorizer, as the bits of `AclOperation`."""
NOT_ASKED: Final = -(2**31)

_MISMATCH: Final = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"


def describe_cluster(
    image: MetadataImage,
    request: DescribeClusterRequest,
    *,
    version: int,
    cluster_id: str,
    leader_id: int,
    listener: str,
    voters: tuple[tuple[int, str, int], ...],
) -> DescribeClusterResponse:
    """Where the controllers listen: static voters, as (id, host, port), and others that have registered.

    The configured address of a voter wins: a registration, which is all that Kafka looks at, is only as new as the last
    controller of Kafka's own that ran on this directory.
    """
    try:
        _check(image, request, version)
    except ApiError as refused:
        return DescribeClusterResponse(error_code=refused.error, error_message=refused.text)
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
        cluster_authorized_operations=ALL_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED,
    )


def _check(image: MetadataImage, request: DescribeClusterRequest, version: int) -> None:
    if request.endpoint_type != CONTROLLERS:
        # Version 0 has no endpoint type, so its clients would not know the error that is about it.
        raise ApiError(Error.MISMATCHED_ENDPOINT_TYPE if version >= 1 else Error.INVALID_REQUEST, _MISMATCH)
    if image.features.level(METADATA_VERSION) < REGISTRATION_SINCE:
        raise ApiError(
            Error.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
