"""Packed logs, unpacked into memory within limits: tar and zip archives, and files of a log that are packed one by one.

The path of a log in an archive goes through the archive: `/backup/a.tar.gz/__cluster_metadata-0`. A packed file stands
in its directory under its own name, `00000000000000000000.log` for `00000000000000000000.log.gz`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import IO, Any, Final, Self

from metadata_log.compression import Compression, inflating
from metadata_log.disk import Disk, File, make_directory
from metadata_log.errors import DirectoryError
from metadata_log.log.log_dir import META_PROPERTIES
from metadata_log.log.segment import parse_file_name
from metadata_log.log.snapshot import parse_snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.spark.remote_disk import ReadOnlyDisk, refuse
from metadata_log.types import PARTITION_DIRECTORY

MOST_BYTES: Final = 1 << 30
"""The most bytes that an archive or a file may unpack to."""
MOST_ENTRIES: Final = 100_000
"""The most entries of an archive."""
_MOST_LIST_BYTES: Final = 128 * MOST_ENTRIES
"""The most bytes of the list of entries of a zip archive, which is read as a whole: 46 bytes and a path for each."""
_READ: Final = 1 << 20
_REMEDY: Final = "unpack it, and give the directory"
_IN_A_PATH: Final = re.compile(r"[^?*\[]*?[^/?*\[]\.(?:tar(?:\.(?:gz|bz2|xz|zst))?|tgz|zip)(?=/|$)")
_MOST_HEADER_BYTES: Final = 1 << 20
_MOST_META_BYTES: Final = 1 << 20
"""Of a meta.properties, which has some hundred bytes."""
_FURTHER_HEADERS: Final = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
PACKED: Final = (".gz", ".zst", ".bz2", ".xz")
"""The suffixes of files that are packed by themselves."""
_KEPT: Final = 4
"""The files that stay unpacked: a run finds a log and reads it, one cluster after the other."""
_KEPT_BYTES: Final = 256 << 20
"""The most bytes that stay unpacked besides the last one."""
_kept: dict[tuple[str, object, int], MemoryDisk] = {}


def archive_in(path: str) -> str | None:
    """The part of a path up to the name of an archive; None without one. A directory may have such a name, too."""
    match = _IN_A_PATH.match(path)
    return None if match is None else match[0]


def is_of_log(name: str) -> bool:
    """Whether a file of this name is a segment or a checkpoint."""
    return parse_file_name(name) is not None or parse_snapshot_name(name) is not None


def unpacked_name(name: str) -> str | None:
    """The name of the segment or checkpoint that a packed file holds; None for any other file."""
    if not name.endswith(PACKED):  # most names
        return None
    stem = name.rpartition(".")[0]
    return stem if is_of_log(stem) else None


def archive_disk(disk: Disk, archive: str, state: object, most_bytes: int = MOST_BYTES) -> MemoryDisk:
    """The log in an archive, below the archive's own path.

    Args:
        disk: The disk of the archive.
        archive: The path of the archive.
        state: Changes whenever the archive was written again.
        most_bytes: The most bytes that it may unpack to.

    Returns:
        A disk with the partition directory of the log and its meta.properties.

    Raises:
        DirectoryError: It is no archive, is damaged or too large, or holds no metadata log or several.
        OSError: It cannot be read.
    """
    return _once(archive, state, most_bytes, lambda: _unpack_archive(disk, archive, most_bytes))


def _once(path: str, state: object, most_bytes: int, unpack: Callable[[], MemoryDisk]) -> MemoryDisk:
    key = (path, state, most_bytes)
    found = _kept.pop(key, None)
    if found is None:
        _forget_old()
        found = unpack()
    _kept[key] = found
    return found


def _forget_old() -> None:
    """Make room for one more: the newest stay, as far as both limits allow."""
    left = _KEPT_BYTES
    for number, (key, disk) in enumerate(reversed(list(_kept.items())), 1):
        left -= disk.content_bytes()
        if number == _KEPT or left < 0:
            _kept.pop(key, None)


class UnpackingDisk(ReadOnlyDisk):
    """Another disk, on which packed segments and checkpoints are unpacked when they are opened.

    Args:
        disk: The other disk.
        state_of: Changes for a path whenever the file was written again.
    """

    def __init__(self, disk: Disk, state_of: Callable[[str], object]) -> None:
        self._disk = disk
        self._state_of = state_of

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """The file, or what the packed file of this name holds; raises as `archive_disk` does."""
        if create or writable:
            refuse(path)
        return self._disk_of(path).open(path, writable=False)

    def read(self, path: str) -> bytes:
        """The whole content of a small file; raises `FileNotFoundError`, and as `archive_disk` does."""
        return self._disk_of(path).read(path)

    def _disk_of(self, path: str) -> Disk:
        packed = None if self._disk.exists(path) else self._packed(path)
        if packed is None:
            return self._disk
        return _once(packed, self._state_of(packed), MOST_BYTES, lambda: _unpack_file(self._disk, packed, path))

    def exists(self, path: str) -> bool:
        """Whether a file, a packed one or a directory exists."""
        return self._disk.exists(path) or self._packed(path) is not None

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted, those of packed files as they are unpacked."""
        return sorted({unpacked_name(name) or name for name in self._disk.list(path)})

    def _packed(self, path: str) -> str | None:
        if not is_of_log(path.rpartition("/")[2]):
            return None
        return next((path + suffix for suffix in PACKED if self._disk.exists(path + suffix)), None)


