"""Planning and reading as Spark's planner and executors do it, in this process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from metadata_log.spark.options import parse_options
from metadata_log.spark.rows import spark_schema
from metadata_log.spark.scan import FilteringReader, KraftReader


def reader(path: Path | str, schema: StructType | None = None, **options: str) -> KraftReader:
    parsed = parse_options({"path": str(path), **options})
    make = FilteringReader if parsed.push_filters else KraftReader
    return make(parsed, schema or spark_schema(parsed))


def table(source: KraftReader) -> pa.Table:
    """Everything that a reader gives, its tasks sent through pickle as Spark does."""
    batches = []
    for partition in source.partitions():
        batches += list(pickle.loads(pickle.dumps(source)).read(pickle.loads(pickle.dumps(partition))))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def read(path: Path | str, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table(reader(path, schema, **options)).to_pylist()
    return found
