"""Where the rows of a query go: directories of Parquet, CSV or JSON files, and tables of Delta Lake and Iceberg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.options import nearest
from metadata_log.spark.storage import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES: Final = ("parquet", "csv", "json")
_ICEBERG_CATALOG: Final = "kraft_out"


class _Table(Struct, frozen=True):
    """A table format that Spark lacks: its package, a class of its jar, and the settings that it needs."""

    title: str
    package: str
    jar_class: str
    settings: Mapping[str, str]


_TABLES: Final = {
    "delta": _Table(
        "Delta Lake",
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta.sql.DeltaSparkSessionExtension",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    "iceberg": _Table(
        "Iceberg",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.apache.iceberg.spark.SparkCatalog",
        {
            f"spark.sql.catalog.{_ICEBERG_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{_ICEBERG_CATALOG}.type": "hadoop",
        },
    ),
}
FORMATS: Final = (*FILES, *_TABLES)
_MISFITS: Final = ("IncompatibleClassChangeError", "NoSuchMethodError", "NoClassDefFoundError", "AbstractMethodError")


def package_of(form: str) -> str:
    """The Maven coordinates of a table format's jar that this version is tried with."""
    return _TABLES[form].package


def settings_for(form: str | None, out: str | None) -> Mapping[str, str]:
    """The settings of a session that writes this format to `out`."""
    table = None if form is None else _TABLES.get(form)
    if table is None:
        return MappingProxyType({})
    if form != "iceberg" or out is None:
        return table.settings
    return {**table.settings, f"spark.sql.catalog.{_ICEBERG_CATALOG}.warehouse": _place(out)[0]}


def check_output(spark: SparkSession, form: str) -> None:
    """Raise `SourceError` if Spark lacks the jar of a table format. A session of Spark Connect cannot tell."""
    table = _TABLES.get(form)
    jvm = getattr(spark, "_jvm", None)
    if table is None or jvm is None:
        return
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(table.jar_class):
        raise SourceError(
            f"Spark has no jar of {table.title}",
            where=f"--format {form}",
            hint=f"Add --packages {table.package}, or the version for your Spark.",
        )


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
        if form not in _TABLES or not any(one in str(failed) for one in _MISFITS):
            raise
        raise SourceError(
            f"the jar of {_TABLES[form].title} is not made for Spark {spark.version}",
            where=f"--format {form}",
            hint="Name a release for this Spark with --packages, or run a Spark that the jar is made for.",
        ) from failed


def _place(out: str) -> tuple[str, str]:
    """The warehouse and the name of an Iceberg table at this path."""
    folder, _, name = (out if is_remote(out) else os.path.abspath(out)).rstrip("/").rpartition("/")
    return folder or "/", name
