"""A disk in memory that separates written from durable data (a fake of `OsDisk`; both pass one contract test).

Every file has a content and a durable content; every directory has names and durable names. `fsync` and `fsync_dir`
make the current state durable, and a crash restores the durable state. The disk can also fail and return wrong data:
see `overwrite`, `spoil`, `lose_name`, `free_bytes`, `full_below`, and an `on_operation` that raises `OSError`. Tests
and the simulator use this disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Final

from metadata_log.memory_inode import Inode
from metadata_log.memory_names import Link, MakeDirectory, NameChange, RemoveDirectory, Rename, RenameDirectory, Unlink
from metadata_log.memory_paths import full, make_durable, missing, moved, normal, not_empty, parent, survives

Hook = Callable[[str, str], None]
"""Called with the name of an operation and a path, before the operation runs.

An `OSError` of the hook becomes the error of the operation. A failed fsync has lost its data. A later fsync reports
success without writing that data (Linux: the pages are clean after the error).
"""

_ROOT: Final = ""


class MemoryDisk:
    """A `Disk` in memory. See `Disk` for the contract.

    Args:
        on_operation: A hook that runs before each operation that changes something or makes it durable.
    """

    def __init__(self, *, on_operation: Hook | None = None) -> None:
        self.on_operation = on_operation
        self.free_bytes: int | None = None
        """How many bytes may still be appended before the disk is full; None for no limit. No operation frees bytes."""
        self.full_below = ""
        """The path of a directory that is a full file system of its own; empty for none."""
        self._token = object()
        self._life = 0
        self._next_inode = 0
        self._inodes: dict[int, Inode] = {}
        self._names: dict[str, int] = {}
        self._directories: dict[str, None] = {_ROOT: None}
        self._durable_names: dict[str, int] = {}
        self._durable_directories: dict[str, None] = {_ROOT: None}
        self._pending: dict[str, list[NameChange]] = {}
        self._stuck: dict[str, None] = {}
        self._open: dict[int, int] = {}
        self._locks: dict[str, None] = {}

    # ------------------------------------------------------------------------------------------ the Disk protocol

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        """Open a file; with `create` make it if it does not exist."""
        name = normal(path)
        if name in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        inode = self._names.get(name)
        if inode is None:
            if not create:
                raise missing(path)
            self._require_directory(name, path)
            self._about_to("create", path)
            self._require_space(path)
            inode = self._next_inode
            self._next_inode += 1
            self._inodes[inode] = Inode(self._token)
            self._names[name] = inode
            self._note(Link(name, inode), name)
        self._open[inode] = self._open.get(inode, 0) + 1
        return MemoryFile(self, path, inode, self._life, writable=writable)

    def read(self, path: str) -> bytes:
        """The whole content of a small file."""
        if normal(path) in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        content = self._inodes[self._inode(path)]
        return content.read(len(content.data), 0, path)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        name = normal(path)
        return name in self._names or name in self._directories

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        directory = normal(path)
        if directory in self._names:
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        if directory not in self._directories:
            raise missing(path)
        prefix = f"{directory}/" if directory else ""
        below = [name.removeprefix(prefix) for name in (*self._names, *self._directories) if name.startswith(prefix)]
        return sorted(name for name in below if name and "/" not in name)

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents."""
        name = normal(path)
        if name in self._directories:
            return
        if name in self._names:
            raise FileExistsError(errno.EEXIST, "is a file", path)
        self.mkdir(parent(name))
        self._about_to("mkdir", path)
        self._require_space(path)
        self._directories[name] = None
        self._note(MakeDirectory(name), name)

    def remove(self, path: str) -> None:
        """Delete a file."""
        name = normal(path)
        if name in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._inode(path)
        self._about_to("remove", path)
        del self._names[name]
        self._note(Unlink(name), name)

    def rename(self, source: str, target: str) -> None:
        """Atomically give a file another name."""
        old, new = normal(source), normal(target)
        assert parent(old) == parent(new), (source, target)
        self._inode(source)
        self._about_to("rename", target)
        self._names[new] = self._names.pop(old)
        self._note(Rename(old, new), new)

    def rename_directory(self, source: str, target: str) -> None:
        """Atomically rename a directory. What is in it has durable names from now on, as if it had been fsynced."""
        old, new = normal(source), normal(target)
        assert parent(old) == parent(new), (source, target)
        assert new not in self._directories, target
        if old not in self._directories:
            raise missing(source)
        self._about_to("rename_directory", target)
        for directory in [one for one in self._pending if moved(one, old, new) != one]:
            self._settle(directory)
        self._names = {moved(path, old, new): inode for path, inode in self._names.items()}
        self._directories = {moved(path, old, new): None for path in self._directories}
        self._note(RenameDirectory(old, new), new)

    def absolute(self, path: str) -> str:
        """The path itself: there is no working directory."""
        return path

    def space(self, path: str) -> tuple[int, int] | None:
        """Memory has no bound."""
        return None

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        name = normal(path)
        if name not in self._directories:
            raise missing(path)
        if self.list(path):
            raise not_empty(path)
        self._about_to("remove_directory", path)
        self._settle(name)
        del self._directories[name]
        self._note(RemoveDirectory(name), name)

    def make_read_only(self, path: str) -> None:
        """Only check that the file exists: access rights are not simulated."""
        self._inode(path)

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are durable."""
        directory = normal(path)
        if directory not in self._directories:
            raise missing(path)
        try:
            self._about_to("fsync_dir", path)
        except OSError:
            self._stuck[directory] = None
            raise
        if directory not in self._stuck:
            self._settle(directory)
            self._collect()

    def lock(self, path: str) -> MemoryLock:
        """Take the lock file at `path`."""
        name = normal(path)
        if name in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self.open(path, create=True).close()
        self._locks[name] = None
        return MemoryLock(self, name)

    # ------------------------------------------------------------------------------- operations beyond a real disk

    @property
    def has_failed(self) -> bool:
        """Whether an fsync of a directory has failed since the last crash; only a crash shows the durable names.

        For a file, `drop_cache` shows the durable content. Linux allows no more changes after a failed journal.
        """
        return bool(self._stuck)

    def kill(self) -> None:
        """End the process while the machine keeps running: open files become stale and locks are released.

        Written data remains, but data without fsync is still not durable: the next process reads it and may lose it.
        """
        self._open.clear()
        self._locks.clear()
        self._life += 1
        for inode in self._inodes:
            if self._inodes[inode].begun_size >= 0:
                self._own(inode).begun_size = -1
        self._collect()

    def crash(self, rng: Random | None = None) -> None:
        """Cut the power and restart: only durable state remains, open files become stale, locks are released.

        Args:
            rng: Decides which pending changes survive: the first few changes of each directory, and some of the
                appended bytes of each file, perhaps torn. None for no pending change.
        """
        if rng is not None:
            for directory in sorted(self._pending):
                changes = self._pending[directory]
                for change in changes[: rng.randrange(len(changes) + 1)]:
                    make_durable(change, self._durable_names, self._durable_directories)
        self._pending.clear()
        self._stuck.clear()
        durable = self._durable_directories
        self._directories = {path: None for path in durable if survives(path, durable)}
        self._durable_directories = dict(self._directories)
        self._names = {path: inode for path, inode in self._durable_names.items() if parent(path) in self._directories}
        self._durable_names = dict(self._names)
        self._open.clear()
        self._locks.clear()
        self._life += 1
        self._collect()
        for path in sorted(self._names):
            self._own(self._names[path]).crash(rng)

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Durably replace bytes of a file, as bit rot or a misdirected write does.

        Args:
            path: The file.
            position: The position of the first byte; all replaced bytes exist.
            data: The new bytes.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        self._own(self._inode(path)).overwrite(position, data)

    def spoil(self, path: str, position: int) -> None:
        """Make one byte of a file unreadable: reading raises `OSError` until a truncation removes the byte.

        Args:
            path: The file.
            position: The position of the byte.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        content = self._own(self._inode(path))
        assert 0 <= position < len(content.data), (position, len(content.data))
        content.unreadable = (*content.unreadable, position)

    def lose_name(self, path: str) -> None:
        """Durably remove a file from its directory; a process with the file open does not notice.

        Args:
            path: The file.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        self._inode(path)
        name = normal(path)
        self._settle(parent(name))
        del self._names[name]
        del self._durable_names[name]

    def damaged_files(self) -> tuple[str, ...]:
        """The paths of the files with bytes that `overwrite` or `spoil` has damaged and no truncation has removed."""
        return tuple(
            f"/{name}"
            for name, inode in sorted(self._names.items())
            if self._inodes[inode].damaged or self._inodes[inode].unreadable
        )

    def files(self) -> tuple[str, ...]:
        """The paths of all files, sorted."""
        return tuple(f"/{name}" for name in sorted(self._names))

    def content_bytes(self) -> int:
        """How many bytes all files have."""
        return sum(len(inode.data) for inode in self._inodes.values())

    def peek(self, path: str) -> bytes:
        """The content of a file, unreadable bytes included; raises `FileNotFoundError`."""
        return bytes(self._inodes[self._inode(path)].data)

    def fork(self) -> MemoryDisk:
        """An independent copy without open files, locks and hook. Both share a content until one disk changes it."""
        copy = MemoryDisk()
        copy._next_inode = self._next_inode
        copy._inodes = self._inodes.copy()
        copy._names = self._names.copy()
        copy._directories = self._directories.copy()
        copy._durable_names = self._durable_names.copy()
        copy._durable_directories = self._durable_directories.copy()
        copy._pending = {directory: changes.copy() for directory, changes in self._pending.items()}
        copy._stuck = self._stuck.copy()
        copy.free_bytes, copy.full_below = self.free_bytes, self.full_below
        self._token = object()
        return copy

    def fingerprint(self) -> bytes:
        """16 bytes that differ for disks that differ, now or after a crash."""
        digest = blake2b(digest_size=16)
        numbers: dict[int, int] = {}

        def number(inode: int) -> int:
            # Inodes are numbered by first appearance: the number of earlier files must not affect the result.
            return numbers.setdefault(inode, len(numbers))

        names = [(path, number(self._names[path])) for path in sorted(self._names)]
        durable = [(path, number(self._durable_names[path])) for path in sorted(self._durable_names)]
        pending = [
            (Link(change.path, number(change.inode)) if isinstance(change, Link) else change)
            for directory in sorted(self._pending)
            for change in self._pending[directory]
        ]
        directories = (sorted(self._directories), sorted(self._durable_directories))
        space = self.free_bytes, self.full_below
        digest.update(repr((names, durable, pending, directories, sorted(self._stuck), space)).encode())
        for inode in numbers:
            content = self._inodes[inode]
            digest.update(content.digest())
            digest.update(repr(content.facts()).encode())
        return digest.digest()

    # ----------------------------------------------------------------------------------------------------- internals

    def _about_to(self, operation: str, path: str) -> None:
        if self.on_operation is not None:
            self.on_operation(operation, path)

    def _own(self, inode: int) -> Inode:
        """The content of a file for a change: a content that a fork shares is copied first."""
        content = self._inodes[inode]
        if content.owner is not self._token:
            content = self._inodes[inode] = content.copy(self._token)
        return content

    def _inode(self, path: str) -> int:
        inode = self._names.get(normal(path))
        if inode is None:
            raise missing(path)
        return inode

    def _require_space(self, path: str) -> None:
        if self.free_bytes == 0 or self._is_full(path):
            raise full(path)

    def _is_full(self, path: str) -> bool:
        return bool(self.full_below) and path.startswith(f"{self.full_below}/")

    def _require_directory(self, name: str, path: str) -> None:
        if parent(name) not in self._directories:
            raise missing(path)

    def _note(self, change: NameChange, name: str) -> None:
        self._pending.setdefault(parent(name), []).append(change)

    def _settle(self, directory: str) -> None:
        for change in self._pending.pop(directory, []):
            make_durable(change, self._durable_names, self._durable_directories)

    def _collect(self) -> None:
        """Drop the contents without a name and without an open file."""
        linked = (change.inode for changes in self._pending.values() for change in changes if isinstance(change, Link))
        live = {*self._names.values(), *self._durable_names.values(), *self._open, *linked}
        self._inodes = {inode: content for inode, content in self._inodes.items() if inode in live}


class MemoryLock:
    """A held lock of `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._life = disk._life

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._disk._life == self._life:
            self._disk._locks.pop(self._name, None)
        self._life = -1


class MemoryFile:
    """An open file of `MemoryDisk`."""

    def __init__(
        self, disk: MemoryDisk, path: str, inode: int, life: int, *, writable: bool, has_begun: bool = False
    ) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = life
        self._writable = writable
        self._has_begun = has_begun

    @property
    def path(self) -> str:
        """The path under which the file was opened."""
        return self._path

    def _check(self, *, writing: bool = False) -> None:
        if self._life != self._disk._life or (writing and not self._writable):
            raise OSError(errno.EBADF, "the file is closed, read-only or from before a crash", self._path)

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""
        self._check(writing=True)
        disk = self._disk
        disk._about_to("append", self._path)
        if data and disk._is_full(self._path):
            raise full(self._path)
        content = disk._own(self._inode).data
        free = disk.free_bytes
        if free is None:
            content.extend(data)
            return
        content.extend(data[:free])
        disk.free_bytes = max(free - len(data), 0)
        if len(data) > free:
            raise full(self._path)

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`."""
        self._check()
        return self._disk._inodes[self._inode].read(size, position, self._path)

    def next_data(self, position: int) -> int:
        """`position`: this disk has no holes."""
        return position

    def size(self) -> int:
        """The length of the file in bytes."""
        self._check()
        return len(self._disk._inodes[self._inode].data)

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        self._check(writing=True)
        self._disk._about_to("truncate", self._path)
        self._disk._own(self._inode).truncate(size)

    def begin_fsync(self) -> MemoryFile:
        """Begin an fsync in another thread, which lasts until the `fsync` of the returned file.

        That `fsync` makes only durable what has been written before it began. One such fsync of a file may run at a
        time, beside any number of calls of `fsync`.

        Returns:
            The same open file, for this `fsync` alone.

        Raises:
            OSError: The file is closed, read-only or from before a crash.
        """
        self._check(writing=True)
        self._disk._own(self._inode).begin_fsync()
        return MemoryFile(self._disk, self._path, self._inode, self._life, writable=True, has_begun=True)

    def write_back(self) -> None:
        """Make durable what the fsync that has begun covers: a disk may write long before the fsync returns."""
        self._check(writing=True)
        assert self._has_begun, self._path
        self._disk._own(self._inode).write_back()

    def fsync(self) -> None:
        """Return once everything written so far is durable, or what the fsync covers that has begun."""
        self._check(writing=True)
        content = self._disk._own(self._inode)
        try:
            self._disk._about_to("fsync", self._path)
        except OSError:
            content.is_stuck = True
            raise
        if self._has_begun:
            content.end_fsync()
        else:
            content.fsync()

    def drop_cache(self) -> None:
        """Return to the durable content after a failed fsync."""
        self._check()
        if self._disk._inodes[self._inode].is_stuck:
            self._disk._own(self._inode).drop_cache()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._life == self._disk._life:
            left = self._disk._open[self._inode] - 1
            if left:
                self._disk._open[self._inode] = left
            else:
                del self._disk._open[self._inode]
        self._life = -1
