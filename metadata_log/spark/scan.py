"""The batch reader: plans tasks for the logs of a fleet, and reads one task as Arrow batches on an executor.

Raw views are split at batches, several tasks per log; a replayed view is one task per cluster, or one between two saved
passes. A log in an object store is planned from listings alone. Small tasks are packed into few.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from metadata_log.arrow import Filters, Mode, Split, plan_splits, read_splits, schema_of
from metadata_log.arrow.schema import CLUSTERS, DAMAGE, RECORDS
from metadata_log.arrow.views import history_batches
from metadata_log.disk import Disk, file_bytes
from metadata_log.errors import MetadataLogError
from metadata_log.gc_pause import gc_paused
from metadata_log.log.segment import parse_file_name
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.log_end import LogEnd, find_log_end
from metadata_log.reading.timeline import END, At, moment_text
from metadata_log.spark.archived import archive_in
from metadata_log.spark.directories import Copies, Directory, choose_copies, find_directories
from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.filters import as_of, is_exact, narrowed, wanted_by
from metadata_log.spark.log_index import LogIndex, index_log
from metadata_log.spark.named import cluster_rows, ids_of, load_cluster_names
from metadata_log.spark.options import FAILFAST, PERMISSIVE, Options, history_options, nearest
from metadata_log.spark.passes import begin_part, plan_parts
from metadata_log.spark.remote_disk import RemoteDisk
from metadata_log.spark.remote_index import index_remote_log
from metadata_log.spark.remote_plan import plan_files, split_of
from metadata_log.spark.row_filters import Condition, conditions_of, keeps, wants_part
from metadata_log.spark.rows import Projection, damage_rows, find_view, is_history
from metadata_log.spark.storage import Disks, disk_at, is_remote, local_path, remote_disk
from metadata_log.spark.tasks import (
    ClustersTask,
    FileTask,
    HistoryTask,
    MarkTask,
    PackTask,
    RangeTask,
    SmallTask,
    StreamTask,
    Task,
    pack,
)

_GO_ON = "With mode=PERMISSIVE the query reads everything readable, and rows report the rest."


class KraftReader(DataSourceReader):
    """Reads a view of the logs that the options name. Spark sends the reader and its tasks to the executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        names = load_cluster_names(options.cluster_names, options.storage)
        options = replace(options, clusters=ids_of(options.clusters, names))
        self._view = find_view(options.view)
        # The view of damage has its rows in every mode.
        self._options = replace(options, mode=PERMISSIVE) if self._view == DAMAGE else options
        self._names = names
        self._projection = Projection(self._view, schema, names)
        self._wanted = wanted_by(options)
        self._conditions: tuple[Condition, ...] = ()
        if is_history(self._view):
            _check_history(self._view, options)

    def partitions(self) -> list[InputPartition]:
        """One task for each piece of work; under FAILFAST raises the problem of a directory."""
        disks = Disks(self._options.storage)
        try:
            copies = self._copies(disks)
        except SourceError as bad:
            if self._view != DAMAGE:
                raise
            where = ", ".join(self._options.paths)
            nothing = Damage(where=where, what=bad.what, expected="a metadata log")
            copies = Copies([], [(Directory(where, ""), nothing)])
        _check_clusters(self._options, copies)
        if self._view == CLUSTERS:
            return self._clusters(copies)
        tasks: list[Task] = []
        marks = list(copies.problems)
        if is_history(self._view):
            _check_whole(copies.chosen)
        for directory in copies.chosen:
            if not self._wanted.has(directory.cluster):
                continue
            try:
                planned, damages = plan(
                    self._view, directory, self._options, self._wanted.rows, disks, self._conditions
                )
            except (OSError, MetadataLogError) as bad:
                marks.append((directory, as_damage(bad, directory.path)))
            else:
                tasks += planned
                marks += [(directory, damage) for damage in damages]
        marks += _beyond_end([one for one in copies.chosen if self._wanted.has(one.cluster)], self._options)
        tell(marks, self._options)
        if marks and self._options.mode != "DROPMALFORMED":
            tasks.append(MarkTask(tuple(marks)))
        packed = pack(tasks, most=self._options.max_tasks, least_bytes=self._options.split_bytes)
        return [InputPartition(task) for task in packed] or [InputPartition(MarkTask(()))]

    def _clusters(self, copies: Copies) -> list[InputPartition]:
        """One task with the clusters of all directories, also of those with a problem."""
        tell(copies.problems, self._options)
        directories = [*copies.chosen, *(directory for directory, _ in copies.problems)]
        rows = [row for row in cluster_rows(directories, self._names) if self._wanted.has(row["cluster"])]
        return [InputPartition(ClustersTask(tuple(rows)))]

    def _copies(self, disks: Disks) -> Copies:
        options = self._options
        directories = find_directories(options.paths, disks=disks)
        if options.copies == "best":
            return choose_copies(directories, lambda each: _index(disks.at(each.path), each.path))
        bad = [(directory, directory.problem) for directory in directories if directory.problem is not None]
        return Copies([directory for directory in directories if directory.problem is None], bad)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. They form no cycles, so the garbage collector is suspended."""
        with gc_paused():
            of = (self._view, self._projection, self._options, self._wanted.rows, self._conditions)
            yield from run(partition.value, *of)


class FilteringReader(KraftReader):
    """The same with filters pushed down. Spark refuses such a reader unless pushing is enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (as Spark calls it)
        """Apply the filters for skipping; returns those that Spark must apply itself."""
        if is_history(self._view) or self._view == DAMAGE:
            exact = [condition for condition in filters if is_exact(condition)]
            self._wanted = narrowed(self._wanted, exact)
            if is_history(self._view):
                self._conditions = conditions_of(self._view, filters)
        else:
            self._wanted = narrowed(self._wanted, filters)
        return [condition for condition in filters if not is_exact(condition)]


