"""A disk that keeps changes in memory: it shows what a start would do to a directory, and changes nothing."""

from __future__ import annotations

import errno

from metadata_log.disk import Disk, File
from metadata_log.memory_paths import missing


class OverlayDisk:
    """A `Disk` over another one that is only read. Changes are kept in memory and are gone with the object.

    Args:
        below: The disk that is read.
    """

    def __init__(self, below: Disk) -> None:
        self._below = below
        self._contents: dict[str, _Content | None] = {}
        """The files that were opened for writing, renamed or removed (None)."""
        self._directories: set[str] = set()

    def _content(self, path: str) -> _Content:
        """The content of a file as this disk sees it; raises `FileNotFoundError`."""
        if path not in self._contents:
            self._contents[path] = _Content(self._below, path)
        content = self._contents[path]
        if content is None:
            raise missing(path)
        return content

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OverlayFile:
        """Open a file; a new one exists in memory only."""
        if create and not self.exists(path):
            self._contents[path] = _Content(self._below, None)
        return OverlayFile(path, self._content(path), writable=writable)

    def read(self, path: str) -> bytes:
        """The whole content of a small file."""
        content = self._content(path)
        if content.is_untouched:
            return self._below.read(content.source or path)
        return content.pread(content.size(), 0)

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        if path in self._contents:
            return self._contents[path] is not None
        return path in self._directories or self._below.exists(path)

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        names = set(self._below.list(path)) if self._below.exists(path) else set[str]()
        if not names and not self.exists(path):
            raise missing(path)
        for changed, content in self._contents.items():
            parent, _, name = changed.rpartition("/")
            if parent == path:
                (names.discard if content is None else names.add)(name)
        return sorted(names)

    def mkdir(self, path: str) -> None:
        """Make a directory in memory."""
        self._directories.add(path)

    def remove(self, path: str) -> None:
        """Delete a file from the view."""
        self._content(path).close()
        self._contents[path] = None

    def rename(self, source: str, target: str) -> None:
        """Rename a file in the view."""
        self._contents[target] = self._content(source)
        self._contents[source] = None

    def make_read_only(self, path: str) -> None:
        """Do nothing: the files below are never written."""

    def fsync_dir(self, path: str) -> None:
        """Do nothing: no change reaches a disk."""

    def lock(self, path: str) -> OverlayLock:
        """A lock that excludes nothing: this disk changes nothing."""
        return OverlayLock()


class OverlayLock:
    """A lock in the view of one process."""

    def release(self) -> None:
        """Do nothing."""


class _Content:
    """The first bytes of a file below, and what was written after them."""

    def __init__(self, below: Disk, source: str | None) -> None:
        self.source = source
        self._below = below
        self._file: File | None = None if source is None else below.open(source, writable=False)
        self._kept = 0 if self._file is None else self._file.size()
        self._tail = bytearray()
        self.is_untouched = source is not None

    def _open(self) -> File | None:
        if self._file is None and self.source is not None:
            self._file = self._below.open(self.source, writable=False)
        return self._file

    def size(self) -> int:
        return self._kept + len(self._tail)

    def append(self, data: bytes) -> None:
        self._tail += data
        self.is_untouched = False

    def truncate(self, size: int) -> None:
        del self._tail[max(0, size - self._kept) :]
        self._kept = min(self._kept, size)
        self.is_untouched = False

    def pread(self, size: int, position: int) -> bytes:
        below = self._open()
        kept = b""
        if below is not None and position < self._kept:
            kept = below.pread(min(size, self._kept - position), position)
        start = max(0, position - self._kept)
        return kept + bytes(self._tail[start : start + size - len(kept)]) if position + size > self._kept else kept

    def next_data(self, position: int) -> int:
        below = self._open()
        return below.next_data(position) if below is not None and position < self._kept else position

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class OverlayFile:
    """One open file of an `OverlayDisk`."""

    def __init__(self, path: str, content: _Content, *, writable: bool) -> None:
        self._path = path
        self._content = content
        self._writable = writable

    @property
    def path(self) -> str:
        """The path under which the file was opened."""
        return self._path

    def append(self, data: bytes) -> None:
        """Write at the end, in memory."""
        if not self._writable:
            raise OSError(errno.EBADF, "this file is open for reading only", self._path)
        self._content.append(data)

    def pread(self, size: int, position: int) -> bytes:
        """Read from the file below and from what was written."""
        return self._content.pread(size, position)

    def size(self) -> int:
        """The length of the file in the view."""
        return self._content.size()

    def next_data(self, position: int) -> int:
        """The first position from `position` on that may hold anything but zeros."""
        return self._content.next_data(position)

    def truncate(self, size: int) -> None:
        """Truncate the file in the view."""
        self._content.truncate(size)

    def fsync(self) -> None:
        """Do nothing: no change reaches a disk."""

    def drop_cache(self) -> None:
        """Do nothing: no change reaches a disk."""

    def close(self) -> None:
        """Close the file below; a later read opens the file again."""
        self._content.close()
