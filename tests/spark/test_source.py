"""The source inside a Spark session: found by itself, parallel, filtered, and the same as SQL over the raw records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from metadata_log.log.segment import file_name
from metadata_log.spark import views
from metadata_log.spark.errors import SourceError
from support.real_data import unpack
from support.spark.fleets import random_log, write_log, write_meta
from support.spark.windows import CONFIGS, LEADERS, PARTITIONS, RAW


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real clusters and random ones, side by side."""
    root = tmp_path_factory.mktemp("fleet")
    unpack("static3", "nodes/c1", root / "static3")
    unpack("clusters", "failover/nodes/c1", root / "failover")
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    for number in range(2):
        partition = root / f"random-{number}" / "__cluster_metadata-0"
        partition.mkdir(parents=True)
        write_meta(partition.parent, f"random-{number}-{seed}")
        (partition / file_name(0)).write_bytes(random_log(Random(seed + number), 60))
    return root


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("kraft").options(**options).load(f"{path}/*")


def assert_same(one: DataFrame, other: DataFrame) -> None:
    """Both hold the same rows, as often; names of columns do not matter."""
    here, there = (Counter(str(tuple(row)) for row in each.collect()) for each in (one, other))
    assert ((here - there).most_common(3), (there - here).most_common(3)) == ([], [])
    assert here


def test_histories_equal_windows_over_the_raw_records(spark: SparkSession, fleet: Path) -> None:
    """Spark's own window functions know nothing of our replay."""
    for name, view in RAW.items():
        read(spark, fleet, view=view, showSecrets="true").createOrReplaceTempView(name)
    partitions = spark.sql(PARTITIONS).cache()
    partitions.createOrReplaceTempView("partitions")
    histories = views(spark, f"{fleet}/*")
    told = histories.partition_history().where("cause_record in ('PartitionRecord', 'PartitionChangeRecord')")
    columns = "cluster, topic_id, {}, {}, {}, leader, leader_epoch, isr, replicas, adding_replicas, removing_replicas"
    assert_same(
        told.selectExpr(*columns.format("partition", "valid_from_offset", "valid_from").split(", ")),
        partitions.selectExpr(*columns.format("partition_id", "offset", "timestamp").split(", ")),
    )
    leaders = ("cluster", "topic_id", "partition", "leader", "leader_epoch", "isr", "replicas")
    assert_same(histories.leader_history().select(*leaders, "valid_from_offset", "valid_to_offset"), spark.sql(LEADERS))
    configs = ("cluster", "resource_name", "key", "value", "cause_offset", "valid_to_offset")
    assert_same(histories.config_history(showSecrets=True).select(*configs), spark.sql(CONFIGS))


def test_a_fleet_is_read_in_parallel_and_filtered(spark: SparkSession, fleet: Path) -> None:
    records = views(spark, f"{fleet}/*").records(splitBytes=100_000)
    assert records.rdd.getNumPartitions() > 4
    (cluster,) = records.where("cluster like 'random-0%'").select("cluster").distinct().collect()
    some = records.where(f"cluster = '{cluster[0]}' and offset >= 10 and type = 'PartitionChangeRecord'")
    assert some.rdd.getNumPartitions() == 1
    everything = read(spark, fleet).where("type = 'PartitionChangeRecord' and offset >= 10")
    assert_same(some.select("offset", "value"), everything.where(f"cluster = '{cluster[0]}'").select("offset", "value"))


def test_payloads_and_schemas(spark: SparkSession, fleet: Path) -> None:
    reader = spark.read.format("kraft")
    texts = reader.schema("payload string, offset bigint").option("payload", "json").load(f"{fleet}/failover")
    assert texts.columns == ["payload", "offset"]
    found = [json.loads(row.payload) for row in texts.where("payload is not null").take(50)]
    assert found
    variants = read(spark, fleet, payload="variant", type="PartitionRecord").where("cluster like 'random%'")
    told = variants.selectExpr("try_variant_get(payload, '$.leader', 'int') as leader").where("leader > 0")
    assert told.count() == read(spark, fleet, view="PartitionRecord").where("cluster like 'random%'").count()


def test_views_as_methods(spark: SparkSession, fleet: Path) -> None:
    of_one = views(spark, f"{fleet}/failover", f"{fleet}/static3")
    assert of_one.partitions_state(asOfOffset=300).select("cluster", "as_of_offset").distinct().count() == 2
    assert "leader_history" in dir(of_one)
    for path in (f"{fleet}/absent/*", f"{fleet}/absent", "absent/*"):
        with pytest.raises(
            SourceError, match=r"(nothing is found at|the glob) .*absent.* Give the directory that holds"
        ):
            views(spark, path).leader_history()
    assert views(spark, f"{fleet}/absent").damage().count() == 1
    with pytest.raises(AttributeError, match="did you mean leader_history"):
        of_one.leaders_history()


def test_errors_in_spark_name_option_file_and_remedy(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "a", [1], cluster="x")
    with pytest.raises(AnalysisException, match="there is no option 'asofofset'; did you mean asOfOffset"):
        spark.read.format("kraft").option("asOfOfset", "1").load(str(tmp_path)).count()
    with pytest.raises(AnalysisException, match=r"the glob .* matches no metadata log"):
        spark.read.format("kraft").load(f"{tmp_path}/*.absent").count()
    with pytest.raises(AnalysisException, match=r"but a below it are: the glob .*/\* finds them"):
        spark.read.format("kraft").load(str(tmp_path)).count()
    with pytest.raises(AnalysisException, match=r"nothing is found at a/absent \(a relative path begins in /.* here\)"):
        spark.read.format("kraft").load("a/absent").count()
    own = spark.read.format("kraft").schema("cluster string, leader int")
    with pytest.raises(AnalysisException, match="the view records has no column 'leader'; there are cluster, "):
        own.load(str(tmp_path / "a")).count()