def _index(disk: Disk, path: str) -> LogIndex:
    return index_remote_log(disk, path) if isinstance(disk, RemoteDisk) else index_log(disk, path)


def _check_history(view: str, options: Options) -> None:
    """Refuse options that would select a part of a history, which would change its meaning."""
    raw_only = {
        "type": options.types,
        "fromOffset": options.from_offset,
        "toOffset": options.to_offset,
        "since": options.since,
        "until": options.until,
        "snapshots": options.snapshots,
        "payload": options.payload,
    }
    for name, value in raw_only.items():
        if value:
            raise OptionError(f"{name} is for views of records: {view} is replayed; use asOfOffset or asOfTimestamp")
    if options.copies != "best":
        raise OptionError(f"copies={options.copies} is for views of records: {view} needs one log for each cluster")


def _check_clusters(options: Options, copies: Copies) -> None:
    """Raise `OptionError` for a cluster that none of the paths holds."""
    known = {directory.cluster for directory in (*copies.chosen, *(bad for bad, _ in copies.problems))} - {""}
    for name in options.clusters:
        if name not in known:
            raise OptionError(f"there is no cluster {name!r} at these paths{nearest(name, tuple(known))}")


def _beyond_end(directories: Sequence[Directory], options: Options) -> list[tuple[Directory, Damage]]:
    """The logs of this machine that end before the moment that the options ask for; nothing is known of that moment.

    `asOfOffset` and `asOfTimestamp` apply to each log; `fromOffset` and `since` apply to all of them together. The end
    of a log in an object store is not determined: that would download the file.
    """
    rows, at = wanted_by(options).rows, as_of(options)
    first = At(offset=rows.from_offset or None, timestamp_ms=rows.from_timestamp_ms)
    local = [one for one in directories if not (is_remote(one.path) or one.is_file)]
    if (at is None and first == END) or len(local) < len(directories):
        return []
    ends: list[tuple[Directory, LogEnd]] = []
    for one in local:
        end = find_log_end(disk_at(one.path), one.path)
        if at is None and end.reaches(first):
            # Each end needs a file to be read, and mostly the first log is enough.
            return []
        ends.append((one, end))
    late = [(one, end, at) for one, end in ends if at is not None and not end.reaches(at)]
    if not any(end.reaches(first) for _, end in ends):
        late += [(one, end, first) for one, end in ends]
    return [(one, _too_late(one, end, asked)) for one, end, asked in late]


