"""The nodes that a DescribeCluster request asks for (Kafka: `EndpointType`, `AuthHelper`; KIP-919).

Three parts answer it, each from what it knows: a broker from the brokers of the image, a controller from the registered
controllers, and a node without metadata from the voters of its quorum.
"""

from __future__ import annotations

from typing import Final

from transport.protocol.errors import Error
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS: Final = 1
CONTROLLERS: Final = 2
_NAMES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
NOT_ASKED: Final = -(2**31)
"""The permitted operations of a caller that has not asked for them."""


def refuse_others(request: DescribeClusterRequest, version: int, own: int) -> DescribeClusterResponse | None:
    """The refusal of a request for nodes of another type than `own`, the type of the listener; None for a right one.

    Version 0 has no endpoint type, so that its clients would not understand the errors of later ones.
    """
    asked = request.endpoint_type
    if asked == own:
        return None
    error = Error.MISMATCHED_ENDPOINT_TYPE if asked in _NAMES else Error.UNSUPPORTED_ENDPOINT_TYPE
    at, wanted = _NAMES[own], _NAMES[BROKERS + CONTROLLERS - own]
    return DescribeClusterResponse(
        error_code=Error.INVALID_REQUEST if version < 1 else error,
        error_message=f"The request was sent to an endpoint of type {at}, but we wanted an endpoint of type {wanted}",
    )
