"""The tables of a fleet: the logs of many clusters, each brought up to date by `metadata_log.tables`.

The clusters are divided over processes of this machine, or over the tasks of a Spark session: many small clusters share
a task. Each cluster commits by itself, so a task or a driver that dies loses the work of unfinished clusters only.
"""

from __future__ import annotations

import heapq
import io
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from metadata_log.arrow.lean_pyarrow import load_lean_pyarrow
from metadata_log.disk import Disk, OsDisk, file_bytes, make_directory
from metadata_log.errors import MetadataLogError
from metadata_log.gc_pause import gc_paused
from metadata_log.history.views import DERIVED_VIEWS, HISTORY_VIEWS, VIEWS
from metadata_log.log.segment import parse_file_name
from metadata_log.software import SOFTWARE_VERSION
from metadata_log.spark.directories import Copies, Directory, choose_copies, find_directories
from metadata_log.spark.errors import OptionError
from metadata_log.spark.log_index import index_log
from metadata_log.spark.options import nearest
from metadata_log.spark.storage import disk_at, is_remote, local_path
from metadata_log.tables.cluster import (
    ClusterOutcome,
    Gate,
    Job,
    Status,
    close_cluster,
    materialize_cluster,
    rewrite_columns,
)
from metadata_log.tables.columns import bring_columns_of_runs
from metadata_log.tables.commit import STAGING, TablesBusy, columns_of, known_clusters
from metadata_log.tables.compact import compact_cluster
from metadata_log.tables.files import RUNS, partition_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TASKS: Final = 400
"""The most tasks of a run in Spark."""
DEFAULT_VIEWS: Final = (*HISTORY_VIEWS, *DERIVED_VIEWS)
"""The views of tables: all but the states, which the open rows of the histories hold."""
_PATIENCE_S: Final = 60.0
_LOCK_POLL_S: Final = 0.25
RUN_SCHEMA: Final = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("started", pa.timestamp("ms", tz="UTC")),
        pa.field("ended", pa.timestamp("ms", tz="UTC")),
        pa.field("version", pa.string()),
        pa.field("gate", pa.string()),
        pa.field("cluster", pa.string()),
        pa.field("directory", pa.string()),
        pa.field("status", pa.string()),
        pa.field("steps", pa.int32()),
        pa.field("taken_back", pa.int32()),
        pa.field("from_offset", pa.int64()),
        pa.field("to_offset", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("closed_rows", pa.int64()),
        pa.field("open_rows", pa.int64()),
        pa.field("damage", pa.string()),
        pa.field("text", pa.string()),
        pa.field(
            "unread",
            pa.list_(
                pa.struct(
                    [
                        pa.field("type", pa.int32()),
                        pa.field("version", pa.int32()),
                        pa.field("level", pa.int32()),
                        pa.field("from_offset", pa.int64()),
                        pa.field("to_offset", pa.int64()),
                        pa.field("records", pa.int64()),
                        pa.field("views", pa.list_(pa.string())),
                    ]
                )
            ),
        ),
        pa.field("change", pa.string()),
        pa.field("change_text", pa.string()),
        pa.field("added", pa.list_(pa.string())),
    ]
)


class Fleet(Struct, frozen=True):
    """The logs of a run, and what cannot be read."""

    directories: list[Directory]
    failed: list[ClusterOutcome]
    storage: dict[str, Any] = {}


class Run(Struct, frozen=True, kw_only=True):
    """The result of a run."""

    id: str
    outcomes: list[ClusterOutcome]
    gate: Gate

    @property
    def is_sound(self) -> bool:
        """Whether no cluster failed, and the gate takes damage, unread records and changes of identity."""
        stopped = self.gate is Gate.FAIL and any(outcome.doubts for outcome in self.outcomes)
        return not stopped and all(outcome.status is not Status.FAILED for outcome in self.outcomes)


