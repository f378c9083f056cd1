"""Our controller's answers equal the recorded ones of Apache Kafka's: every field, every text, story by story.

`tests/interop/controller/test_controller_differential.py` tells the same stories to a running Kafka.
"""

from __future__ import annotations

import pytest
from msgspec.structs import astuple

from kraft.access.errors import ApiError
from kraft.access.refusals import refusal
from kraft.config.described import described_settings
from kraft.controller.apis import APIS, Write, at_once_of
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch
from support.differential.controller_sides import InProcess, Side, plain, recorded_answers, without_frame
from support.differential.controller_stories import (
    DIFFERENCES,
    GROUPS,
    GROUPS_OF_A_NODE,
    OUR_ANSWERS,
    STORIES,
    newest,
    told,
)
from support.differential.tiered_stories import TIERED, TIERED_OF_NODES
from transport.protocol import messages
from transport.protocol.apis import APIS as SERVED
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_response
from transport.protocol.messages import ElectLeadersRequest, EnvelopeRequest


def test_every_response_equals_kafkas() -> None:
    controller = InProcess()
    side = Side(controller.ask)
    for name, story in STORIES.items():
        for number, (ours, kafkas) in enumerate(zip(plain(told(side, story)), recorded_answers()[name], strict=True)):
            assert ours == kafkas, f"{name}, step {number}"
    assert replayed(controller.batches) == controller.controller.history.committed
    assert DIFFERENCES.keys() == OUR_ANSWERS.keys()
    for reason, story in DIFFERENCES.items():
        assert without_frame(plain(told(side, story))[-1]) == OUR_ANSWERS[reason], reason


@pytest.mark.parametrize(("name", "settings"), [("groups", {}), ("groups of a node with settings", GROUPS_OF_A_NODE)])
def test_settings_of_groups_are_bounded_and_described_as_by_kafka(name: str, settings: dict[str, str]) -> None:
    controller = InProcess(own_settings=tuple(described_settings(settings)))
    assert plain(told(Side(controller.ask), GROUPS)) == recorded_answers()[name]


@pytest.mark.parametrize("name", TIERED_OF_NODES)
def test_settings_of_tiered_storage_are_judged_as_by_kafka(name: str) -> None:
    controller = InProcess(own_settings=tuple(described_settings(TIERED_OF_NODES[name])))
    assert plain(told(Side(controller.ask), TIERED)) == recorded_answers()[name]


def test_a_standby_refuses_every_write_and_keeps_its_state() -> None:
    """The same requests to a controller that is not active. A write is refused, unless the write asks for nothing."""
    controller = InProcess()
    side = Side(controller.ask)
    for name in list(STORIES)[:2]:
        told(side, STORIES[name])
    before = controller.controller.history.latest
    controller.controller.renounce()
    refused = 0
    for name, story in STORIES.items():
        for number, ((build, version), kafkas) in enumerate(zip(story, recorded_answers()[name], strict=True)):
            request = build(side)
            answer = plain(side.ask(request, newest(request, version)))
            where, codes = f"{name}, step {number}: {answer}", set(error_codes(answer))
            if Error.NOT_CONTROLLER in codes:
                refused += 1
                # The first version of ElectLeaders has no code for the whole request, which then reads as 0.
                is_without_code = isinstance(request, ElectLeadersRequest) and version == 0
                assert codes == ({Error.NOT_CONTROLLER, 0} if is_without_code else {Error.NOT_CONTROLLER}), where
            elif codes <= {0}:
                is_write = isinstance(APIS.get(type(request).__name__), Write)
                assert not (is_write and items_of(request)), where
                assert not items_of(answer), where
            else:
                assert isinstance(request, EnvelopeRequest), where
                assert answer == kafkas, f"{where}: no controller opens this envelope"
    assert refused > 390
    assert controller.controller.history.latest is before


@pytest.mark.parametrize("name", [name for name, api in APIS.items() if isinstance(api, Write)])
def test_a_refusal_can_be_encoded_in_every_version(name: str) -> None:
    api, type_ = APIS[name], getattr(messages, name)
    for version in range(SERVED[api.key].versions.lowest, SERVED[api.key].versions.highest + 1):
        refused = finished(refusal(type_(), ApiError(Error.NOT_CONTROLLER, "Ask another.")))
        _, read = decode_response(api.key, version, encode_response(api.key, version, 1, refused))
        assert type(read) is type(refused)


def test_each_api_names_a_request_and_a_function_that_decides() -> None:
    """They are named as texts, which no type checker reads."""
    for name, api in APIS.items():
        asked = getattr(messages, name)
        assert SERVED[api.key].request is asked
        assert callable(api.decide)
        assert (at_once_of(asked) is not None) == bool(isinstance(api, Write) and api.at_once)


def replayed(batches: list[list[tuple[int, Message]]]) -> MetadataImage:
    """The image of the written batches, each record encoded and decoded."""
    image, offset = MetadataImage(), 1
    for batch in batches:
        delta = MetadataDelta(image)
        for version, record in batch:
            written = decode_record(encode_record(record, version)).record
            assert written is not None, record
            delta.replay(written, offset)
            offset += 1
        image = delta.apply(OffsetAndEpoch(epoch=1, offset=offset))
    return image


def items_of(message: object) -> list[object]:
    """The items of a request or of an answer."""
    values = message.values() if isinstance(message, dict) else astuple(message) if isinstance(message, Message) else ()
    return [item for value in values if isinstance(value, list | tuple) for item in value]


def error_codes(value: object) -> list[object]:
    """Every error code in an answer, at any depth."""
    if isinstance(value, dict):
        found = [value["error_code"]] if "error_code" in value else []
        return found + [code for one in value.values() for code in error_codes(one)]
    if isinstance(value, list):
        return [code for one in value for code in error_codes(one)]
    return []
