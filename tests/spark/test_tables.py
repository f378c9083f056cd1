"""Tables of Spark's catalog: their options, their columns, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metadata_log.arrow import schema_of
from metadata_log.arrow.schema import COMMENT
from metadata_log.history import VIEWS
from metadata_log.spark import KraftDataSource, views
from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.storage import disk_at, is_remote, matches
from metadata_log.spark.tables import options_of_table, stored_options
from support.spark.fleets import write_log

FROM_SPARK = {
    "location": "file:/fleet%20of%20all/*",
    "path": "file:/fleet%20of%20all/*",
    "option.view": "leader_history",
    "view": "leader_history",
    "owner": "root",
    "provider": "kraft",
    "is_managed_location": "true",
    "comment": "leaders",
    "team": "storage",
}
"""What Spark 4.3 gives for `CREATE TABLE` with OPTIONS (view), LOCATION, COMMENT, and the property `team`."""


def test_keys_of_spark_and_properties_are_no_options_of_a_table() -> None:
    assert options_of_table(FROM_SPARK) == {"view": "leader_history", "path": "file:/fleet of all/*"}
    paths = {"paths": '["/a", "/b"]', "option.paths": '["/a", "/b"]', "provider": "kraft", "owner": "root"}
    assert options_of_table(paths) == {"paths": '["/a", "/b"]'}


def test_a_wrong_option_of_a_table_is_refused_when_the_table_is_made() -> None:
    wrong = {**FROM_SPARK, "option.veiw": "records", "veiw": "records"}
    with pytest.raises(OptionError, match="there is no option 'veiw'; did you mean view"):
        KraftDataSource(wrong).schema()


@pytest.mark.parametrize(
    "given", [{"path": "backup/*", "location": "backup/*"}, {"paths": '["/a", "b"]'}, {"path": "file:b"}]
)
def test_a_relative_path_of_a_table_is_refused_when_the_table_is_made(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"of a table is relative, .* Give an absolute path, such as /"):
        KraftDataSource({"provider": "kraft", **given}).schema()
    assert KraftDataSource({name: path for name, path in given.items() if name != "location"}).schema()


def test_columns_of_a_table_carry_its_options_and_those_of_a_query_none() -> None:
    of_table = KraftDataSource(dict(FROM_SPARK)).schema()
    assert stored_options(of_table) == {"view": "leader_history", "path": "file:/fleet of all/*"}
    of_query = KraftDataSource({"path": "/fleet", "view": "leader_history", "storageOptions": '{"key": "k"}'}).schema()
    assert stored_options(of_query) == {}
    assert "storage" not in of_query.json()
    assert [field.dataType for field in of_table] == [field.dataType for field in of_query]


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_columns_have_their_descriptions(view: str) -> None:
    """Arrow and Spark have what the table of views has: nullability, keys and meanings."""
    arrow = schema_of(view)
    spark_schema = KraftDataSource({"path": "/fleet", "view": view}).schema()
    for column, field, told in zip(VIEWS[view].columns, arrow, spark_schema, strict=True):
        assert field.nullable == told.nullable == column.nullable
        comment = "" if field.metadata is None else field.metadata[COMMENT].decode()
        assert (told.metadata or {}).get("comment", "") == comment
        assert comment.endswith(column.doc)
        head = comment.removesuffix(column.doc)
        assert ("not null" in head) == (not column.nullable)
        assert ("key" in head) == (bool(VIEWS[view].key) and column.name in ("cluster", *VIEWS[view].key))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("dbfs:/fleet/*", r"dbfs:/fleet/\* is a path of the Databricks File System: .* is /dbfs/fleet/\*"),
        ("s3a:/bucket/a", r"is a path of Amazon S3, in the words of Hadoop: .*pip install s3fs"),
        ("abfss://box@account.dfs.core.windows.net/a", r"is a path of Azure Data Lake Storage: .*pip install adlfs"),
        ("gs://bucket/a", r"is a path of Google Cloud Storage: .*pip install gcsfs"),
        ("hdfs://name:8020/fleet", r"is a path of a Hadoop file system: .*CLASSPATH"),
        ("wasbs://box@account/a", r"is a path of Azure Blob Storage: .*Write abfss://"),
        ("nonsense://a/b", r"nonsense://a/b cannot be read: .*fsspec"),
    ],
)
def test_paths_that_nothing_here_reads_are_named_for_what_they_are(
    path: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    assert is_remote(path)
    with pytest.raises(SourceError, match=words):
        disk_at(path)
    with pytest.raises(SourceError, match=words):
        matches(path)


def test_tables_are_queried_and_described(spark: SparkSession, tmp_path: Path) -> None:
    """By OPTIONS, LOCATION and `paths`; the options of a query are above those of the table."""
    for name in ("a", "b"):
        write_log(tmp_path / "some fleet" / name, [1, 1], cluster=f"cluster-{name}")
    views(spark, str(tmp_path))
    fleet = f"{tmp_path}/some fleet"
    made = {
        "kraft_by_options": f"options (path '{fleet}/*', view 'topic_history')",
        "kraft_by_location": f"options (view 'topic_history') location '{fleet}/*' tblproperties ('team' = 'x')",
        "kraft_by_paths": f"options (paths '{json.dumps([f'{fleet}/a', f'{fleet}/b'])}', view 'topic_history')",
    }
    try:
        for name, how in made.items():
            spark.sql(f"create table {name} using kraft {how}")
            counts = {row["cluster"]: row["count"] for row in spark.table(name).groupBy("cluster").count().collect()}
            assert counts == {"cluster-a": 4, "cluster-b": 4}
        [[count]] = spark.sql("select count(*) from kraft_by_options with (asOfOffset = 1)").collect()
        assert count == 4
        described = {row["col_name"]: row["comment"] for row in spark.sql("describe kraft_by_options").collect()}
        assert described["topic_id"] == "key, not null"
        assert described["valid_from_offset"] == "not null: the first offset at which the row holds"
        assert [field.nullable for field in spark.table("kraft_by_options").schema if field.name == "topic"] == [False]
        with pytest.raises(PySparkException, match="the path 'some fleet' of a table is relative"):
            spark.sql("create table kraft_relative using kraft location 'some fleet'")
        spark.sql(f"create table kraft_own (cluster string) using kraft options (path '{fleet}/*')")
        with pytest.raises(PySparkException, match=r"columns of its own keeps no options, .* without columns"):
            spark.table("kraft_own").count()
        with pytest.raises(PySparkException, match="the source kraft only reads"):
            spark.sql("insert into kraft_by_options select * from kraft_by_options")
        with pytest.raises(PySparkException, match="the source kraft only reads"):
            spark.range(1).write.format("kraft").mode("append").save(fleet)
    finally:
        for name in (*made, "kraft_own"):
            spark.sql(f"drop table if exists {name}")
    assert sorted(path.name for path in Path(fleet).glob("*/*/*.log")) == ["00000000000000000000.log"] * 2
