"""Registrations of controllers: how one is removed, and what an operator is told of nodes of older releases."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.access.older_node import OlderNode
from kraft.agenda import Agenda
from kraft.controller.decision.slots import SLOTS
from kraft.controller.features.controller_registration import Registrar
from kraft.limits import REFUSED_NODES
from metadata_log.image import ControllersImage, FeaturesImage, MetadataImage
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.image.persistent_map import Map
from metadata_log.records.metadata import FeatureLevelRecord, UnregisterControllerRecord
from metadata_log.types import Uuid
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.messages import (
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from transport.protocol.messages.broker_registration import Feature
from transport.protocol.messages.controller_registration import Feature as FeatureOfController


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


# A node of an older release asks for its registration: the operator is told once, with what helps.


OF_4_3_1 = {"metadata.version": 30, "share.version": 1, "group.version": 1, "transaction.version": 2}
FORMAT = (
    "metadata.version 33 cannot be lowered to 30: start a newer release there, or begin a new cluster by "
    "`kraft format --release-version 4.3-IV0`"
)


def at(**levels: int) -> InProcess:
    records = tuple(
        FeatureLevelRecord(name=name.replace("_", "."), feature_level=level) for name, level in levels.items()
    )
    return InProcess(bootstrap=records)


def register(side: InProcess, broker_id: int, incarnation: int, supported: dict[str, int]) -> Error:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=side.controller.settings.cluster_id,
        incarnation_id=Uuid(incarnation.to_bytes(16, "big")),
        features=[Feature(name, 0 if name != "metadata.version" else 7, most) for name, most in supported.items()],
        log_dirs=[Uuid(bytes([1, broker_id] * 8))],
    )
    answer: Any = side.ask(request, 4)
    return Error(answer.error_code)


def told(side: InProcess) -> list[Any]:
    found = list(side.controller.audited)
    side.controller.audited.clear()
    return found


@pytest.mark.parametrize(
    ("levels", "lacks", "remedy"),
    [
        (
            {"metadata_version": 33, "share_version": 2},
            "metadata.version 33 (up to 30), share.version 2 (up to 1)",
            FORMAT,
        ),
        ({"metadata_version": 33}, "metadata.version 33 (up to 30)", FORMAT),
        (
            {"metadata_version": 31, "share_version": 2},
            "metadata.version 31 (up to 30), share.version 2 (up to 1)",
            "start a newer release there, or lower the levels by `kraft features downgrade --feature "
            "metadata.version=30 --feature share.version=1`",
        ),
        (
            {"metadata_version": 30, "streams_version": 1},
            "streams.version 1 (up to 0)",
            "start a newer release there, or lower the levels by `kraft features downgrade "
            "--feature streams.version=0`",
        ),
    ],
)
def test_a_broker_that_is_too_old_is_told_of_once(levels: dict[str, int], lacks: str, remedy: str) -> None:
    side = at(**levels)
    for _ in range(3):
        assert register(side, 201, 1, OF_4_3_1) is Error.UNSUPPORTED_VERSION
    assert told(side) == [OlderNode("broker 201", lacks, remedy)]
    # A restart is told of again.
    assert register(side, 201, 2, OF_4_3_1) is Error.UNSUPPORTED_VERSION
    assert len(told(side)) == 1


def test_a_broker_that_knows_all_levels_is_not_told_of() -> None:
    side = at(metadata_version=30, share_version=1)
    assert register(side, 201, 1, OF_4_3_1) is Error.NONE
    assert told(side) == []


def test_an_older_controller_is_registered_and_told_of() -> None:
    """As in Kafka, its registration is accepted."""
    side = at(metadata_version=33)
    request = ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=Uuid(b"7" * 16),
        features=[FeatureOfController(name, 0, most) for name, most in OF_4_3_1.items()],
    )
    answer: Any = side.ask(request, 0)
    assert answer.error_code == Error.NONE
    assert told(side) == [OlderNode("controller 7", "metadata.version 33 (up to 30)", FORMAT)]


def test_strangers_do_not_fill_the_memory_of_the_controller() -> None:
    side = at(metadata_version=33)
    for incarnation in range(3 * REFUSED_NODES):
        register(side, 201, 1 + incarnation, OF_4_3_1)
    assert len(side.controller._sessions._refused) == REFUSED_NODES
