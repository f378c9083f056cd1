"""The sticky assignor of streams groups gives out tasks as that of Apache Kafka 4.4.0 has, asked beforehand."""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

import pytest

from support import DATA
from support.broker.streams_assignments import Group

CASES: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in gzip.decompress((DATA / "streams_assignments.jsonl.gz").read_bytes()).splitlines()
]
"""Groups with the answers of Kafka's, as `interop/brokers/test_kafkas_streams_assignor.py` asks for them."""


@pytest.mark.parametrize("case", CASES, ids=[f"{one['seed']}-{one['step']}" for one in CASES])
def test_gives_out_tasks_as_kafka(case: dict[str, Any]) -> None:
    assert Group.parse(case["group"]).told() == case["targets"]