def new_run_id(now: datetime) -> str:
    """An id that sorts by time, such as `20261124T030000Z-5f1c`."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def make_job(
    out: str,
    *,
    run: str,
    views: Sequence[str] = (),
    gate: Gate = Gate.FAIL,
    rebuild: bool = False,
    show_secrets: bool = False,
    session_timeout_ms: int | None = None,
    is_staged: bool = False,
) -> Job:
    """Make the job of a run; raises `OptionError` for an unknown view and for tables on another machine.

    Tables keep the views that they have, besides those that are named; new tables without a named view have all but
    the states. With `rebuild` they have the named views only. With `is_staged` the files are below `OUT/_staging`, for
    `metadata_log.spark.lakes.publish`.
    """
    if unknown := [view for view in views if view not in VIEWS]:
        raise OptionError(f"there is no view {unknown[0]!r} with a history{nearest(unknown[0], tuple(VIEWS))}")
    if is_remote(out):
        raise OptionError(
            f"{out} cannot have the checkpoints, as a commit needs a lock and an atomic rename: give --out a directory"
            f" of this machine or a mounted one, and --location {out} for the tables"
        )
    plain = os.path.abspath(local_path(out))
    staged = os.path.join(plain, STAGING)
    root, other = (staged, plain) if is_staged else (plain, staged)
    if known_clusters(OsDisk(), other):
        there = "tables of Parquet" if is_staged else "the checkpoints of tables of another format or at another place"
        raise OptionError(f"{out} has {there}: give these tables a directory of their own")
    had = [view for one in known_clusters(OsDisk(), root) if one.closed is None for view in one.views]
    wanted = views if rebuild and views else dict.fromkeys([*views, *had])
    return Job(
        root=root,
        run=run,
        version=SOFTWARE_VERSION,
        views=tuple(wanted or DEFAULT_VIEWS),
        gate=gate,
        rebuild=rebuild,
        show_secrets=show_secrets,
        session_timeout_ms=session_timeout_ms,
        is_staged=is_staged,
    )


def find_fleet(paths: Sequence[str], storage: dict[str, Any], clusters: Sequence[str] = ()) -> Fleet:
    """The logs at some paths and globs, one of each cluster; raises `SourceError` if there is none."""
    directories = find_directories(paths, storage)
    copies: Copies = choose_copies(directories, lambda each: index_log(disk_at(each.path, storage), each.path))
    failed = [_failed(bad.cluster, bad.path, str(damage)) for bad, damage in copies.problems]
    whole = [one for one in copies.chosen if not one.is_file]
    alone = "a single file is no log: give its directory"
    failed += [_failed(one.cluster, one.path, alone) for one in copies.chosen if one.is_file]
    known = {one.cluster for one in whole} | {one.cluster for one in failed}
    for name in clusters:
        if name not in known:
            raise OptionError(f"there is no cluster {name!r} at these paths{nearest(name, tuple(known))}")
    if clusters:
        whole = [one for one in whole if one.cluster in clusters]
        failed = [one for one in failed if one.cluster in clusters]
    return Fleet(whole, failed, storage)


def run_here(
    fleet: Fleet, job: Job, *, processes: int = 1, on_outcome: Callable[[ClusterOutcome], None] | None = None
) -> Run:
    """Bring the tables of a fleet up to date, in processes of this machine.

    Args:
        fleet: The logs.
        job: What to do.
        processes: How many processes work at a time; 1 for this one alone.
        on_outcome: Called after each cluster.

    Returns:
        What was done; the table of runs has it too.

    Raises:
        OSError: The table of runs could not be written.
    """
    started = datetime.now(UTC)
    job, outcomes = _prepared(fleet, job)
    for outcome in _outcomes(fleet, job, processes):
        outcomes.append(outcome)
        if on_outcome is not None:
            on_outcome(outcome)
    return finish_run(job, outcomes, started)


def run_in_spark(spark: SparkSession, fleet: Fleet, job: Job) -> Run:
    """The same in the tasks of a Spark session; every worker must see the logs and the directory of the tables."""
    started = datetime.now(UTC)
    job, outcomes = _prepared(fleet, job)
    here = [one if is_remote(one.path) else replace(one, path=os.path.abspath(one.path)) for one in fleet.directories]
    groups = pack(replace(fleet, directories=here), MOST_TASKS)
    if groups:
        storage = fleet.storage
        tasks = spark.sparkContext.parallelize(groups, len(groups))
        work = _task(storage, job)
        outcomes += tasks.flatMap(work).collect()
    return finish_run(job, outcomes, started)


def _prepared(fleet: Fleet, job: Job) -> tuple[Job, list[ClusterOutcome]]:
    """The job with what has become of known directories, and the outcomes of what no log of the fleet belongs to.

    A cluster is closed if another one has its directory now, and the gate does not stop. Tables of clusters that are
    not of this run get the columns of this version, so that all files of a table have the same.
    """
    disk = OsDisk()
    outcomes = list(fleet.failed)
    here = {one.cluster: one.path for one in fleet.directories}
    by_path = {os.path.abspath(path) if not is_remote(path) else path: cluster for cluster, path in here.items()}
    follows: dict[str, str] = {}
    for known in known_clusters(disk, job.root):
        if known.cluster in here:
            continue
        at = known.directory
        new = None if at is None or known.closed else by_path.get(at if is_remote(at) else os.path.abspath(at))
        try:
            if new is not None:
                follows[new] = known.cluster
                if job.gate is not Gate.FAIL:
                    outcomes.append(close_cluster(known.cluster, disk, job, new))
            if not job.is_staged and known.columns != columns_of(known.views):
                rewrite_columns(known.cluster, disk, job)
        except (MetadataLogError, OSError) as bad:
            outcomes.append(_failed(known.cluster, at or "", _told(bad)))
    return replace(job, follows=follows), outcomes


def _told(bad: MetadataLogError | OSError) -> str:
    hint = getattr(bad, "hint", None)
    return f"{bad}. {hint}" if hint else str(bad)


def _task(storage: dict[str, Any], job: Job) -> Callable[[Iterable[Directory]], list[ClusterOutcome]]:
    def work(group: Iterable[Directory]) -> list[ClusterOutcome]:
        return [materialize_one(one, storage, job, patience_s=_PATIENCE_S) for one in group]

    return work


def compact_here(run: Run, job: Job) -> None:
    """Merge the small files of the clusters of a run; raises `TablesError` and `OSError`."""
    for outcome in run.outcomes:
        if outcome.to_offset is not None:
            compact_cluster(outcome.cluster, OsDisk(), job)


def finish_run(job: Job, outcomes: Sequence[ClusterOutcome], started: datetime) -> Run:
    """Write the rows of the table of runs."""
    if not job.is_staged:
        bring_columns_of_runs(OsDisk(), job.root, RUN_SCHEMA)
    ordered = sorted(outcomes, key=lambda outcome: (outcome.cluster, outcome.directory))
    write_run(OsDisk(), job, ordered, started, datetime.now(UTC))
    return Run(id=job.run, outcomes=ordered, gate=job.gate)


def _outcomes(fleet: Fleet, job: Job, processes: int) -> Iterator[ClusterOutcome]:
    if processes == 1 or len(fleet.directories) < 2:
        for directory in fleet.directories:
            yield materialize_one(directory, fleet.storage, job)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    workers = min(processes, len(fleet.directories))
    with ProcessPoolExecutor(workers, get_context("spawn"), load_lean_pyarrow) as pool:
        try:
            waiting = [pool.submit(materialize_one, one, fleet.storage, job) for one in fleet.directories]
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def materialize_one(
    directory: Directory, storage: dict[str, Any], job: Job, *, patience_s: float = 0.0
) -> ClusterOutcome:
    """Bring the tables of one cluster up to date; a failure is an outcome.

    A task that Spark repeats can meet the lock of the first attempt: its Python process ends a moment later than the
    executor. `patience_s` is how long the task waits for the lock.
    """
    deadline = time.monotonic() + patience_s
    try:
        disk = disk_at(directory.path, storage)
        while True:
            try:
                with gc_paused():
                    return materialize_cluster(disk, directory.path, directory.cluster, OsDisk(), job)
            except TablesBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_LOCK_POLL_S)
    except (MetadataLogError, OSError) as bad:
        return _failed(directory.cluster, directory.path, _told(bad))


def _failed(cluster: str, directory: str, text: str) -> ClusterOutcome:
    return ClusterOutcome(cluster=cluster, directory=directory, status=Status.FAILED, text=text)


def pack(fleet: Fleet, most: int) -> list[list[Directory]]:
    """The logs in at most `most` groups of about the same size; the largest first."""
    sized = sorted(
        ((_size(one, fleet.storage), one) for one in fleet.directories), key=lambda each: (-each[0], each[1].path)
    )
    groups: list[list[Directory]] = [[] for _ in range(min(most, len(sized)))]
    loads = [(0, number) for number in range(len(groups))]
    for size, directory in sized:
        load, number = loads[0]
        groups[number].append(directory)
        heapq.heapreplace(loads, (load + size + _EACH, number))
    return groups


_EACH: Final = 1 << 20
"""How many bytes a cluster counts as, besides those of its log: its checkpoint and its files."""


_EACH_PROCESS: Final = 4 << 20
"""The bytes of logs that are worth a further process of this machine, which costs a second to start."""


def processes_for(fleet: Fleet, most: int) -> int:
    """How many processes of this machine a run is worth: one for each 4 MiB of last segments, and at most `most`.

    The sizes of logs in an object store are not known without requests, so each of these counts as much.
    """
    sizes = [_EACH_PROCESS if is_remote(one.path) else _size(one, fleet.storage) for one in fleet.directories]
    return max(1, min(most, len(sizes), sum(sizes) // _EACH_PROCESS))


def _size(directory: Directory, storage: dict[str, Any]) -> int:
    """The bytes of a log's last segment, where tonight's records are; 0 if that needs a request to a store."""
    if is_remote(directory.path):
        return 0
    disk = disk_at(directory.path, storage)
    names = [name for name in disk.list(directory.path) if parse_file_name(name) is not None]
    return file_bytes(disk, f"{directory.path}/{names[-1]}") if names else 0


def outcome_facts(outcome: ClusterOutcome) -> dict[str, Any]:
    """An outcome as plain values, for the table of runs and for JSON."""
    facts: dict[str, Any] = to_builtins(outcome)
    change = facts.pop("change")
    return {**facts, "change": change and change["kind"], "change_text": change and change["text"]}


def write_run(disk: Disk, job: Job, outcomes: Sequence[ClusterOutcome], started: datetime, ended: datetime) -> None:
    """Add the rows of a run to the table of runs, as one file."""
    told = {"run": job.run, "started": started, "ended": ended, "version": job.version, "gate": str(job.gate)}
    rows = [{**told, **outcome_facts(outcome)} for outcome in outcomes]
    table = pa.Table.from_pylist(rows, schema=RUN_SCHEMA)
    content = io.BytesIO()
    pq.write_table(table, content)
    folder = f"{job.root}/{RUNS}/date={started:%Y-%m-%d}"
    make_directory(disk, folder)
    name = f"{started:%H%M%S}-{partition_value(job.run)}.parquet"
    hidden = f"{folder}/.{name}.part"
    if disk.exists(hidden):
        disk.remove(hidden)
    file = disk.open(hidden, create=True)
    try:
        file.append(content.getvalue())
        file.fsync()
    finally:
        file.close()
    disk.rename(hidden, f"{folder}/{name}")
    disk.fsync_dir(folder)
