"""The recorded texts of Avro schemas are those of Apache Avro's Java library, which is among Spark's jars."""

from __future__ import annotations

import gzip
import json
import subprocess
from base64 import b64decode, b64encode
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.interop.kafka_or_skip import skip_here
from support.kafka_jars import find_java

pytestmark = pytest.mark.kafka
ORACLE = Path(__file__).parent.parent / "AvroOracle.java"
RECORDED = Path(__file__).parents[2] / "data" / "avro_texts.jsonl.gz"


def test_the_recorded_texts_are_those_of_java() -> None:
    rows = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    wanted = ["avro-1.*.jar", "jackson-*.jar", "slf4j-api-*.jar", "commons-compress-*.jar", "commons-lang3-*.jar"]
    path = ":".join(str(one) for pattern in wanted for one in sorted(jars.glob(pattern)))
    lines = [
        "\t".join(b64encode(text.encode()).decode() for text in (row["schema"], *row.get("imports", ())))
        for row in rows
    ]
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
    assert [b64decode(line).decode() for line in done.stdout.splitlines()] == [row["java"] for row in rows]
