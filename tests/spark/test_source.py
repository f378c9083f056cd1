"""The source inside a real Spark session."""

from __future__ import annotations

from pathlib import Path

from fleets import write_log
from pyspark.sql import SparkSession


def test_records(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "a", [1, 1, 2], cluster="x")
    write_log(tmp_path / "b", [1, 1, 2], cluster="y")
    found = spark.read.format("kraft").load(f"{tmp_path}/*")
    found.show()
    assert found.count() == 12
    assert found.where("cluster = 'x' and offset > 3").select("offset").collect() == [(4,), (5,)]
