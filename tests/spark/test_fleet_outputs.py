"""`kraft fleet`: names of clusters, properties of Spark, and where the rows go."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes import outputs
from support.real_data import unpack
from support.spark.own_fleet import kraft_fleet, kraft_fleets

FAILOVER = "A3gcw2Qkrwsj8xyJO7bBIw"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One real cluster, and its name."""
    found = tmp_path_factory.mktemp("fleet")
    unpack("clusters", "failover/nodes/c3", found / "backup" / "failover")
    (found / "clusters.csv").write_text(f"cluster,name,environment\n{FAILOVER},orders-eu,production\n")
    return found


@pytest.mark.spark_cluster
def test_names_partitions_and_properties_of_spark(folder: Path, tmp_path: Path) -> None:
    """One command each: a table with names, rows as JSON with both, files by a column, and a page."""
    given = (f"{folder}/backup/*", "--clusters", f"{folder}/clusters.csv", "--master", "local[1]")
    conf = ("--conf", "spark.sql.session.timeZone=UTC", "--conf", "spark.sql.shuffle.partitions=1")
    out, page = tmp_path / "outages", tmp_path / "fleet.html"
    parts = ("--partition-by", "environment", "--partition-by", "kind")
    shown, rows, done, report = kraft_fleets(
        ("incidents", *given, *conf, "--option", "cluster=orders-eu"),
        ("history", *given, "--view", "clusters", "--json"),
        ("unavailability", *given, "--out", str(out), *parts),
        ("report", *given, "--html", str(page)),
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    head, line = shown.stdout.splitlines()
    assert (head.split()[:2], line.split()[:2]) == (["cluster", "incident"], ["orders-eu", "1815/alerts-16-5"])
    assert "1815,1816,1817,1818,1819,1820,1821,1822,… (111)" in line
    (found,) = map(json.loads, rows.stdout.splitlines())
    assert (found["cluster"], found["name"], found["environment"]) == (FAILOVER, "orders-eu", "production")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (out / "environment=production").iterdir()} == {
        "kind=leaderless",
        "kind=below-min-isr",
    }
    table = ds.dataset(out, partitioning="hive").to_table()
    assert set(table.column("cluster_name").to_pylist()) == {"orders-eu"}
    assert set(table.column("cluster").to_pylist()) == {FAILOVER}
    assert report.returncode == 0
    assert f'title="{FAILOVER}">orders-eu</td>' in page.read_text()


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_the_driver_writes_a_table_format_and_replaces_its_table(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    out = str(tmp_path / "lake" / "t")
    outputs.check_output(form, out)
    frame = spark.createDataFrame([(1, "a"), (2, "b"), (3, None)], "n int, kind string")
    outputs.write(frame, out, form, ["kind"])
    outputs.write(frame.where("n > 1"), out, form, ["kind"])
    assert rows_of(form, out) == [{"n": 2, "kind": "b"}, {"n": 3, "kind": None}]
    outputs.write(frame.selectExpr("n", "array(n) as other"), out, form)
    assert rows_of(form, out) == [{"n": n, "other": [n]} for n in (1, 2, 3)]


def rows_of(form: str, out: str) -> list[dict[str, object]]:
    found = outputs.lake_of(form, out)
    assert found is not None
    table = lakes.read(*found)
    assert table is not None
    rows: list[dict[str, object]] = table.sort_by("n").to_pylist()
    return rows


def test_a_query_writes_iceberg_to_this_machine_alone() -> None:
    with pytest.raises(SourceError, match="the catalog is a file beside the table"):
        outputs.check_output("iceberg", "s3://lake/t")


def test_columns_of_partitions_exist_and_leave_a_column(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "a")], "n int, kind string")
    with pytest.raises(OptionError, match="there is no column 'knd'; did you mean kind"):
        outputs.write(frame, str(tmp_path / "x"), "parquet", ["knd"])
    with pytest.raises(OptionError, match="a column that is no partition must be left"):
        outputs.write(frame, str(tmp_path / "x"), "csv", ["n", "kind"])
    outputs.write(frame, str(tmp_path / "x"), "csv", ["kind"])
    (part,) = (tmp_path / "x" / "kind=a").glob("part-*.csv")
    assert part.read_text() == "n\n1\n"


@pytest.mark.spark_cluster
@pytest.mark.soak
def test_a_jar_of_delta_for_the_spark_before_makes_a_table_and_does_not_replace_one(
    folder: Path, tmp_path: Path
) -> None:
    """The jar comes from Maven. No release of Delta Lake is made for Spark 4.3 yet: reading the old table fails."""
    out = tmp_path / "outages"
    package = "io.delta:delta-spark_4.2_2.13:4.4.0"
    given = (f"{folder}/backup/*", "--master", "local[1]", "--format", "delta", "--packages", package)
    first = kraft_fleet("unavailability", *given, "--out", str(out), "--overwrite")
    assert (first.returncode, first.stderr) == (0, "")
    second = kraft_fleet("elections", *given, "--out", str(out), "--overwrite")
    assert second.returncode == 1
    assert "the jar of Delta Lake is not made for Spark" in second.stderr
    (log,) = (out / "_delta_log").glob("*.json")
    added = [one["add"] for one in map(json.loads, log.read_text().splitlines()) if "add" in one]
    assert sum(json.loads(one["stats"])["numRecords"] for one in added) == 142
