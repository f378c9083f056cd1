"""Kafka's controller and ours with the same rules: what each principal may do, and how a denied request is answered.

Most callers speak through envelopes, as clients of brokers do. What Kafka answers here is recorded in tests/data, for
`tests/kraft/controller/test_controller_authorizer.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from support.differential.authorizer_stories import (
    AUTHORIZER_STORIES,
    NAMED_LIKE_THE_WILDCARD,
    kafkas_answers,
    said,
    say,
)
from support.differential.controller_sides import by_batches, plain
from support.interop.one_controller import both, log_of, side_of
from support.interop.real_kafka import KafkaInstallation
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka
SETTINGS = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "super.users=User:admin",
    "allow.everyone.if.no.acl.found=true",
    "delegation.token.secret.key=of-this-test",
)


def test_answers_and_records_are_kafkas(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    with both(newer_kafka, tmp_path, *SETTINGS) as (theirs, ours):
        one, other = side_of(theirs), side_of(ours)
        assert say(one, NAMED_LIKE_THE_WILDCARD)["error_code"] == Error.UNKNOWN_SERVER_ERROR
        assert say(other, NAMED_LIKE_THE_WILDCARD)["error_code"] == Error.NONE
        for name in AUTHORIZER_STORIES:
            kafkas = said(one, name)
            assert said(other, name) == kafkas, name
            assert plain(kafkas) == kafkas_answers()[name], f"tests/data has other answers to the story {name}"
        assert without_probes(by_batches(log_of(ours))) == without_probes(by_batches(log_of(theirs)))


def without_probes(batches: list[list[str]]) -> list[list[str]]:
    """All batches but the rules of probes: Kafka may still accept one after a rule that closes envelopes."""
    return [batch for batch in batches if not any("'User:probe-" in record for record in batch)]
