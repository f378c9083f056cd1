"""Finds the metadata logs at the paths and globs of `load()`, their clusters, and the best copy of each.

The cluster id is that of `meta.properties` (Kafka: `MetaProperties`), or else the part of the path that the glob
matched. Of several copies of one cluster's log the source reads the one with the highest last epoch, then the longest
one, as Raft would elect it. A copy with a different tail is a `Damage`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.log.log_dir import META_PROPERTIES, PARTITION_METADATA, parse_partition_metadata, read_meta_properties
from metadata_log.reading.damage import Damage
from metadata_log.spark.archived import PACKED, is_of_log, unpacked_name
from metadata_log.spark.errors import SourceError
from metadata_log.spark.log_index import LogIndex, first_difference
from metadata_log.spark.remote_disk import side_by_side
from metadata_log.spark.storage import Disks, has_magic, is_remote, local_path
from metadata_log.types import PARTITION_DIRECTORY, Uuid

_LOOK_BELOW: Final = "Give the directory that holds __cluster_metadata-0, that directory itself, or one of its files."


class Directory(Struct, frozen=True):
    """One metadata log: a partition directory, or one file of a log.

    `problem` states why the log is unreadable; then only the problem is reported. `is_awaited` marks an empty directory
    of a node that may be about to write its first record.
    """

    path: str
    cluster: str
    is_file: bool = False
    problem: Damage | None = None
    is_awaited: bool = False


class _NothingYet(DirectoryError):
    """The directory of a node that has not written a log yet."""


def find_directories(
    paths: Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    allow_none: bool = False,
    disks: Disks | None = None,
    known: Mapping[str, Directory] | None = None,
) -> list[Directory]:
    """The metadata logs at some paths and globs, in order of their paths, each once.

    A path that is no metadata log is a `Directory` with a `problem`; other files that a glob matches are skipped.
    Raises `SourceError` if nothing is found, unless a stream waits for the first log. `disks` keep the listings;
    `known` are directories of an object store that need not be identified again.
    """
    disks = Disks(storage_options) if disks is None else disks
    by_path: dict[str, tuple[str, Directory]] = {}
    for pattern in paths:
        expanded = _expand(pattern, disks)
        first = expanded[0] if expanded else pattern
        by_chance = has_magic(pattern)
        if is_remote(first):
            disks.store(first).list_all(expanded)
            looked = side_by_side(
                lambda path, by_chance=by_chance: _look_again(disks.at, path, known or {}, by_chance=by_chance),
                expanded,
            )
        else:
            looked = [_look_at(disks.at, path, by_chance=by_chance) for path in expanded]
        for directory in looked:
            if directory is not None:
                by_path.setdefault(directory.path, (pattern, directory))
    logs = [one for _, one in by_path.values()]
    if not allow_none and all(
        one.problem is not None and one.problem.what == f"nothing is found at {one.path}" for one in logs
    ):
        raise _nothing_found(paths, os.getcwd())
    return _named_by_path([by_path[path] for path in sorted(by_path)])


def check_anything_is_there(paths: Sequence[str], where: str) -> None:
    """Raise `SourceError` if nothing at all is at some paths of this machine; relative ones begin in `where`.

    A caller asks this before Spark does, whose error is a traceback of its own around ours.
    """
    if any(is_remote(path) for path in paths):
        return
    disks = Disks(None)
    places = (os.path.join(where, local_path(path)) for path in paths)
    if not any(os.path.exists(each) for place in places for each in _expand(place, disks)):
        raise _nothing_found(paths, where)


def _nothing_found(paths: Sequence[str], where: str) -> SourceError:
    return SourceError(
        f"nothing is found at {', '.join(paths)}{_where_relative(paths, where)}"
        if not any(has_magic(path) for path in paths)
        else f"the glob {', '.join(paths)} matches no metadata log{_where_relative(paths, where)}",
        hint=_LOOK_BELOW,
    )


def _where_relative(paths: Sequence[str], where: str) -> str:
    """The directory in which relative paths begin: that of Spark's workers, which is not always the caller's."""
    relative = any(not (is_remote(path) or local_path(path).startswith("/")) for path in paths)
    return f" (a relative path begins in {where} here)" if relative else ""


def _nothing_at(path: str) -> str:
    return f"nothing is found at {path}"


def _expand(pattern: str, disks: Disks) -> list[str]:
    if has_magic(pattern):
        return disks.matches(pattern)
    path = pattern if is_remote(pattern) else local_path(pattern)
    return [path.rstrip("/") or "/"]


def _look_again(
    disk_of: Callable[[str], Disk], path: str, known: Mapping[str, Directory], *, by_chance: bool
) -> Directory | None:
    """As `_look_at`. A directory that was identified before needs listings only: a node never changes its cluster."""
    for place in (path, f"{path}/{PARTITION_DIRECTORY}"):
        before = known.get(place)
        if before is not None and before.problem is None and not before.is_file:
            try:
                if any(is_of_log(name) for name in disk_of(place).list(place)):
                    return before
            except OSError:
                pass
    return _look_at(disk_of, path, by_chance=by_chance)


def _look_at(disk_of: Callable[[str], Disk], path: str, *, by_chance: bool) -> Directory | None:
    """The metadata log at a path; None for another file that a glob matched, and for a missing path."""
    try:
        return _identify(disk_of, path, by_chance=by_chance)
    except (OSError, MetadataLogError) as bad:
        where = getattr(bad, "where", None) or getattr(bad, "filename", None) or path
        what = bad.what if isinstance(bad, MetadataLogError) else f"the file cannot be read: {bad.strerror or bad}"
        problem = Damage(where=str(where), what=what, expected="a metadata log")
        return Directory(path, "", problem=problem, is_awaited=isinstance(bad, _NothingYet))


def _identify(disk_of: Callable[[str], Disk], path: str, *, by_chance: bool) -> Directory | None:
    disk = disk_of(path)
    try:
        names = disk.list(path)
    except FileNotFoundError:
        if by_chance:
            return None
        raise _NothingYet(_nothing_at(path)) from None
    except NotADirectoryError:
        return _identify_file(disk, path, by_chance=by_chance)
    if PARTITION_DIRECTORY in names:
        path = f"{path}/{PARTITION_DIRECTORY}"
        disk = disk_of(path)
        names = disk.list(path)
    if not any(is_of_log(name) for name in names):
        raise _why_not(disk, path, names)
    _check_topic(disk, path, names)
    return Directory(path, _cluster_id(disk, path))


def _why_not(disk: Disk, path: str, names: list[str]) -> DirectoryError:
    packed = next((name for name in names if is_of_log(name.rpartition(".")[0])), None)
    if packed is not None:
        return _packed(f"{path}/{packed}")
    if path.endswith(f"/{PARTITION_DIRECTORY}"):
        return _NothingYet(f"the metadata log at {path} holds neither a segment nor a checkpoint")
    if META_PROPERTIES in names:
        return _NothingYet(f"the log directory {path} is formatted and holds no metadata log")
    below = [name for name in names if disk.exists(f"{path}/{name}/{PARTITION_DIRECTORY}")]
    if below:
        return DirectoryError(
            f"{path} is no metadata log, but {', '.join(below[:3])} below it are: the glob {path}/* finds them"
        )
    return DirectoryError(f"{path} is no metadata log: it has no {PARTITION_DIRECTORY}, no segment and no checkpoint")


def _packed(path: str) -> DirectoryError:
    suffix = os.path.splitext(path)[1]
    remedy = f"unpack it; {', '.join(PACKED)} are read, and tar and zip of the whole {PARTITION_DIRECTORY}"
    return DirectoryError(f"a file of the log is packed as {suffix}, which is not read: {remedy}", where=path)


def _check_topic(disk: Disk, path: str, names: list[str]) -> None:
    if PARTITION_METADATA in names:
        where = f"{path}/{PARTITION_METADATA}"
        topic_id = parse_partition_metadata(disk.read(where), where=where)
        if topic_id != Uuid.METADATA_TOPIC:
            raise DirectoryError(f"{path} is a partition of another topic, {topic_id}", where=where)


def _identify_file(disk: Disk, path: str, *, by_chance: bool) -> Directory | None:
    folder, _, name = path.rpartition("/")
    if (unpacked := unpacked_name(name)) is not None:
        name, path = unpacked, f"{folder}/{unpacked}"
    if is_of_log(name):
        return Directory(path, _cluster_id(disk, folder or "."), is_file=True)
    if is_of_log(name.rpartition(".")[0]):
        raise _packed(path)
    if by_chance:
        return None
    raise DirectoryError(f"{path} is neither a segment nor a checkpoint", hint=_LOOK_BELOW)


def _cluster_id(disk: Disk, partition_directory: str) -> str:
    """The cluster id of the meta.properties beside or above; empty without one. Two different ids are an error."""
    above = partition_directory.rpartition("/")[0] or "."
    places = {}
    for folder in (partition_directory, *([above] if partition_directory.endswith(PARTITION_DIRECTORY) else [])):
        meta = read_meta_properties(disk, folder)
        if meta is not None:
            places[meta.cluster_id] = f"{folder}/{META_PROPERTIES}"
    if len(places) > 1:
        told = " and ".join(f"{cluster} ({where})" for cluster, where in places.items())
        raise DirectoryError(f"the files of two clusters are in one directory: {told}", where=partition_directory)
    return next(iter(places), "")


def _named_by_path(found: list[tuple[str, Directory]]) -> list[Directory]:
    """Name clusters without meta.properties by the part of the path that a glob matched; if ambiguous, by the path."""
    names = [directory.cluster or _name_in(pattern, directory) for pattern, directory in found]
    folders = {(name, _folder(directory)) for name, (_, directory) in zip(names, found, strict=True)}
    times = Counter(name for name, _ in folders)
    return [
        replace(directory, cluster=name if directory.cluster or times[name] == 1 else _folder(directory))
        for name, (_, directory) in zip(names, found, strict=True)
    ]


def _folder(directory: Directory) -> str:
    path = directory.path.rpartition("/")[0] if directory.is_file else directory.path
    return path.removesuffix(f"/{PARTITION_DIRECTORY}")


def _name_in(pattern: str, directory: Directory) -> str:
    """`/fleet/*/data` and `/fleet/a/data/__cluster_metadata-0` give `a/data`; without a glob, the last name."""
    folder = _parts(_folder(directory))
    fixed = next((at for at, part in enumerate(_parts(pattern)) if has_magic(part)), len(folder) - 1)
    return "/".join(folder[fixed:] or folder[-1:])


def _parts(path: str) -> list[str]:
    return [part for part in local_path(path).rpartition("://")[2].split("/") if part]


# -------------------------------------------------------------------------------------------------- copies of one log


class Copies(Struct, frozen=True):
    """The directories to read, and the problems of others of the same clusters."""

    chosen: list[Directory]
    problems: list[tuple[Directory, Damage]]


def choose_copies(directories: Sequence[Directory], index: Callable[[Directory], LogIndex]) -> Copies:
    """One directory per cluster: of several copies the one with the highest last epoch, then the longest.

    `index` reads the headers of one copy; it is called only for clusters with several. A copy that diverges from the
    chosen one is a problem, with the offset of the divergence. Single files are kept.
    """
    by_cluster: dict[str, list[Directory]] = {}
    for directory in directories:
        if directory.problem is None:
            by_cluster.setdefault(directory.cluster, []).append(directory)
    chosen: list[Directory] = []
    problems = [(directory, directory.problem) for directory in directories if directory.problem is not None]
    for copies in by_cluster.values():
        whole = [directory for directory in copies if not directory.is_file]
        chosen += [
            directory for directory in copies if directory.is_file and _folder(directory) not in map(_folder, whole)
        ]
        if len(whole) > 1:
            indexed = sorted(((index(each), each) for each in whole), key=_rank)
            best_index, best = indexed[-1]
            chosen.append(best)
            for other_index, other in indexed[:-1]:
                at = first_difference(best_index, other_index)
                if at is not None:
                    problems.append((other, _diverging(best, best_index, other, other_index, at)))
        else:
            chosen += whole
    return Copies(sorted(chosen, key=lambda directory: directory.path), problems)


def _rank(indexed: tuple[LogIndex, Directory]) -> tuple[int, int, int, str]:
    index, directory = indexed
    return index.last_epoch, index.end_offset, -index.start_offset, directory.path


def _diverging(best: Directory, best_index: LogIndex, other: Directory, index: LogIndex, at: int) -> Damage:
    return Damage(
        where=other.path,
        what=(
            f"two directories of cluster {best.cluster} differ from offset {at} on: {other.path} ends at offset"
            f" {index.end_offset} in epoch {index.last_epoch}, {best.path} at {best_index.end_offset} in epoch"
            f" {best_index.last_epoch}"
        ),
        expected=f"the batches of {best.path}",
        offset=at,
    )
