"""The recorded verdicts on patterns of clients are those of RE2/J, with which Kafka's coordinators match them."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path
from typing import Final

import pytest

from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka

ORACLE: Final = Path(__file__).parents[1] / "PatternOracle.java"
RECORDED: Final = Path(__file__).parents[2] / "data" / "client_patterns.jsonl.gz"


def test_the_recorded_verdicts_are_those_of_the_jvm(kafka: KafkaInstallation) -> None:
    first, *rows = map(json.loads, gzip.decompress(RECORDED.read_bytes()).splitlines())
    # What hangs takes a core until the end.
    rows.sort(key=lambda row: row["kafka"] == "hangs")
    lines = ["\t".join(b64encode(one.encode()).decode() for one in (row["pattern"], *first["texts"])) for row in rows]
    assert oracle(kafka, ORACLE, lines).splitlines() == [row["kafka"] for row in rows]
