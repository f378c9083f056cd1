"""Planning and reading as Spark's planner and executors do it, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql.datasource import EqualTo, GreaterThan, In
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kraft.cli.main import kraft
from metadata_log.errors import MetadataLogError
from metadata_log.history import STATE_VIEWS, VIEWS
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import parse_snapshot_name
from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.rows import view_names
from metadata_log.spark.scan import FilteringReader, RangeTask
from support.real_data import unpack
from support.spark.fleets import PARTITION, write_log
from support.spark.in_process import read, reader, table


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    write_log(tmp_path / "a", [1, 1, 2, 2], cluster="x")
    write_log(tmp_path / "b", [1], cluster="y")
    return tmp_path


def test_ranges_begin_at_batches_and_give_the_rows_of_one_range(fleet: Path) -> None:
    small = reader(f"{fleet}/*", splitBytes="1")
    splits = [partition.value.split for partition in small.partitions()]
    begins = [(split.cluster, split.expected_offset) for split in splits]
    assert begins == [("x", 0), ("x", 2), ("x", 4), ("x", 6), ("y", 0)]
    assert table(small).to_pylist() == read(f"{fleet}/*")


def test_options_limit_clusters_and_offsets(fleet: Path) -> None:
    def places(**options: Any) -> list[tuple[str, int]]:
        return [(row["cluster"], row["offset"]) for row in read(f"{fleet}/*", **options)]

    assert places(cluster="y") == [("y", 0), ("y", 1)]
    assert places(fromOffset="3", toOffset="5") == [("x", 3), ("x", 4)]
    assert places(asOfOffset="2", cluster="x") == [("x", 0), ("x", 1), ("x", 2)]
    assert places(since="1970-01-01T00:00:05Z", until="1970-01-01T00:00:07Z") == [("x", 4), ("x", 5)]
    assert places(asOfTimestamp="1970-01-01T00:00:03Z", cluster="x") == [("x", 0), ("x", 1), ("x", 2), ("x", 3)]
    assert places(type="NoOpRecord") == []


def test_pushed_filters_skip_ranges(fleet: Path) -> None:
    source = reader(f"{fleet}/*", splitBytes="1", pushFilters="true")
    assert isinstance(source, FilteringReader)
    filters = [EqualTo(("cluster",), "x"), GreaterThan(("offset",), 4), In(("type",), ("TopicRecord",))]
    assert list(source.pushFilters(filters)) == filters[1:]
    tasks = [partition.value for partition in source.partitions()]
    assert [task.split.expected_offset for task in tasks if isinstance(task, RangeTask)] == [4, 6]
    assert [row["offset"] for row in table(source).to_pylist()] == [5, 6, 7]


def test_a_schema_of_the_user_prunes_and_orders(fleet: Path) -> None:
    """Columns that nobody asks for are not made."""
    schema = StructType([StructField("Offset", LongType()), StructField("cluster", StringType())])
    assert read(f"{fleet}/b", schema) == [{"Offset": 0, "cluster": "y"}, {"Offset": 1, "cluster": "y"}]
    with pytest.raises(OptionError, match="the view records has no column 'ofset'; did you mean offset"):
        reader(f"{fleet}/b", StructType([StructField("ofset", LongType())]))
    with pytest.raises(OptionError, match="the column offset of the view records is bigint, not int"):
        reader(f"{fleet}/b", StructType([StructField("offset", IntegerType())]))
    with pytest.raises(OptionError, match="there is no view 'partition_hstory'; did you mean partition_history"):
        reader(f"{fleet}/b", view="partition_hstory")


def test_every_view_of_a_real_cluster_is_read(tmp_path: Path) -> None:
    home = unpack("clusters", "failover/nodes/c1", tmp_path)
    counts = {view: table(reader(home, view=view)).num_rows for view in view_names()}
    assert counts["records"] == sum(counts[view] for view in counts if view not in {*VIEWS, "records", "clusters"})
    assert counts["clusters"] == 1
    for view in ("partition_history", "leader_history", "partitions_state", "fencing", "retention"):
        assert counts[view], view


@pytest.mark.parametrize("view", ["partition_history", "records"])
def test_damage_fails_a_query_or_is_reported_or_dropped_by_mode(tmp_path: Path, view: str) -> None:
    partition = write_log(tmp_path, [1, 1, 1, 1], cluster="x")
    segment = partition / file_name(0)
    whole = bytearray(segment.read_bytes())
    whole[len(whole) // 4 + 70] ^= 1
    segment.write_bytes(whole)
    with pytest.raises(MetadataLogError, match=rf"(?s).*{segment.name}.*byte {len(whole) // 4}"):
        read(tmp_path, view=view)
    told = read(tmp_path, view="retention" if view != "records" else view, mode="PERMISSIVE")
    marks = [row for row in told if row.get("damage") or row.get("kind") == "damage"]
    assert len(marks) == 1, told
    assert len(read(tmp_path, mode="DROPMALFORMED")) == 6


def test_problems_of_a_fleet_are_handled_by_mode(tmp_path: Path) -> None:
    write_log(tmp_path / "c1", [1, 1, 1], cluster="x")
    write_log(tmp_path / "c2", [1, 1, 2], cluster="x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MetadataLogError, match=r"is no metadata log.*, and 1 more like this"):
        read(f"{tmp_path}/*")
    found = read(f"{tmp_path}/*", mode="PERMISSIVE")
    told = sorted(row["damage"] for row in found if row["damage"])
    assert len(told) == 2
    assert "two directories of cluster x differ from offset 4 on" in told[1]
    assert [row["epoch"] for row in found if not row["damage"]] == [1, 1, 1, 1, 2, 2]
    assert len(read(f"{tmp_path}/*", mode="DROPMALFORMED")) == 6
    history = read(f"{tmp_path}/*", view="retention", mode="PERMISSIVE")
    assert len([row for row in history if row["kind"] == "damage"]) == 2
    both = read(f"{tmp_path}/c*", copies="all")
    assert sorted((row["directory"], row["epoch"]) for row in both if row["offset"] == 5) == [
        (f"{tmp_path}/c1/{PARTITION}", 1),
        (f"{tmp_path}/c2/{PARTITION}", 2),
    ]


def test_an_unreadable_segment_is_an_error(tmp_path: Path) -> None:
    partition = write_log(tmp_path, [1], cluster="x")
    (partition / file_name(2)).mkdir()
    with pytest.raises((MetadataLogError, OSError), match="Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "topic_history", "fromOffset": "3"}, "fromOffset is for views of records"),
        ({"view": "topic_history", "type": "TopicRecord"}, "type is for views of records"),
        ({"view": "topics_state", "copies": "all"}, "needs one log for each cluster"),
        ({"view": "TopicRecord", "payload": "json"}, "TopicRecord has typed columns"),
    ],
)
def test_contradictory_options_of_a_source_are_refused(fleet: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        reader(fleet / "a", **options)


def test_a_history_needs_a_whole_log(tmp_path: Path) -> None:
    """A history told of each segment by itself would begin anew in the middle."""
    partition = write_log(tmp_path, [1], cluster="x")
    write_log(tmp_path, [1], base=2)
    assert len(read(f"{partition}/*.log")) == 4
    with pytest.raises(SourceError, match=r"are of one cluster, x.*give that"):
        read(f"{partition}/*.log", view="topic_history")
    assert len(read(partition, view="topic_history")) == 4


def test_an_archive_gives_the_rows_of_its_source(tmp_path: Path) -> None:
    home = unpack("clusters", "failover/nodes/c1", tmp_path / "c1")
    archived = CliRunner().invoke(kraft, ["archive", "--from", str(home), "--to", str(tmp_path / "kept")])
    assert archived.exit_code == 0, archived.output
    assert read(tmp_path / "kept", view="leader_history") == read(home, view="leader_history")


def test_states_equal_kafkas_own_checkpoints(tmp_path: Path) -> None:
    """What Kafka wrote into each checkpoint is what the log says up to its offset, replayed from the first record."""
    home = unpack("static3", "nodes/c1", tmp_path) / PARTITION
    checkpoints = [path for path in sorted(home.glob("*.checkpoint")) if parse_snapshot_name(path.name)]
    assert len(checkpoints) > 5
    for checkpoint in (checkpoints[0], checkpoints[len(checkpoints) // 2], checkpoints[-1]):
        end = parse_snapshot_name(checkpoint.name)
        assert end is not None
        for view in STATE_VIEWS:
            there = read(checkpoint, view=view)
            here = read(home, view=view, asOfOffset=str(end.offset - 1))
            assert sorted(map(str, here)) == sorted(map(str, there)), (checkpoint.name, view)