def _unpack_file(disk: Disk, packed: str, path: str) -> MemoryDisk:
    memory_disk = MemoryDisk()
    make_directory(memory_disk, path.rpartition("/")[0])
    with _plain_errors(packed), _opened(disk, packed) as file:
        if not file.peek(1):  # the readers of some formats take nothing for an empty file
            raise DirectoryError("it has no bytes: copy it again", where=packed)
        _copy(_Bounded(packed, MOST_BYTES).of(_decompressed(file, packed)), memory_disk, path)
    return memory_disk


def _copy(content: _Bounded, memory_disk: MemoryDisk, path: str) -> None:
    target = memory_disk.open(path, create=True)
    target.truncate(0)  # of several members with one name the last one counts
    while part := content.read(_READ):
        target.append(part)
    target.close()


def _unpack_archive(disk: Disk, archive: str, most_bytes: int) -> MemoryDisk:
    logs: dict[str, MemoryDisk] = {}
    metas: dict[str, bytes] = {}
    with _plain_errors(archive), _opened(disk, archive) as file:
        for name, content in _members(file, archive, most_bytes):
            path = os.path.normpath(name).lstrip("/")
            if (log := _log_of(path)) is None:
                metas[path] = content.read(_MOST_META_BYTES)
                continue
            if log not in logs:
                logs[log] = MemoryDisk()
                make_directory(logs[log], f"{archive}/{PARTITION_DIRECTORY}")
            _copy(content, logs[log], f"{archive}/{PARTITION_DIRECTORY}/{os.path.basename(path)}")
    if len(logs) != 1:
        told = "no metadata log" if not logs else f"{len(logs)} metadata logs: {', '.join(sorted(logs)[:3])}"
        raise DirectoryError(f"the archive holds {told}; unpack it, and give the directories", where=archive)
    [(log, memory_disk)] = logs.items()
    meta = metas.get(f"{log.removesuffix(PARTITION_DIRECTORY)}{META_PROPERTIES}")
    if meta is not None:
        target = memory_disk.open(f"{archive}/{META_PROPERTIES}", create=True)
        target.append(meta)
        target.close()
    return memory_disk


