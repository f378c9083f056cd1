"""UnregisterController: the checks of Kafka 4.4.0 in its order, and a live controller that registers again."""

from __future__ import annotations

import pytest

from kraft.agenda import Agenda
from kraft.controller.decision.slots import SLOTS
from kraft.controller.features.controller_registration import Registrar
from metadata_log.image import ControllersImage, FeaturesImage, MetadataImage
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.image.persistent_map import Map
from metadata_log.records.metadata import FeatureLevelRecord, UnregisterControllerRecord
from metadata_log.types import Uuid
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.messages import (
    ControllerRegistrationRequest,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def at_level(level: int) -> InProcess:
    side = InProcess(bootstrap=(FeatureLevelRecord(name="metadata.version", feature_level=level),))
    side.ask(ControllerRegistrationRequest(controller_id=7, incarnation_id=Uuid(b"7" * 16)), 0)
    return side


@pytest.mark.parametrize(
    ("level", "controller", "error", "text"),
    [
        (33, 7, Error.NONE, None),
        (
            32,
            7,
            Error.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        ),
        (32, 1, Error.INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
        (33, 8, Error.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 8 is not currently registered."),
    ],
)
def test_a_registration_is_removed_or_the_reason_told(
    level: int, controller: int, error: Error, text: str | None
) -> None:
    side = at_level(level)
    answer = side.ask(UnregisterControllerRequest(controller_id=controller), 0)
    assert answer == UnregisterControllerResponse(error_code=error, error_message=text)
    gone = error is Error.NONE
    assert (7 in side.controller.history.latest.controllers.by_id) is not gone
    written = [record for batch in side.batches for _, record in batch]
    assert (UnregisterControllerRecord(controller_id=7) in written) is gone


def test_a_controller_that_runs_registers_again() -> None:
    """Its published image lacks the registration, and so it asks for one."""
    features = FeaturesImage(metadata_version=33)
    registrar = Registrar(Agenda(SLOTS), 1, Uuid(b"1" * 16), ())
    mine = ControllerRegistration(1, Uuid(b"1" * 16), (), ())
    registrar.look_at(MetadataImage(features=features, controllers=ControllersImage(Map({1: mine}))))
    assert registrar.request_due(0) is None
    registrar.look_at(MetadataImage(features=features))
    due = registrar.request_due(0)
    assert due is not None
    assert due.controller_id == 1
    assert {(one.name, one.max_supported_version) for one in due.features} >= {
        ("metadata.version", 33),
        ("share.version", 2),
    }
