"""Where a fleet's files lie: this machine's disk, or whatever fsspec opens (object stores, HDFS, …), read only.

Local paths use `OsDisk`; a path with a protocol, such as `s3://bucket/fleet`, becomes a `RemoteDisk`, which satisfies
the reading half of `Disk`. The other half refuses: a source of Spark never writes where Kafka's files are.
"""

from __future__ import annotations

import errno
import glob
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from metadata_log.disk import Disk, OsDisk

_BLOCK_BYTES: Final = 4 << 20
"""What one request to an object store brings at least: batches are read in order, so the next ones are there, too."""
_MAGIC: Final = frozenset("*?[")


class RemoteFile:
    """One file of a `RemoteDisk`, as long as it was when it was opened."""

    def __init__(self, path: str, stream: Any) -> None:
        self._path = path
        self._stream = stream
        self._size = int(stream.size)

    @property
    def path(self) -> str:
        """Where the file was opened, with its protocol."""
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file."""
        self._stream.seek(position)
        data: bytes = self._stream.read(min(size, max(0, self._size - position)))
        return data

    def size(self) -> int:
        """The length of the file in bytes when it was opened."""
        return self._size

    def close(self) -> None:
        """Release the file."""
        self._stream.close()

    def append(self, data: bytes) -> None:
        """Refused."""
        _refuse(self._path)

    def truncate(self, size: int) -> None:
        """Refused."""
        _refuse(self._path)

    def fsync(self) -> None:
        """Refused."""
        _refuse(self._path)


class RemoteDisk:
    """The reading half of a `Disk` over a file system of fsspec. Paths keep their protocol."""

    def __init__(self, file_system: Any) -> None:
        self._fs = file_system

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RemoteFile:
        """Open a file for reading; `OSError` if it should be written."""
        if create or writable:
            _refuse(path)
        return RemoteFile(path, self._fs.open(path, "rb", block_size=_BLOCK_BYTES))

    def read(self, path: str) -> bytes:
        """The whole content of a small file; `FileNotFoundError` if there is none."""
        content: bytes = self._fs.cat_file(path)
        return content

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return bool(self._fs.exists(path))

    def glob(self, pattern: str) -> list[str]:
        """The paths that a pattern matches, with their protocol, sorted."""
        return sorted(self._fs.unstrip_protocol(found.rstrip("/")) for found in self._fs.glob(pattern))

    def refresh(self) -> None:
        """Forget listings that were kept: files may have come and gone."""
        self._fs.invalidate_cache()

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
        """The names in a directory, sorted; `NotADirectoryError` for a file, `FileNotFoundError` if there is none."""
        if self._fs.isfile(path):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        own = self._fs._strip_protocol(path).rstrip("/")
        names = {entry.rstrip("/").rpartition("/")[2] for entry in self._fs.ls(path, detail=False) if entry != own}
        return sorted(names - {""})


def _refuse(path: str) -> NoReturn:
    raise PermissionError(errno.EROFS, "a source of Spark only reads", path)


def is_remote(path: str) -> bool:
    """Whether a path needs fsspec."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str) -> str:
    """A path of this machine without the `file:` that Spark's users put before it."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def disk_at(path: str, storage_options: Mapping[str, Any] | None = None) -> Disk:
    """The disk that a path is on; `ImportError` where fsspec, or what it needs for this protocol, is not installed."""
    return _remote(path, storage_options) if is_remote(path) else OsDisk()


def _remote(path: str, storage_options: Mapping[str, Any] | None) -> RemoteDisk:
    from fsspec.core import url_to_fs

    file_system, _ = url_to_fs(path, **(storage_options or {}))
    return RemoteDisk(file_system)


def has_magic(path: str) -> bool:
    """Whether a path is a pattern."""
    return not _MAGIC.isdisjoint(path)


def matches(pattern: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """The paths that a pattern matches, sorted; `**` matches any depth. Listings are always fresh."""
    if is_remote(pattern):
        disk = _remote(pattern, storage_options)
        disk.refresh()
        return disk.glob(pattern)
    return sorted(glob.glob(local_path(pattern), recursive=True))
