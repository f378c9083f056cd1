"""Tasks for the files of an object store: planned from listings alone, and resolved to batches by the executor.

The offset index beside a segment names the positions of batches (Kafka: `OffsetIndex`). So an executor that reads a
part of a large segment reads the index, and begins and ends at batches of it; the tasks beside it do the same and meet
it there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from metadata_log.arrow import Filters, Split
from metadata_log.disk import Disk, File
from metadata_log.errors import CorruptBatch, MetadataLogError, UnsupportedVersion
from metadata_log.log.indexes import OFFSET_ENTRY_BYTES, parse_offset_index
from metadata_log.log.segment import INDEX_SUFFIXES, file_name, parse_file_name, scan_headers
from metadata_log.log.snapshot import parse_snapshot_name, snapshot_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.missing import no_beginning
from metadata_log.records.batch import RecordBatch
from metadata_log.spark.directories import Directory
from metadata_log.spark.options import Options
from metadata_log.spark.remote_disk import RemoteDisk
from metadata_log.spark.tasks import FileTask

_PARTS: Final = 16
"""The most parts of a file: each of them reads the index, which has a byte for every 512 of the segment."""
_INTERVAL_BYTES: Final = 4096
"""Kafka's `index.interval.bytes`: the least distance of two entries."""
_TRIES: Final = 4
_Entries = list[tuple[int, int]]


