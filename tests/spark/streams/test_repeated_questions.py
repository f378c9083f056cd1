"""Spark asks a source the same twice, also after a restart: the second answer may not lose what the first has named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata_log.log.segment import file_name
from metadata_log.spark.errors import DataLoss
from metadata_log.spark.options import parse_options
from metadata_log.spark.rows import spark_schema
from metadata_log.spark.stream import KraftStreamReader
from support.spark.fleets import write_log

Place = tuple[str, int]
ALL = ReadAllAvailable()


def reader(fleet: Path, starting: str = "latest") -> KraftStreamReader:
    options = parse_options({"path": f"{fleet}/*", "startingOffsets": starting})
    return KraftStreamReader(options, spark_schema(options))


def read(source: KraftStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Place]:
    batches = [batch for task in source.partitions(start, end) for batch in source.read(task)]
    return sorted((row["cluster"], row["offset"]) for batch in batches for row in batch.to_pylist())


def test_the_first_offset_stays_while_the_log_grows(tmp_path: Path):
    """Spark asks before it asks for the end, and again when it plans the batch."""
    write_log(tmp_path / "a", [1, 1], cluster="a")
    source = reader(tmp_path)
    start = source.initialOffset()
    write_log(tmp_path / "a", [1, 1, 1], cluster="a")
    end = source.latestOffset(start, ALL)
    write_log(tmp_path / "a", [1, 1, 1, 1], cluster="a")
    assert source.initialOffset() == start
    assert read(source, source.initialOffset(), end) == [("a", 4), ("a", 5)]


@pytest.mark.parametrize("first", ["latest", '{"a": 4}'])
def test_a_first_batch_that_was_planned_before_a_restart_begins_where_it_began(tmp_path: Path, first: str):
    """Nothing was committed: Spark has the end of the batch alone, and asks a new reader where the query begins."""
    write_log(tmp_path / "a", [1, 1], cluster="a")
    write_log(tmp_path / "b", [1], cluster="b")
    source = reader(tmp_path, first)
    start = source.initialOffset()
    write_log(tmp_path / "a", [1, 1, 1], cluster="a")
    write_log(tmp_path / "c", [1], cluster="c")
    end = source.latestOffset(start, ALL)
    rows = read(source, start, end)
    assert {("a", 4), ("a", 5), ("c", 0), ("c", 1)} <= set(rows)
    write_log(tmp_path / "a", [1, 1, 1, 1], cluster="a")
    write_log(tmp_path / "b", [1, 1], cluster="b")
    again = reader(tmp_path)
    assert read(again, again.initialOffset(), end) == rows
    following = again.latestOffset(end, ALL)
    assert read(again, end, following) == [("a", 6), ("a", 7), ("b", 2), ("b", 3)]
    assert again.latestOffset(following, ALL) == following


def test_a_new_log_that_loses_its_beginning_before_the_batch_is_read_is_a_loss(tmp_path: Path):
    partition = write_log(tmp_path / "a", [1, 1], cluster="a")
    source = reader(tmp_path, "earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    (partition / file_name(0)).unlink()
    write_log(tmp_path / "a", [1, 1], cluster="a", base=2)
    again = reader(tmp_path, "earliest")
    with pytest.raises(DataLoss, match="offsets 0 to 1 of cluster a were deleted before they were read"):
        again.partitions(again.initialOffset(), end)


def test_a_query_until_now_ends_at_the_first_now(tmp_path: Path):
    write_log(tmp_path / "a", [1, 1], cluster="a")
    source = reader(tmp_path, "earliest")
    source.prepareForTriggerAvailableNow()
    write_log(tmp_path / "a", [1, 1, 1], cluster="a")
    write_log(tmp_path / "b", [1], cluster="b")
    source.prepareForTriggerAvailableNow()
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    assert read(source, start, end) == [("a", number) for number in range(4)]
    assert source.latestOffset(end, ALL) == end
