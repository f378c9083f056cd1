"""The response to a request that fails as a whole (Kafka: `AbstractRequest.getErrorResponse`)."""

from __future__ import annotations

from kraft.access.errors import ApiError
from kraft.controller.apis import APIS
from kraft.controller.brokers.cluster import refuse_describe_cluster
from kraft.controller.decision.result import Refusing
from kraft.controller.envelope import refuse_envelope
from metadata_log.serde import Message
from metadata_log.types import NO_NODE
from transport.protocol.errors import Error
from transport.protocol.messages import DescribeClusterRequest, EnvelopeRequest


def refusal(request: Message, refused: ApiError) -> Refusing[Message]:
    """The response to a request of any API of the controller, with this error."""
    if isinstance(request, EnvelopeRequest):
        return refuse_envelope(refused.error)
    if isinstance(request, DescribeClusterRequest):
        return refuse_describe_cluster(request, refused.error, refused.text)
    made = APIS[type(request)].refuse(request, refused.error, refused.text)
    return made if isinstance(made, Message) else (yield from made)


def not_controller_error(leader_id: int) -> ApiError:
    """The error of a controller that is not active; `leader_id` is the quorum's leader as far as known, or -1."""
    text = "No controller appears to be active."
    if leader_id != NO_NODE:
        text = f"The active controller appears to be node {leader_id}."
    return ApiError(Error.NOT_CONTROLLER, text)