def _too_late(directory: Directory, end: LogEnd, asked: At) -> Damage:
    what = f"the log ends at {end}: {moment_text(asked)} is beyond its end"
    return Damage(where=directory.path, what=what, expected="a log that goes on to there")


def _check_whole(chosen: Sequence[Directory]) -> None:
    """Refuse several files of one log for a history: they would be several histories of one cluster."""
    for one, other in pairwise(sorted(chosen, key=lambda each: each.cluster)):
        if one.cluster == other.cluster:
            raise SourceError(
                f"{one.path} and {other.path} are of one cluster, {one.cluster}",
                hint="A history needs the directory with the whole log: give that.",
            )


# ----------------------------------------------------------------------------------------------------------- planning


def plan(
    view: str,
    directory: Directory,
    options: Options,
    rows: Filters,
    disks: Disks,
    conditions: Sequence[Condition] = (),
) -> tuple[Sequence[Task], list[Damage]]:
    """The tasks for one log, and damage beside them; raises `OSError` and `MetadataLogError`."""
    disk = disks.at(directory.path)
    if is_history(view):
        size = _bytes_of(directory, disk)
        if options.passes is None or options.mode != FAILFAST or directory.is_file:
            return [HistoryTask(directory.path, directory.cluster, size)], []
        root = os.path.abspath(local_path(options.passes))
        parts = plan_parts(directory, disk, root, history_options(options), size=size, at=as_of(options))
        return [one for one in parts if one.latest_ms is None or wants_part(view, conditions, one.latest_ms)], []
    if isinstance(disk, RemoteDisk):
        return plan_files(directory, disk, options, rows)
    splits = plan_splits(
        directory.path,
        cluster=directory.cluster,
        snapshots=options.snapshots,
        min_bytes=options.split_bytes,
        from_offset=rows.from_offset,
        until_offset=rows.until_offset,
        from_timestamp_ms=rows.from_timestamp_ms,
        disk=disk,
    )
    return [RangeTask(split) for split in splits], []


def _bytes_of(directory: Directory, disk: Disk) -> int:
    """The length of a log."""
    if directory.is_file:
        return file_bytes(disk, directory.path)
    names = [name for name in disk.list(directory.path) if parse_file_name(name) is not None]
    if isinstance(disk, RemoteDisk):
        return sum(entry.size for name in names if (entry := disk.entry(f"{directory.path}/{name}")) is not None)
    return sum(file_bytes(disk, f"{directory.path}/{name}") for name in names)


def as_damage(bad: OSError | MetadataLogError, path: str) -> Damage:
    """An error as damage, to be reported in a row."""
    if isinstance(bad, MetadataLogError):
        return Damage(where=bad.where or path, what=bad.what, expected="a metadata log", position=bad.position)
    where = bad.filename if isinstance(bad.filename, str) else path
    return Damage(where=where, what=f"the file cannot be read: {bad.strerror or bad}", expected="a readable file")


def tell(marks: Sequence[tuple[Directory, Damage]], options: Options) -> None:
    """Raise the first problem, if the mode ends the query."""
    if marks and options.mode == FAILFAST:
        _, damage = marks[0]
        more = f", and {len(marks) - 1} more like this" if len(marks) > 1 else ""
        raise SourceError(f"{damage.what}{more}", where=damage.where, position=damage.position, hint=_GO_ON)


# ------------------------------------------------------------------------------------------------------------ reading


