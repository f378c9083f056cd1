"""The disk interface: a small protocol for every write of the log, the snapshots and quorum-state.

`OsDisk` is the real disk. `MemoryDisk` simulates crashes that lose data without fsync. Both pass one contract test.
Paths are plain strings. Every method is synchronous; failures are `OSError`.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from struct import pack
from typing import Final, Protocol

FILE_MODE: Final = 0o600
"""The mode of files that this software makes: segments, snapshots and archives hold credentials (decision 0030)."""
DIRECTORY_MODE: Final = 0o700
MOST_SMALL_BYTES: Final = 64 << 20
"""The size limit of files that are read in one piece."""


class File(Protocol):
    """One open file. Writes only ever append."""

    @property
    def path(self) -> str:
        """The path under which the file was opened."""

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file."""

    def size(self) -> int:
        """The length of the file in bytes, data without fsync included."""

    def next_data(self, position: int) -> int:
        """The first position from `position` on that may hold anything but zeros; the file's length if there is none.

        A sparse file has holes, which a reader would otherwise walk for hours. A disk without holes returns `position`.
        """

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def fsync(self) -> None:
        """Return once everything written so far, and the file's length, is on disk.

        After an error the caller must never retry: Linux drops the unwritten data, and the next fsync succeeds.
        """

    def drop_cache(self) -> None:
        """Drop the cached pages of a file after fsync, so that the next read returns the content of the disk.

        After a failed write the page cache holds data that the disk does not have, and a later fsync reports no error.
        Without support by the system this does nothing.
        """

    def close(self) -> None:
        """Close the file; does not fsync."""


class Lock(Protocol):
    """An exclusive lock on a directory, held until `release` or the end of the process."""

    def release(self) -> None:
        """Release the lock."""


