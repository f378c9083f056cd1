"""Names of clusters in Spark: beside the ids, in the view `clusters`, and in any table with a column `cluster`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from metadata_log.cluster_names import ClusterNamesError
from metadata_log.spark import views
from metadata_log.spark.named import load_cluster_names, with_names
from support.spark.fleets import write_log

NAMES = "cluster,name,environment,team\nid-a,orders,production,shop\nid-c,archive,test,\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two clusters with logs; of the two that the file names, one has a log."""
    for name in "ab":
        write_log(tmp_path / name, [1, 1], cluster=f"id-{name}")
    (tmp_path / "names.csv").write_text(NAMES)
    return tmp_path


def test_the_view_clusters_has_each_log_and_each_name(spark: SparkSession, fleet: Path) -> None:
    rows = views(spark, f"{fleet}/?").clusters(clusters=f"{fleet}/names.csv").orderBy("cluster").collect()
    log = f"{fleet}/{{}}/__cluster_metadata-0"
    assert [tuple(row) for row in rows] == [
        ("id-a", "orders", "production", {"team": "shop"}, True, [log.format("a")]),
        ("id-b", "id-b", None, {}, False, [log.format("b")]),
        ("id-c", "archive", "test", {}, True, []),
    ]
    assert [row["name"] for row in views(spark, f"{fleet}/?").clusters().orderBy("name").collect()] == ["id-a", "id-b"]


def test_every_view_has_the_names_beside_the_ids(spark: SparkSession, fleet: Path) -> None:
    options = {"clusters": f"{fleet}/names.csv"}
    for view in ("records", "TopicRecord", "topic_history", "topics_state"):
        frame = views(spark, f"{fleet}/?").read(view, **options)
        assert frame.columns[-3:] == ["cluster_name", "environment", "cluster_labels"]
        told = {tuple(row) for row in frame.select("cluster", "cluster_name", "environment").collect()}
        assert told == {("id-a", "orders", "production"), ("id-b", "id-b", None)}
        assert {row[0] for row in frame.select("cluster_name").collect()} == {"orders", "id-b"}
    chosen = views(spark, f"{fleet}/?").records(cluster="orders", **options)
    assert {row["cluster"] for row in chosen.select("cluster").distinct().collect()} == {"id-a"}


def test_rows_of_any_table_get_names_and_keep_their_order(spark: SparkSession, fleet: Path) -> None:
    names = load_cluster_names(f"{fleet}/names.csv")
    assert names is not None
    frame = spark.createDataFrame([(7, "id-b"), (9, "id-a"), (8, "id-a")], "n int, cluster string").orderBy("n")
    named = with_names(frame, names)
    assert named.columns == ["cluster", "cluster_name", "environment", "n"]
    assert [tuple(row) for row in named.collect()] == [
        ("id-b", "id-b", None, 7),
        ("id-a", "orders", "production", 8),
        ("id-a", "orders", "production", 9),
    ]


def test_a_table_of_parquet_files_names_clusters_too(fleet: Path) -> None:
    labels = pa.array([[("team", "shop")]], pa.map_(pa.string(), pa.string()))
    (fleet / "names.parquet").mkdir()
    columns = {"cluster": ["id-a"], "name": ["orders"], "environment": ["production"], "labels": labels}
    pq.write_table(pa.table(columns), fleet / "names.parquet" / "part-0.parquet")
    names = load_cluster_names(f"{fleet}/names.parquet")
    assert names is not None
    assert names.by_id["id-a"].labels == {"team": "shop"}
    (fleet / "names.csv").write_text(NAMES.replace("archive", "orders"))
    with pytest.raises(ClusterNamesError, match="two clusters have the name 'orders': id-a and id-c"):
        load_cluster_names(f"{fleet}/names.csv")
    with pytest.raises(ClusterNamesError, match="cannot be read: No such file"):
        load_cluster_names(f"{fleet}/missing.csv")
