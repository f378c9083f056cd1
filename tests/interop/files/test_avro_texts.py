"""The recorded texts and verdicts of Avro schemas are those of Avro's Java library, which is among Spark's jars."""

from __future__ import annotations

import gzip
import json
import subprocess
from base64 import b64decode, b64encode
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.interop.kafka_or_skip import skip_here
from support.kafka_jars import find_java

pytestmark = pytest.mark.kafka
ORACLE = Path(__file__).parent.parent / "AvroOracle.java"
DATA = Path(__file__).parents[2] / "data"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()]


def answers(questions: list[tuple[str, ...]]) -> list[str]:
    """What Java says of words and schemas."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    wanted = ["avro-1.*.jar", "jackson-*.jar", "slf4j-api-*.jar", "commons-compress-*.jar", "commons-lang3-*.jar"]
    path = ":".join(str(one) for pattern in wanted for one in sorted(jars.glob(pattern)))
    lines = ["\t".join([word, *(b64encode(text.encode()).decode() for text in texts)]) for word, *texts in questions]
    done = subprocess.run(
        [find_java(), "-cp", path, str(ORACLE)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "Module jdk.compiler not found" in done.stderr:
        skip_here("this Java cannot run a source file")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_recorded_texts_are_those_of_java() -> None:
    recorded = rows("avro_texts.jsonl.gz")
    said = answers([("text", row["schema"], *row.get("imports", ())) for row in recorded])
    assert [b64decode(line).decode() for line in said] == [row["java"] for row in recorded]


def test_the_recorded_verdicts_are_those_of_java() -> None:
    recorded = rows("avro_verdicts.jsonl.gz")
    assert answers([("verdict", row["reader"], row["writer"]) for row in recorded]) == [row["java"] for row in recorded]
