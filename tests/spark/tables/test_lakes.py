"""Tables of Delta Lake and Iceberg through Spark itself, with the releases of PySpark for which jars exist."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fleets import write_meta
from nightly_logs import Night, nights
from other_pyspark import PYSPARK, python_with
from pyspark.sql import SparkSession

from kraft.cli.main import main
from metadata_log.spark.errors import SourceError
from metadata_log.spark.lakes.lake import Delta, Iceberg, check_session, package

ROOT = Path(__file__).parent.parent.parent.parent
JOB = Path(__file__).parent / "lake_job.py"
VIEWS = ("leader_history", "broker_history")
SECONDS = 1_800


def rewritten_nights() -> list[Night]:
    """Two nights; the first has seen records that were lost after an election, so its step is taken back."""
    first = Random().randrange(2**32)
    for seed in range(first, first + 1_000):
        found, _ = nights(Random(seed), "dynamic3", 2)
        if found[0].was_rewritten and not any(night.is_late or night.begins_at_snapshot for night in found):
            print(f"seed {seed}")
            return found
    raise AssertionError("no seed has such nights")


@pytest.mark.spark_cluster
@pytest.mark.parametrize("kind", sorted(PYSPARK))
def test_tables_of_a_format_are_those_of_parquet_and_their_past_stays(kind: str, tmp_path: Path) -> None:
    """The second night's first attempt ends between two commits; the job compares all tables after each night.

    With Delta Lake also a stream that dies after a commit: the repeated batch makes no second version.
    """
    places = []
    for number, night in enumerate(rewritten_nights()):
        for directory, cluster in (("a", "a'b"), ("c", "c")):
            partition = tmp_path / f"night{number}" / directory / "__cluster_metadata-0"
            partition.mkdir(parents=True)
            write_meta(partition.parent, cluster)
            for name, content in night.files.items():
                (partition / name).write_bytes(content)
        places.append(str(tmp_path / f"night{number}"))
    python = python_with(PYSPARK[kind], tmp_path / "venv")
    settings = {"root": str(tmp_path), "nights": places, "views": VIEWS, "format": kind}
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [python, str(JOB), json.dumps(settings)],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["spark"] == PYSPARK[kind]
    assert min(told["rows"].values()) > 10
    assert dict(told["runs"])["n0"] == dict(told["runs"])["n1"] == dict(told["runs"])["again"] == 2
    assert told["left"] == []
    made, renamed = ["orders", "audit", "no log yet"], ["a'b", "audit-eu", "gone", "later"]
    assert told["named"] == [made, made, renamed, renamed]
    if kind == "delta":
        assert told["streamed"] > 100
        assert told["versions"] == [0, 0]


@pytest.mark.parametrize("lake", [Delta("/nowhere"), Iceberg("kraft.fleet")])
def test_a_session_without_the_jars_is_refused_with_what_is_missing(spark: SparkSession, lake: Delta | Iceberg) -> None:
    with pytest.raises(SourceError, match=r"no jars? of (delta|iceberg)") as refused:
        check_session(spark, lake)
    assert "--packages" in (refused.value.hint or "")


def test_a_release_of_spark_without_a_jar_is_named() -> None:
    assert package("delta", "4.2.1").startswith("io.delta:delta-spark_4.2_2.13:")
    with pytest.raises(SourceError, match=r"no jar of iceberg for Spark 9\.9 is known") as refused:
        package("iceberg", "9.9.0")
    assert "install one of these releases of PySpark: 4.0" in (refused.value.hint or "")


def test_the_command_refuses_a_format_without_a_jar_before_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "9.9.0")
    partition = tmp_path / "a" / "__cluster_metadata-0"
    partition.mkdir(parents=True)
    write_meta(partition.parent, "a")
    (partition / "00000000000000000000.log").touch()
    with pytest.raises(SystemExit) as ended:
        main(("fleet", "materialize", f"{tmp_path}/a", "--out", f"{tmp_path}/out", "--format", "delta"))
    assert ended.value.code == 1
    assert "no jar of delta for Spark 9.9 is known" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
