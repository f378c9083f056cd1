"""The steps of a run, published into the tables of a format that has commits of its own (decision 0075).

The clusters first commit their steps as files below `_staging`. The driver then writes a plan: what each cluster has
that the tables lack. Each table gets one commit for the whole plan, with the plan's number in the commit. A crash in
between leaves the plan, which the next run finishes before anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metadata_log.arrow.schema import CLUSTERS, schema_of
from metadata_log.cluster_names import ClusterNames
from metadata_log.disk import OsDisk, make_directory, replace_file
from metadata_log.spark.cluster_table import next_rows
from metadata_log.spark.directories import Directory
from metadata_log.spark.errors import SourceError
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes.lake import ALL_ROWS, Iceberg, Lake
from metadata_log.spark.materialize import RUN_SCHEMA, RUNS, Fleet, Run, run_in_spark
from metadata_log.tables.cluster import Job
from metadata_log.tables.commit import FOLDER, ClusterTables
from metadata_log.tables.files import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_STATE: Final = "published.json"
_LOCK: Final = "publish.lock"
PARTITIONS: Final = ("cluster", "date", "is_open")


class Change(Struct, frozen=True):
    """What a cluster has that the tables lack.

    Args:
        cluster: The cluster.
        before: The last step that the tables have; 0 for none.
        kept: The last of those steps that stays: the rows of steps behind it were taken back.
        number: The last step.
        files: The staged files of the steps, as paths below the staging directory.
    """

    cluster: str
    before: int
    kept: int
    number: int
    files: list[str]


class Plan(Struct, frozen=True):
    """One publication."""

    number: int
    changes: list[Change]
    runs: list[str]
    """The staged files of the table of runs."""
    clusters: list[dict[str, Any]] | None = None
    """The rows of the table of clusters; None if they stay."""


class Published(Struct, frozen=True):
    """What the tables have: the number of the last publication, and the last step of each cluster."""

    number: int = 0
    steps: dict[str, int] = {}
    plan: Plan | None = None
    """The publication under way."""


def materialize_into(spark: SparkSession, lake: Lake, fleet: Fleet, job: Job, names: ClusterNames | None = None) -> Run:
    """Bring tables of Delta Lake or Iceberg up to date with the logs of a fleet.

    Args:
        spark: A session with the jars and the settings of the format; every worker must see the logs and `job.root`.
        lake: The format and the place of the tables.
        fleet: The logs.
        job: What to do; made with `is_staged=True`. `job.root` has the staged files and the checkpoints.
        names: The names of the clusters, for the table `clusters`; None leaves that table as it is.

    Returns:
        What was done.

    Raises:
        SourceError: The session lacks the format, or another run publishes.
        TablesError: The tables cannot be continued.
    """
    lakes.check_session(spark, lake)
    with _locked(job):
        publisher = Publisher(spark, lake, job)
        publisher.finish()
        run = run_in_spark(spark, fleet, job)
        publisher.publish(sorted({one.cluster for one in run.outcomes if one.to_offset is not None}), fleet, names)
    return run


def compact_tables(spark: SparkSession, lake: Lake, job: Job) -> None:
    """Merge the small files of all tables."""
    for name in (*job.views, RUNS):
        if lakes.has_table(spark, lake, name):
            lakes.compact(spark, lake, name)


class Publisher:
    """Publishes the staged steps of some clusters."""

    def __init__(self, spark: SparkSession, lake: Lake, job: Job) -> None:
        self._spark = spark
        self._lake = lake
        self._job = job
        self._disk = OsDisk()
        self._folder = f"{job.root}/{FOLDER}"
        self._state = self._read()

    def finish(self) -> None:
        """Finish the publication that a crash has interrupted."""
        plan = self._state.plan
        if plan is None:
            return
        for view in self._job.views:
            self._write(view, plan)
        if plan.runs:
            self._write_runs(plan)
        if plan.clusters is not None:
            self._write_clusters(plan.clusters, plan.number)
        steps = {**self._state.steps, **{change.cluster: change.number for change in plan.changes}}
        self._save(Published(plan.number, steps))
        self._clean(plan)

    def publish(self, clusters: Sequence[str], fleet: Fleet, names: ClusterNames | None) -> None:
        """Publish what the clusters have and the tables lack, and the names of the fleet if there are names."""
        number = self._state.number + 1
        changes = [change for cluster in clusters if (change := self._change(cluster)) is not None]
        runs = [f"{folder}/{name}" for folder, name in self._run_files()]
        named = None if names is None else self._clusters(fleet.directories, names)
        if changes or runs or named is not None:
            self._save(replace(self._state, plan=Plan(number, changes, runs, named)))
            self.finish()

    def _change(self, cluster: str) -> Change | None:
        before = self._state.steps.get(cluster, 0)
        tables = self._tables(cluster)
        try:
            steps = tables.head.steps
            new = [step for step in steps if step.number > before]
            if new:
                files = [*(path for step in new for path in step.closed), *new[-1].open]
                return Change(cluster, before, min(new[0].kept, before), new[-1].number, files)
            if any(self._is_staged([*step.closed, *step.open]) for step in steps):
                tables.published(before)
            return None
        finally:
            tables.close()

    def _is_staged(self, files: Sequence[str]) -> bool:
        """Whether a crash has left files that were published."""
        return any(self._disk.exists(f"{self._job.root}/{path}") for path in files)

    def _write(self, view: str, plan: Plan) -> None:
        files = [path for change in plan.changes for path in change.files if path.partition("/")[0] == view]
        if not plan.changes:
            return
        frame = self._staged(view, files, plan.number)
        rows = " OR ".join(_taken_back(change) for change in plan.changes if change.kept < change.before)
        clusters = ", ".join(lakes.text(change.cluster) for change in plan.changes)
        condition = f"cluster IN ({clusters}) AND (is_open OR lineage_publication = {plan.number})"
        if rows and isinstance(self._lake, Iceberg):
            lakes.take_back(self._spark, self._lake, view, rows)
        elif rows:
            condition = f"({condition}) OR {rows}"
        lakes.replace_rows(self._spark, self._lake, view, frame, condition, plan.number, PARTITIONS)

    def _write_runs(self, plan: Plan) -> None:
        from pyspark.sql import functions as sql

        frame = self._read_files(RUNS, plan.runs, _spark_schema(RUN_SCHEMA, ("date", "date")))
        frame = frame.withColumn("publication", sql.lit(plan.number).cast("bigint"))
        condition = f"publication = {plan.number}"
        lakes.replace_rows(self._spark, self._lake, RUNS, frame, condition, plan.number, ("date",))

    def _clusters(self, directories: Sequence[Directory], names: ClusterNames) -> list[dict[str, Any]] | None:
        """The rows of the table of clusters after a run; None if the table has them."""
        before: list[dict[str, Any]] = []
        if lakes.has_table(self._spark, self._lake, CLUSTERS):
            found = (
                self._spark.table(self._lake.table(CLUSTERS))
                .select(*schema_of(CLUSTERS).names)
                .orderBy("cluster")
                .collect()
            )
            before = [{**row.asDict(), "labels": sorted(row["labels"].items())} for row in found]
        rows = next_rows(before, directories, names)
        return None if rows == before else rows

    def _write_clusters(self, rows: Sequence[dict[str, Any]], number: int) -> None:
        schema = _spark_schema(schema_of(CLUSTERS))
        values = [tuple({**row, "labels": dict(row["labels"])}[name] for name in schema.names) for row in rows]
        frame = self._spark.createDataFrame(values, schema)
        lakes.replace_rows(self._spark, self._lake, CLUSTERS, frame, ALL_ROWS, number, ())

    def _staged(self, view: str, files: Sequence[str], number: int) -> DataFrame:
        """The staged rows of a view, with the columns that a table of its own commits needs."""
        from pyspark.sql import functions as sql

        schema = _spark_schema(table_schema(view), ("cluster", "string"), ("date", "date"))
        if not files:
            frame = self._spark.createDataFrame([], schema)
            name = sql.lit("")
        else:
            frame = self._read_files(view, files, schema)
            name = sql.col("_metadata.file_name")
        step = sql.regexp_extract(name, r"^(\d+)-", 1).try_cast("bigint")
        frame = frame.withColumns({"is_open": name.contains("-open-"), "lineage_step": step})
        return frame.withColumn("lineage_publication", sql.lit(number).cast("bigint"))

    def _read_files(self, table: str, files: Sequence[str], schema: StructType) -> DataFrame:
        reader = self._spark.read.schema(schema).option("basePath", f"{self._job.root}/{table}")
        return reader.parquet(*(f"{self._job.root}/{path}" for path in files))

    def _clean(self, plan: Plan) -> None:
        """Remove the staged files; what a crash leaves here is removed by a later step of the cluster."""
        for change in plan.changes:
            tables = self._tables(change.cluster)
            try:
                tables.published(change.number)
            finally:
                tables.close()
        for path in plan.runs:
            if self._disk.exists(f"{self._job.root}/{path}"):
                self._disk.remove(f"{self._job.root}/{path}")

    def _run_files(self) -> Iterator[tuple[str, str]]:
        folder = f"{self._job.root}/{RUNS}"
        for date in self._disk.list(folder) if self._disk.exists(folder) else ():
            for name in self._disk.list(f"{folder}/{date}"):
                if not name.startswith("."):
                    yield f"{RUNS}/{date}", name

    def _tables(self, cluster: str) -> ClusterTables:
        job = self._job
        return ClusterTables(self._disk, job.root, cluster, job.views, job.settings, is_staged=True)

    def _read(self) -> Published:
        path = f"{self._folder}/{_STATE}"
        if not self._disk.exists(path):
            return Published()
        return msgspec.json.decode(self._disk.read(path), type=Published)

    def _save(self, state: Published) -> None:
        replace_file(self._disk, self._folder, _STATE, msgspec.json.encode(state))
        self._state = state


def _taken_back(change: Change) -> str:
    return f"(cluster = {lakes.text(change.cluster)} AND lineage_step > {change.kept} AND NOT is_open)"


def _spark_schema(columns: object, *further: tuple[str, str]) -> StructType:
    """The columns of staged files in Spark, with their descriptions; all may be null, as Parquet's readers say."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    assert isinstance(columns, pa.Schema)
    described = [(field.metadata or {}).get(b"comment") for field in columns]
    fields = [
        StructField(one.name, one.dataType, True, None if told is None else {"comment": told.decode()})
        for one, told in zip(from_arrow_schema(columns).fields, described, strict=True)
    ]
    made = StructType(fields)
    for name, kind in further:
        made = made.add(name, kind)
    return made


@contextmanager
def _locked(job: Job) -> Iterator[None]:
    folder = f"{job.root}/{FOLDER}"
    disk = OsDisk()
    make_directory(disk, folder)
    try:
        lock = disk.lock(f"{folder}/{_LOCK}")
    except BlockingIOError as busy:
        raise SourceError("another run publishes into these tables", where=folder, hint="Wait for its end.") from busy
    try:
        yield
    finally:
        lock.release()
