"""Reads any file of a node's directory without changing it (Kafka: `DumpLogSegments`); damage is a result, not an end.

Nothing is locked: the directory may belong to a running node.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from metadata_log.batch import HEADER_BYTES, RecordBatch, read_batch, records
from metadata_log.disk import Disk, File
from metadata_log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.epochs import parse_epochs
from metadata_log.errors import CorruptBatch, DecodeError, IncompleteBatch, UnsupportedVersion
from metadata_log.indexes import parse_offset_index, parse_time_index
from metadata_log.log_dir import (
    META_PROPERTIES,
    PARTITION_DIRECTORY,
    PARTITION_METADATA,
    parse_meta_properties,
    parse_partition_metadata,
)
from metadata_log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.quorum_state_file import parse_quorum_state
from metadata_log.records.frame import ControlRecordType, decode_control, decode_record
from metadata_log.segment import SUFFIX as LOG_SUFFIX
from metadata_log.segment import parse_file_name, scan_file
from metadata_log.serde.fields import Message
from metadata_log.snapshot import DELETED_SUFFIX, PARTIAL_SUFFIX, control_types
from metadata_log.snapshot import SUFFIX as SNAPSHOT_SUFFIX

_RESYNC_BYTES: Final = 1 << 20
_MAGIC_AT: Final = 16


class FileKind(StrEnum):
    """What a file is."""

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


class Damage(Struct, frozen=True, kw_only=True):
    """Something in a file is not what it should be. `offset` is that of the record concerned, if known."""

    where: str
    what: str
    position: int | None = None
    offset: int | None = None
    unfinished: bool = False
    """The file ends inside a batch: usual at the end of a running node's log."""

    def __str__(self) -> str:
        places = [self.where]
        if self.position is not None:
            places.append(f"byte {self.position}")
        if self.offset is not None:
            places.append(f"offset {self.offset}")
        return f"{self.what} ({', '.join(places)})"


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
    """What a file is: by its name, and where that says nothing, by its content."""
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
        first = next(_batches_or_damage(file), None) if len(head) > _MAGIC_AT and head[_MAGIC_AT] == 2 else None
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
    """The files that `path` means: itself, or those of a partition directory, or of a log directory and its partition.

    Locks and the files of other programs are left out. `FileNotFoundError` if there is nothing.
    """
    if not disk.exists(path):
        raise FileNotFoundError(path)
    try:
        names = disk.list(path)
    except NotADirectoryError:
        return [path]
    except FileNotFoundError:
        return [path]
    base = path.rstrip("/")
    found = [f"{base}/{name}" for name in names if _is_ours(name)]
    if PARTITION_DIRECTORY in names:
        found += files_in(disk, f"{base}/{PARTITION_DIRECTORY}")
    return found


def _is_ours(name: str) -> bool:
    plain = name.removesuffix(".deleted").removesuffix(".tmp")
    return plain in _BY_NAME or any(plain.endswith(suffix) for suffix in _BY_SUFFIX)


def base_offset_of(path: str) -> int:
    """The base offset in the name of a segment or an index; 0 if the name has none."""
    name = path.rpartition("/")[2].removesuffix(".deleted")
    for suffix in (LOG_SUFFIX, ".index", ".timeindex"):
        base = parse_file_name(name, suffix)
        if base is not None:
            return base
    return 0


# --------------------------------------------------------------------------------------------------------- batches


def read_file(disk: Disk, path: str) -> Iterator[RecordBatch | Damage]:
    """The batches of a segment or snapshot with whatever damage lies between them, in order of position.

    Behind damage the reading goes on at the next batch with a good CRC. Batches in a wrong order are damage, too.
    """
    file = disk.open(path, writable=False)
    try:
        found = _batches_or_damage(file, parse_file_name(path.rpartition("/")[2]))
        yield from _framed(found, path) if path.endswith(SNAPSHOT_SUFFIX) else found
    finally:
        file.close()


def _batches_or_damage(file: File, base_offset: int | None = None) -> Iterator[RecordBatch | Damage]:
    position, size = 0, file.size()
    expected, epoch = base_offset, 0
    while position < size:
        try:
            for batch in scan_file(file, position, end=size):
                if (wrong := _order_damage(batch, expected, epoch, file.path)) is not None:
                    yield wrong
                position, expected, epoch = batch.end_position, batch.next_offset, batch.epoch
                yield batch
        except (CorruptBatch, UnsupportedVersion) as bad:
            following = _next_good(file, position, size)
            end = size if following is None else following
            yield Damage(
                where=file.path,
                what=f"{bad.what}; {end - position} bytes cannot be read",
                position=position,
                offset=expected,
                unfinished=isinstance(bad, IncompleteBatch) and following is None,
            )
            # The offset that follows damage is not known: what comes next begins a new count.
            position, expected = end, None


def _order_damage(batch: RecordBatch, expected: int | None, epoch: int, path: str) -> Damage | None:
    if expected is not None and batch.base_offset != expected:
        what = f"a batch begins at offset {batch.base_offset} where {expected} comes next"
    elif batch.epoch < epoch:
        what = f"a batch of epoch {batch.epoch} follows one of epoch {epoch}"
    else:
        return None
    return Damage(where=path, what=what, position=batch.position, offset=batch.base_offset)


def _framed(found: Iterator[RecordBatch | Damage], path: str) -> Iterator[RecordBatch | Damage]:
    """Check that the header of a snapshot comes first and its footer last."""
    first = last = None
    for item in found:
        if first is None:
            first = item
            if isinstance(item, RecordBatch) and ControlRecordType.SNAPSHOT_HEADER not in _types(item)[:1]:
                yield Damage(where=path, what="the snapshot does not begin with its header", position=0)
        last = item
        yield item
    if first is None:
        yield Damage(where=path, what="the snapshot is empty", position=0)
    elif isinstance(last, RecordBatch) and ControlRecordType.SNAPSHOT_FOOTER not in _types(last)[-1:]:
        yield Damage(where=path, what="the snapshot ends without its footer", position=last.end_position)


