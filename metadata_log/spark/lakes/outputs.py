"""Where the rows of a query go: directories of Parquet, CSV or JSON files, and tables of Delta Lake and Iceberg.

The driver writes a table of these formats with the format's library. A session that was started with jars of the format
writes the table itself, from its workers: for tables that the driver cannot hold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes.rows import Delta, Iceberg, Lake, Rows, lake_schema, local_catalog, parts_of
from metadata_log.spark.options import nearest
from metadata_log.spark.storage import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ICEBERG_CATALOG: Final = "kraft_out"
_JARS: Final = frozenset({"spark.jars", "spark.jars.packages"})
_TITLES: Final = {"delta": "Delta Lake", "iceberg": "Iceberg"}
_MISFITS: Final = ("IncompatibleClassChangeError", "NoSuchMethodError", "NoClassDefFoundError", "AbstractMethodError")


def settings_for(form: str | None, out: str | None, given: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of a session that writes this format to `out` with the jars that the given settings name."""
    if out is None or _JARS.isdisjoint(given):
        return MappingProxyType({})
    match form:
        case "delta":
            return {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            }
        case "iceberg":
            catalog = f"spark.sql.catalog.{_ICEBERG_CATALOG}"
            return {
                "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
                catalog: "org.apache.iceberg.spark.SparkCatalog",
                f"{catalog}.type": "hadoop",
                f"{catalog}.warehouse": _place(out)[0],
            }
        case _:
            return MappingProxyType({})


def lake_of(form: str, out: str) -> tuple[Lake, str] | None:
    """The table at `out`: where the tables beside it are, and its name; None for a format of plain files."""
    folder, name = _place(out)
    match form:
        case "delta":
            return Delta(folder), name
        case "iceberg":
            return Iceberg("default", "kraft", local_catalog(folder)), name
        case _:
            return None


def check_output(form: str, out: str) -> None:
    """Raise `SourceError` if the driver cannot write this format to this place."""
    target = lake_of(form, out)
    if target is None:
        return
    lakes.check(target[0])
    if isinstance(target[0], Iceberg) and is_remote(out):
        raise SourceError(
            "a query writes Iceberg to a directory of this machine, as the catalog is a file beside the table",
            where=out,
            hint="`kraft fleet materialize --format iceberg` writes to object stores and catalogs.",
        )


def write(frame: DataFrame, out: str, form: str, partition_by: Sequence[str] = (), *, by_spark: bool = False) -> None:
    """Write all rows, and replace what is there.

    Args:
        frame: The rows.
        out: The directory of the files or of the table.
        form: The format, such as `parquet` or `delta`.
        partition_by: The columns with values that become directories.
        by_spark: Whether the session has the jars of a table format, and writes the table itself.

    Raises:
        OptionError: A column is unknown, or no other column is left.
        SourceError: The table cannot be written.
    """
    unknown = [name for name in partition_by if name not in frame.columns]
    if unknown:
        raise OptionError(f"there is no column {unknown[0]!r}{nearest(unknown[0], tuple(frame.columns))}")
    if set(frame.columns) <= set(partition_by):
        raise OptionError("a column that is no partition must be left: it goes into the files")
    target = None if by_spark else lake_of(form, out)
    if target is not None:
        place, name = target
        os.makedirs(_place(out)[0], exist_ok=True)
        table = frame.toArrow()
        rows = Rows(lake_schema(*table.schema), parts_of(table, partition_by), tuple(partition_by))
        lakes.replace_table(place, name, rows)
        return
    if form == "iceberg":
        from pyspark.sql import functions as sql

        columns = [sql.col(name) for name in partition_by]
        with _fitting_jar(frame.sparkSession, form):
            writer = frame.writeTo(f"{_ICEBERG_CATALOG}.`{_place(out)[1]}`").using("iceberg")
            (writer.partitionedBy(columns[0], *columns[1:]) if columns else writer).createOrReplace()
        return
    files = frame.write.mode("overwrite").format(form)
    if form == "csv":
        files = files.option("header", True)
    if form == "delta":
        files = files.option("overwriteSchema", True)
    if partition_by:
        files = files.partitionBy(*partition_by)
    with _fitting_jar(frame.sparkSession, form):
        files.save(out)


@contextmanager
def _fitting_jar(spark: SparkSession, form: str) -> Iterator[None]:
    """Translate Java's error about classes that do not fit to a `SourceError`: the jar is made for another Spark."""
    try:
        yield
    except Exception as failed:
        # py4j may be absent in a session of Spark Connect, so its error is known by its text.
        if form not in _TITLES or not any(one in str(failed) for one in _MISFITS):
            raise
        raise SourceError(
            f"the jar of {_TITLES[form]} is not made for Spark {spark.version}",
            where=f"--format {form}",
            hint="Without --packages the driver writes the table, with the format's own library.",
        ) from failed


def _place(out: str) -> tuple[str, str]:
    """The directory above the table at this path, and the name of the table."""
    folder, _, name = (out if is_remote(out) else os.path.abspath(out)).rstrip("/").rpartition("/")
    return folder or "/", name
