"""Runs with another PySpark than the other tests: tables of Delta Lake or Iceberg, night by night, beside Parquet.

One JSON object of settings in, one of results out. Each night's rows are those of Parquet, and stay readable later.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from metadata_log.arrow.schema import CLUSTERS
from metadata_log.cluster_names import ClusterName, ClusterNames
from metadata_log.disk import OsDisk
from metadata_log.spark.cluster_table import write_clusters
from metadata_log.spark.java import prepare_environment
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes import publish
from metadata_log.spark.lakes.lake import Delta, Iceberg, Lake
from metadata_log.spark.lakes.lake_session import lake_session
from metadata_log.spark.materialize import find_fleet, make_job, run_here
from metadata_log.tables.cluster import Status

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def rows(frame: DataFrame) -> list[str]:
    """The rows of a table without lineage, as text."""
    names = sorted(
        name for name in frame.columns if not name.startswith("lineage_") and name not in ("date", "is_open")
    )
    made = frame.select(sql.to_json(sql.struct(*names), {"ignoreNullFields": "false"}).alias("row")).collect()
    # A map has no order.
    return sorted(json.dumps(json.loads(row["row"]), sort_keys=True) for row in made)


def rows_of_parquet(spark: SparkSession, table: str) -> list[str]:
    """The rows of a table of Parquet; none of one that no run has given a row."""
    return rows(spark.read.parquet(table)) if Path(table).exists() else []


def version(spark: SparkSession, lake: Lake, table: str) -> int:
    """The newest version of a table."""
    match lake:
        case Delta():
            history = spark.sql(f"DESCRIBE HISTORY {lake.table(table)}")
            return int(history.agg(sql.max("version")).collect()[0][0])
        case Iceberg():
            query = f"SELECT snapshot_id FROM {lake.table(table)}.history ORDER BY made_current_at DESC LIMIT 1"
            return int(spark.sql(query).collect()[0][0])


class Broken(Exception):
    """The driver stops here."""


def materialize(
    spark: SparkSession,
    lake: Lake,
    night: str,
    out: str,
    views: list[str],
    run: str,
    most: int,
    *,
    names: ClusterNames | None = None,
    clusters: Sequence[str] = (),
) -> list[str]:
    """One run that stops in front of the table `most`; what it did with the clusters."""
    written = 0
    replace = lakes.replace_rows

    def counted(*given: Any) -> None:
        nonlocal written
        written += 1
        if written > most:
            raise Broken
        replace(*given)

    job = make_job(out, run=run, views=views, is_staged=True)
    with patch.object(lakes, "replace_rows", counted), suppress(Broken):
        made = publish.materialize_into(spark, lake, find_fleet([f"{night}/*"], {}, clusters), job, names)
        return [str(outcome.status) for outcome in made.outcomes]
    return []


def nights(spark: SparkSession, lake: Lake, settings: dict[str, Any]) -> dict[str, Any]:
    root, views = settings["root"], settings["views"]
    lake_out, plain_out = f"{root}/{settings['format']}", f"{root}/parquet"
    seen: list[tuple[dict[str, int], dict[str, list[str]]]] = []
    for number, night in enumerate(settings["nights"]):
        run_here(find_fleet([f"{night}/*"], {}), make_job(plain_out, run=f"n{number}", views=views))
        if number:
            # The first attempt ends between the commits of two tables, and is tried again.
            materialize(spark, lake, night, lake_out, views, f"broken{number}", most=1)
        materialize(spark, lake, night, lake_out, views, f"n{number}", most=100)
        now = {view: rows(spark.sql(f"SELECT * FROM {lake.table(view)}")) for view in views}
        for view in views:
            assert now[view] == rows_of_parquet(spark, f"{plain_out}/{view}"), (number, view)
        seen.append(({view: version(spark, lake, view) for view in views}, now))
    before = {view: version(spark, lake, view) for view in views}
    again = materialize(spark, lake, settings["nights"][-1], lake_out, views, "again", most=100)
    assert set(again) == {str(Status.NOTHING)}, again
    assert before == {view: version(spark, lake, view) for view in views}
    publish.compact_tables(spark, lake, make_job(lake_out, run="compact", views=views, is_staged=True))
    for versions, found in seen:
        for view in views:
            old = spark.sql(f"SELECT * FROM {lake.table(view)} VERSION AS OF {versions[view]}")
            assert rows(old) == found[view], (view, versions)
    for view in views:
        assert rows(spark.sql(f"SELECT * FROM {lake.table(view)}")) == seen[-1][1][view], view
    runs = spark.sql(f"SELECT run, count(*) FROM {lake.table('runs')} GROUP BY run ORDER BY run").collect()
    left = [str(path) for path in Path(lake_out, "_staging").rglob("*.parquet")]
    return {
        "rows": {view: len(seen[-1][1][view]) for view in views},
        "versions": [{view: versions[view] for view in views} for versions, _ in seen],
        "runs": [list(row) for row in runs],
        "left": left,
        "spark": spark.version,
    }


NAMES = (
    ClusterName("a'b", "orders", "production", {"team": "o'brien", "tier": "1"}),
    ClusterName("c", "audit"),
    ClusterName("gone", "no log yet", "test"),
)


def names(spark: SparkSession, lake: Lake, settings: dict[str, Any]) -> dict[str, Any]:
    """The table of clusters beside that of Parquet: made, left alone, changed by a run over one cluster and a crash."""
    root, views, night = settings["root"], settings["views"], settings["nights"][-1]
    out, plain_out = f"{root}/{settings['format']}", f"{root}/parquet"
    first = ClusterNames({one.cluster: one for one in NAMES})
    other = ClusterNames({"c": ClusterName("c", "audit-eu", "production"), "late": ClusterName("late", "later")})
    versions: list[int] = []
    seen: list[list[str]] = []
    for run, given, clusters, stops in (
        ("named", first, (), None),
        ("named-again", first, (), None),
        ("renamed", other, ("c",), 1),
        ("renamed-again", other, ("c",), None),
    ):
        before = {view: version(spark, lake, view) for view in views}
        if stops is not None:
            # The run ends between the table of runs and that of clusters.
            materialize(spark, lake, night, out, views, f"{run}-broken", stops, names=given, clusters=clusters)
            assert version(spark, lake, CLUSTERS) == versions[-1]
        materialize(spark, lake, night, out, views, run, 100, names=given, clusters=clusters)
        write_clusters(OsDisk(), plain_out, find_fleet([f"{night}/*"], {}, clusters).directories, given)
        found = rows(spark.sql(f"SELECT * FROM {lake.table(CLUSTERS)}"))
        wanted = rows_of_parquet(spark, f"{plain_out}/{CLUSTERS}")
        assert found == wanted, (run, found, wanted)
        assert before == {view: version(spark, lake, view) for view in views}, run
        versions.append(version(spark, lake, CLUSTERS))
        seen.append(found)
    assert versions[0] == versions[1] != versions[2] == versions[3]
    assert rows(spark.sql(f"SELECT * FROM {lake.table(CLUSTERS)} VERSION AS OF {versions[0]}")) == seen[0] != seen[2]
    return {"named": [[json.loads(row)["name"] for row in found] for found in seen]}


def stream(spark: SparkSession, lake: Delta, settings: dict[str, Any]) -> dict[str, Any]:
    """A stream into Delta Lake that dies right after a commit and goes on: its table beside the records of the logs."""
    from metadata_log.spark.lakes import table_stream

    paths, checkpoint = [f"{settings['nights'][-1]}/*"], f"{settings['root']}/checkpoint"
    add = table_stream._add_to_delta

    def dies(batch: DataFrame, out: Delta, number: int) -> None:
        add(batch, out, number)
        raise Broken

    with patch.object(table_stream, "_add_to_delta", dies), pytest.raises(Exception, match="Broken"):
        table_stream.materialize_stream(spark, paths, lake, checkpoint).awaitTermination()
    before = version(spark, lake, table_stream.TABLE)
    table_stream.materialize_stream(spark, paths, lake, checkpoint).awaitTermination()
    found = spark.sql(f"SELECT cluster, offset, type FROM {lake.table(table_stream.TABLE)}")
    records = (
        spark.read.format("kraft").load(paths[0]).where("type <> 'NoOpRecord'").select("cluster", "offset", "type")
    )
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, records.collect()))
    return {"streamed": found.count(), "versions": [before, version(spark, lake, table_stream.TABLE)]}


def main() -> None:
    settings = json.loads(sys.argv[1])
    prepare_environment(Path(settings["root"]))
    out = f"{settings['root']}/{settings['format']}"
    lake: Lake = Delta(out) if settings["format"] == "delta" else Iceberg("kraft.fleet")
    with lake_session(lake, out, master="local[2]", conf=CONF) as spark:
        told = nights(spark, lake, settings)
        told |= names(spark, lake, settings)
        if isinstance(lake, Delta):
            told |= stream(spark, lake, settings)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
