"""Feature levels go up and down as in Kafka, one after the other and with everything that they depend on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kraft.controller.features import update_features as features
from kraft.controller.features.update_features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from metadata_log.image import METADATA_VERSION
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.releases import METADATA_CHANGES
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.differential.admin_answers import RECORDED, SECURED, as_bytes, disagreements, kafkas_records, our_records
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.messages import (
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from transport.protocol.messages.controller_registration import Feature
from transport.protocol.messages.update_features import FeatureUpdateKey


def at_level(level: int, **settings: Any) -> InProcess:
    return InProcess(bootstrap=(FeatureLevelRecord(name="metadata.version", feature_level=level),), **settings)


def update(side: InProcess, name: str, level: int, kind: int = UPGRADE) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)]
    )
    answer = side.ask(request, 2)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


def without_epochs(answer: Message) -> Message:
    return structs.replace(answer, broker_epoch=0) if isinstance(answer, BrokerRegistrationResponse) else answer


def without_offsets(records: list[tuple[int, Message]]) -> list[bytes]:
    """Epochs of brokers are offsets, which the records move that a controller writes about itself."""
    return as_bytes(
        (version, structs.replace(record, broker_epoch=0) if hasattr(record, "broker_epoch") else record)
        for version, record in records
    )


@pytest.fixture
def _as_in_4_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The levels that 4.3.1 supports, of which the recorded answers speak."""
    older = {METADATA_VERSION: (7, 30), "share.version": (0, 1)}
    monkeypatch.setattr(features, "SUPPORTED_LEVELS", features.SUPPORTED_LEVELS | older)


@pytest.mark.usefixtures("_as_in_4_3")
def test_answers_and_records_are_kafkas_at_4_3() -> None:
    side = InProcess(release=RECORDED)
    assert disagreements("features", side, without_epochs) == {}
    assert without_offsets(our_records(side)) == without_offsets(kafkas_records("features"))


def test_answers_and_records_are_kafkas_from_3_9_on() -> None:
    side = at_level(21)
    assert disagreements("features39", side) == {}
    assert our_records(side) == kafkas_records("features39")


@pytest.mark.usefixtures("_as_in_4_3")
def test_answers_and_records_are_kafkas_at_the_oldest_level() -> None:
    """Also to requests for credentials and tokens, which that level does not have yet."""
    side = at_level(7, admin=SECURED)
    assert disagreements("old", side) == {}
    assert our_records(side) == kafkas_records("old")


@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
@pytest.mark.parametrize(("now", "level"), [(now, level) for now in range(8, 34) for level in (now - 1, 7)])
def test_a_downgrade_of_metadata_version_must_be_lossless(now: int, level: int, kind: int) -> None:
    side = at_level(now)
    lossless = not METADATA_CHANGES & set(range(level + 1, now + 1))
    answer = update(side, "metadata.version", level, kind)
    assert (answer.error_code == Error.NONE) is lossless
    assert side.controller.history.latest.features.metadata_version == (level if lossless else now)


def test_an_unregistered_voter_blocks_feature_upgrades() -> None:
    side = at_level(30, voters=((1, "127.0.0.1", 9093), (2, "127.0.0.1", 9094)))
    answer = update(side, "group.version", 1)
    assert answer.error_code == Error.INVALID_UPDATE_VERSION
    assert answer.error_message is not None
    assert answer.error_message.endswith("controller 2 has not registered, and may not support this feature")
    peer = ControllerRegistrationRequest(
        controller_id=2,
        incarnation_id=Uuid(b"2" * 16),
        features=[Feature(name="group.version", min_supported_version=0, max_supported_version=1)],
    )
    side.ask(peer, 0)
    assert update(side, "group.version", 1).error_code == Error.NONE
    refused = update(side, "share.version", 1)
    assert refused.error_message is not None
    assert refused.error_message.endswith("Controller 2 does not support this feature.")
