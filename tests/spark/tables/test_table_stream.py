"""A stream into a table: each record once, although the driver dies between two commits; few files, no idle records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

from metadata_log.arrow import read_records
from metadata_log.log.segment import file_name
from metadata_log.records.batch import scan
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes import table_stream
from metadata_log.spark.lakes.rows import Commit, Lake
from metadata_log.spark.lakes.table_stream import all_but_idle, materialize_stream
from support.spark.fleets import PARTITION, random_log, write_meta
from support.spark.lake_rows import frame_of_lake, make_lake, make_logs, versions, write_night


def found_in(out: Path) -> Counter[tuple[str, int]]:
    table = ds.dataset(out / "records", format="parquet", partitioning="hive").to_table()
    return Counter((row["cluster"], row["offset"]) for row in table.select(["cluster", "offset"]).to_pylist())


def wanted_of(fleet: Path) -> Counter[tuple[str, int]]:
    """All records but those of an idle leader."""
    found: Counter[tuple[str, int]] = Counter()
    for directory in sorted(fleet.iterdir()):
        for batch in read_records(str(directory), cluster=f"cluster-{directory.name}"):
            rows = batch.select(["cluster", "offset", "type"]).to_pylist()
            found.update((row["cluster"], row["offset"]) for row in rows if row["type"] != "NoOpRecord")
    return found


def test_a_stream_that_dies_between_two_commits_gives_each_record_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    fleet, out, checkpoint = tmp_path / "fleet", tmp_path / "out", str(tmp_path / "checkpoint")
    logs = {name: random_log(Random(f"{seed} {name}"), 30) for name in ("a", "b")}
    add_files = table_stream._add_files
    batches = 0

    def dies(batch: DataFrame, where: Path, number: int) -> None:
        """The files of the batch are there, and Spark does not know."""
        nonlocal batches
        add_files(batch, where, number)
        batches += 1
        raise RuntimeError("the driver is gone")

    for day, part in enumerate((0.5, 1.0)):
        for name, data in logs.items():
            ends = [one.end_position for one in scan(data)]
            partition = fleet / name / PARTITION
            partition.mkdir(parents=True, exist_ok=True)
            write_meta(partition.parent, f"cluster-{name}")
            (partition / file_name(0)).write_bytes(data[: ends[int((len(ends) - 1) * part)]])
        with monkeypatch.context() as patched:
            patched.setattr(table_stream, "_add_files", dies)
            query = materialize_stream(spark, [f"{fleet}/*"], str(out), checkpoint)
            with pytest.raises(Exception, match="the driver is gone"):
                query.awaitTermination()
        materialize_stream(spark, [f"{fleet}/*"], str(out), checkpoint).awaitTermination()
        assert found_in(out) == wanted_of(fleet)
        assert batches == day + 1
    assert set(found_in(out).values()) == {1}
    files = list(out.rglob("*.parquet"))
    partitions = {path.parent for path in files}
    assert len(files) <= 2 * len(partitions)
    assert not [path for path in out.iterdir() if path.name.startswith("_")]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_batch_that_is_repeated_makes_no_second_commit(
    kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_night(tmp_path / "fleet", make_logs(1, ("a", "b"), 20), 1.0)
    lake, checkpoint = make_lake(kind, tmp_path / "lake"), str(tmp_path / "checkpoint")
    paths = [f"{tmp_path}/fleet/*"]
    real = lakes.commit

    def dies(lake: Lake, name: str, change: Commit) -> None:
        real(lake, name, change)
        raise RuntimeError("the driver is gone")

    with monkeypatch.context() as patched:
        patched.setattr(lakes, "commit", dies)
        with pytest.raises(Exception, match="the driver is gone"):
            materialize_stream(spark, paths, lake, checkpoint).awaitTermination()
    before = versions(lake, "records")
    materialize_stream(spark, paths, lake, checkpoint).awaitTermination()
    assert versions(lake, "records") == before
    found = frame_of_lake(lake, "records").select("cluster", "offset").rows()
    wanted = spark.read.format("kraft").load(paths[0]).where("type <> 'NoOpRecord'").select("cluster", "offset")
    assert sorted(found) == sorted(map(tuple, wanted.collect()))


def test_types_that_this_version_does_not_know_are_read() -> None:
    names = all_but_idle().split(",")
    assert "NoOpRecord" not in names
    assert {"TopicRecord", "record type 99", "control record type 99"} <= set(names)
