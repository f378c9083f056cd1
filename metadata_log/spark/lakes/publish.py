"""The steps of a run, published into the tables of a format that has commits of its own (decision 0094).

The clusters first commit their steps as files below `_staging`. Then a plan is written: what each cluster has that the
tables lack. Each table gets one commit for the whole plan, with the plan's number in the commit. A crash in between
leaves the plan, which the next run finishes before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from metadata_log.arrow.schema import CLUSTERS
from metadata_log.cluster_names import ClusterNames
from metadata_log.disk import OsDisk, make_directory, replace_file
from metadata_log.spark.cluster_table import TABLE_SCHEMA, is_wanted, table_rows
from metadata_log.spark.directories import Directory
from metadata_log.spark.errors import SourceError
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes.rows import PUBLICATIONS, Commit, Cut, Lake, Parquet, Part, Rows, lake_schema, parts_of
from metadata_log.spark.materialize import RUN_SCHEMA, Fleet, Run, run_here
from metadata_log.tables.cluster import Job
from metadata_log.tables.commit import FOLDER, ClusterTables, TablesError
from metadata_log.tables.files import NO_DATE, RUNS, has_open_rows, run_files, step_of, table_schema, view_of

_STATE: Final = "published.json"
_LOCK: Final = "publish.lock"
PARTITIONS: Final = ("cluster", "date", "is_open")
FURTHER: Final = (
    pa.field("cluster", pa.string()),
    pa.field("date", pa.date32()),
    pa.field("is_open", pa.bool_()),
    pa.field("lineage_step", pa.int64()),
    pa.field("lineage_publication", pa.int64()),
)
"""The columns of a table that follow those of a staged file."""

FURTHER_OF_RUNS: Final = (pa.field("date", pa.date32()), pa.field("publication", pa.int64()))
"""The same of the table of runs."""


class Change(Struct, frozen=True):
    """The steps of a cluster that the tables lack.

    Args:
        cluster: The cluster.
        before: The last step that the tables have; 0 for none.
        kept: The last of those steps that stays: the rows of steps after it were taken back.
        number: The last step.
        files: The staged files of the steps that the tables take, as paths below the staging directory.
        views: The views that the cluster has from now on.
        left: The views whose open rows stay, as no step has others.
    """

    cluster: str
    before: int
    kept: int
    number: int
    files: list[str]
    views: list[str]
    left: list[str] = []

    def changes(self, view: str) -> bool:
        """Whether the rows of a view change."""
        return view not in self.left or any(view_of(path) == view for path in self.files)


class Plan(Struct, frozen=True):
    """One publication.

    Args:
        number: Its number.
        changes: The steps that the tables lack.
        views: The tables that change: a view that a rebuilding has dropped is among them, and loses its rows.
        runs: The staged files of the table of runs.
        clusters: The rows of the table of clusters; None if they stay.
    """

    number: int
    changes: list[Change]
    views: list[str]
    runs: list[str]
    clusters: list[dict[str, Any]] | None = None


class Published(Struct, frozen=True):
    """The state of the tables.

    Args:
        number: The number of the last publication.
        steps: The last step of each cluster.
        views: The views of each cluster.
        format: The format of the tables.
        plan: The publication under way.
    """

    number: int = 0
    steps: dict[str, int] = {}
    views: dict[str, list[str]] = {}
    format: str = ""
    plan: Plan | None = None


def materialize_into(
    lake: Lake,
    fleet: Fleet,
    job: Job,
    names: ClusterNames | None = None,
    *,
    work: Callable[[Fleet, Job], Run] = run_here,
) -> Run:
    """Bring the tables of a lake up to date with the logs of a fleet.

    Args:
        lake: The format and the place of the tables.
        fleet: The logs.
        job: What to do; made with `is_staged=True`. `job.root` has the staged files and the checkpoints.
        names: The names of the clusters, for the table `clusters`; None keeps those of the table.
        work: Makes the steps: `run_here`, or `run_in_spark` with its session. This process publishes in any case.

    Returns:
        What was done.

    Raises:
        SourceError: The library of the format is missing, a table cannot be written, or another run publishes.
        TablesError: The tables cannot be continued, or are not those of the checkpoints.
    """
    lakes.check(lake)
    with _locked(job):
        publisher = Publisher(lake, job)
        publisher.finish()
        publisher.check()
        run = work(fleet, job)
        publisher.publish(sorted({one.cluster for one in run.outcomes if one.to_offset is not None}), fleet, names)
    return run


def compact_tables(lake: Lake, job: Job) -> None:
    """Merge the small files of all tables."""
    for name in (*job.views, RUNS):
        lakes.compact(lake, name)


class Publisher:
    """Publishes the staged steps of some clusters."""

    def __init__(self, lake: Lake, job: Job) -> None:
        self._lake = lake
        self._job = job
        self._disk = OsDisk()
        self._folder = f"{job.root}/{FOLDER}"
        self._format = type(lake).__name__
        self._state = self._read()
        if self._state.format not in ("", self._format):
            there = f"the tables here are of {self._state.format}, not of {self._format}"
            raise TablesError(there, where=job.root, hint="Give each format a directory of its own.")

    def finish(self) -> None:
        """Finish the publication that a crash has interrupted."""
        plan = self._state.plan
        if plan is None:
            return
        for view in plan.views:
            self._commit(view, self._rows(view, plan), _cut(view, plan), plan.number)
        if plan.runs:
            self._commit(RUNS, self._runs(plan), Cut(), plan.number)
        if plan.clusters is not None:
            table = pa.Table.from_pylist(plan.clusters, schema=lake_schema(*TABLE_SCHEMA))
            rows = Rows(table.schema, parts_of(table, ()))
            self._commit(CLUSTERS, rows, Cut(everything=True), plan.number)
        steps = {change.cluster: change.number for change in plan.changes}
        views = {change.cluster: change.views for change in plan.changes}
        self._save(Published(plan.number, {**self._state.steps, **steps}, {**self._state.views, **views}, self._format))
        self._clean(plan)

    def check(self) -> None:
        """Refuse tables that the checkpoints do not know: rows would be missing or doubled without a word."""
        last = lakes.last_commit(self._lake, RUNS, PUBLICATIONS) or 0
        if last != self._state.number:
            raise TablesError(
                f"the last publication of these checkpoints is {self._state.number}, and that of the tables is {last}",
                where=self._job.root,
                hint="Each belongs to others: bring back the newest checkpoints, or the place of the tables, or begin"
                " with new ones of both.",
            )

    def publish(self, clusters: Sequence[str], fleet: Fleet, names: ClusterNames | None) -> None:
        """Publish what the clusters have and the tables lack, and the names of the fleet if there are names."""
        changes = [change for cluster in clusters if (change := self._change(cluster)) is not None]
        had = self._state.views
        views = {view for one in changes for view in (*one.views, *had.get(one.cluster, ())) if one.changes(view)}
        runs = run_files(self._disk, self._job.root)
        named = self._clusters(fleet.directories, names)
        if changes or runs or named is not None:
            plan = Plan(self._state.number + 1, changes, sorted(views), runs, named)
            self._save(replace(self._state, format=self._format, plan=plan))
            self.finish()

    def _change(self, cluster: str) -> Change | None:
        before = self._state.steps.get(cluster, 0)
        with closing(self._tables(cluster)) as tables:
            steps = tables.head.steps
            new = [step for step in steps if step.number > before]
            if new:
                last = new[-1]
                published = [step for step in steps if step.number == before]
                left = [
                    view
                    for view in tables.head.views
                    if any(_of(view, step.open) == _of(view, last.open) for step in published)
                ]
                files = [path for step in new for path in step.closed]
                files += [path for path in last.open if view_of(path) not in left]
                kept = min(new[0].kept, before)
                return Change(cluster, before, kept, last.number, files, tables.head.views, left)
            if any(self._is_staged([*step.closed, *step.open]) for step in steps):
                tables.published(before)
            return None

    def _is_staged(self, files: Sequence[str]) -> bool:
        """Whether a crash has left files that were published."""
        return any(self._disk.exists(f"{self._job.root}/{path}") for path in files)

    def _commit(self, table: str, rows: Rows, cut: Cut, number: int) -> None:
        lakes.commit(self._lake, table, Commit(PUBLICATIONS, number, rows, cut))

    def _rows(self, view: str, plan: Plan) -> Rows:
        """The staged rows of a view, with the columns that a table of its own commits needs."""
        schema = lake_schema(*table_schema(view), *FURTHER)
        parts = []
        for change in plan.changes:
            for path in change.files:
                if view_of(path) == view:
                    facts = {"is_open": has_open_rows(path), "lineage_step": step_of(path)}
                    parts.append(self._part(path, cluster=change.cluster, **facts, lineage_publication=plan.number))
        return Rows(schema, parts, PARTITIONS[:2] if isinstance(self._lake, Parquet) else PARTITIONS)

    def _runs(self, plan: Plan) -> Rows:
        schema = lake_schema(*RUN_SCHEMA, *FURTHER_OF_RUNS)
        return Rows(schema, [self._part(path, publication=plan.number) for path in plan.runs], ("date",))

    def _part(self, path: str, **facts: Any) -> Part:
        """The rows of a staged file, whose path has the date."""
        value = unquote(path.split("/date=")[1].partition("/")[0])
        day = None if value == NO_DATE else date.fromisoformat(value)
        return Part(partial(_batches, f"{self._job.root}/{path}"), {"date": day, **facts})

    def _clusters(self, directories: Sequence[Directory], names: ClusterNames | None) -> list[dict[str, Any]] | None:
        """The rows of the table of clusters after a run; None if the table has them, or nobody wants it."""
        table = lakes.read(self._lake, CLUSTERS)
        if table is None and names is None and not is_wanted(self._disk, self._job.root):
            return None
        published = [] if table is None else table.select(TABLE_SCHEMA.names).sort_by("cluster").to_pylist()
        before = [{**row, "labels": sorted(row["labels"])} for row in published]
        rows = table_rows(self._disk, self._job.root, before, directories, names)
        return None if rows == before else rows

    def _clean(self, plan: Plan) -> None:
        """Remove the staged files; what a crash leaves here is removed by a later step of the cluster."""
        for change in plan.changes:
            with closing(self._tables(change.cluster)) as tables:
                tables.published(change.number)
        for path in plan.runs:
            if self._disk.exists(f"{self._job.root}/{path}"):
                self._disk.remove(f"{self._job.root}/{path}")

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


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches()


def _of(view: str, files: Sequence[str]) -> set[str]:
    return {path for path in files if view_of(path) == view}


def _cut(view: str, plan: Plan) -> Cut:
    """The rows of a view that a publication replaces: changed open ones, and those of steps that were taken back."""
    taken_back = {change.cluster: change.kept for change in plan.changes if change.kept < change.before}
    return Cut(tuple(change.cluster for change in plan.changes if view not in change.left), taken_back)


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
