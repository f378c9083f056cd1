"""A Spark session with the jars and settings of Delta Lake or Iceberg."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from metadata_log.spark.fleet import start_session
from metadata_log.spark.java import prepare_environment
from metadata_log.spark.lake import Lake, check_session, package, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"


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
    with tempfile.TemporaryDirectory(prefix="kraft-lake-") as scratch:
        home = Path(scratch)
        prepare_environment(home)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        spark = start_session(master, home, {**wanted, **given})
        try:
            check_session(spark, lake)
            yield spark
        finally:
            spark.stop()
