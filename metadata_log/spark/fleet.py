"""Queries over many clusters: each is one DataFrame over the source `kraft`; and a Spark session for them."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from metadata_log.history import VIEWS
from metadata_log.spark import views
from metadata_log.spark.errors import SourceError
from metadata_log.spark.java import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from metadata_log.spark.methods import Views

_LOOPBACK: Final = "127.0.0.1"
_OUR_ERROR: Final = re.compile(r"^metadata_log\.[\w.]+: (.+)$", re.MULTILINE)
_LOG_SETTINGS: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""

SourceOptions = Mapping[str, str]
"""Options of the source, by name."""


def history(logs: Views, options: SourceOptions, view: str) -> DataFrame:
    """A view as it is; within each cluster the oldest rows first, if the view has times."""
    frame = logs.read(view, **options)
    order = [name for name in ("cluster", "valid_from_offset", "offset", "hour") if name in frame.columns]
    return frame.orderBy(*order)


def churn(logs: Views, options: SourceOptions, view: str = "churn") -> DataFrame:
    """The number of changes of each topic and each broker, the highest first."""
    from pyspark.sql import functions as sql

    frame = logs.read(view, **options)
    counts = [column.name for column in VIEWS["churn"].columns if column.type == "int64"]
    sums = [sql.sum(name).alias(name) for name in counts]
    hours = (sql.count("hour").alias("hours"), sql.min("hour").alias("first_hour"), sql.max("hour").alias("last_hour"))
    return frame.groupBy("cluster", "kind", "name").agg(*sums, *hours).orderBy(sql.desc(counts[0]), "cluster", "name")


def unavailability(logs: Views, options: SourceOptions, view: str = "unavailability") -> DataFrame:
    """The intervals in which a partition had no leader or was below min ISR, the longest first."""
    from pyspark.sql import functions as sql

    return logs.read(view, **options).orderBy(sql.desc("seconds"), "cluster", "topic", "partition", "kind")


def incidents(logs: Views, options: SourceOptions, view: str = "incidents") -> DataFrame:
    """The incidents, those with the most time without a leader first."""
    from pyspark.sql import functions as sql

    lost = (sql.desc("leaderless_partition_seconds"), sql.desc("below_min_isr_partition_seconds"))
    return logs.read(view, **options).orderBy(*lost, "cluster", "incident")


def elections(logs: Views, options: SourceOptions, view: str = "leadership_changes") -> DataFrame:
    """Elections with time and cause: of partition leaders, and of active controllers (`what` is `controller`)."""
    from pyspark.sql import functions as sql

    leaders = logs.read(view, **options)
    controllers = logs.read("controller_elections", **options)
    common = ("offset", "timestamp", "epoch", "cause", "cause_text")
    of_partitions = leaders.select(
        "cluster",
        sql.concat_ws("-", "topic", sql.col("partition").cast("string")).alias("what"),
        sql.col("from_leader").alias("from"),
        sql.col("to_leader").alias("to"),
        "election",
        "clean",
        *common,
    )
    of_quorums = controllers.select(
        "cluster",
        sql.lit("controller").alias("what"),
        sql.col("previous_leader_id").alias("from"),
        sql.col("leader_id").alias("to"),
        sql.lit(None).cast("string").alias("election"),
        sql.lit(True).alias("clean"),
        *common,
    )
    return of_partitions.unionByName(of_quorums).orderBy("cluster", "offset", "what")


def audit(logs: Views, options: SourceOptions, view: str = "acl_audit") -> DataFrame:
    """The allowed operations over time."""
    return logs.read(view, **options).orderBy("cluster", "principal", "resource_type", "resource_name", "valid_from")


JOBS: Final[dict[str, Callable[[Views, SourceOptions, str], DataFrame]]] = {
    "history": history,
    "churn": churn,
    "unavailability": unavailability,
    "incidents": incidents,
    "elections": elections,
    "audit": audit,
}
"""The queries by name. The last argument is the view that the query reads first."""


def rows(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    """The rows of a frame in the form of the history engine: times in milliseconds, lists as tuples.

    The rows arrive partition by partition: the driver holds one partition at a time.
    """
    from pyspark.sql import functions as sql

    kinds = dict(frame.dtypes)
    columns = [
        sql.unix_millis(sql.col(f"`{name}`")).alias(name) if kinds[name] == "timestamp" else sql.col(f"`{name}`")
        for name in frame.columns
    ]
    for row in frame.select(*columns).toLocalIterator(prefetchPartitions=True):
        yield tuple(tuple(value) if isinstance(value, list) else value for value in row)


def damages(logs: Views, options: SourceOptions, view: str) -> Iterator[tuple[str, str]]:
    """The clusters with damaged histories, and the damage, for views without rows for damage.

    Such a history was read with mode=PERMISSIVE: the view `retention` reports its damage.
    """
    mode = next((value for name, value in options.items() if name.lower() == "mode"), "")
    if mode.upper() != "PERMISSIVE" or view not in VIEWS or view == "retention":
        return
    retention = logs.read("retention", **options)
    yield from retention.where(retention.kind == "damage").select("cluster", "text").toLocalIterator()


def times_of(frame: DataFrame) -> frozenset[str]:
    """The columns of a frame that hold times."""
    return frozenset(name for name, kind in frame.dtypes if kind == "timestamp")


def rows_of_views(logs: Views, names: Iterable[str], options: SourceOptions) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Pairs of a view's name and a row, one view after the other: the input of a report."""
    for name in names:
        for row in rows(logs.read(name, **options)):
            yield name, row


