"""Spark's data source `kraft`: Kafka's metadata logs, raw, by record type, or replayed into histories and states.

Spark imports this module whenever it looks for data sources, so the module imports little; the first read imports the
rest.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

from metadata_log.errors import MetadataLogError
from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.options import Options, parse_options
from metadata_log.spark.tables import PATHS, check_paths, is_table, options_of_table, with_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class KraftDataSource(DataSource):
    """The data source behind `spark.read.format("kraft").option("view", …).load(paths)` and `… USING kraft`.

    Spark creates the object. docs/reference/metadata_log.spark.md lists the options with units and defaults.

    Args:
        options: The options of the reader by name, in any case; for a table also Spark's own keys. An `OptionError`
            for them is raised when Spark asks for the schema or for a reader: an option or its value is unknown, no
            path is given, or two options exclude each other.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """The argument of `format()`."""
        return "kraft"

    def schema(self) -> StructType:
        """The columns of the view. The columns of a new table carry the table's options."""
        from metadata_log.spark.rows import spark_schema

        if not is_table(self._given):
            return spark_schema(parse_options(self._given))
        chosen = options_of_table(self._given)
        options = parse_options(chosen)
        check_paths(options.paths)
        return with_options(spark_schema(options), chosen)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns, with filters pushed down if that is enabled."""
        from metadata_log.spark.scan import FilteringReader, KraftReader

        options = self._options(schema)
        return (FilteringReader if options.push_filters else KraftReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (as Spark calls it)
        """A stream reader of these columns, or one that says why there is none.

        PySpark hides what is raised here behind an error of its own about a reader that does not exist.
        """
        from metadata_log.spark.stream import KraftStreamReader, RefusedStream

        try:
            return KraftStreamReader(self._options(schema), schema)
        except MetadataLogError as bad:
            return RefusedStream(bad)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refused."""
        _refuse_writing()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 (as Spark calls it)
        """Refused."""
        _refuse_writing()

    def _options(self, schema: StructType) -> Options:
        """The options of a query: those of the table, if the columns are of a table, and the given ones above them."""
        from metadata_log.spark.tables import stored_options

        stored: dict[str, Any] = stored_options(schema)
        given = {name.lower(): value for name, value in self._given.items()}
        if not stored and given.keys().isdisjoint(PATHS):
            raise OptionError(
                "no path is given. A table with a list of columns of its own keeps no options, not even its path",
                hint="Make it without columns (CREATE TABLE t USING kraft OPTIONS (…)), and select from it",
            )
        return parse_options(stored | given)


def _refuse_writing() -> NoReturn:
    raise SourceError("the source kraft only reads: Kafka's controllers alone write metadata logs")
