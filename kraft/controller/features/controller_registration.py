"""Registers controllers in the log, where clients find them (Kafka: `ControllerRegistrationManager`,
`ClusterControlManager.registerController`; KIP-919).
"""

from __future__ import annotations

from typing import Final

from kraft.access.errors import ApiError
from kraft.agenda import Agenda
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult
from kraft.controller.decision.slots import Slot
from kraft.controller.features.older_nodes import note_older_node
from kraft.supported_features import SUPPORTED_FEATURES
from metadata_log.image import ControllersImage, FeaturesImage, MetadataImage
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from transport.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse

REGISTRATION_SINCE: Final = 15
"""The first metadata.version with registration of controllers (3.7-IV0)."""
UNREGISTRATION_SINCE: Final = 33
"""The first metadata.version whose controllers can be unregistered (4.4-IV2)."""
FIRST_RETRY_MS: Final = 100
LAST_RETRY_MS: Final = 120_000
PLAINTEXT: Final = 0
NOW_MS: Final = 0


def register_controller(context: RequestContext, request: ControllerRegistrationRequest) -> ControllerResult:
    """Write the registration unchanged: only the controller itself knows its endpoints and features."""
    if (context.image.features.metadata_version or 0) < REGISTRATION_SINCE:
        raise ApiError(
            Error.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller registrations."
        )
    highest = {one.name: one.max_supported_version for one in request.features}
    note_older_node(context, "controller", request.controller_id, request.incarnation_id, highest)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=tuple(
            ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ),
        features=tuple(
            ControllerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ),
    )
    return ControllerResult((VersionedRecord(record),), ControllerRegistrationResponse())


def unregister_controller(context: RequestContext, request: UnregisterControllerRequest) -> ControllerResult:
    """Remove the registration of a controller, voter or not; raises `ApiError`. One that runs registers again."""
    if request.controller_id == context.defaults.node_id:
        raise ApiError(Error.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if (context.image.features.metadata_version or 0) < UNREGISTRATION_SINCE:
        raise ApiError(
            Error.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller unregistration."
        )
    if request.controller_id not in context.image.controllers.by_id:
        text = f"Controller ID {request.controller_id} is not currently registered."
        raise ApiError(Error.CONTROLLER_ID_NOT_REGISTERED, text)
    record = UnregisterControllerRecord(controller_id=request.controller_id)
    return ControllerResult((VersionedRecord(record),), UnregisterControllerResponse(error_message=None))


class Registrar:
    """Ensures that the published image holds the registration of this controller's current incarnation."""

    def __init__(
        self,
        agenda: Agenda,
        node_id: int,
        incarnation_id: Uuid,
        listeners: tuple[tuple[str, str, int], ...],
        security_protocols: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._agenda = agenda
        self._due_ms = NEVER_MS
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._listeners = listeners
        self._security_protocols = dict(security_protocols)
        self._seen: tuple[ControllersImage, FeaturesImage] | None = None
        self._is_asking = False
        self._retry_ms = FIRST_RETRY_MS

    def look_at(self, published: MetadataImage) -> None:
        """Determine whether the registration is present, if a relevant part of the image has changed."""
        controllers, features = published.controllers, published.features
        if self._seen is not None and self._seen[0] is controllers and self._seen[1] is features:
            return
        self._seen = (controllers, features)
        if not self._is_wanted():
            self._at(NEVER_MS)
            self._is_asking = False
            self._retry_ms = FIRST_RETRY_MS
        elif not self._is_asking and self._due_ms == NEVER_MS:
            self._at(NOW_MS)

    def _at(self, due_ms: int) -> None:
        """The next request is due at this time."""
        self._due_ms = due_ms
        self._agenda.at(Slot.REGISTRATION, due_ms)

    def _is_wanted(self) -> bool:
        if self._seen is None:
            return False
        controllers, features = self._seen
        if (features.metadata_version or 0) < REGISTRATION_SINCE:
            return False
        known = controllers.by_id.get(self._node_id)
        return known is None or known.incarnation_id != self._incarnation_id

    def request_due(self, now_ms: int) -> ControllerRegistrationRequest | None:
        """The request to send to the active controller, if one is due; call `answered` exactly once afterwards."""
        if now_ms < self._due_ms:
            return None
        self._at(NEVER_MS)
        self._is_asking = True
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=name,
                    host=host,
                    port=port,
                    security_protocol=self._security_protocols.get(name, PLAINTEXT),
                )
                for name, host, port in self._listeners
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in SUPPORTED_FEATURES
            ],
        )

    def answered(self, *, accepted: bool, now_ms: int) -> None:
        """After a refusal or a failure, schedule a retry; after a success, the image will show the registration."""
        self._is_asking = False
        if not accepted and self._is_wanted():
            self._at(now_ms + self._retry_ms)
            self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)

    def retry(self) -> None:
        """Check again at once: records that this controller wrote as the active one may be lost."""
        if self._is_asking and self._is_wanted():
            self._is_asking = False
            self._at(NOW_MS)
