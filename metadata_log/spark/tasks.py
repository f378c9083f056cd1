"""The tasks of a query: plain values that Spark sends to the executors, and the packing of small ones into few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from metadata_log.arrow import Split
from metadata_log.reading.damage import Damage
from metadata_log.reading.place import Place
from metadata_log.spark.directories import Directory
from metadata_log.types import OffsetAndEpoch

MOST_TASKS: Final = 400
"""The most tasks of a query, unless an option says otherwise: each costs some 80 ms besides its records."""
_TASK_BYTES: Final = 8 << 20
"""Small tasks are packed up to this size: its records cost as much as a task does."""
_REPLAYED: Final = 8
"""How many times the cost of read bytes that of replayed bytes is."""
_EACH: Final = 64 << 10
"""How many bytes a log counts as, besides its own."""


class RangeTask(Struct, frozen=True):
    """A range of a local file."""

    split: Split


class StreamTask(Struct, frozen=True):
    """A range of a file of which only some offsets are new."""

    split: Split
    from_offset: int
    until_offset: int


class FileTask(Struct, frozen=True, kw_only=True):
    """A file of an object store, or the batches of one that begin between two positions.

    Args:
        path: The file.
        cluster: The cluster.
        size: The length of the file in bytes.
        begin: The first position.
        end: The first position of the next task.
        index_bytes: The length of the offset index beside the file; 0 without one.
        next_base: The offset at which the next file begins; None for the last file.
        snapshot: For the last file the newest snapshot, which no log ends before.
        from_offset: The first new offset of a stream.
        until_offset: The first offset that a stream reads later.
    """

    path: str
    cluster: str
    size: int
    begin: int
    end: int
    index_bytes: int = 0
    next_base: int | None = None
    snapshot: OffsetAndEpoch | None = None
    from_offset: int | None = None
    until_offset: int | None = None


class PassFile(Struct, frozen=True):
    """A saved pass: its file, and its place in the log."""

    path: str
    place: Place


class HistoryTask(Struct, frozen=True):
    """A cluster's log, replayed: the whole, or the part between two saved passes.

    Args:
        path: The directory.
        cluster: The cluster.
        size: About the bytes to read.
        begins: The pass after which the part begins; None for the beginning of the log.
        until: The place where the part ends; None for the end of the log.
        latest_ms: The latest timestamp before `until`, in ms; None for the end of the log.
    """

    path: str
    cluster: str
    size: int = 0
    begins: PassFile | None = None
    until: Place | None = None
    latest_ms: int | None = None


class MarkTask(Struct, frozen=True):
    """Unreadable data, to be reported in rows."""

    marks: tuple[tuple[Directory, Damage], ...]


class ClustersTask(Struct, frozen=True):
    """The rows of the view `clusters`, which planning has made already."""

    rows: tuple[dict[str, Any], ...]


SmallTask = RangeTask | StreamTask | FileTask | HistoryTask | MarkTask | ClustersTask


class PackTask(Struct, frozen=True):
    """Several small tasks."""

    tasks: tuple[SmallTask, ...]


Task = SmallTask | PackTask


def pack(tasks: Sequence[Task], *, most: int = MOST_TASKS, least_bytes: int = _TASK_BYTES) -> list[Task]:
    """The same work in at most `most` tasks, in the same order; a task of the full size stays by itself.

    Args:
        tasks: The tasks.
        most: The limit.
        least_bytes: The size in bytes from which on a task is large enough.

    Returns:
        The packed tasks.
    """
    weights = [_weight(task) for task in tasks]
    enough = max(min(_TASK_BYTES, least_bytes), -(-sum(weights) // most))
    groups: list[list[Task]] = []
    load = 0
    for task, weight in zip(tasks, weights, strict=True):
        if not groups or (load >= enough and weight):
            groups.append([])
            load = 0
        groups[-1].append(task)
        load += weight
    return [_packed(group) for group in groups]


def _packed(group: Sequence[Task]) -> Task:
    return group[0] if len(group) == 1 else PackTask(tuple(flat(group)))


def flat(tasks: Iterable[Task]) -> list[SmallTask]:
    """The tasks inside packs, in order."""
    small: list[SmallTask] = []
    for task in tasks:
        if isinstance(task, PackTask):
            small += task.tasks
        else:
            small.append(task)
    return small


def _weight(task: Task) -> int:
    match task:
        case RangeTask(split) | StreamTask(split):
            return _EACH + split.end - split.start
        case FileTask():
            return _EACH + task.end - task.begin
        case HistoryTask():
            return (_EACH + task.size) * _REPLAYED
        case MarkTask() | ClustersTask():
            return 0
        case PackTask(packed):
            return sum(map(_weight, packed))
