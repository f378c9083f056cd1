"""The sticky assignor of streams groups gives each member the tasks that Kafka's gives it, in groups that change."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from support.broker.streams_assignments import Targets, chain
from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka
ORACLE: Final = Path(__file__).parents[1] / "StreamsAssignorOracle.java"
SEEDS: Final = (*range(200), 278, 1009, 1034, 1233, 1300)
"""In the last ones eight members are of seven processes: a hash map of Java grows though it has the key already."""


def test_each_member_has_the_tasks_that_kafkas_assignor_gives_it(newer_kafka: KafkaInstallation) -> None:
    cases = [(seed, step, group) for seed in SEEDS for step, group in enumerate(chain(seed))]
    answers = oracle(newer_kafka, ORACLE, [group.line() for _, _, group in cases]).splitlines()
    seen = Counter[str]()
    for (seed, step, group), answer in zip(cases, answers, strict=True):
        theirs: Targets = json.loads(answer)
        assert group.told() == theirs, f"seed {seed}, step {step}: {group.line()}"
        seen["tasks"] += sum(len(numbers) for active, _ in theirs.values() for numbers in active.values())
        seen["standbys"] += sum(len(numbers) for _, standby in theirs.values() for numbers in standby.values())
    assert min(seen["tasks"], seen["standbys"]) > 10_000, seen
