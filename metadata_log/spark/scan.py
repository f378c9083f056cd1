"""The batch reader: plans tasks for the logs of a fleet, and reads one task as Arrow batches on an executor.

Raw views are split at batches, several tasks per log; a replayed view is one task per cluster. A log in an object store
is one task per file, so that planning downloads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from metadata_log.arrow import Filters, Mode, Split, plan_splits, read_split, read_view
from metadata_log.arrow.schema import CLUSTERS, schema_of
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.gc_pause import gc_paused
from metadata_log.history import Options as HistoryOptions
from metadata_log.log.segment import parse_file_name
from metadata_log.log.snapshot import parse_snapshot_name, snapshot_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.log_end import LogEnd, find_log_end
from metadata_log.reading.missing import no_beginning
from metadata_log.reading.reader import gap_before
from metadata_log.reading.timeline import END, At, moment_text
from metadata_log.spark.directories import Copies, Directory, choose_copies, find_directories
from metadata_log.spark.errors import OptionError, SourceError
from metadata_log.spark.filters import as_of, is_exact, narrowed, wanted_by
from metadata_log.spark.log_index import index_log
from metadata_log.spark.named import cluster_rows, ids_of, load_cluster_names
from metadata_log.spark.options import FAILFAST, Options, nearest
from metadata_log.spark.rows import Projection, damage_rows, find_view, is_history
from metadata_log.spark.storage import disk_at, is_remote
from metadata_log.types import OffsetAndEpoch

_GO_ON = "With mode=PERMISSIVE the query reads everything readable, and rows report the rest."


class RangeTask(Struct, frozen=True):
    """A range of a local file."""

    split: Split


class StreamTask(Struct, frozen=True):
    """A range of a file of which only some offsets are new."""

    split: Split
    from_offset: int
    until_offset: int


class FileTask(Struct, frozen=True):
    """A file of an object store, the offset of the next file, and for the last file the newest snapshot."""

    path: str
    cluster: str
    next_base: int | None
    snapshot: OffsetAndEpoch | None = None


class HistoryTask(Struct, frozen=True):
    """A cluster's whole log, replayed."""

    path: str
    cluster: str


class MarkTask(Struct, frozen=True):
    """Unreadable data, to be reported in rows."""

    marks: tuple[tuple[Directory, Damage], ...]


class ClustersTask(Struct, frozen=True):
    """The rows of the view `clusters`, which planning has made already."""

    rows: tuple[dict[str, Any], ...]


Task = RangeTask | StreamTask | FileTask | HistoryTask | MarkTask | ClustersTask


class KraftReader(DataSourceReader):
    """Reads a view of the logs that the options name. Spark sends the reader and its tasks to the executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        names = load_cluster_names(options.cluster_names, options.storage)
        options = replace(options, clusters=ids_of(options.clusters, names))
        self._options = options
        self._view = find_view(options.view)
        self._names = names
        self._projection = Projection(self._view, schema, names)
        self._wanted = wanted_by(options)
        if is_history(self._view):
            _check_history(self._view, options)

    def partitions(self) -> list[InputPartition]:
        """One task for each piece of work; under FAILFAST raises the problem of a directory."""
        copies = self._copies()
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
                tasks += plan(self._view, directory, self._options, self._wanted.rows)
            except (OSError, MetadataLogError) as bad:
                marks.append((directory, as_damage(bad, directory.path)))
        marks += _beyond_end([one for one in copies.chosen if self._wanted.has(one.cluster)], self._options)
        tell(marks, self._options)
        if marks and self._options.mode != "DROPMALFORMED":
            tasks.append(MarkTask(tuple(marks)))
        return [InputPartition(task) for task in tasks] or [InputPartition(MarkTask(()))]

    def _clusters(self, copies: Copies) -> list[InputPartition]:
        """One task with the clusters of all directories, also of those with a problem."""
        tell(copies.problems, self._options)
        directories = [*copies.chosen, *(directory for directory, _ in copies.problems)]
        rows = [row for row in cluster_rows(directories, self._names) if self._wanted.has(row["cluster"])]
        return [InputPartition(ClustersTask(tuple(rows)))]

    def _copies(self) -> Copies:
        options = self._options
        found = find_directories(options.paths, options.storage)
        if options.copies == "best":
            return choose_copies(found, lambda each: index_log(disk_at(each.path, options.storage), each.path))
        bad = [(directory, directory.problem) for directory in found if directory.problem is not None]
        return Copies([directory for directory in found if directory.problem is None], bad)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. They form no cycles, so the garbage collector is suspended."""
        with gc_paused():
            yield from run(partition.value, self._view, self._projection, self._options, self._wanted.rows)


