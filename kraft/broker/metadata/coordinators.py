"""The answer to a search for a coordinator, while this software has none (Kafka: `KafkaApis.handleFindCoordinator`)."""

from __future__ import annotations

from typing import Final

from metadata_log.types import NO_NODE
from transport.protocol.errors import Error
from transport.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE: Final = 4
"""The first version with several keys in a request."""


def find_coordinator(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    """COORDINATOR_NOT_AVAILABLE for each key, as from a broker of Kafka before the coordinator's topic exists.

    A client asks again until its own deadline, and names that error then.
    """
    error = Error.COORDINATOR_NOT_AVAILABLE
    if version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_code=error, error_message=error.message, node_id=NO_NODE, host="", port=NO_NODE
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error, error_message=error.message)
            for key in request.coordinator_keys
        ]
    )