class Disk(Protocol):
    """The file and directory operations of all write paths. Failures are `OSError`; paths are plain strings.

    A `Disk` keeps the guarantees of POSIX and no more: data is on disk after `fsync`, a name after `fsync_dir`.
    Kafka's classes use `java.nio` directly.
    """

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; with `create`, make a missing file.

        Args:
            path: The file.
            create: Whether to make a missing file.
            writable: Whether the file is opened for writing.

        Returns:
            The open file.

        Raises:
            FileNotFoundError: The file does not exist, and `create` is false.
        """

    def read(self, path: str) -> bytes:
        """The whole content of a small file; raises `FileNotFoundError`, and `OSError` for a file above the limit."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; raises `FileNotFoundError`, and `NotADirectoryError` for a file."""

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; does nothing if the directory exists."""

    def remove(self, path: str) -> None:
        """Delete a file; raises `FileNotFoundError`, and `IsADirectoryError` for a directory."""

    def rename(self, source: str, target: str) -> None:
        """Atomically rename a file within its directory, replacing a file of the new name."""

    def make_read_only(self, path: str) -> None:
        """Make a file read-only, as far as this disk can."""

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are on disk."""

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at `path` (Kafka's `.lock`).

        Args:
            path: The lock file; made if missing.

        Returns:
            The held lock.

        Raises:
            BlockingIOError: Another process holds the lock.
        """


class DirectoryDisk(Disk, Protocol):
    """A `Disk` on which whole directories change: a broker renames and removes those of partitions."""

    def rename_directory(self, source: str, target: str) -> None:
        """Atomically rename a directory within its parent; a file that is open stays open.

        The new name is on disk after `fsync_dir` of the parent. Raises `FileNotFoundError`, and `OSError` if the target
        exists and is not empty.
        """

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; raises `FileNotFoundError`, and `OSError` for a directory that is not empty."""

    def absolute(self, path: str) -> str:
        """The path from the root, for a path that is relative to the working directory of the process."""

    def space(self, path: str) -> tuple[int, int] | None:
        """The bytes of the file system of a directory, and those that may still be written; None without a bound."""


def is_unwritable(failed: OSError) -> bool:
    """Whether an error says that nothing can be written: the rights of this process, or a file system for reading."""
    return failed.errno in {errno.EACCES, errno.EPERM, errno.EROFS}


def replace_file(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Replace a file atomically: after a crash it is the old or the new file, and the new one once this returns.

    Writes `name.tmp`, fsyncs it, renames it to `name`, fsyncs the directory (Kafka: `Utils.atomicMoveWithFallback`).
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
    """Make a directory and its parents durably: a lost directory entry would lose everything below it."""
    if not disk.exists(path):
        parent = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        make_directory(disk, parent)
        disk.mkdir(path)
        disk.fsync_dir(parent)


def check_exists(disk: Disk, path: str) -> None:
    """Raise `FileNotFoundError` with a sentence if there is nothing at a path."""
    if not disk.exists(path):
        raise FileNotFoundError(errno.ENOENT, "there is no such directory or file", path)


def is_directory(disk: Disk, path: str) -> bool:
    """Whether a path is a directory; raises `OSError`."""
    try:
        disk.list(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remove_tree(disk: DirectoryDisk, path: str) -> None:
    """Remove a directory with everything in it; a link in it is removed, and what it leads to stays (Kafka:
    `Utils.delete`). Raises `OSError`.
    """
    pending = [path]
    while pending:
        inner = []
        for name in disk.list(pending[-1]):
            entry = f"{pending[-1]}/{name}"
            try:
                disk.remove(entry)
            except IsADirectoryError:
                inner.append(entry)
        if not inner:
            disk.remove_directory(pending.pop())
        pending += inner


_OF_ONE_NAME: Final = {
    *(errno.EACCES, errno.EPERM, errno.EBUSY, errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST),
    *(errno.ELOOP, errno.ENAMETOOLONG, errno.EXDEV),
}


def is_of_one_name(failure: OSError) -> bool:
    """Whether an operation failed for what stands at its path: rights, a mount, content. The disk itself is sound."""
    return failure.errno in _OF_ONE_NAME


def read_whole(disk: Disk, path: str) -> bytes:
    """The content of a file, however large it is."""
    file = disk.open(path, writable=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def file_bytes(disk: Disk, path: str) -> int:
    """The size of a file; raises `OSError`."""
    file = disk.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()


class OsDisk:
    """The disk of this machine. See `Disk` for the contract."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        """Open a regular file; with `create`, make a missing file, with access for its owner only.

        Raises `OSError` at once for a FIFO, a device, a socket or a directory: the open never blocks.
        """
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return OsFile(path, *_open_regular(path, flags))

    def read(self, path: str) -> bytes:
        """The whole content of a small regular file."""
        fd, size = _open_regular(path, os.O_RDONLY)
        try:
            if size > MOST_SMALL_BYTES:
                raise OSError(errno.EFBIG, f"a file of this kind cannot have {size} bytes", path)
            return _pread(fd, size, 0)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists; raises `OSError` if that cannot be seen, as in a closed directory."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # of a path with a null byte
            return False
        return True

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents, with access for their owner only."""
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
        """Atomically rename a file. A file that replaces another one takes over its access rights."""
        with suppress(FileNotFoundError):
            os.chmod(source, stat.S_IMODE(os.stat(target).st_mode))
        os.rename(source, target)

    def rename_directory(self, source: str, target: str) -> None:
        """Atomically rename a directory."""
        os.rename(source, target)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def absolute(self, path: str) -> str:
        """The path from the root."""
        return os.path.abspath(path)

    def space(self, path: str) -> tuple[int, int] | None:
        """The bytes of the file system of a directory, and those that this process may still write."""
        told = os.statvfs(path)
        return told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize

    def make_read_only(self, path: str) -> None:
        """Remove every write permission of a file."""
        os.chmod(path, os.stat(path).st_mode & 0o7555)

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are on disk."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        """Take the lock file at `path` as Java's `FileChannel.tryLock` does, so that a JVM's lock excludes this one."""
        fd, _ = _open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock_whole_file(fd)
        except OSError as bad:
            os.close(fd)
            if bad.errno in {errno.EACCES, errno.EAGAIN}:
                raise LockHeld(path, holder_of(path)) from bad
            raise
        return OsLock(fd)


def _open_regular(path: str, flags: int) -> tuple[int, int]:
    """A descriptor of a regular file, and the file's size.

    Any other kind of file is not opened: an open could block, or move a device.
    """
    try:
        _check_regular(os.stat(path).st_mode, path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, FILE_MODE)
    try:
        opened = os.fstat(fd)
        _check_regular(opened.st_mode, path)
    except OSError:
        os.close(fd)
        raise
    return fd, opened.st_size


def _pread(fd: int, size: int, position: int) -> bytes:
    """Read up to `size` bytes at `position`; fewer only at the end of the file."""
    data = os.pread(fd, size, position)
    while len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
        data += more
    return data


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


class LockHeld(BlockingIOError):
    """Another process, or this one, holds the lock of a file; `pid` is its id, None if this machine does not tell."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(errno.EAGAIN, "locked by another process", path)
        self.pid = pid

    @property
    def words(self) -> str:
        """`pid 4711`, or `this process`; empty if it is not known."""
        return "" if self.pid is None else "this process" if self.pid == os.getpid() else f"pid {self.pid}"


def holder_of(path: str) -> int | None:
    """The id of a process that has a file open, as far as this process may see it; None if none is found.

    A lock of an open file does not tell its owner (`F_OFD_GETLK`): the open files of all processes are looked through.
    """
    try:
        wanted = os.stat(path)
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:
        return None
    for pid in pids:
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), wanted):
                        return pid
    return None


def _lock_whole_file(fd: int, *, is_back: bool = False) -> None:
    """Take an exclusive record lock on all of the file, or give it back.

    On Linux the lock belongs to the open file, not to the process. A second attempt by this process then fails too, and
    closing another descriptor of the file does not release the lock. Both kinds of lock exclude each other.
    """
    # Windows has no such module. A node there can have its disk in memory.
    import fcntl

    kind = fcntl.F_UNLCK if is_back else fcntl.F_WRLCK
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.lockf(fd, fcntl.LOCK_UN if is_back else fcntl.LOCK_EX | fcntl.LOCK_NB)


class OsLock:
    """A held lock of `OsDisk`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._process = os.getpid()

    def release(self) -> None:
        """Release the lock; a second call does nothing. A fork of the process that took the lock cannot release it."""
        if self._fd >= 0:
            if self._process == os.getpid():
                # A fork has the open file, too, and would keep the lock as long as it lives.
                _lock_whole_file(self._fd, is_back=True)
            os.close(self._fd)
            self._fd = -1


class OsFile:
    """A file of `OsDisk`. The end of the last write is the end of the file: there is no other writer."""

    def __init__(self, path: str, fd: int, size: int | None = None) -> None:
        self._path = path
        self._fd = fd
        self._size = os.fstat(fd).st_size if size is None else size
        self._fsync_lock = threading.Lock()
        self._fsync_failure: OSError | None = None

    @property
    def path(self) -> str:
        """The path under which the file was opened."""
        return self._path

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""
        try:
            written = os.pwrite(self._fd, data, self._size)
            while written < len(data):
                # A signal or a nearly full disk caused a short write: the next call continues or reports the error.
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError as failed:
            failed.filename = self._path
            raise
        self._size += written

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`."""
        data = os.pread(self._fd, size, position)
        return data if len(data) == size else data + _pread(self._fd, size - len(data), position + len(data))

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
            if bad.errno in {errno.EINVAL, errno.ENOTSUP}:  # the file system does not support holes
                return position
            raise

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        os.ftruncate(self._fd, size)
        self._size = size

    def fsync(self) -> None:
        """Return once data and length are on disk; access and modification times may not be.

        One thread at a time may call this: the kernel reports a failed write once per descriptor, and the next fsync
        succeeds. After a failure every call, from any thread, raises the same error again.
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
        """Let the kernel drop the clean pages of the file; pages that it failed to write count as clean."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_fdatasync = getattr(os, "fdatasync", os.fsync)
