"""The storage of a fleet's files, read only: this machine's disk, or a file system of fsspec (object stores, HDFS, …).

Local paths use `OsDisk`; a path with a protocol, such as `s3://bucket/fleet`, uses a `RemoteDisk`. Neither is written:
the Spark source never writes to Kafka's files.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from metadata_log.disk import Disk, OsDisk
from metadata_log.spark.archived import UnpackingDisk, archive_disk, archive_in, is_of_log, unpacked_name
from metadata_log.spark.errors import SourceError
from metadata_log.spark.remote_disk import Entry, RemoteDisk

_MAGIC: Final = frozenset("*?[")


class _Store(Struct, frozen=True):
    """A kind of storage: its name, and what reads it from Python."""

    what: str
    package: str | None = None
    hint: str = ""


_DATABRICKS: Final = _Store(
    "the Databricks File System",
    hint="On a Databricks cluster the same files are below /dbfs: dbfs:/fleet/* is /dbfs/fleet/*. Or use a volume,"
    " /Volumes/….",
)
_STORES: Final = {
    "s3": _Store("Amazon S3", "s3fs"),
    "s3a": _Store("Amazon S3, in the words of Hadoop", "s3fs"),
    "s3n": _Store(
        "Amazon S3, in the words of an old Hadoop", hint="Write s3:// instead; `pip install s3fs` reads that."
    ),
    "gs": _Store("Google Cloud Storage", "gcsfs"),
    "gcs": _Store("Google Cloud Storage", "gcsfs"),
    "abfs": _Store("Azure Data Lake Storage", "adlfs"),
    "abfss": _Store("Azure Data Lake Storage", "adlfs"),
    "wasb": _Store("Azure Blob Storage", hint="Write abfss:// instead; `pip install adlfs` reads that."),
    "wasbs": _Store("Azure Blob Storage", hint="Write abfss:// instead; `pip install adlfs` reads that."),
    "hdfs": _Store(
        "a Hadoop file system",
        hint="pyarrow reads it with libhdfs of an installed Hadoop: set HADOOP_HOME, JAVA_HOME, and CLASSPATH as"
        " `hadoop classpath --glob` prints it. Or mount it.",
    ),
    "dbfs": _DATABRICKS,
}
"""The kinds of storage by the protocol of their paths."""
_ROOT: Final = re.compile(r"[^/]*//[^/]*")
_PROTOCOL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def is_remote(path: str) -> bool:
    """Whether a path is not of this machine's disk: `s3://bucket/fleet`, and also `dbfs:/fleet` with its one slash."""
    return _protocol(path) in _STORES or ("://" in path and not path.startswith("file://"))


def _protocol(path: str) -> str:
    """The protocol of a path in lower case; empty without one."""
    match = _PROTOCOL.match(path)
    return "" if match is None else match[1].lower()


def local_path(path: str) -> str:
    """A path of this machine without a leading `file:`."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def disk_at(path: str, storage_options: Mapping[str, Any] | None = None) -> Disk:
    """The disk of a path; raises `SourceError` if no package reads such a path, and as `archive_disk` does."""
    return Disks(storage_options).at(path)


def remote_disk(path: str, storage_options: Mapping[str, Any] | None = None) -> RemoteDisk:
    """The same for a path of an object store."""
    return RemoteDisk(file_system(path, storage_options))


class Disks:
    """The disks of one planning: all paths of one store share a disk, and so its listings."""

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = storage_options
        self._local = UnpackingDisk(OsDisk(), _local_state)
        self._remote: dict[str, RemoteDisk] = {}

    def at(self, path: str) -> Disk:
        """The disk of a path, on which what is packed is unpacked; raises `SourceError` as `disk_at` does.

        It is a `RemoteDisk` for what is not packed in an object store.
        """
        store = self.store(path) if is_remote(path) else None
        archive = archive_in(path)
        if store is None:
            if archive is None or not os.path.isfile(archive):
                return self._local
            return _in_archive(self._local, archive, _local_state(archive))
        if archive is not None and (entry := _file_of(store, archive)) is not None:
            return _in_archive(store, archive, entry)
        return UnpackingDisk(store, store.state) if _has_packed(store, path) else store

    def store(self, path: str) -> RemoteDisk:
        """The store of a path with a protocol."""
        # fsspec keeps a file system for each thread, and threads share these disks.
        root = _ROOT.match(path)
        key = path if root is None else root[0]
        if key not in self._remote:
            self._remote[key] = remote_disk(path, self._options)
        return self._remote[key]

    def matches(self, pattern: str) -> list[str]:
        """The paths that a pattern matches, sorted; `**` matches any depth."""
        if is_remote(pattern):
            return self.store(pattern).glob(pattern)
        return sorted(glob.glob(local_path(pattern), recursive=True))

    def forget(self) -> None:
        """Ask the stores again from now on."""
        for disk in self._remote.values():
            disk.forget()


def _local_state(path: str) -> object:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _in_archive(disk: Disk, archive: str, state: object) -> Disk:
    """The disk of an archive, which may have packed files, too."""
    return UnpackingDisk(archive_disk(disk, archive, state), lambda _: state)


def _file_of(store: RemoteDisk, path: str) -> Entry | None:
    """A file as its store describes it; None for a directory, and for nothing."""
    try:
        entry = store.state(path)
    except FileNotFoundError:
        return None
    return None if entry.is_directory else entry


def _has_packed(store: RemoteDisk, path: str) -> bool:
    """Whether a directory has packed files of a log, or that of a file; a packed file itself counts, too."""
    folder, _, name = path.rpartition("/")
    if unpacked_name(name) is not None:
        return True
    try:
        return any(unpacked_name(one) is not None for one in store.list(folder if is_of_log(name) else path))
    except OSError:
        return False


def file_system(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    """The file system of fsspec for a path; raises `SourceError` if no package knows such a path."""
    from fsspec.core import url_to_fs

    protocol = _protocol(path)
    if "://" not in path or _STORES.get(protocol) is _DATABRICKS:
        raise _unreadable(path, protocol, "the source reads no such path")
    try:
        fs, _ = url_to_fs(path, **(storage_options or {}))
    except ImportError as missing:
        raise _unreadable(path, protocol, "a Python package for it is missing") from missing
    except ValueError as unknown:
        raise _unreadable(path, protocol, str(unknown)) from unknown
    except OSError as failed:
        # libhdfs is loaded when the file system is made.
        raise _unreadable(path, protocol, str(failed).strip().partition("\n")[0]) from failed
    return fs


def _unreadable(path: str, protocol: str, why: str) -> SourceError:
    """The error for a path that nothing here reads: what kind of path it is, and what would read it."""
    store = _STORES.get(protocol)
    if store is None:
        hint = "The path is a URL for fsspec: https://filesystem-spec.readthedocs.io/ lists what fsspec reads."
        return SourceError(f"{path} cannot be read: {why}", hint=hint)
    hint = store.hint if store.package is None else f"`pip install {store.package}` where Spark's Python runs."
    return SourceError(f"{path} is a path of {store.what}: {why}", hint=hint)


def has_magic(path: str) -> bool:
    """Whether a path is a pattern."""
    return not _MAGIC.isdisjoint(path)


def matches(pattern: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """The paths that a pattern matches, sorted; `**` matches any depth."""
    return Disks(storage_options).matches(pattern)
