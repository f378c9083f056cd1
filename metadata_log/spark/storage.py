"""The storage of a fleet's files, read only: this machine's disk, or a file system of fsspec (object stores, HDFS, …).

Local paths use `OsDisk`; a path with a protocol, such as `s3://bucket/fleet`, uses a `RemoteDisk`, which implements the
reading half of `Disk`. The writing half refuses: the Spark source never writes to Kafka's files.
"""

from __future__ import annotations

import errno
import glob
import re
from collections.abc import Mapping
from hashlib import sha256
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

from msgspec import Struct

from metadata_log.disk import Disk, File, OsDisk
from metadata_log.spark.errors import SourceError

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
_PROTOCOL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


class RemoteFile:
    """A local copy of a file, under the name of the original."""

    def __init__(self, path: str, copy: File) -> None:
        self._path = path
        self._copy = copy

    @property
    def path(self) -> str:
        """The path under which the file was opened, with its protocol."""
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file."""
        return self._copy.pread(size, position)

    def size(self) -> int:
        """The length of the file in bytes when it was copied."""
        return self._copy.size()

    def next_data(self, position: int) -> int:
        """The first position from `position` on that is not in a hole of the copy."""
        return self._copy.next_data(position)

    def close(self) -> None:
        """Release the file; the copy stays."""
        self._copy.close()

    def append(self, data: bytes) -> None:
        """Refused."""
        _refuse(self._path)

    def truncate(self, size: int) -> None:
        """Refused."""
        _refuse(self._path)

    def fsync(self) -> None:
        """Refused."""
        _refuse(self._path)

    def drop_cache(self) -> None:
        """Does nothing: the copy is not cached."""


class RemoteDisk:
    """The reading half of a `Disk` over a file system of fsspec. Paths keep their protocol.

    Opening a file first copies all of it to a temporary directory, which exists as long as this object. Readers read
    headers before records, and a store serves one long request faster than many short ones.
    """

    def __init__(self, file_system: Any) -> None:
        self._fs = file_system
        self._copies = TemporaryDirectory(prefix="kraft-")

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RemoteFile:
        """A copy of the present file, for reading; raises `OSError` for writing."""
        if create or writable:
            _refuse(path)
        facts = self._fresh().info(path)
        state = "|".join(str(facts.get(name)) for name in ("name", "size", "ETag", "LastModified", "mtime", "created"))
        copy = f"{self._copies.name}/{sha256(state.encode()).hexdigest()}"
        disk = OsDisk()
        if not disk.exists(copy):
            self._fs.get_file(path, f"{copy}.part")
            disk.rename(f"{copy}.part", copy)
        return RemoteFile(path, disk.open(copy, writable=False))

    def read(self, path: str) -> bytes:
        """The whole content of a small file; raises `FileNotFoundError`."""
        content: bytes = self._fs.cat_file(path)
        return content

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return bool(self._fresh().exists(path))

    def glob(self, pattern: str) -> list[str]:
        """The paths that a pattern matches, with their protocol, sorted."""
        return sorted(self._fs.unstrip_protocol(found.rstrip("/")) for found in self._fresh().glob(pattern))

    def mkdir(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def remove(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        _refuse(source)

    def make_read_only(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def fsync_dir(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def lock(self, path: str) -> NoReturn:
        """Refused: readers take no lock."""
        _refuse(path)

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; raises `NotADirectoryError` for a file, and `FileNotFoundError`."""
        if self._fresh().isfile(path):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        own = self._fs._strip_protocol(path).rstrip("/")
        names = {entry.rstrip("/").rpartition("/")[2] for entry in self._fs.ls(path, detail=False) if entry != own}
        return sorted(names - {""})

    def _fresh(self) -> Any:
        """The file system without its cached listings."""
        self._fs.invalidate_cache()
        return self._fs


def _refuse(path: str) -> NoReturn:
    raise PermissionError(errno.EROFS, "a source of Spark only reads", path)


def is_remote(path: str) -> bool:
    """Whether a path is not of this machine's disk: `s3://bucket/fleet`, and also `dbfs:/fleet` with its one slash."""
    return _protocol(path) in _STORES or ("://" in path and not path.startswith("file://"))


def _protocol(path: str) -> str:
    """The protocol of a path in lower case; empty without one."""
    found = _PROTOCOL.match(path)
    return "" if found is None else found[1].lower()


def local_path(path: str) -> str:
    """A path of this machine without a leading `file:`."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def disk_at(path: str, storage_options: Mapping[str, Any] | None = None) -> Disk:
    """The disk of a path; raises `SourceError` if no package that reads such a path is installed."""
    return _remote(path, storage_options) if is_remote(path) else OsDisk()


def _remote(path: str, storage_options: Mapping[str, Any] | None) -> RemoteDisk:
    from fsspec.core import url_to_fs

    protocol = _protocol(path)
    if "://" not in path or _STORES.get(protocol) is _DATABRICKS:
        raise _unreadable(path, protocol, "the source reads no such path")
    try:
        file_system, _ = url_to_fs(path, **(storage_options or {}))
    except ImportError as missing:
        raise _unreadable(path, protocol, "a Python package for it is missing") from missing
    except ValueError as unknown:
        raise _unreadable(path, protocol, str(unknown)) from unknown
    except OSError as failed:
        # libhdfs is loaded when the file system is made.
        raise _unreadable(path, protocol, str(failed).strip().partition("\n")[0]) from failed
    return RemoteDisk(file_system)


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
    """The paths that a pattern matches, sorted; `**` matches any depth. Listings are never cached."""
    if is_remote(pattern):
        return _remote(pattern, storage_options).glob(pattern)
    return sorted(glob.glob(local_path(pattern), recursive=True))
