"""The streaming reader: the records that a fleet's logs gained since the last trigger, each exactly once.

A trigger finds new clusters, compares every log with the part that was read, and ends at a batch boundary. Records that
were deleted before reading, or removed after it, end the query or are reported in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, NoReturn

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from metadata_log.arrow import Filters, plan_splits
from metadata_log.arrow.schema import CLUSTERS
from metadata_log.errors import MetadataLogError
from metadata_log.gc_pause import gc_paused
from metadata_log.reading.damage import Damage
from metadata_log.spark.directories import Directory, choose_copies, find_directories
from metadata_log.spark.errors import DataLoss, OptionError, TruncatedTail
from metadata_log.spark.filters import wanted_by
from metadata_log.spark.log_index import LogIndex, index_log
from metadata_log.spark.named import ids_of, load_cluster_names
from metadata_log.spark.options import Options
from metadata_log.spark.progress import (
    Progress,
    Resume,
    StreamOffset,
    from_json,
    limited,
    progress_at,
    resume,
    to_json,
)
from metadata_log.spark.remote_disk import RemoteDisk, side_by_side
from metadata_log.spark.remote_index import index_remote_log
from metadata_log.spark.remote_plan import plan_files
from metadata_log.spark.rows import Projection, find_view, is_history
from metadata_log.spark.scan import run, tell
from metadata_log.spark.storage import Disks, is_remote
from metadata_log.spark.tasks import MarkTask, StreamTask, Task, pack


class Log(Struct, frozen=True):
    """A cluster's log at one moment."""

    directory: Directory
    index: LogIndex


class Fleet(Struct, frozen=True):
    """All logs by cluster, and the problems of other directories."""

    logs: dict[str, Log]
    problems: list[tuple[Directory, Damage]]


class KraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs that the options name. Spark keeps one reader for the lifetime of a query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        names = load_cluster_names(options.cluster_names, options.storage)
        options = replace(options, clusters=ids_of(options.clusters, names))
        self._options = options
        self._view = find_view(options.view)
        _check_stream(self._view, options)
        self._projection = Projection(self._view, schema, names)
        self._wanted = wanted_by(options)
        self._known: dict[str, LogIndex] = {}
        self._disks = Disks(options.storage)
        self._directories: dict[str, Directory] = {}
        self._initial: dict[str, Progress] | None = None
        self._targets: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (as Spark calls it)
        """The start of a new query, by `startingOffsets`; later clusters start at the beginning of their logs.

        Spark asks again when it plans the first batch, and gets the same answer.
        """
        if self._initial is None:
            self._initial = self._start()
        return to_json(StreamOffset(self._initial, begins=self._initial))

    def _start(self) -> dict[str, Progress]:
        starting = self._options.starting_offsets
        if isinstance(starting, dict):
            return {cluster: Progress(offset) for cluster, offset in starting.items()}
        logs = self._look().logs if starting == "latest" else {}
        return {name: progress_at(log.index, log.index.end_offset) for name, log in logs.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (as Spark calls it)
        """The limit of `maxOffsetsPerTrigger`."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (as Spark calls it)
        """Record the ends of all logs: this query reads no further, however often Spark says this."""
        if self._targets is None:
            self._targets = {name: log.index.end_offset for name, log in self._look().logs.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (as Spark calls it)
        """The end of the next trigger. Raises `DataLoss` and `TruncatedTail` unless rows report these."""
        before = from_json(start)
        fleet = self._look()
        tell(fleet.problems, self._options)
        resumes = {name: self._resume(name, before.clusters.get(name), log) for name, log in fleet.logs.items()}
        if self._targets is not None:
            resumes = {name: one for name, one in resumes.items() if name in self._targets or name in before.clusters}
        ends = limited(
            {name: one.offset for name, one in resumes.items()},
            {name: fleet.logs[name].index for name in resumes},
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            self._targets,
        )
        after = dict(before.clusters)
        for name, one in resumes.items():
            if one.withdrawn or before.clusters.get(name, Progress(-1)).offset != ends[name]:
                after[name] = progress_at(fleet.logs[name].index, ends[name])
        problems = self._digest([*fleet.problems, *self._missing(before, fleet)])
        if (after, problems) == (before.clusters, before.problems):
            return start
        begins = dict(before.clusters) if before.is_first else {}
        for name in after.keys() - before.clusters.keys():
            begins[name] = progress_at(fleet.logs[name].index, resumes[name].offset)
        return to_json(StreamOffset(after, problems, begins))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks between two offsets; also for a trigger that an earlier run of the query planned.

        Such a trigger begins where that run has begun it: `start` may be an answer of `initialOffset` of this run.
        """
        before, after = from_json(start), from_json(end)
        if before == after:
            return []
        before = replace(before, clusters=before.clusters | after.begins)
        fleet = self._look()
        tell(fleet.problems, self._options)
        marks: list[tuple[Directory, Damage]] = []
        tasks: list[Task] = []
        if before.problems != after.problems:
            marks += [*fleet.problems, *self._missing(before, fleet)]
        for name, until in after.clusters.items():
            if before.clusters.get(name) == until:
                continue
            if name not in fleet.logs:
                raise DataLoss(f"the directory of cluster {name} is gone before it was read to offset {until.offset}")
            log = fleet.logs[name]
            one = self._resume(name, before.clusters.get(name), log)
            marks += _marks(one, log, name)
            tasks += self._tasks(log, one.offset, self._resume(name, until, log, planned=True).offset)
        told = [MarkTask(tuple(marks))] if marks else []
        packed = pack([*told, *tasks], most=self._options.max_tasks, least_bytes=self._options.split_bytes)
        return [InputPartition(task) for task in packed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with gc_paused():
            yield from run(partition.value, self._view, self._projection, self._options, self._wanted.rows)

    def _look(self) -> Fleet:
        self._disks.forget()
        directories = find_directories(self._options.paths, disks=self._disks, known=self._directories, allow_none=True)
        self._directories = {each.path: each for each in directories if each.problem is None}
        stores = [each for each in directories if each.problem is None and is_remote(each.path)]
        side_by_side(self._index, [each for each in stores if not each.is_file])
        copies = choose_copies([each for each in directories if not each.is_awaited], self._index)
        for directory in copies.chosen:
            if directory.is_file:
                raise OptionError(f"a stream follows directories, and {directory.path} is a file")
        chosen = [directory for directory in copies.chosen if self._wanted.has(directory.cluster)]
        return Fleet({each.cluster: Log(each, self._index(each)) for each in chosen}, copies.problems)

    def _index(self, directory: Directory) -> LogIndex:
        path = directory.path
        known = self._known.get(path)
        disk = self._disks.at(path)
        if isinstance(disk, RemoteDisk):
            self._known[path] = index_remote_log(disk, path, known)
        else:
            self._known[path] = index_log(disk, path, known)
        return self._known[path]

    def _resume(self, name: str, read: Progress | None, log: Log, *, planned: bool = False) -> Resume:
        """The position to continue; raises the errors that the options select."""
        one = resume(read, log.index)
        marks = _marks(one, log, name)
        hint = "With {} the query continues, and a row reports the loss."
        if one.lost and self._options.fail_on_data_loss and not planned:
            raise DataLoss(marks[0][1].what, where=log.directory.path, hint=hint.format("failOnDataLoss=false"))
        if one.withdrawn and self._options.on_truncation == "fail":
            raise TruncatedTail(marks[0][1].what, where=log.directory.path, hint=hint.format("onTruncation=mark"))
        return one

    def _missing(self, before: StreamOffset, fleet: Fleet) -> list[tuple[Directory, Damage]]:
        """The report of clusters that disappeared; raises `DataLoss` if the options select that."""
        gone = [name for name in before.clusters if name not in fleet.logs and self._wanted.has(name)]
        if gone and self._options.fail_on_data_loss:
            hint = "With failOnDataLoss=false the query continues, and a row reports the loss."
            raise DataLoss(f"the directory of cluster {gone[0]} is gone", hint=hint)
        return [(Directory("", name), Damage(where=name, what="its directory is gone", expected="")) for name in gone]

    def _digest(self, problems: list[tuple[Directory, Damage]]) -> str:
        if not problems or self._options.mode == "DROPMALFORMED":
            return ""
        text = "\n".join(sorted({f"{directory.path} {directory.cluster}" for directory, _ in problems}))
        return sha256(text.encode()).hexdigest()[:16]

    def _tasks(self, log: Log, from_offset: int, until_offset: int) -> Sequence[Task]:
        if from_offset >= until_offset:
            return []
        path = log.directory.path
        disk = self._disks.at(path)
        if isinstance(disk, RemoteDisk):
            rows = Filters(from_offset=from_offset, until_offset=until_offset)
            return plan_files(log.directory, disk, self._options, rows, in_stream=True)[0]
        splits = plan_splits(
            path,
            cluster=log.directory.cluster,
            min_bytes=self._options.split_bytes,
            from_offset=from_offset,
            until_offset=until_offset,
            disk=disk,
        )
        return [StreamTask(split, from_offset, until_offset) for split in splits]


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot begin: each call of Spark raises the error that tells why."""

    def __init__(self, error: MetadataLogError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 (as Spark calls it)
        """Refused."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802 (as Spark calls it)
        """Refused."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Refused."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Refused."""
        raise self._error


def _check_stream(view: str, options: Options) -> None:
    if view == CLUSTERS:
        raise OptionError(f"the view {view} is made of paths and cannot be followed: read it again")
    if is_history(view):
        raise OptionError(f"the view {view} is replayed and cannot be followed: stream records, or read it again")
    batch_only = {
        "asOfOffset": options.as_of_offset,
        "asOfTimestamp": options.as_of_timestamp,
        "fromOffset": options.from_offset,
        "toOffset": options.to_offset,
        "since": options.since,
        "until": options.until,
        "snapshots": options.snapshots or None,
    }
    for name, value in batch_only.items():
        if value is not None:
            raise OptionError(f"{name} is for spark.read: a stream starts at startingOffsets")
    if options.copies != "best":
        raise OptionError(f"copies={options.copies} is for spark.read: a stream follows one log of each cluster")


def _marks(one: Resume, log: Log, cluster: str) -> list[tuple[Directory, Damage]]:
    """The reports of removed records."""
    damages = []
    if one.lost:
        first, last = one.lost[0], one.lost[-1]
        what = (
            f"offsets {first} to {last} of cluster {cluster} were deleted before they were read:"
            f" the log starts at {log.index.start_offset}"
        )
        damages.append(Damage(where=log.directory.path, what=what, expected="every record", offset=first))
    if one.withdrawn:
        first, last = one.withdrawn[0], one.withdrawn[-1]
        what = (
            f"offsets {first} to {last} of cluster {cluster} were read and are no longer in the log, which was"
            f" truncated there after a change of its leader; what stands at these offsets now is read again"
        )
        damages.append(Damage(where=log.directory.path, what=what, expected="a log that only grows", offset=first))
    return [(log.directory, damage) for damage in damages]