@contextmanager
def _plain_errors(where: str) -> Iterator[None]:
    try:
        yield
    except (DirectoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as bad:  # of each format its own
        raise DirectoryError(f"it cannot be unpacked ({bad}): copy it again", where=where) from bad


@contextmanager
def _opened(disk: Disk, path: str) -> Iterator[io.BufferedReader]:
    file = disk.open(path, writable=False)
    try:
        yield io.BufferedReader(_Reader(file), _READ)
    finally:
        file.close()


class _Reader(io.RawIOBase):
    """A file of a disk as the libraries of the formats read it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.size()
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always: zip has its list at the end."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as much as fits."""
        found = self._file.pread(len(buffer), self._at)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def _log_of(name: str) -> str | None:
    """The partition directory that a member lies in."""
    folder = os.path.dirname(name)
    return folder if os.path.basename(folder) == PARTITION_DIRECTORY else None


def _is_wanted(name: str) -> bool:
    name = os.path.normpath(name)
    return _log_of(name) is not None or os.path.basename(name) == META_PROPERTIES


def _members(file: io.BufferedReader, archive: str, most_bytes: int) -> Iterator[tuple[str, _Bounded]]:
    """The files of logs, each to be read before the next; what else the archive holds counts for the limits only."""
    kept = _Bounded(archive, most_bytes)
    counted = count(1)
    if archive.endswith(".zip"):
        with zipfile.ZipFile(_Listed(file, archive)) as zipped:
            for info in zipped.infolist():
                _check_entries(next(counted), archive)
                if not info.is_dir() and _is_wanted(info.filename):
                    with zipped.open(info) as member:
                        yield info.filename, kept.of(member, info.file_size)
        return
    stream: Any = _Bounded(archive, most_bytes).of(_decompressed(file, archive))
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as tar:
        for one in tar:
            _check_entries(next(counted), archive)
            if (one.issym() or one.islnk()) and _log_of(os.path.normpath(one.name)) is not None:
                told = (
                    f"{one.name} is a link to {one.linkname}: pack it with what the links point to (tar --dereference)"
                )
                raise DirectoryError(told, where=archive)
            if one.isfile() and _is_wanted(one.name) and (member_of := tar.extractfile(one)) is not None:
                yield one.name, kept.of(member_of, one.size)  # a sparse file is larger than its part of the stream


class _Listed(io.BufferedReader):
    """A zip archive, of which only the list of entries is asked for in one read of many bytes."""

    def __init__(self, file: io.BufferedReader, archive: str) -> None:
        super().__init__(file.detach())
        self._archive = archive

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes; raises `DirectoryError` for a list of too many entries, before any is read."""
        if size is not None and size > _MOST_LIST_BYTES:
            told = f"the list of its entries has {size} bytes, where {_MOST_LIST_BYTES} are the most"
            raise DirectoryError(f"{told}: {_REMEDY}", where=self._archive)
        return super().read(size)


class _Entry(tarfile.TarInfo):
    """An entry of an archive that is whole: `tarfile` takes a cut or damaged header for the end.

    The headers that hold a long name or more fields are read as a whole, and so have a limit of their own.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The header of an entry; raises `ReadError` for one that announces too many further fields."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _FURTHER_HEADERS and found.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"an entry has a header of {found.size} bytes, not {_MOST_HEADER_BYTES} at most")
        return found

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        """The next entry; raises `EOFHeaderError` at the mark of the end alone."""
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the stubs lack it
            raise
        except tarfile.HeaderError as bad:
            raise tarfile.ReadError(f"the archive ends without its mark, or is damaged: {bad}") from bad


def _check_entries(number: int, archive: str) -> None:
    if number > MOST_ENTRIES:
        told = f"the archive has more than {MOST_ENTRIES} entries: {_REMEDY}"
        raise DirectoryError(told, where=archive)


def _decompressed(file: IO[bytes], archive: str) -> Any:
    match archive.rpartition(".")[2]:
        case "gz" | "tgz":
            return gzip.GzipFile(fileobj=file)
        case "bz2":
            return bz2.BZ2File(file)
        case "xz":
            return lzma.LZMAFile(file)
        case "zst":
            return _Pieces(inflating(Compression.ZSTD, _whole(file, archive), sys.maxsize))
        case _:
            return file


def _whole(file: IO[bytes], archive: str) -> bytes:
    """All packed bytes; raises `DirectoryError` for more than what is unpacked may have."""
    size = file.seek(0, io.SEEK_END)
    if size > MOST_BYTES:
        raise DirectoryError(_too_much(MOST_BYTES), where=archive)
    file.seek(0)
    return file.read(size)


def _too_much(most_bytes: int) -> str:
    return f"it unpacks to more than {most_bytes} bytes: {_REMEDY}"


class _Pieces:
    """Pieces as a file. Unlike a reader of `zstandard`, the pieces end with an error where a frame is cut."""

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._held = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At least one of up to `size` bytes, unless all were read."""
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._held = memoryview(piece)
        found, self._held = self._held[:size], self._held[size:]
        return bytes(found)


class _Bounded:
    """Reads that end with an error where they pass the limit, which one stream after the other may share."""

    def __init__(self, archive: str, most_bytes: int) -> None:
        self._archive = archive
        self._most = self._left = most_bytes
        self._stream: Any = None

    def of(self, stream: Any, announced: int = 0) -> _Bounded:
        """Read this stream from now on; raises `DirectoryError` if it is announced to pass the limit."""
        if announced > self._left:
            raise DirectoryError(_too_much(self._most), where=self._archive)
        self._stream = stream
        return self

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, or all; raises `DirectoryError` beyond the limit."""
        parts = []
        wanted = size
        while wanted:
            part: bytes = self._stream.read(_READ if wanted < 0 else min(wanted, _READ))
            if not part:
                break
            self._left -= len(part)
            if self._left < 0:
                raise DirectoryError(_too_much(self._most), where=self._archive)
            parts.append(part)
            wanted -= len(part) if wanted > 0 else 0
        return b"".join(parts)