def run(
    task: Task,
    view: str,
    projection: Projection,
    options: Options,
    rows: Filters,
    conditions: Sequence[Condition] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in Spark's schema; of a replayed view only those that satisfy the conditions."""
    try:
        for batch in _read(task, view, projection, options, rows, conditions):
            if batch is not None and batch.num_rows:
                yield projection.apply(batch)
    except DamagedFile as damaged:
        raise SourceError(str(damaged), hint=_GO_ON) from damaged


def _read(
    task: Task, view: str, projection: Projection, options: Options, rows: Filters, conditions: Sequence[Condition]
) -> Iterable[pa.RecordBatch | None]:
    match task:
        case MarkTask(marks):
            return [damage_rows(view, projection.columns, marks)] if marks else []
        case RangeTask(split):
            return _read_splits([split], view, projection, options, rows, disk_at(split.path, options.storage))
        case StreamTask(split, from_offset, until_offset):
            rows = replace(rows, from_offset=from_offset, until_offset=until_offset)
            return _read_splits([split], view, projection, options, rows, disk_at(split.path, options.storage))
        case FileTask():
            if task.from_offset is not None:
                rows = replace(rows, from_offset=task.from_offset, until_offset=task.until_offset)
            disk = remote_disk(task.path, options.storage).with_size(task.path, task.size)
            planned = split_of(task, disk)
            if planned is None:
                return []
            return _read_splits([planned], view, projection, options, rows, disk.with_size(task.path, planned.end))
        case HistoryTask():
            return _read_history([task], view, projection, options, conditions)
        case ClustersTask(listed):
            return [pa.RecordBatch.from_pylist(list(listed), schema_of(view)).select(projection.columns)]
        case PackTask(packed):
            return _read_packed(packed, view, projection, options, rows, conditions)


def _read_packed(
    packed: Sequence[SmallTask],
    view: str,
    projection: Projection,
    options: Options,
    rows: Filters,
    conditions: Sequence[Condition],
) -> Iterator[pa.RecordBatch | None]:
    """Several small tasks; the ranges of local files share batches, and so do histories."""
    for kind, group in groupby(packed, key=type):
        if kind is RangeTask:
            splits = [task.split for task in group if isinstance(task, RangeTask)]
            for _, of_one in groupby(splits, key=_place_of):
                ranges = list(of_one)
                disk = disk_at(ranges[0].path, options.storage)
                yield from _read_splits(ranges, view, projection, options, rows, disk)
        elif kind is HistoryTask:
            histories = [task for task in group if isinstance(task, HistoryTask)]
            yield from _read_history(histories, view, projection, options, conditions)
        else:
            for one in group:
                yield from _read(one, view, projection, options, rows, conditions)


def _place_of(split: Split) -> str | None:
    """The places that have a disk of their own: an archive, or a directory of an object store; None for this machine's
    disk.
    """
    return archive_in(split.path) or (split.directory if is_remote(split.path) else None)


def _read_splits(
    splits: Iterable[Split], view: str, projection: Projection, options: Options, rows: Filters, disk: Disk
) -> Iterator[pa.RecordBatch]:
    columns = projection.columns
    batches = read_splits(
        splits,
        view=RECORDS if view == DAMAGE else view,
        columns=[*columns, "damage"] if view == DAMAGE and "damage" not in columns else columns,
        filters=rows,
        mode=Mode(options.mode),
        show_secrets=options.show_secrets,
        disk=disk,
    )
    return (_damaged(batch, columns) for batch in batches) if view == DAMAGE else batches


def _damaged(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows that report damage."""
    chosen = batch.filter(batch["damage"].is_valid())
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * chosen.num_rows, pa.struct([])))
    return chosen.select(list(columns))


def _read_history(
    tasks: Sequence[HistoryTask], view: str, projection: Projection, options: Options, conditions: Sequence[Condition]
) -> Iterator[pa.RecordBatch]:
    """Histories, or parts of them."""
    columns, at, keep = projection.columns, as_of(options), keeps(view, conditions)
    on_damage = OnDamage.STRICT if options.mode == FAILFAST else OnDamage.SKIP
    history = replace(history_options(options), on_damage=on_damage)
    passes = (begin_part(task, view, disk_at(task.path, options.storage), history, at) for task in tasks)
    return history_batches(passes, view, columns, keep)
