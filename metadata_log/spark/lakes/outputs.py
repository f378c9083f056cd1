"""Where the rows of a query go: directories of Parquet, CSV or JSON files, and tables of Delta Lake and Iceberg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.lakes.lake import Delta, Iceberg, Lake, has_jar, newest_package, settings
from metadata_log.spark.options import nearest
from metadata_log.spark.storage import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES: Final = ("parquet", "csv", "json")
_ICEBERG_CATALOG: Final = "kraft_out"


_TITLES: Final = {"delta": "Delta Lake", "iceberg": "Iceberg"}
_MISFITS: Final = ("IncompatibleClassChangeError", "NoSuchMethodError", "NoClassDefFoundError", "AbstractMethodError")


def settings_for(form: str | None, out: str | None) -> Mapping[str, str]:
    """The settings of a session that writes this format to `out`."""
    lake = None if form is None else _lake_of(form)
    if lake is None:
        return MappingProxyType({})
    return settings(lake, "" if out is None else _place(out)[0])


def check_output(spark: SparkSession, form: str) -> None:
    """Raise `SourceError` if Spark lacks the jar of a table format. A session of Spark Connect cannot tell."""
    lake = _lake_of(form)
    if lake is None or getattr(spark, "_jvm", None) is None:
        return
    if not has_jar(spark, lake):
        raise SourceError(
            f"Spark has no jar of {_TITLES[form]}",
            where=f"--format {form}",
            hint=f"Add --packages {newest_package(form)}, or the version for your Spark.",
        )


def _lake_of(form: str) -> Lake | None:
    match form:
        case "delta":
            return Delta("")
        case "iceberg":
            return Iceberg(_ICEBERG_CATALOG)
        case _:
            return None


def write(frame: DataFrame, out: str, form: str, partition_by: Sequence[str] = ()) -> None:
    """Write all rows, and replace what is there.

    Args:
        frame: The rows.
        out: The directory of the files or of the table.
        form: One of `FORMATS`.
        partition_by: The columns with values that become directories.

    Raises:
        OptionError: A column is unknown, or no other column is left.
    """
    unknown = [name for name in partition_by if name not in frame.columns]
    if unknown:
        raise OptionError(f"there is no column {unknown[0]!r}{nearest(unknown[0], tuple(frame.columns))}")
    if set(frame.columns) <= set(partition_by):
        raise OptionError("a column that is no partition must be left: it goes into the files")
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
            hint="Name a release for this Spark with --packages, or run a Spark that the jar is made for.",
        ) from failed


def _place(out: str) -> tuple[str, str]:
    """The warehouse and the name of an Iceberg table at this path."""
    folder, _, name = (out if is_remote(out) else os.path.abspath(out)).rstrip("/").rpartition("/")
    return folder or "/", name
