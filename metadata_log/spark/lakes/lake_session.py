"""A Spark session with the jars and settings of Delta Lake or Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metadata_log.spark.fleet import plain_session
from metadata_log.spark.lakes.lake import Lake, check_session, package, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def lake_session(
    lake: Lake,
    location: str,
    *,
    master: str = "local[*]",
    packages: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for tables of a format, stopped at the end.

    Args:
        lake: The format and the place.
        location: The directory or URL of the tables.
        master: The master.
        packages: Maven coordinates; none for the known release of the format.
        conf: Further settings of the session, above all others.

    Raises:
        JavaMissing: There is no Java runtime that Spark supports.
        SourceError: No jar is known for this Spark, the jars cannot be fetched, or the master is unreachable.
    """
    import pyspark

    given = conf or {}
    wanted = dict(settings(lake, location))
    if "spark.jars" not in given:
        kind = type(lake).__name__.lower()
        wanted["spark.jars.packages"] = ",".join(packages or [package(kind, pyspark.__version__)])
    with plain_session(master, {**wanted, **given}) as spark:
        check_session(spark, lake)
        yield spark
