"""The storage of a fleet's files, read only: this machine's disk, or a file system of fsspec (object stores, HDFS, …).

Local paths use `OsDisk`; a path with a protocol, such as `s3://bucket/fleet`, uses a `RemoteDisk`, which implements the
reading half of `Disk`. The writing half refuses: the Spark source never writes to Kafka's files.
"""

from __future__ import annotations

import errno
import glob
from collections.abc import Mapping
from hashlib import sha256
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

from metadata_log.disk import Disk, File, OsDisk

_MAGIC: Final = frozenset("*?[")


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
    """Whether a path needs fsspec."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str) -> str:
    """A path of this machine without a leading `file:`."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def disk_at(path: str, storage_options: Mapping[str, Any] | None = None) -> Disk:
    """The disk of a path; raises `ImportError` if fsspec, or its support of the protocol, is not installed."""
    return _remote(path, storage_options) if is_remote(path) else OsDisk()


def _remote(path: str, storage_options: Mapping[str, Any] | None) -> RemoteDisk:
    from fsspec.core import url_to_fs

    file_system, _ = url_to_fs(path, **(storage_options or {}))
    return RemoteDisk(file_system)


def has_magic(path: str) -> bool:
    """Whether a path is a pattern."""
    return not _MAGIC.isdisjoint(path)


def matches(pattern: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """The paths that a pattern matches, sorted; `**` matches any depth. Listings are never cached."""
    if is_remote(pattern):
        return _remote(pattern, storage_options).glob(pattern)
    return sorted(glob.glob(local_path(pattern), recursive=True))
