"""The request of streams groups that needs none: StreamsGroupTopologyDescriptionUpdate (Kafka: `KafkaApis`)."""

from __future__ import annotations

from typing import Final

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.handling.rights import Rights
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.errors import Error
from transport.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

FEATURE: Final = "streams.version"
_NO_PLUGIN: Final = "The broker has no streams group topology description plugin configured."


class StreamsGroupHandler:
    """Answers as a broker of Kafka without a plug-in that keeps topologies, which is what Kafka ships.

    Args:
        is_enabled: Whether `group.coordinator.rebalance.protocols` has the protocol.
        rights: What clients may do.
    """

    def __init__(self, *, is_enabled: bool, rights: Rights) -> None:
        self._is_enabled = is_enabled
        self._rights = rights

    def update_topology(
        self, request: WireRequest[StreamsGroupTopologyDescriptionUpdateRequest], image: MetadataImage, _now_ms: int
    ) -> Answer:
        """StreamsGroupTopologyDescriptionUpdate."""
        message = request.message
        if not self._is_enabled or image.features.level(FEATURE) == 0:
            return self.refuse_topology(request, ApiError(Error.UNSUPPORTED_VERSION))
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            return self.refuse_topology(request, ApiError(Error.GROUP_AUTHORIZATION_FAILED))
        return self.refuse_topology(request, ApiError(Error.UNSUPPORTED_VERSION, _NO_PLUGIN))

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_topology(request: WireRequest, refused: ApiError) -> Answer:
        """StreamsGroupTopologyDescriptionUpdate with an error."""
        return Answer(
            request.request_id,
            StreamsGroupTopologyDescriptionUpdateResponse(error_code=refused.error, error_message=refused.text),
        )
