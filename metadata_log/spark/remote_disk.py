"""The reading half of a `Disk` over a file system of fsspec, by ranged reads: no file is copied whole.

A store bills and delays each request. So one listing of a directory answers for the names, the sizes and the existence
of its files until `forget`, and a file is read ahead: more with each sequential read, up to 8 MiB.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final, NoReturn

from msgspec import Struct

_AT_ONCE: Final = 32
"""The listings that wait for a store at the same time."""
_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 8 << 20
_GROWTH: Final = 4
_SMALL_BYTES: Final = 1 << 20
"""A file up to this size is read by one request."""
_MAGIC: Final = frozenset("*?[")
_STATES: Final = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created")


class Entry(Struct, frozen=True):
    """A name in a directory; `state` changes whenever the store says that the file was written again."""

    size: int
    is_directory: bool
    state: str = ""


class RemoteFile:
    """A file of a store, read in ranges. Its length is that of the time of opening."""

    def __init__(self, file_system: Any, path: str, size: int) -> None:
        self._fs = file_system
        self._path = path
        self._size = size
        self._start = 0
        self._held = b""
        self._ahead = size if size <= _SMALL_BYTES else _FIRST_BYTES

    @property
    def path(self) -> str:
        """The path under which the file was opened, with its protocol."""
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; shorter only at the end of the file."""
        wanted = min(position + size, self._size)
        end = self._start + len(self._held)
        if self._start <= position <= end:
            if wanted > end:
                self._held = self._held[position - self._start :] + self._fetch(end, wanted)
                self._start = position
        elif position < wanted:
            self._ahead = min(self._ahead, _FIRST_BYTES) if self._size > _SMALL_BYTES else self._size
            self._held, self._start = self._fetch(position, wanted), position
        else:
            return b""
        at = position - self._start
        return self._held[at : at + max(0, wanted - position)]

    def _fetch(self, start: int, wanted: int) -> bytes:
        end = min(self._size, max(wanted, start + self._ahead))
        self._ahead = min(_MOST_BYTES, max(end - start, self._ahead) * _GROWTH)
        data = read_range(self._fs, self._path, start, end)
        return data

    def size(self) -> int:
        """The length of the file in bytes."""
        return self._size

    def next_data(self, position: int) -> int:
        """`position`: a store has no holes."""
        return position

    def close(self) -> None:
        """Release what was read."""
        self._held = b""

    def append(self, data: bytes) -> None:
        """Refused."""
        refuse(self._path)

    def truncate(self, size: int) -> None:
        """Refused."""
        refuse(self._path)

    def fsync(self) -> None:
        """Refused."""
        refuse(self._path)

    def drop_cache(self) -> None:
        """Does nothing: nothing is cached beyond one range."""


