"""The files of a node's directory and their kinds."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from metadata_log.disk import Disk, check_exists
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.log_dir import META_PROPERTIES, PARTITION_METADATA
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.segment import SUFFIX as LOG_SUFFIX
from metadata_log.log.snapshot import DELETED_SUFFIX, PARTIAL_SUFFIX
from metadata_log.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from metadata_log.reading.reader import read_range
from metadata_log.records.batch import RecordBatch
from metadata_log.types import PARTITION_DIRECTORY

_MAGIC_AT: Final = 16


class FileKind(StrEnum):
    """The kinds of files in a log directory."""

    SEGMENT = "segment"
    SNAPSHOT = "snapshot"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    QUORUM_STATE = "quorum-state"
    META_PROPERTIES = "meta.properties"
    EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    PRODUCER_SNAPSHOT = "producer snapshot"
    OTHER = "other"


_BY_NAME: Final = {
    QUORUM_STATE: FileKind.QUORUM_STATE,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    EPOCHS_FILE: FileKind.EPOCHS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
}
_BY_SUFFIX: Final = {
    LOG_SUFFIX: FileKind.SEGMENT,
    SNAPSHOT_SUFFIX: FileKind.SNAPSHOT,
    PARTIAL_SUFFIX: FileKind.SNAPSHOT,
    DELETED_SUFFIX: FileKind.SNAPSHOT,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".snapshot": FileKind.PRODUCER_SNAPSHOT,
}


def kind_of(disk: Disk, path: str) -> FileKind:
    """The kind of a file, by its name, or else by its content.

    Args:
        disk: The disk.
        path: The file.

    Returns:
        The kind.

    Raises:
        OSError: The file is unreadable.
    """
    name = path.rpartition("/")[2].removesuffix(".deleted").removesuffix(".tmp")
    if name in _BY_NAME:
        return _BY_NAME[name]
    for suffix, kind in _BY_SUFFIX.items():
        if name.endswith(suffix):
            return kind
    return _kind_by_content(disk, path)


def _kind_by_content(disk: Disk, path: str) -> FileKind:
    file = disk.open(path, writable=False)
    try:
        head = file.pread(4096, 0)
        first = next(read_range(file), None) if len(head) > _MAGIC_AT and head[_MAGIC_AT] == 2 else None
    finally:
        file.close()
    if isinstance(first, RecordBatch):
        return FileKind.SEGMENT
    if head.startswith(b"{") and b"data_version" in head:
        return FileKind.QUORUM_STATE
    if head.startswith(b"version: ") and b"topic_id: " in head:
        return FileKind.PARTITION_METADATA
    if b"cluster.id=" in head and b"node.id=" in head:
        return FileKind.META_PROPERTIES
    lines = head.split(b"\n")
    if (
        len(lines) > 2
        and lines[0] == b"0"
        and lines[1].isdigit()
        and all(len(line.split()) == 2 for line in lines[2:-1])
    ):
        return FileKind.EPOCHS
    return FileKind.OTHER


def files_in(disk: Disk, path: str) -> list[str]:
    """The files of a path: the file itself, or those of a partition directory, or of a log directory and its partition.

    Args:
        disk: The disk.
        path: A file or directory.

    Returns:
        The paths, without locks and files of other programs.

    Raises:
        FileNotFoundError: The path does not exist.
    """
    check_exists(disk, path)
    try:
        names = disk.list(path)
    except NotADirectoryError:
        return [path]
    except FileNotFoundError:
        return [path]
    base = path.rstrip("/")
    files = [f"{base}/{name}" for name in names if _is_ours(name)]
    if PARTITION_DIRECTORY in names:
        files += files_in(disk, f"{base}/{PARTITION_DIRECTORY}")
    return files


def _is_ours(name: str) -> bool:
    plain = name.removesuffix(".deleted").removesuffix(".tmp")
    return plain in _BY_NAME or any(plain.endswith(suffix) for suffix in _BY_SUFFIX)
