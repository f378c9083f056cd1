"""Random rules and questions: our authorizer says what Kafka's `StandardAuthorizer` says."""

from __future__ import annotations

from pathlib import Path
from random import Random, SystemRandom

import pytest
from msgspec import structs

from metadata_log.image.persistent_map import in_key_order
from support.differential.random_rules import PRINCIPALS, answered, random_authorizer, random_question
from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).parent.parent / "AuthorizerOracle.java"
WORLDS = 120
QUESTIONS = 100


def test_random_acls_give_the_decisions_of_kafkas_authorizer(kafka: KafkaInstallation) -> None:
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = Random(seed)
    lines: list[str] = []
    expected = []
    for _ in range(WORLDS):
        authorizer = random_authorizer(rng, 30)
        for _, acl in in_key_order(authorizer.acls.by_id):
            lines.append("\t".join(["rule", *(str(one) for one in map(_code, structs.astuple(acl)))]))
        lines.append(f"begin\t{PRINCIPALS[-1]}\t{str(authorizer.settings.allows_without_acl).lower()}")
        for _ in range(QUESTIONS):
            question = random_question(rng)
            caller = question.caller
            words = ["ask", caller.principal, caller.host, str(int(question.operation)), str(int(question.resource))]
            lines.append("\t".join([*words, *([] if question.name is None else [question.name])]))
            expected.append("ALLOWED" if answered(authorizer, question) else "DENIED")
    theirs = oracle(kafka, ORACLE, lines).split()
    assert 0.2 < expected.count("ALLOWED") / len(expected) < 0.8
    asked = [line for line in lines if line.startswith("ask")]
    differing = [pair for pair in zip(asked, expected, theirs, strict=True) if pair[1] != pair[2]]
    assert not differing, differing[:5]


def _code(field: object) -> object:
    return int(field) if isinstance(field, int) else field
