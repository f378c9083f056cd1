"""A disk in memory that knows written from durable (a fake of `OsDisk`; both pass one contract test).

Every file has a content and a durable content; every directory has names and durable names. `fsync` and `fsync_dir`
make the one into the other, and a crash does the reverse. Tests and the simulator run on it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Final

from msgspec import Struct

Hook = Callable[[str, str], None]
"""Called with the name of an operation and a path, before the operation is carried out."""

_ROOT: Final = ""


class _Link(Struct, frozen=True):
    """A name begins to mean a file."""

    path: str
    inode: int


class _Unlink(Struct, frozen=True):
    """A name is gone."""

    path: str


class _Rename(Struct, frozen=True):
    """A file has another name, in one step."""

    source: str
    target: str


class _MakeDirectory(Struct, frozen=True):
    """A directory is there."""

    path: str


_NameChange = _Link | _Unlink | _Rename | _MakeDirectory


class _Inode:
    """The content of one file: what is written, and what of it is durable."""

    __slots__ = ("data", "durable_size", "durable_tail", "hashed", "hasher", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.data = bytearray()
        self.durable_size = 0
        """So much of `data` is durable."""
        self.durable_tail = b""
        """Durable still, though cut off since."""
        self.hasher = blake2b(digest_size=16)
        self.hashed = 0

    def copy(self, owner: object) -> _Inode:
        copy = _Inode(owner)
        copy.data = self.data.copy()
        copy.durable_size = self.durable_size
        copy.durable_tail = self.durable_tail
        copy.hasher = self.hasher.copy()
        copy.hashed = self.hashed
        return copy

    def truncate(self, size: int) -> None:
        if size < self.durable_size:
            self.durable_tail = bytes(self.data[size : self.durable_size]) + self.durable_tail
            self.durable_size = size
        del self.data[size:]
        if self.hashed > size:
            self.hasher = blake2b(digest_size=16)
            self.hashed = 0

    def fsync(self) -> None:
        self.durable_size = len(self.data)
        self.durable_tail = b""

    def digest(self) -> bytes:
        self.hasher.update(memoryview(self.data)[self.hashed :])
        self.hashed = len(self.data)
        return self.hasher.digest()

    def crash(self, rng: Random | None) -> None:
        """Keep what is durable; with `rng` perhaps some of the rest, perhaps torn."""
        durable = bytes(self.data[: self.durable_size]) + self.durable_tail
        if rng is not None:
            if self.durable_tail:
                durable = rng.choice((durable, bytes(self.data)))
            else:
                durable += _torn(bytes(self.data[self.durable_size :]), rng)
        self.data = bytearray(durable)
        self.fsync()
        self.hasher = blake2b(digest_size=16)
        self.hashed = 0


def _torn(written: bytes, rng: Random) -> bytes:
    """What may be left of an append that was not fsynced: nothing, all, a part, or a part with a hole of zeros."""
    if not written:
        return b""
    kept = rng.choice((0, len(written), rng.randrange(len(written) + 1)))
    hole = rng.randrange(kept + 1) if rng.random() < 0.3 else kept
    return written[:hole] + bytes(kept - hole)


class MemoryDisk:
    """A `Disk` in memory. `on_operation` is called before each operation that changes something or makes it durable."""

    def __init__(self, *, on_operation: Hook | None = None) -> None:
        self.on_operation = on_operation
        self._token = object()
        self._life = 0
        self._next_inode = 0
        self._inodes: dict[int, _Inode] = {}
        self._names: dict[str, int] = {}
        self._directories: dict[str, None] = {_ROOT: None}
        self._durable_names: dict[str, int] = {}
        self._durable_directories: dict[str, None] = {_ROOT: None}
        self._pending: dict[str, list[_NameChange]] = {}
        self._open: dict[int, int] = {}
        self._locks: dict[str, None] = {}

    # ------------------------------------------------------------------------------------------ the Disk protocol

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        """Open a file; with `create` make it if it does not exist."""
        name = _normal(path)
        if name in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        inode = self._names.get(name)
        if inode is None:
            if not create:
                raise _missing(path)
            self._require_directory(name, path)
            self._about_to("create", path)
            inode = self._next_inode
            self._next_inode += 1
            self._inodes[inode] = _Inode(self._token)
            self._names[name] = inode
            self._note(_Link(name, inode), name)
        self._open[inode] = self._open.get(inode, 0) + 1
        return MemoryFile(self, path, inode, self._life, writable=writable)

    def read(self, path: str) -> bytes:
        """The whole content of a small file."""
        inode = self._names.get(_normal(path))
        if inode is None:
            raise _missing(path)
        return bytes(self._inodes[inode].data)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        name = _normal(path)
        return name in self._names or name in self._directories

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        directory = _normal(path)
        if directory not in self._directories:
            raise _missing(path)
        return sorted(_last(name) for name in (*self._names, *self._directories) if name and _parent(name) == directory)

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents."""
        name = _normal(path)
        if name in self._directories:
            return
        if name in self._names:
            raise FileExistsError(errno.EEXIST, "is a file", path)
        self.mkdir(_parent(name))
        self._about_to("mkdir", path)
        self._directories[name] = None
        self._note(_MakeDirectory(name), name)

    def remove(self, path: str) -> None:
        """Delete a file."""
        name = _normal(path)
        if name not in self._names:
            raise _missing(path)
        self._about_to("remove", path)
        del self._names[name]
        self._note(_Unlink(name), name)

    def rename(self, source: str, target: str) -> None:
        """Atomically give a file another name."""
        old, new = _normal(source), _normal(target)
        assert _parent(old) == _parent(new), (source, target)
        if old not in self._names:
            raise _missing(source)
        self._about_to("rename", target)
        self._names[new] = self._names.pop(old)
        self._note(_Rename(old, new), new)

    def make_read_only(self, path: str) -> None:
        """Only checks that the file is there: nobody without rights is simulated."""
        if _normal(path) not in self._names:
            raise _missing(path)

    def fsync_dir(self, path: str) -> None:
        """Return once the names in this directory are durable."""
        directory = _normal(path)
        if directory not in self._directories:
            raise _missing(path)
        self._about_to("fsync_dir", path)
        for change in self._pending.pop(directory, []):
            self._make_durable(change)
        self._collect()

    def lock(self, path: str) -> MemoryLock:
        """Take the lock file at `path`."""
        name = _normal(path)
        if name in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self.open(path, create=True).close()
        self._locks[name] = None
        return MemoryLock(self, name)

    # ------------------------------------------------------------------------------- what a disk of iron cannot do

    def crash(self, rng: Random | None = None) -> None:
        """The power fails and comes back: only what is durable is left, open files are stale, locks are gone.

        With `rng`, some changes that were on their way may have made it: of each directory's changes the first few, of
        each file some of what was appended, perhaps torn.
        """
        if rng is not None:
            for directory in sorted(self._pending):
                changes = self._pending[directory]
                for change in changes[: rng.randrange(len(changes) + 1)]:
                    self._make_durable(change)
        self._pending.clear()
        self._directories = {path: None for path in self._durable_directories if self._survives(path)}
        self._durable_directories = dict(self._directories)
        self._names = {path: inode for path, inode in self._durable_names.items() if _parent(path) in self._directories}
        self._durable_names = dict(self._names)
        self._open.clear()
        self._locks.clear()
        self._life += 1
        self._collect()
        for path in sorted(self._names):
            self._own(self._names[path]).crash(rng)

    def fork(self) -> MemoryDisk:
        """An independent copy, without open files, locks and hook. Contents are shared until one side changes them."""
        copy = MemoryDisk()
        copy._next_inode = self._next_inode
        copy._inodes = self._inodes.copy()
        copy._names = self._names.copy()
        copy._directories = self._directories.copy()
        copy._durable_names = self._durable_names.copy()
        copy._durable_directories = self._durable_directories.copy()
        copy._pending = {directory: changes.copy() for directory, changes in self._pending.items()}
        self._token = object()
        return copy

    def fingerprint(self) -> bytes:
        """16 bytes that differ for disks that can be told apart, now or after a crash."""
        digest = blake2b(digest_size=16)
        numbers: dict[int, int] = {}

        def number(inode: int) -> int:
            # Inodes are numbered by first appearance: how many files came and went before must not show.
            return numbers.setdefault(inode, len(numbers))

        names = [(path, number(self._names[path])) for path in sorted(self._names)]
        durable = [(path, number(self._durable_names[path])) for path in sorted(self._durable_names)]
        pending = [
            (_Link(change.path, number(change.inode)) if isinstance(change, _Link) else change)
            for directory in sorted(self._pending)
            for change in self._pending[directory]
        ]
        directories = (sorted(self._directories), sorted(self._durable_directories))
        digest.update(repr((names, durable, pending, directories)).encode())
        for inode in numbers:
            content = self._inodes[inode]
            digest.update(content.digest())
            digest.update(repr((len(content.data), content.durable_size, content.durable_tail)).encode())
        return digest.digest()

    # ----------------------------------------------------------------------------------------------------- inside

    def _about_to(self, operation: str, path: str) -> None:
        if self.on_operation is not None:
            self.on_operation(operation, path)

    def _own(self, inode: int) -> _Inode:
        """The content of a file, to be changed: copied first if a fork sees it, too."""
        content = self._inodes[inode]
        if content.owner is not self._token:
            content = self._inodes[inode] = content.copy(self._token)
        return content

    def _require_directory(self, name: str, path: str) -> None:
        if _parent(name) not in self._directories:
            raise _missing(path)

    def _note(self, change: _NameChange, name: str) -> None:
        self._pending.setdefault(_parent(name), []).append(change)

    def _make_durable(self, change: _NameChange) -> None:
        names = self._durable_names
        match change:
            case _Link(path, inode):
                names[path] = inode
            case _Unlink(path):
                names.pop(path, None)
            case _Rename(source, target):
                names[target] = names.pop(source)
            case _MakeDirectory(path):
                self._durable_directories[path] = None

    def _survives(self, directory: str) -> bool:
        """Whether a directory and all above it are durable."""
        while directory:
            if directory not in self._durable_directories:
                return False
            directory = _parent(directory)
        return True

    def _collect(self) -> None:
        """Forget the contents that no name and no open file leads to any more."""
        linked = (change.inode for changes in self._pending.values() for change in changes if isinstance(change, _Link))
        live = {*self._names.values(), *self._durable_names.values(), *self._open, *linked}
        self._inodes = {inode: content for inode, content in self._inodes.items() if inode in live}