class FilteringReader(KraftReader):
    """The same with filters pushed down. Spark refuses such a reader unless pushing is enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (as Spark calls it)
        """Apply the filters for skipping; returns those that Spark must apply itself."""
        if is_history(self._view):
            exact = [condition for condition in filters if is_exact(condition)]
            self._wanted = narrowed(self._wanted, exact)
        else:
            self._wanted = narrowed(self._wanted, filters)
        return [condition for condition in filters if not is_exact(condition)]


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
    """The options that lie behind the end of the logs on this machine, where nothing can be known.

    `asOfOffset` and `asOfTimestamp` apply to each log; `fromOffset` and `since` apply to all of them together. The end
    of a log in an object store is not determined: that would download the file.
    """
    rows, at = wanted_by(options).rows, as_of(options)
    first = At(offset=rows.from_offset or None, timestamp_ms=rows.from_timestamp_ms)
    local = [one for one in directories if not (is_remote(one.path) or one.is_file)]
    if (at is None and first == END) or len(local) < len(directories):
        return []
    ends = [(one, find_log_end(disk_at(one.path), one.path)) for one in local]
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


def plan(view: str, directory: Directory, options: Options, rows: Filters) -> list[Task]:
    """The tasks for one log; raises `OSError` and `MetadataLogError`."""
    if is_history(view):
        return [HistoryTask(directory.path, directory.cluster)]
    if is_remote(directory.path):
        return list(_files(directory, options))
    splits = plan_splits(
        directory.path,
        cluster=directory.cluster,
        snapshots=options.snapshots,
        min_bytes=options.split_bytes,
        from_offset=rows.from_offset,
        until_offset=rows.until_offset,
        from_timestamp_ms=rows.from_timestamp_ms,
    )
    return [RangeTask(split) for split in splits]


def _files(directory: Directory, options: Options) -> Iterator[FileTask | MarkTask]:
    """One task per file. Raises `MetadataLogError` if a snapshot proves that the log is missing."""
    if directory.is_file:
        yield FileTask(directory.path, directory.cluster, None)
        return
    names = disk_at(directory.path, options.storage).list(directory.path)
    snapshots = sorted(one for name in names if (one := parse_snapshot_name(name)) is not None)
    bases = {name: base for name in names if (base := parse_file_name(name)) is not None}
    following: dict[str, int | None] = dict(zip(bases, [*bases.values(), None][1:], strict=True))
    last = max(snapshots, key=lambda one: one.offset, default=None)
    begins = next(iter(bases.values()), None)
    if begins is None and last is not None and last.offset > 0:
        what = f"there is no segment of the log, and {snapshot_name(last)} stands for the records below {last.offset}"
        raise MetadataLogError(what, where=directory.path)
    if begins and not any(one.offset >= begins for one in snapshots):
        marks = ((directory, no_beginning(directory.path, begins)),)
        tell(marks, options)
        yield MarkTask(() if options.mode == "DROPMALFORMED" else marks)
    for name in names:
        if name in bases or (options.snapshots and parse_snapshot_name(name) is not None):
            is_last = name in bases and following[name] is None
            path = f"{directory.path}/{name}"
            yield FileTask(path, directory.cluster, following.get(name), last if is_last else None)


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


def run(task: Task, view: str, projection: Projection, options: Options, rows: Filters) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in Spark's schema."""
    found: Iterable[pa.RecordBatch | None]
    match task:
        case MarkTask(marks):
            found = [damage_rows(view, projection.columns, marks)] if marks else []
        case RangeTask(split):
            found = _read_splits([split], view, projection, options, rows, disk_at(split.path))
        case StreamTask(split, from_offset, until_offset):
            rows = replace(rows, from_offset=from_offset, until_offset=until_offset)
            found = _read_splits([split], view, projection, options, rows, disk_at(split.path, options.storage))
        case FileTask():
            found = _read_file(task, view, projection, options, rows)
        case ClustersTask(listed):
            found = [pa.RecordBatch.from_pylist(list(listed), schema_of(view)).select(projection.columns)]
        case HistoryTask():
            found = _read_history(task, view, projection, options)
    for batch in found:
        if batch is not None and batch.num_rows:
            yield projection.apply(batch)


def _read_splits(
    splits: Iterable[Split], view: str, projection: Projection, options: Options, rows: Filters, disk: Disk
) -> Iterator[pa.RecordBatch]:
    for split in splits:
        yield from read_split(
            split,
            view=view,
            columns=projection.columns,
            filters=rows,
            mode=Mode(options.mode),
            show_secrets=options.show_secrets,
            disk=disk,
        )


def _read_file(
    task: FileTask, view: str, projection: Projection, options: Options, rows: Filters
) -> Iterator[pa.RecordBatch | None]:
    """Read a file of an object store. Only its end shows whether the next file follows."""
    disk = disk_at(task.path, options.storage)
    splits = plan_splits(
        task.path, disk=disk, cluster=task.cluster, from_offset=rows.from_offset, until_offset=rows.until_offset
    )
    yield from _read_splits(splits, view, projection, options, rows, disk)
    end = splits[-1].end_offset if splits else None
    gap = None if task.next_base is None else gap_before(task.path, task.next_base, end)
    if task.snapshot is not None and end is not None and end < task.snapshot.offset:
        name = snapshot_name(task.snapshot)
        what = f"the log ends at offset {end}, and the snapshot {name} stands for the records below its end"
        gap = Damage(where=task.path, what=what, expected=f"a segment that begins at offset {end}", offset=end)
    if gap is not None:
        marks = ((Directory(task.path, task.cluster, is_file=True), gap),)
        tell(marks, options)
        if options.mode != "DROPMALFORMED":
            yield damage_rows(view, projection.columns, marks)


def _read_history(task: HistoryTask, view: str, projection: Projection, options: Options) -> Iterator[pa.RecordBatch]:
    yield from read_view(
        task.path,
        view,
        columns=projection.columns,
        at=as_of(options),
        mode=Mode(options.mode),
        cluster=task.cluster,
        disk=disk_at(task.path, options.storage),
        options=history_options(options),
    )


def history_options(options: Options) -> HistoryOptions:
    """The options of the history engine."""
    told = HistoryOptions(session_timeout_ms=options.session_timeout_ms, show_secrets=options.show_secrets)
    tolerance = options.gap_tolerance_ms
    return told if tolerance is None else replace(told, gap_tolerance_ms=tolerance)
