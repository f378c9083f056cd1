"""The data source `kraft` of Spark: Kafka's metadata logs, raw, by record type, or replayed into histories and states.

This module is imported wherever Spark looks for data sources, so it imports little: the rest comes with the first read.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from metadata_log.spark.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class KraftDataSource(DataSource):
    """`spark.read.format("kraft").option("view", …).load(paths)`; docs/howto/spark.md has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """What `format()` takes."""
        return "kraft"

    def schema(self) -> StructType:
        """The columns of the view."""
        from metadata_log.spark.rows import spark_schema

        return spark_schema(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns, with filters pushed down if that was asked for."""
        from metadata_log.spark.scan import FilteringReader, KraftReader

        return (FilteringReader if self._options.push_filters else KraftReader)(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (as Spark calls it)
        """A reader of the records that arrive in these columns."""
        from metadata_log.spark.stream import KraftStreamReader

        return KraftStreamReader(self._options, schema)