class MemoryLock:
    """A held lock of `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._life = disk._life

    def release(self) -> None:
        """Let go of the lock; once more does nothing."""
        if self._disk._life == self._life:
            self._disk._locks.pop(self._name, None)
        self._life = -1


class MemoryFile:
    """An open file of `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: str, inode: int, life: int, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = life
        self._writable = writable

    @property
    def path(self) -> str:
        """Where the file was opened."""
        return self._path

    def _check(self, *, writing: bool = False) -> None:
        if self._life != self._disk._life or (writing and not self._writable):
            raise OSError(errno.EBADF, "the file is closed, read-only or from before a crash", self._path)

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file."""
        self._check(writing=True)
        self._disk._about_to("append", self._path)
        self._disk._own(self._inode).data.extend(data)

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`."""
        self._check()
        return bytes(self._disk._inodes[self._inode].data[position : position + size])

    def size(self) -> int:
        """The length of the file in bytes."""
        self._check()
        return len(self._disk._inodes[self._inode].data)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        self._check(writing=True)
        self._disk._about_to("truncate", self._path)
        self._disk._own(self._inode).truncate(size)

    def fsync(self) -> None:
        """Return once everything written so far is durable."""
        self._check(writing=True)
        self._disk._about_to("fsync", self._path)
        self._disk._own(self._inode).fsync()

    def close(self) -> None:
        """Release the file; once more does nothing."""
        if self._life == self._disk._life:
            left = self._disk._open[self._inode] - 1
            if left:
                self._disk._open[self._inode] = left
            else:
                del self._disk._open[self._inode]
        self._life = -1


def _normal(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in {"", "."})


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such file or directory", path)
