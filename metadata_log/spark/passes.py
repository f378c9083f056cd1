"""Saved passes of a fleet: where a history is cut into tasks.

A directory holds the passes of each cluster and a list of them. `save_passes` adds those of the records since its last
run, in the tasks of a Spark session or in this process. A query with the option `passes` reads the list and cuts there
(decision 0070). Passes are an aid: without them, or where they do not fit the log, a history is one task.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk, OsDisk, make_directory, replace_file
from metadata_log.errors import MetadataLogError
from metadata_log.gc_pause import gc_paused
from metadata_log.history.engine import HistoryPass, Options
from metadata_log.history.saved_pass import FORMAT, part_steps, restore_pass, save_pass
from metadata_log.history.saved_values import SavedPassError
from metadata_log.history.views import VIEWS
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.place import Place, Standing, find_place
from metadata_log.reading.timeline import At, Base, continue_timeline, place_of, read_timeline
from metadata_log.spark.directories import Directory
from metadata_log.spark.errors import OptionError
from metadata_log.spark.materialize import find_fleet
from metadata_log.spark.materialize import pack as pack_logs
from metadata_log.spark.storage import disk_at, is_remote, local_path
from metadata_log.spark.tasks import MOST_TASKS, HistoryTask, PassFile
from metadata_log.tables.files import partition_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_BYTES: Final = 64 << 20
"""The bytes of the log between two passes: a task of about ten seconds."""
_LIST: Final = "passes.json"


class SavedAt(Struct, frozen=True):
    """One saved pass.

    Args:
        file: The name of its file.
        place: Its place in the log.
        latest_ms: The latest timestamp of the records before, in ms.
    """

    file: str
    place: Place
    latest_ms: int


class PassList(Struct, frozen=True):
    """The passes of one cluster, in order.

    Args:
        format: The version of the passes.
        options: What shapes the rows.
        begins: The end of the snapshot at the beginning of the history; offset 0 without one.
        passes: The passes.
    """

    format: int
    options: dict[str, Any]
    begins: tuple[int, int]
    passes: tuple[SavedAt, ...] = ()


class Saved(Struct, frozen=True, kw_only=True):
    """The result of `save_passes` for one cluster.

    Args:
        cluster: The cluster.
        directory: Its log.
        added: The passes that were added.
        passes: The passes now.
        until: The offset that follows the records before the last pass; 0 for none.
        problem: Why the passes end where they do, if the log is damaged or unreadable.
    """

    cluster: str
    directory: str
    added: int = 0
    passes: int = 0
    until: int = 0
    problem: str | None = None


def save_passes(
    paths: Sequence[str],
    root: str,
    *,
    spark: SparkSession | None = None,
    storage: dict[str, Any] | None = None,
    clusters: Sequence[str] = (),
    options: Options = Options(),
    every_bytes: int = EVERY_BYTES,
) -> list[Saved]:
    """Save the passes of the clusters at some paths, as far as records came since the last time.

    Args:
        paths: Paths and globs of logs, as of `load()`.
        root: The directory of the passes, on this machine or mounted; every worker must see it.
        spark: The session that does the work in its tasks; None for this process.
        storage: The storage options of fsspec.
        clusters: The clusters; all if empty.
        options: The options of the histories that will be read.
        every_bytes: About the bytes of the log between two passes.

    Returns:
        What was done, by cluster. The files hold what the log holds, secrets too.

    Raises:
        SourceError: Nothing is found at the paths, or `root` is no directory of this machine.
        OptionError: A cluster is not at these paths.
    """
    if is_remote(root):
        raise OptionError(f"passes are written to a directory of this machine or a mounted one, not to {root}")
    fleet = find_fleet(paths, storage or {}, clusters)
    root = os.path.abspath(local_path(root))
    saved = [Saved(cluster=bad.cluster, directory=bad.directory, problem=bad.text) for bad in fleet.failed]
    logs = [one if is_remote(one.path) else replace(one, path=os.path.abspath(one.path)) for one in fleet.directories]
    if spark is None:
        saved += [save_cluster(one, root, storage, options, every_bytes) for one in logs]
    elif logs:
        groups = pack_logs(replace(fleet, directories=logs), MOST_TASKS)
        tasks = spark.sparkContext.parallelize(groups, len(groups))
        saved += tasks.flatMap(
            lambda group: [save_cluster(one, root, storage, options, every_bytes) for one in group]
        ).collect()
    return sorted(saved, key=lambda one: (one.cluster, one.directory))


def save_cluster(
    directory: Directory,
    root: str,
    storage: dict[str, Any] | None = None,
    options: Options = Options(),
    every_bytes: int = EVERY_BYTES,
) -> Saved:
    """The same for one cluster; a failure is a result."""
    try:
        with gc_paused():
            return _save(disk_at(directory.path, storage), directory, OsDisk(), root, options, every_bytes)
    except (MetadataLogError, OSError) as bad:
        return Saved(cluster=directory.cluster, directory=directory.path, problem=str(bad))


def _save(log: Disk, directory: Directory, disk: Disk, root: str, options: Options, every_bytes: int) -> Saved:
    folder = _folder(root, directory.cluster)
    begins = _beginning(log, directory.path)
    kept: list[SavedAt] = []
    known = _read_list(disk, root, directory.cluster)
    if known is not None and _fits(known, options, begins):
        kept = list(_standing(log, directory.path, known.passes))
    views, cluster = frozenset(VIEWS), directory.cluster
    place, latest = (None, -1) if not kept else (kept[-1].place, kept[-1].latest_ms)
    story = HistoryPass(cluster, views, options)
    if kept:
        data = disk.read(f"{folder}/{kept[-1].file}")
        story = restore_pass(data, cluster=cluster, views=views, options=options)
    make_directory(disk, folder)
    added, size, problem = 0, 0, None
    try:
        for item in _items(log, directory.path, place):
            if isinstance(item, Damage):
                problem = None if item.unfinished else str(item)
                break
            story.tell(item, None)
            story.sink.take()
            latest = max(latest, item.timestamp_ms if isinstance(item, Base) else item.batch.max_timestamp)
            size += 0 if isinstance(item, Base) else item.batch.size_bytes
            if size >= every_bytes:
                at = place_of(item)
                name = f"{at.offset:020d}-{at.epoch:010d}.pass"
                data = save_pass(story, cluster=cluster, views=views, options=options)
                replace_file(disk, folder, name, data)
                kept.append(SavedAt(name, at, latest))
                _write_list(disk, folder, PassList(FORMAT, _told(options), begins, tuple(kept)))
                added, size = added + 1, 0
    except MetadataLogError as bad:
        problem = str(bad)
    return Saved(
        cluster=cluster,
        directory=directory.path,
        added=added,
        passes=len(kept),
        until=kept[-1].place.offset if kept else 0,
        problem=problem,
    )


def plan_parts(
    directory: Directory, log: Disk, root: str, options: Options, *, size: int, at: At | None
) -> list[HistoryTask]:
    """The tasks of a cluster's history: its parts between the saved passes that fit, or one task without any.

    Args:
        directory: The log.
        log: The disk of the log.
        root: The directory of the passes.
        options: The options of the history.
        size: The bytes of the log.
        at: The end of the history; None for the end of the log.

    Returns:
        The tasks in order.
    """
    whole = HistoryTask(directory.path, directory.cluster, size)
    disk, folder = OsDisk(), _folder(root, directory.cluster)
    known = _read_list(disk, root, directory.cluster)
    if known is None or not _fits(known, options, _beginning(log, directory.path)):
        return [whole]
    wanted = [one for one in _standing(log, directory.path, known.passes) if _is_before(one, at)]
    each = size // (len(wanted) + 1)
    parts: list[HistoryTask] = []
    for before, after in pairwise([None, *wanted, None]):
        begins = None if before is None else PassFile(f"{folder}/{before.file}", before.place)
        ends = (None, None) if after is None else (after.place, after.latest_ms)
        parts.append(replace(whole, size=each, begins=begins, until=ends[0], latest_ms=ends[1]))
    return parts


def _is_before(one: SavedAt, at: At | None) -> bool:
    if at is None:
        return True
    in_offsets = at.offset is None or one.place.offset <= at.offset + 1
    return in_offsets and (at.timestamp_ms is None or one.latest_ms <= at.timestamp_ms)


def begin_part(
    task: HistoryTask, view: str, log: Disk, options: Options, at: At | None
) -> tuple[HistoryPass, Iterator[None]]:
    """A pass at the beginning of a part, or of a whole history, and its steps; errors as of `part_steps`."""
    cluster = task.cluster
    if task.begins is None:
        story = HistoryPass(cluster, frozenset({view}), options)
        items = read_timeline(log, task.path, until=at, on_damage=options.on_damage)
    else:
        data = OsDisk().read(task.begins.path)
        story = restore_pass(data, cluster=cluster, views={view}, options=options, of=VIEWS)
        items = continue_timeline(log, task.path, task.begins.place, on_damage=options.on_damage)
    return story, part_steps(story, items, at=at, until=task.until)


def _items(log: Disk, directory: str, place: Place | None) -> Iterator[Any]:
    if place is None:
        return read_timeline(log, directory, on_damage=OnDamage.STRICT)
    return continue_timeline(log, directory, place, on_damage=OnDamage.STRICT)


def _beginning(log: Disk, directory: str) -> tuple[int, int]:
    """Where the history of a log begins: passes of another beginning tell of rows that the log no longer has."""
    first = next(chain(read_timeline(log, directory, on_damage=OnDamage.STRICT), [None]))
    return (first.end.offset, first.end.epoch) if isinstance(first, Base) else (0, 0)


def _fits(known: PassList, options: Options, begins: tuple[int, int]) -> bool:
    return (known.format, known.options, known.begins) == (FORMAT, _told(options), begins)


def _standing(log: Disk, directory: str, passes: Sequence[SavedAt]) -> Sequence[SavedAt]:
    """The passes that the log still holds: by Raft, all before one that the log holds."""
    for count in range(len(passes), 0, -1):
        standing, _ = find_place(log, directory, passes[count - 1].place)
        if standing is Standing.HOLDS:
            return passes[:count]
    return ()


def _told(options: Options) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(options)
    return {name: value for name, value in values.items() if name != "on_damage"}


def _folder(root: str, cluster: str) -> str:
    return f"{root}/cluster={partition_value(cluster)}"


def _read_list(disk: Disk, root: str, cluster: str) -> PassList | None:
    path = f"{_folder(root, cluster)}/{_LIST}"
    try:
        return msgspec.json.decode(disk.read(path), type=PassList)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as bad:
        raise SavedPassError(f"this is no list of passes: {bad}", where=path) from bad


def _write_list(disk: Disk, folder: str, known: PassList) -> None:
    replace_file(disk, folder, _LIST, msgspec.json.encode(known))
