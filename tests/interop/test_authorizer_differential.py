"""Kafka's controller and ours with the same rules: who may do what, and what is told to who may not.

Most callers speak through envelopes, as clients of brokers do. What Kafka answers here is recorded in tests/data, for
`tests/kraft/test_controller_authorizer.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from authorizer_stories import AUTHORIZER_STORIES, NAMED_LIKE_EVERYBODY, kafkas_answers, said, say
from controller_sides import CLUSTER_ID, by_batches, plain
from our_nodes import our_controller, our_format
from real_kafka import (
    QUIET,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    kafka_format,
    running,
)
from test_controller_differential import log_of, side_of
from wire import active_controller

from kraft.config.keys import STANDARD_AUTHORIZER
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka
SETTINGS = (
    *QUIET,
    "broker.session.timeout.ms=600000",
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "super.users=User:admin",
    "allow.everyone.if.no.acl.found=true",
    "delegation.token.secret.key=of-this-test",
)


def single(root: Path) -> QuorumLayout:
    """One controller in a directory."""
    root.mkdir()
    return QuorumLayout(root, CLUSTER_ID, dict(zip((1,), free_ports(1), strict=True)), SETTINGS)


def test_answers_and_records_are_kafkas(kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = single(tmp_path / "theirs"), single(tmp_path / "ours")
    kafka_format(kafka, theirs)
    our_format(ours)
    with (
        running(theirs, kafka_controller(kafka, theirs), name="kafka"),
        running(ours, our_controller(ours), name="ours"),
    ):
        for layout in (theirs, ours):
            eventually(lambda layout=layout: active_controller(layout.ports[1]) == 1, "it is active")
        one, other = side_of(theirs), side_of(ours)
        assert say(one, NAMED_LIKE_EVERYBODY)["error_code"] == Error.UNKNOWN_SERVER_ERROR
        assert say(other, NAMED_LIKE_EVERYBODY)["error_code"] == Error.NONE
        for name in AUTHORIZER_STORIES:
            kafkas = said(one, name)
            assert said(other, name) == kafkas, name
            assert plain(kafkas) == kafkas_answers()[name], f"tests/data has other answers to the story {name}"
        assert by_batches(log_of(ours)) == by_batches(log_of(theirs))
