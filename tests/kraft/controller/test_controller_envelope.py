"""Requests in envelopes: what is opened and what is not; the client's answer is what it would be without one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.records.metadata import DelegationTokenRecord
from support.differential.admin_answers import SECURED
from support.differential.controller_admin_steps import by, levels, token
from support.differential.controller_cluster import Cluster
from support.differential.controller_stories import (
    ANONYMOUS,
    SET,
    TOPIC,
    A,
    Step,
    configure,
    create,
    delete,
    envelope,
    grow,
    heartbeat,
    topic,
)
from transport.protocol import messages as m
from transport.protocol.errors import Error

INNER = delete("unknown-topic")
REFUSED: dict[str, tuple[Step, Error]] = {
    "without principal": (envelope(INNER, principal=None), Error.PRINCIPAL_DESERIALIZATION_FAILURE),
    "half a principal": (envelope(INNER, principal=ANONYMOUS[:6]), Error.PRINCIPAL_DESERIALIZATION_FAILURE),
    "a principal of another version": (
        envelope(INNER, principal=b"\x00\x07" + ANONYMOUS[2:]),
        Error.PRINCIPAL_DESERIALIZATION_FAILURE,
    ),
    "from no address": (envelope(INNER, address=b"12345"), Error.INVALID_REQUEST),
    "nothing": (envelope(b""), Error.UNSUPPORTED_VERSION),
    "half a request": (envelope(INNER, cut=12), Error.UNSUPPORTED_VERSION),
    "an unknown API": (envelope(b"\x7f\x00\x00\x01\x00\x00\x00\x07\xff\xff"), Error.UNSUPPORTED_VERSION),
    "what only brokers ask": (envelope(heartbeat(A)), Error.INVALID_REQUEST),
    "another envelope": (envelope(envelope(INNER)), Error.INVALID_REQUEST),
}
OPENED: dict[str, Step] = {
    "a topic": create(topic("u", [A])),
    "more partitions": grow("t", 2, [A]),
    "a configuration": configure(TOPIC, "t", ("retention.ms", SET, "2")),
    "a level": levels(("group.version", 0, 2)),
    "the end of a topic": delete("t"),
    "an error": grow("t", 1),
}


def cluster() -> Cluster:
    made = Cluster(A, admin=SECURED)
    made.do(create(topic("t", [A])))
    return made


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_envelopes_are_refused(what: str) -> None:
    """The broker hears of it, and nothing is done."""
    step, error = REFUSED[what]
    on = cluster()
    before = len(on.controller.batches)
    answer = on.do(step)
    assert (answer["error_code"], answer["response_data"]) == (error, None)
    assert on.since(before) == []


@pytest.mark.parametrize("what", OPENED)
def test_a_forwarded_request_is_answered_as_a_direct_one(what: str) -> None:
    forwarded, asked = cluster(), cluster()
    assert forwarded.do(envelope(OPENED[what])) == asked.do(OPENED[what])
    assert len(forwarded.controller.batches) == len(asked.controller.batches)


def test_a_token_created_through_an_envelope_belongs_to_the_client() -> None:
    on = cluster()
    (record,) = on.records(by("alice", token()))
    assert isinstance(record, DelegationTokenRecord)
    assert record.owner == "User:alice"


def test_a_standby_answers_not_controller_in_the_envelope() -> None:
    on = cluster()
    request = envelope(INNER)[0](on.side)
    on.controller.controller.renounce()
    answer = on.controller.controller.handle(request, 0, 2, 0).response
    assert answer == m.EnvelopeResponse(error_code=Error.NOT_CONTROLLER)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_an_envelope_with_any_content_is_answered(data: bytes) -> None:
    on = cluster()
    before = len(on.controller.batches)
    on.do(envelope(data))
    assert on.since(before) == []
    assert on.controller.controller.is_active
