"""A disk that reports how long each fsync takes, and which fsync has not returned yet."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

from metadata_log.disk import DirectoryDisk, File, Lock

OnFsync = Callable[[str, float], None]
"""Takes the kind of a file, one of `FILE_KINDS`, and the seconds of one fsync; called in any thread."""
FILE_KINDS: Final = ("log", "quorum-state", "snapshot", "directory", "other")


def kind_of(path: str) -> str:
    """The kind of a file by its path."""
    name = path.rpartition("/")[2]
    if name.endswith(".log"):
        return "log"
    if name.startswith("quorum-state"):
        return "quorum-state"
    return "snapshot" if ".checkpoint" in name else "other"


class FsyncClock:
    """Measures every fsync. Calls of different threads may overlap."""

    def __init__(self, on_fsync: OnFsync) -> None:
        self._on_fsync = on_fsync
        self._under_way: dict[object, float] = {}

    def run(self, kind: str, fsync: Callable[[], None]) -> None:
        """Run an fsync and report the seconds that it took, even if it fails."""
        key = object()
        began_s = self._under_way[key] = perf_counter()
        try:
            fsync()
        finally:
            del self._under_way[key]
            self._on_fsync(kind, perf_counter() - began_s)

    def oldest_s(self) -> float:
        """The age of the oldest fsync that has not returned, in seconds; 0 if there is none."""
        now_s = perf_counter()
        return max((now_s - began_s for began_s in list(self._under_way.values())), default=0.0)


class _MeasuredFile:
    """A file with measured fsyncs. The other methods are those of the file itself."""

    __slots__ = ("_clock", "_file", "_kind", "append", "close", "drop_cache", "next_data", "pread", "size", "truncate")

    def __init__(self, file: File, clock: FsyncClock) -> None:
        self._file = file
        self._clock = clock
        self._kind = kind_of(file.path)
        self.append = file.append
        self.pread = file.pread
        self.size = file.size
        self.next_data = file.next_data
        self.truncate = file.truncate
        self.drop_cache = file.drop_cache
        self.close = file.close

    @property
    def path(self) -> str:
        return self._file.path

    def fsync(self) -> None:
        self._clock.run(self._kind, self._file.fsync)


class MeasuredDisk:
    """A `DirectoryDisk` with fsyncs that are measured by a clock."""

    def __init__(self, disk: DirectoryDisk, clock: FsyncClock) -> None:
        self._disk = disk
        self._clock = clock
        self.read = disk.read
        self.exists = disk.exists
        self.list = disk.list
        self.mkdir = disk.mkdir
        self.remove = disk.remove
        self.rename = disk.rename
        self.rename_directory = disk.rename_directory
        self.remove_directory = disk.remove_directory
        self.make_read_only = disk.make_read_only
        self.absolute, self.space = disk.absolute, disk.space

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; see `Disk.open`."""
        return _MeasuredFile(self._disk.open(path, create=create, writable=writable), self._clock)

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are on disk."""
        self._clock.run("directory", lambda: self._disk.fsync_dir(path))

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at `path`."""
        return self._disk.lock(path)
