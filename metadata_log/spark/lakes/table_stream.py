"""A stream of records into a table, each record once: also if the driver dies between two commits.

A batch of a query has a number, and Spark repeats the last batch after a restart with the same rows. Tables of Delta
Lake and Iceberg keep the number with the commit, and the driver, which writes them, skips a repeated batch. Files of
Parquet on disk get the number as a name, so a repeated batch replaces its own files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metadata_log.arrow.read import type_name
from metadata_log.spark.errors import OptionError
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes.rows import Commit, Lake, Rows, lake_schema, parts_of
from metadata_log.spark.methods import register
from metadata_log.spark.storage import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE: Final = "records"
_PARTITIONS: Final = ("cluster", "date")
_IDLE: Final = "NoOpRecord"
_NUMBERS: Final = range(128)
_STAGED: Final = re.compile(r"part-(\d+)-.*\.parquet")


def all_but_idle() -> str:
    """The option `type` of the source for every record but the idle leader's; unknown types are among them."""
    names = [type_name(is_control, number) for is_control in (False, True) for number in _NUMBERS]
    return ",".join(name for name in names if name != _IDLE)


def materialize_stream(
    spark: SparkSession,
    paths: Sequence[str],
    out: str | Lake,
    checkpoint: str,
    *,
    options: Mapping[str, str] | None = None,
    every: str | None = None,
) -> StreamingQuery:
    """Start a query that adds the records of some logs to the table `records`, without those of an idle leader.

    Each trigger adds at most one file for each cluster and day.

    Args:
        spark: The session.
        paths: Directories and globs.
        out: The directory of a table of Parquet, local or mounted; or the place of tables of a lake.
        checkpoint: The directory in which Spark keeps the progress of the query.
        options: Options of the source, such as `maxOffsetsPerTrigger`.
        every: The time between two triggers, such as `1 minute`; None to read what is there, and to end.

    Returns:
        The running query.

    Raises:
        SourceError: The library of the format is missing.
        OptionError: `out` is the URL of an object store.
    """
    if not isinstance(out, str):
        lakes.check(out)
    elif is_remote(out):
        raise OptionError(
            f"the files of a batch are renamed, which {out} cannot: give Parquet({out!r}) or Delta({out!r})"
        )
    register(spark)
    reader = spark.readStream.format("kraft").option("type", all_but_idle())
    for name, value in (options or {}).items():
        reader = reader.option(name, value)
    source = reader.option("paths", _json(paths)).load()
    writer = source.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
    return writer.foreachBatch(_into(out)).start()


def _into(out: str | Lake) -> Callable[[DataFrame, int], None]:
    def add(batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as sql

        dated = batch.withColumn("date", sql.to_date("timestamp"))
        if isinstance(out, str):
            few = dated.repartition(*_PARTITIONS).sortWithinPartitions(*_PARTITIONS, "offset")
            _add_files(few, Path(out), number)
        else:
            _add_rows(dated.sort(*_PARTITIONS, "offset"), out, number)

    return add


def _add_rows(batch: DataFrame, out: Lake, number: int) -> None:
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query is not None
    table = batch.toArrow()
    rows = Rows(lake_schema(*table.schema), parts_of(table, _PARTITIONS), _PARTITIONS)
    lakes.commit(out, TABLE, Commit(query, number, rows))


def _add_files(batch: DataFrame, out: Path, number: int) -> None:
    """Write a batch aside, and rename its files: a repeated batch has the same partitions, so it replaces its files."""
    staged = out / f"_batch-{number}"
    batch.write.mode("overwrite").partitionBy(*_PARTITIONS).parquet(str(staged))
    for folder in sorted({path.parent for path in staged.rglob("part-*.parquet")}):
        target = out / TABLE / folder.relative_to(staged)
        target.mkdir(parents=True, exist_ok=True)
        parts = sorted(path for path in folder.iterdir() if _STAGED.fullmatch(path.name))
        for part, path in enumerate(parts):
            os.replace(path, target / f"{number:010d}-{part}.parquet")
    shutil.rmtree(staged)


def _json(paths: Sequence[str]) -> str:
    return json.dumps(list(paths))
