"""A stream over a fleet delivers each record once, or says what it could not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from metadata_log.log.segment import file_name
from support.spark.fleets import log_bytes, write_log

Row = tuple[str, int | None, int | None, str | None]


class Query:
    """A streaming query that is run again and again from one checkpoint, each time to the end of what is there."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self.fleet = root / "fleet"
        self.batches: list[list[Row]] = []

    def run(self, **options: str | int | bool) -> list[Row]:
        """The rows of all triggers until everything that was there is read."""
        self.batches = []
        source = self._spark.readStream.format("kraft").options(**options).load(f"{self.fleet}/*")
        writer = source.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(self._root / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted((row for batch in self.batches for row in batch), key=_place)

    def _take(self, batch: DataFrame, _number: int) -> None:
        rows = batch.select("cluster", "offset", "epoch", "damage").collect()
        self.batches.append(sorted((tuple(row) for row in rows), key=_place))


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def _place(row: Row) -> tuple[str, int]:
    return row[0], -1 if row[1] is None else row[1]


def records(cluster: str, epochs: list[int], first: int = 0) -> list[Row]:
    """The records of `write_log`, two for each epoch."""
    return [(cluster, first + 2 * at + inner, epoch, None) for at, epoch in enumerate(epochs) for inner in range(2)]


def test_each_record_once_with_limits_restarts_and_new_clusters(query: Query) -> None:
    write_log(query.fleet / "a", [1, 1, 2], cluster="a")
    write_log(query.fleet / "b", [1, 1], cluster="b")
    assert query.run(maxOffsetsPerTrigger=4) == sorted([*records("a", [1, 1, 2]), *records("b", [1, 1])])
    assert [len(batch) for batch in query.batches] == [4, 4, 2]
    assert query.run() == []
    write_log(query.fleet / "a", [1, 1, 2, 2], cluster="a")
    write_log(query.fleet / "c", [3], cluster="c")
    assert query.run() == sorted([*records("a", [2], first=6), *records("c", [3])])
    assert query.run() == []


def test_a_truncated_tail_fails_the_stream_or_is_reported_by_mode(query: Query) -> None:
    """A controller that lost its leadership drops what no majority had; a consumer that had read it must learn so."""
    partition = write_log(query.fleet / "a", [1, 1, 2, 2], cluster="a")
    assert query.run() == records("a", [1, 1, 2, 2])
    (partition / file_name(0)).write_bytes(log_bytes([1, 1, 3, 3, 3]))
    with pytest.raises(StreamingQueryException, match="offsets 4 to 7 of cluster a were read and are no longer"):
        query.run()
    found = query.run(onTruncation="mark")
    assert [row for row in found if row[3] is None] == records("a", [3, 3, 3], first=4)
    ((cluster, offset, _, told),) = [row for row in found if row[3] is not None]
    assert (cluster, offset) == ("a", 4)
    assert told is not None
    assert "offsets 4 to 7" in told
    assert query.run() == []


def retention(query: Query) -> None:
    partition = write_log(query.fleet / "a", [1, 1], cluster="a")
    assert query.run() == records("a", [1, 1])
    (partition / file_name(0)).unlink()
    write_log(query.fleet / "a", [1, 2], cluster="a", base=8)


def gone(query: Query) -> None:
    write_log(query.fleet / "a", [1], cluster="a")
    write_log(query.fleet / "b", [1], cluster="b")
    query.run()
    (query.fleet / "b" / "__cluster_metadata-0" / file_name(0)).unlink()
    (query.fleet / "b" / "__cluster_metadata-0").rmdir()


@pytest.mark.parametrize(
    ("happen", "words", "rows"),
    [
        (retention, "offsets 4 to 7 of cluster a were deleted before they were read", records("a", [1, 2], first=8)),
        (gone, "the directory of cluster b is gone", []),
    ],
)
def test_records_deleted_before_the_read_fail_the_stream_or_are_reported(
    query: Query, happen: Callable[[Query], None], words: str, rows: list[Row]
) -> None:
    happen(query)
    with pytest.raises(StreamingQueryException, match=words):
        query.run()
    found = query.run(failOnDataLoss=False)
    assert [row for row in found if row[3] is None] == rows
    assert len([row for row in found if row[3] is not None]) == 1
    assert query.run(failOnDataLoss=False) == []


def test_a_stream_starts_at_its_starting_offsets(spark: SparkSession, tmp_path: Path) -> None:
    for name, starting, wanted in (
        ("latest", "latest", records("a", [2], first=4)),
        ("given", '{"a": 2}', records("a", [1, 2], first=2)),
    ):
        query = Query(spark, tmp_path / name)
        write_log(query.fleet / "a", [1, 1], cluster="a")
        if starting == "latest":
            assert query.run(startingOffsets=starting) == []
        write_log(query.fleet / "a", [1, 1, 2], cluster="a")
        assert query.run(startingOffsets=starting) == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "controller_gaps"}, "is replayed and cannot be followed"),
        ({"asOfOffset": 3}, "asOfOffset is for spark.read"),
        ({"startingOffsets": "newest"}, "one of earliest, latest is allowed"),
    ],
)
def test_options_unsupported_by_streams_are_refused(query: Query, options: dict[str, str | int], words: str) -> None:
    write_log(query.fleet / "a", [1], cluster="a")
    with pytest.raises(Exception, match=words) as refused:
        query.run(**options)
    assert "UnboundLocalError" not in str(refused.value), "an error of PySpark that hides ours"
