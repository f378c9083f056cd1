"""Our controller's answers equal the recorded ones of Apache Kafka's: every field, every text, story by story.

`tests/interop/controller/test_controller_differential.py` tells the same stories to a running Kafka.
"""

from __future__ import annotations

import pytest
from controller_sides import InProcess, Side, plain, recorded_answers
from controller_stories import DIFFERENCES, STORIES, told

from kraft.controller.apis import APIS, Write
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from transport.protocol.apis import APIS as SERVED
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_response


def test_every_answer_is_kafkas() -> None:
    controller = InProcess()
    side = Side(controller.ask)
    for name, story in STORIES.items():
        for number, (ours, kafkas) in enumerate(zip(plain(told(side, story)), recorded_answers()[name], strict=True)):
            assert ours == kafkas, f"{name}, step {number}"
    for batches in controller.batches:
        assert batches
    for reason, story in DIFFERENCES.items():
        assert told(side, story), reason


def test_a_standby_refuses_every_write_and_keeps_its_state() -> None:
    """The same requests to a controller that is not active: NOT_CONTROLLER, or an empty answer to an empty request."""
    controller = InProcess()
    side = Side(controller.ask)
    for name in list(STORIES)[:2]:
        told(side, STORIES[name])
    before = controller.controller.history.latest
    controller.controller.renounce()
    for name, story in STORIES.items():
        for number, (answer, (build, _)) in enumerate(zip(plain(told(side, story)), story, strict=True)):
            codes = [int(code) for code in error_codes(answer)]
            is_read = "List" in type(build(side)).__name__
            empty = not any(isinstance(value, list) and value for value in answer.values())
            assert 41 in codes or is_read or empty, f"{name}, step {number}: {answer}"
    assert controller.controller.history.latest is before


@pytest.mark.parametrize("type_", [type_ for type_, api in APIS.items() if isinstance(api, Write)])
def test_a_refusal_fits_every_version(type_: type[Message]) -> None:
    api = APIS[type_]
    assert isinstance(api, Write)
    for version in range(SERVED[api.key].versions.lowest, SERVED[api.key].versions.highest + 1):
        made = api.refuse(type_(), Error.NOT_CONTROLLER, "Ask another.")
        refused = made if isinstance(made, Message) else finished(made)
        _, read = decode_response(api.key, version, encode_response(api.key, version, 1, refused))
        assert type(read) is type(refused)


def error_codes(value: object) -> list[object]:
    """Every error code in an answer, at any depth."""
    if isinstance(value, dict):
        found = [value["error_code"]] if "error_code" in value else []
        return found + [code for one in value.values() for code in error_codes(one)]
    if isinstance(value, list):
        return [code for one in value for code in error_codes(one)]
    return []