def plan_files(
    directory: Directory, disk: Disk, options: Options, rows: Filters, *, in_stream: bool = False
) -> tuple[list[FileTask], list[Damage]]:
    """The tasks of one log, and its damage that the listing shows; raises `MetadataLogError` for a log without segment.

    Args:
        directory: The log.
        disk: The disk; it has listed the directory, or lists it now.
        options: The options of the query.
        rows: The wanted rows: files without any of these are left out.
        in_stream: Whether only the offsets of `rows` are read, and the beginning of the log was judged before.

    Returns:
        The tasks in order, and the damage.
    """
    if directory.is_file:
        size = _size(disk, directory.path)
        return [FileTask(path=directory.path, cluster=directory.cluster, size=size, begin=0, end=size)], []
    names = disk.list(directory.path)
    snapshots = sorted(one for name in names if (one := parse_snapshot_name(name)) is not None)
    bases = sorted(base for name in names if (base := parse_file_name(name)) is not None)
    newest = max(snapshots, key=lambda one: one.offset, default=None)
    if not bases and newest is not None and newest.offset > 0:
        what = (
            f"there is no segment of the log, and {snapshot_name(newest)} stands for the records below {newest.offset}"
        )
        raise MetadataLogError(what, where=directory.path)
    begins = bases[0] if bases else 0
    is_cut = bool(begins) and not any(one.offset >= begins for one in snapshots)
    damages = [no_beginning(directory.path, begins)] if is_cut and not in_stream else []
    tasks: list[FileTask] = []
    if options.snapshots and not in_stream:
        for name in names:
            if parse_snapshot_name(name) is not None:
                path = f"{directory.path}/{name}"
                size = _size(disk, path)
                tasks.append(FileTask(path=path, cluster=directory.cluster, size=size, begin=0, end=size))
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if following is not None and rows.from_offset is not None and following <= rows.from_offset:
            continue
        if rows.until_offset is not None and base >= rows.until_offset:
            continue
        path = f"{directory.path}/{file_name(base)}"
        size = _size(disk, path)
        index = file_name(base, INDEX_SUFFIXES[0])
        index_bytes = _size(disk, f"{directory.path}/{index}") if index in names else 0
        whole = FileTask(
            path=path,
            cluster=directory.cluster,
            size=size,
            begin=0,
            end=size,
            index_bytes=index_bytes,
            next_base=following,
            snapshot=newest if following is None and not in_stream else None,
            from_offset=rows.from_offset if in_stream else None,
            until_offset=rows.until_offset if in_stream else None,
        )
        tasks += [whole] if in_stream else _parts(whole, max(options.split_bytes, size // _PARTS))
    return tasks, damages


def _size(disk: Disk, path: str) -> int:
    entry = disk.entry(path) if isinstance(disk, RemoteDisk) else None
    if entry is not None:
        return entry.size
    file = disk.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()


def _parts(whole: FileTask, least_bytes: int) -> Iterator[FileTask]:
    count = whole.size // least_bytes if whole.index_bytes else 1
    if count < 2:
        yield whole
        return
    bounds = [whole.size * at // count for at in range(count)] + [whole.size]
    for begin, end in pairwise(bounds):
        yield FileTask(
            path=whole.path,
            cluster=whole.cluster,
            size=whole.size,
            begin=begin,
            end=end,
            index_bytes=whole.index_bytes,
            next_base=whole.next_base,
            snapshot=whole.snapshot,
        )


def split_of(task: FileTask, disk: RemoteDisk) -> Split | None:
    """The range of batches that a task reads; None if no batch begins in its part."""
    base = parse_file_name(task.path.rpartition("/")[2])
    start, end, following = 0, task.size, None
    is_part = task.begin > 0 or task.end < task.size
    if base is not None and task.index_bytes and (is_part or task.from_offset is not None):
        file = disk.open(task.path, writable=False)
        try:
            entries = _read_index(disk, task, base)
            if is_part:
                start = _boundary(file, entries, task.begin, task.size).position if task.begin else 0
                after = _boundary(file, entries, task.end, task.size)
                end, following = after.position, after.offset
            else:
                start, end = _around(entries, task)
        finally:
            file.close()
    if start >= end and task.size:
        return None
    is_last = end == task.size
    return Split(
        cluster=task.cluster,
        directory=task.path.rpartition("/")[0],
        path=task.path,
        start=start,
        end=end,
        is_last=is_last,
        may_grow=is_last and task.next_base is None and base is not None,
        expected_offset=base if start == 0 else None,
        epoch=0,
        end_offset=None,
        max_timestamp_ms=-1,
        next_offset=task.next_base if is_last else following,
        snapshot=task.snapshot if is_last else None,
    )


class _Boundary:
    """A position at which a batch begins, and the batch's offset; at the end of the file none."""

    __slots__ = ("offset", "position")

    def __init__(self, position: int, offset: int | None) -> None:
        self.position = position
        self.offset = offset


def _boundary(file: File, entries: _Entries, position: int, size: int) -> _Boundary:
    """The first indexed batch from a position on that is where the index says: neighbours find the same one."""
    if position >= size:
        return _Boundary(size, None)
    first = bisect_left(entries, position, key=lambda entry: entry[1])
    for last_offset, at in entries[first : first + _TRIES]:
        batch = _header(file, at)
        if batch is not None and batch.base_offset <= last_offset < batch.next_offset:
            return _Boundary(at, batch.base_offset)
    return _Boundary(size, None)


def _header(file: File, position: int) -> RecordBatch | None:
    try:
        return next(scan_headers(file, position), None)
    except (CorruptBatch, UnsupportedVersion):
        return None


def _around(entries: _Entries, task: FileTask) -> tuple[int, int]:
    """The positions around the offsets of a stream's task."""
    start, end = 0, task.size
    if task.from_offset is not None:
        at = bisect_left(entries, task.from_offset, key=lambda entry: entry[0])
        start = entries[at - 1][1] if at else 0
    if task.until_offset is not None:
        at = bisect_left(entries, task.until_offset, key=lambda entry: entry[0]) + 1
        end = entries[at][1] if at < len(entries) else task.size
    return start, end


def _index_of(path: str) -> str:
    return path.rpartition(".")[0] + INDEX_SUFFIXES[0]


def _read_index(disk: RemoteDisk, task: FileTask, base: int) -> _Entries:
    """The entries of the index. That of an active segment is a long file of zeros after them."""
    most = (task.size // _INTERVAL_BYTES + 1) * OFFSET_ENTRY_BYTES
    return read_index(disk, _index_of(task.path), base, most, task.size)


def read_index(disk: RemoteDisk, path: str, base: int, most_bytes: int, size: int) -> _Entries:
    """The entries of an offset index, of at most so many bytes, that lie in a segment of this size, in order."""
    try:
        content = disk.read_start(path, most_bytes)
    except OSError:
        return []
    whole = content[: len(content) - len(content) % OFFSET_ENTRY_BYTES]
    entries: _Entries = []
    for offset, position in parse_offset_index(whole, base):
        if 0 < position < size and (not entries or (offset > entries[-1][0] and position > entries[-1][1])):
            entries.append((offset, position))
    return entries
