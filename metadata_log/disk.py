"""The door to the disk: a small protocol that the log, the snapshots and quorum-state are written through.

`OsDisk` is the real one; `MemoryDisk` has crashes that lose what was not fsynced. Both pass one contract test.
Paths are plain strings. Every method is synchronous; failures are `OSError`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from contextlib import suppress
from struct import pack
from typing import Final, Protocol

FILE_MODE: Final = 0o600
"""Of files that this software makes: segments, snapshots and archives hold credentials (decision record 0030)."""
DIRECTORY_MODE: Final = 0o700
MOST_SMALL_BYTES: Final = 64 << 20
"""No file that is read in one piece is larger."""


class File(Protocol):
    """One open file. Writing only ever happens at the end."""

    @property
    def path(self) -> str:
        """Where the file was opened."""

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file."""

    def size(self) -> int:
        """The length of the file in bytes, including what was not yet fsynced."""

    def next_data(self, position: int) -> int:
        """The first position from `position` on that may hold anything but zeros; the file's length where none does.

        A sparse file has holes, which a reader of any file would walk for hours; a disk without them gives `position`.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def fsync(self) -> None:
        """Return once everything written so far, and the file's length, is on the disk. Never to be repeated after an
        error: Linux drops what it could not write, and the next fsync succeeds.
        """

    def drop_cache(self) -> None:
        """Forget what is in memory of a file that was fsynced, so that the next read shows what the disk has.

        After a failed write the page cache holds what the disk does not have, and an fsync has no more to say of it.
        Where the system has no such call nothing happens.
        """

    def close(self) -> None:
        """Release the file; does not fsync."""


class Lock(Protocol):
    """An exclusive lock on a directory, held until released or the process ends."""

    def release(self) -> None:
        """Let go of the lock."""


class Disk(Protocol):
    """The operations on files and directories that this project's write paths consist of."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; with `create` make it if it does not exist. `FileNotFoundError` otherwise."""

    def read(self, path: str) -> bytes:
        """The whole content of a small file; `FileNotFoundError` if there is none, `OSError` for a huge one."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; `FileNotFoundError` if there is none."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; fine if it exists."""

    def remove(self, path: str) -> None:
        """Delete a file; `FileNotFoundError` if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Atomically give a file another name in the same directory, replacing what had it."""

    def make_read_only(self, path: str) -> None:
        """Forbid to write to a file from now on, as far as this disk can."""

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are on the disk."""

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at `path` (Kafka's `.lock`); `BlockingIOError` if another process holds it."""


def replace_file(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Put `content` under `name` so that a crash leaves the old or the new file, and the new one once this returns.

    Write `name.tmp`, fsync it, rename it over `name`, fsync the directory (Kafka: `Utils.atomicMoveWithFallback`).
    """
    temporary = f"{directory}/{name}.tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append(content)
        file.fsync()
    finally:
        file.close()
    disk.rename(temporary, f"{directory}/{name}")
    disk.fsync_dir(directory)


def make_directory(disk: Disk, path: str) -> None:
    """Make a directory, and its parents, for good: a lost entry would take everything below with it."""
    if not disk.exists(path):
        parent = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        make_directory(disk, parent)
        disk.mkdir(path)
        disk.fsync_dir(parent)


class OsDisk:
    """The disk of this machine."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        """Open a regular file; with `create` make it, for its owner only, if it does not exist.

        `OSError` for a FIFO, a device, a socket or a directory, at once: nothing waits for the other end.
        """
        return OsFile(
            path, _open_regular(path, (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0))
        )

    def read(self, path: str) -> bytes:
        """The whole content of a small regular file."""
        file = self.open(path, writable=False)
        try:
            if file.size() > MOST_SMALL_BYTES:
                raise OSError(errno.EFBIG, f"a file of this kind cannot have {file.size()} bytes", path)
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents, for their owner only."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/"))
        if parent:
            self.mkdir(parent)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.remove(path)

    def rename(self, source: str, target: str) -> None:
        """Atomically give a file another name; one that takes the place of another takes its access rights, too."""
        with suppress(FileNotFoundError):
            os.chmod(source, stat.S_IMODE(os.stat(target).st_mode))
        os.rename(source, target)

    def make_read_only(self, path: str) -> None:
        """Take every right to write from a file."""
        os.chmod(path, os.stat(path).st_mode & 0o7555)

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        """Take the lock file at `path` as Java's `FileChannel.tryLock` does: a JVM and we keep each other out."""
        fd = _open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock_whole_file(fd)
        except OSError as bad:
            os.close(fd)
            if bad.errno in {errno.EACCES, errno.EAGAIN}:
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from bad
            raise
        return OsLock(fd)


def _open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file. What else has this name is not opened: that could block, or move a device."""
    try:
        _check_regular(os.stat(path).st_mode, path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, FILE_MODE)
    try:
        _check_regular(os.fstat(fd).st_mode, path)
    except OSError:
        os.close(fd)
        raise
    return fd


_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def _check_regular(mode: int, path: str) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, f"this is {_KINDS.get(stat.S_IFMT(mode), 'no regular file')}, not a file", path)


def _lock_whole_file(fd: int) -> None:
    """An exclusive record lock on all of the file.

    Where Linux offers it the lock belongs to the open file, not to the process: a second attempt by this process is
    refused too, and closing another descriptor of the file does not lose it. Both kinds exclude each other.
    """
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


class OsLock:
    """A held lock of `OsDisk`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Let go of the lock; once more does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFile:
    """A file of `OsDisk`. Its end is where the last write ended: nobody else writes to it."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._fsync_lock = threading.Lock()
        self._fsync_failure: OSError | None = None

    @property
    def path(self) -> str:
        """Where the file was opened."""
        return self._path

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""
        try:
            written = os.pwrite(self._fd, data, self._size)
            while written < len(data):
                # A signal or a nearly full disk: the next call either goes on or says why not.
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError as failed:
            failed.filename = self._path
            raise
        self._size += written

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`."""
        data = os.pread(self._fd, size, position)
        while len(data) < size and (more := os.pread(self._fd, size - len(data), position + len(data))):
            data += more
        return data

    def size(self) -> int:
        """The length of the file in bytes."""
        return self._size

    def next_data(self, position: int) -> int:
        """The first position from `position` on that is not in a hole."""
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as bad:
            if bad.errno == errno.ENXIO:
                return max(position, os.fstat(self._fd).st_size)
            if bad.errno in {errno.EINVAL, errno.ENOTSUP}:  # a file system that knows nothing of holes
                return position
            raise

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._fd, size)
        self._size = size

    def fsync(self) -> None:
        """Return once data and length are on the disk; times of access and change may not be.

        One thread at a time: the kernel tells of a failed write once per descriptor, and the next fsync says that all
        is well. So a file whose fsync has failed raises that error again, whichever thread asks.
        """
        with self._fsync_lock:
            if self._fsync_failure is not None:
                raise self._fsync_failure
            try:
                _fdatasync(self._fd)
            except OSError as failed:
                failed.filename = self._path
                self._fsync_failure = failed
                raise

    def drop_cache(self) -> None:
        """Let the kernel drop the pages of the file that are clean: those that it could not write are."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_fdatasync = getattr(os, "fdatasync", os.fsync)
