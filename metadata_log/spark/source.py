"""Spark's data source `kraft`: Kafka's metadata logs, raw, by record type, or replayed into histories and states.

Spark imports this module whenever it looks for data sources, so the module imports little; the first read imports the
rest.
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
    """The data source behind `spark.read.format("kraft").option("view", …).load(paths)`.

    Spark creates the object. docs/reference/metadata_log.spark.md lists the options with units and defaults.

    Args:
        options: The options of the reader by name, in any case.

    Raises:
        OptionError: An option or its value is unknown, no path is given, or two options exclude each other.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The argument of `format()`."""
        return "kraft"

    def schema(self) -> StructType:
        """The columns of the view."""
        from metadata_log.spark.rows import spark_schema

        return spark_schema(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns, with filters pushed down if that is enabled."""
        from metadata_log.spark.scan import FilteringReader, KraftReader

        return (FilteringReader if self._options.push_filters else KraftReader)(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (as Spark calls it)
        """A stream reader of these columns."""
        from metadata_log.spark.stream import KraftStreamReader

        return KraftStreamReader(self._options, schema)
