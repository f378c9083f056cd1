"""Random mapping rules and names: our principals are those of Kafka's `SslPrincipalMapper`."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from pathlib import Path
from random import Random, SystemRandom

import pytest

from support.differential.random_names import JAVA_ONLY, answer_of, random_name, random_rules
from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).parent.parent / "PrincipalOracle.java"
RECORDED = Path(__file__).parents[2] / "data" / "principal_fuzz.jsonl.gz"
NAMES = 10_000
NAMES_PER_RULES = 4


def kafkas_answers(kafka: KafkaInstallation, cases: list[tuple[str, str]]) -> list[str]:
    """The answers of Kafka's class for these rules and names, in the words of `answer_of`."""
    lines = ["\t".join(b64encode(text.encode()).decode() for text in case) for case in cases]
    words = [line.split() for line in oracle(kafka, ORACLE, lines).splitlines()]
    return [f"is {b64decode(''.join(rest)).decode()}" if kind == "is" else kind for kind, *rest in words]


def test_random_rules_give_the_principals_of_kafkas_class(kafka: KafkaInstallation) -> None:
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = Random(seed)
    cases: list[tuple[str, str]] = []
    while len(cases) < NAMES:
        rules = random_rules(rng)
        cases += [(rules, random_name(rng)) for _ in range(NAMES_PER_RULES)]
    theirs = kafkas_answers(kafka, cases)
    ours = [answer_of(*case) for case in cases]
    found = list(zip(cases, ours, theirs, strict=True))
    differing = [one for one in found if one[1] not in (one[2], JAVA_ONLY)]
    assert not differing, f"{len(differing)} differ, of them {differing[:5]}"
    assert ours.count(JAVA_ONLY) < NAMES * 0.05, "most patterns are matched here"
    assert sum(answer.startswith("is ") for answer in theirs) > NAMES * 0.3


def test_the_recorded_answers_are_kafkas(kafka: KafkaInstallation) -> None:
    rows = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    assert [row["kafka"] for row in rows] == kafkas_answers(kafka, [(row["rules"], row["name"]) for row in rows])