def flat(frame: DataFrame) -> DataFrame:
    """The frame for formats without lists and maps, such as CSV: they become JSON."""
    from pyspark.sql import functions as sql

    nested = {name for name, kind in frame.dtypes if kind.startswith(("array", "map", "struct"))}
    return frame.select(*(sql.to_json(name).alias(name) if name in nested else sql.col(name) for name in frame.columns))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Replace a Spark error, a long trace of Java and Python, by the `SourceError` inside."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as failed:
        text = str(failed)
        ours = _OUR_ERROR.findall(text)
        what = ours[-1] if ours else text.strip().partition("\n")[0]
        raise SourceError(what, hint="Run `kraft --debug fleet …` for all that Spark says.") from failed


class Running(Struct, frozen=True):
    """The progress of the running work in tasks; a replayed view is one task per cluster."""

    done: int
    total: int


def running(spark: SparkSession) -> Running:
    """The present work of Spark; may be called from another thread."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(id) for id in tracker.getActiveStageIds()]
    known_stages = [stage for stage in stages if stage is not None]
    return Running(
        sum(stage.numCompletedTasks for stage in known_stages), sum(stage.numTasks for stage in known_stages)
    )


@contextmanager
def fleet_session(
    paths: Sequence[str],
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[SparkSession, Views]]:
    """A Spark session of its own with the logs at these paths and globs, stopped at the end.

    `settings` are configuration properties of Spark; they win over those that this function sets.

    The output of Java during the start is hidden, and shown if the start fails. Raises `JavaMissing`, or `SourceError`
    if the master is unreachable.
    """
    with plain_session(master, settings) as spark:
        yield spark, views(spark, *paths)


@contextmanager
def plain_session(master: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """The same session without the source `kraft`; `conf` is above all other settings."""
    with tempfile.TemporaryDirectory(prefix="kraft-fleet-") as scratch:
        home = Path(scratch)
        prepare_environment(home)
        (home / "log4j2.properties").write_text(_LOG_SETTINGS)
        os.environ.setdefault("SPARK_CONF_DIR", str(home))
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        spark = start_session(master, home, conf)
        try:
            yield spark
        finally:
            spark.stop()


def start_session(master: str, home: Path, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session with its scratch directory, quietly; `conf` is above all other settings."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    builder = SparkSession.builder.master(master).appName("kraft fleet")
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, value)
    said = home / "java.txt"
    # The exception repeats what py4j logs about a closed connection.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        with _stderr_to(said):
            spark = builder.getOrCreate()
    except Exception as failed:
        lines = said.read_text(errors="replace").strip().splitlines()
        told = str(failed).strip().partition("\n")[0]
        raise SourceError(
            f"Spark does not start: {told}",
            where=f"--master {master}",
            hint=lines[-1] if lines else "Check the master's address, and that Java runs.",
        ) from failed
    spark.sparkContext.setLogLevel("OFF")
    return spark


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of this process and its children to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