def _types(batch: RecordBatch) -> list[int]:
    try:
        return control_types(batch)
    except (CorruptBatch, DecodeError):
        return []


def _next_good(file: File, position: int, size: int) -> int | None:
    """Where the next batch with a good CRC begins, after `position`."""
    start = position + 1
    while start + HEADER_BYTES <= size:
        piece = file.pread(min(_RESYNC_BYTES + HEADER_BYTES, size - start), start)
        at = piece.find(2, _MAGIC_AT)
        while 0 <= at < len(piece) - (HEADER_BYTES - _MAGIC_AT) + 1:
            candidate = start + at - _MAGIC_AT
            if _is_good(file, candidate, size):
                return candidate
            at = piece.find(2, at + 1)
        if start + len(piece) >= size:
            return None
        start += _RESYNC_BYTES
    return None


def _is_good(file: File, position: int, size: int) -> bool:
    head = file.pread(12, position)
    length = int.from_bytes(head[8:12], "big", signed=True)
    if not HEADER_BYTES <= length + 12 <= size - position:
        return False
    try:
        read_batch(file.pread(length + 12, position))
    except (CorruptBatch, UnsupportedVersion):
        return False
    return True


def read_log(disk: Disk, partition_directory: str, from_offset: int = 0) -> Iterator[RecordBatch | Damage]:
    """The batches of all segments in a partition directory from the one that holds `from_offset` on, in order."""
    bases = [base for name in disk.list(partition_directory) if (base := parse_file_name(name)) is not None]
    for index, base in enumerate(bases):
        if index + 1 < len(bases) and bases[index + 1] <= from_offset:
            continue
        for found in read_file(disk, f"{partition_directory}/{base:020d}{LOG_SUFFIX}"):
            if isinstance(found, Damage) or found.next_offset > from_offset:
                yield found


# --------------------------------------------------------------------------------------------------------- records


class Entry(Struct, frozen=True, kw_only=True):
    """One record of the metadata log, decoded as far as this software knows it.

    `type` is the number of a metadata or control record; `record` is None for types that are not known.
    """

    offset: int
    timestamp: int
    epoch: int
    is_control: bool
    type: int
    version: int
    name: str
    record: Message | None
    key: bytes | None
    value: bytes


def read_entries(batch: RecordBatch, where: str) -> Iterator[Entry | Damage]:
    """The records of a batch; one that cannot be decoded is reported, and the reading goes on."""
    contents = records(batch, where=where)
    while True:
        try:
            record = next(contents, None)
        except (CorruptBatch, UnsupportedVersion) as bad:
            yield Damage(where=where, what=bad.what, position=bad.position, offset=batch.base_offset)
            return
        if record is None:
            return
        key, value = record.key, record.value or b""
        try:
            kind, version, name, message = _decode(batch, key, value)
        except DecodeError as bad:
            yield Damage(where=where, what=_record_error(bad), position=batch.position, offset=record.offset)
            continue
        yield Entry(
            offset=record.offset,
            timestamp=record.timestamp,
            epoch=batch.epoch,
            is_control=batch.is_control,
            type=kind,
            version=version,
            name=name,
            record=message,
            key=key,
            value=value,
        )


def _decode(batch: RecordBatch, key: bytes | None, value: bytes) -> tuple[int, int, str, Message | None]:
    if batch.is_control:
        kind, message = decode_control(key or b"", value)
        version = int.from_bytes(value[:2], "big", signed=True)
        return kind, version, type(message).__name__ if message else f"control record type {kind}", message
    framed = decode_record(value)
    return framed.type, framed.version, framed.name, framed.record


def _record_error(bad: DecodeError) -> str:
    place = [f"byte {bad.position} of its value"] if bad.position is not None else []
    if bad.field:
        place.append(bad.field)
    return f"the record cannot be decoded: {bad.what}" + (f" at {', '.join(place)}" if place else "")


# ----------------------------------------------------------------------------------------------------- other files


def read_index(disk: Disk, path: str, kind: FileKind) -> list[tuple[int, int]]:
    """The entries of an index file: (offset, position), or (timestamp, offset) of a time index."""
    data, base = disk.read(path), base_offset_of(path)
    return parse_offset_index(data, base) if kind is FileKind.OFFSET_INDEX else parse_time_index(data, base)


def read_small_file(disk: Disk, path: str, kind: FileKind) -> dict[str, object]:
    """The facts in one of the small files, to be shown; raises `MetadataLogError`."""
    content = disk.read(path)
    match kind:
        case FileKind.QUORUM_STATE:
            state = parse_quorum_state(content, where=path)
            return {
                "data_version": state.data_version,
                "leader_epoch": state.leader_epoch,
                "leader_id": state.leader_id,
                "voted_id": state.voted_id,
                "voted_directory_id": str(state.voted_directory_id),
                "current_voters": list(state.current_voters),
            }
        case FileKind.META_PROPERTIES:
            meta = parse_meta_properties(content, where=path)
            directory_id = None if meta.directory_id is None else str(meta.directory_id)
            return {"cluster_id": meta.cluster_id, "node_id": meta.node_id, "directory_id": directory_id}
        case FileKind.EPOCHS:
            entries = parse_epochs(content, where=path).entries
            return {"epochs": [{"epoch": entry.epoch, "start_offset": entry.offset} for entry in entries]}
        case FileKind.PARTITION_METADATA:
            return {"topic_id": str(parse_partition_metadata(content, where=path))}
        case _:
            return {"size": len(content)}