class ReadOnlyDisk:
    """The writing half of a `Disk` that only reads."""

    def mkdir(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def remove(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        refuse(source)

    def make_read_only(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def fsync_dir(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def lock(self, path: str) -> NoReturn:
        """Refused: readers take no lock."""
        refuse(path)


class RemoteDisk(ReadOnlyDisk):
    """A file system of fsspec as a `Disk` that only reads. Paths keep their protocol.

    Args:
        file_system: The file system.
        sizes: The known lengths of files, which then need no request.
    """

    def __init__(self, file_system: Any, sizes: Mapping[str, int] | None = None) -> None:
        self._fs = file_system
        self._sizes = dict(sizes or {})
        self._listings: dict[str, dict[str, Entry]] = {}
        self.forget()

    def forget(self) -> None:
        """Ask the store again from now on."""
        self._listings.clear()
        self._fs.invalidate_cache()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RemoteFile:
        """The present file, for reading; raises `OSError` for writing."""
        if create or writable:
            refuse(path)
        return RemoteFile(self._fs, path, self._size_of(path))

    def _size_of(self, path: str) -> int:
        if path in self._sizes:
            return self._sizes[path]
        entry = self.entry(path)
        if entry is not None:
            return entry.size
        folder = path.rpartition("/")[0]
        if folder in self._listings:
            # The file may be gone since the listing, or be new.
            del self._listings[folder]
        return int(self._fs.info(path)["size"])

    def state(self, path: str) -> Entry:
        """A file or directory as its store describes it; raises `FileNotFoundError`."""
        entry = self.entry(path)
        return _entry_of(self._fs.info(path)) if entry is None else entry

    def entry(self, path: str) -> Entry | None:
        """A file's entry in the listing of its directory; None if there was no listing, or no such file."""
        folder, _, name = path.rpartition("/")
        return self._listings.get(folder, {}).get(name)

    def read(self, path: str) -> bytes:
        """The whole content of a small file; raises `FileNotFoundError`."""
        content: bytes = self._fs.cat_file(path)
        return content

    def read_start(self, path: str, size: int) -> bytes:
        """At most the first `size` bytes of a file; raises `FileNotFoundError`."""
        return read_range(self._fs, path, 0, size)

    def with_size(self, path: str, size: int) -> RemoteDisk:
        """The same disk, on which a file ends at a position: nothing after it is read ahead."""
        return RemoteDisk(self._fs, {path: size})

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        folder, _, name = path.rpartition("/")
        if path in self._listings:
            return True
        return name in self._listings[folder] if folder in self._listings else bool(self._fs.exists(path))

    def _listing(self, path: str) -> dict[str, Entry]:
        path = path.rstrip("/")
        if path not in self._listings:
            own = self._fs._strip_protocol(path).rstrip("/")
            entries: dict[str, Entry] = {}
            for facts in self._fs.ls(path, detail=True):
                name = str(facts["name"]).rstrip("/")
                if name != own and (bare := name.rpartition("/")[2]):
                    entries[bare] = _entry_of(facts)
                elif facts.get("type") == "file":
                    raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            self._listings[path] = entries
        return self._listings[path]

    def list_all(self, paths: Sequence[str]) -> None:
        """List many directories, side by side; a later `list` reports what is no directory."""
        waiting = [path for path in dict.fromkeys(one.rstrip("/") for one in paths) if path not in self._listings]
        side_by_side(self._try_to_list, waiting)

    def _try_to_list(self, path: str) -> None:
        with suppress(OSError):
            self._listing(path)

    def glob(self, pattern: str) -> list[str]:
        """The paths that a pattern matches, with their protocol, sorted; directories are listed side by side."""
        if "**" in pattern:
            return sorted(self._fs.unstrip_protocol(path.rstrip("/")) for path in self._fs.glob(pattern))
        protocol, separator, rest = pattern.partition("://")
        first, *parts = [part for part in rest.split("/") if part] or [""]
        paths = [f"{protocol}{separator}{first}"]
        for at, part in enumerate(parts):
            if _MAGIC.isdisjoint(part):
                paths = [f"{path}/{part}" for path in paths]
                continue
            self.list_all(paths)
            last = at == len(parts) - 1
            paths = [*chain.from_iterable(self._matching(path, part, files=last) for path in paths)]
        if parts and _MAGIC.isdisjoint(parts[-1]):
            self.list_all(paths)
            paths = [path for path in paths if self._is(path)]
        return sorted(paths)

    def _matching(self, path: str, part: str, *, files: bool) -> Iterator[str]:
        for name, entry in self._listings.get(path, {}).items():
            if (files or entry.is_directory) and fnmatchcase(name, part):
                yield f"{path}/{name}"

    def _is(self, path: str) -> bool:
        """Whether a path exists. Listing it answers, and the caller lists it next."""
        try:
            self._listing(path)
        except NotADirectoryError:
            return True
        except FileNotFoundError:
            return False
        return True

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; raises `NotADirectoryError` for a file, and `FileNotFoundError`."""
        return sorted(self._listing(path))


def _entry_of(facts: Mapping[str, Any]) -> Entry:
    state = next((str(facts[key]) for key in _STATES if facts.get(key) is not None), "")
    return Entry(int(facts.get("size") or 0), facts.get("type") == "directory", state)


def side_by_side(work: Any, items: Sequence[Any]) -> list[Any]:
    """The results of `work` for each item, in order; requests to a store wait at the same time."""
    if len(items) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(work, items))


def read_range(file_system: Any, path: str, start: int, end: int) -> bytes:
    """The bytes of a file from `start` to before `end`, as far as there are so many."""
    options = {}
    if start == 0 and "arrow" in type(file_system).__module__:
        # pyarrow opens a file as a stream that cannot seek, if no start is asked for; fsspec then asks for a position.
        options["seekable"] = True
    content: bytes = file_system.cat_file(path, start=start, end=end, **options)
    return content


def refuse(path: str) -> NoReturn:
    """Raise the error of a disk that only reads."""
    raise PermissionError(errno.EROFS, "a source of Spark only reads", path)
