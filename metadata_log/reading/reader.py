"""Reads any file of a node's directory without changing it (Kafka: `DumpLogSegments`). Damage is reported as a result.

The reader takes no locks: the directory may belong to a running node.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk, File
from metadata_log.errors import CorruptBatch, DecodeError, IncompleteBatch, MetadataLogError, UnsupportedVersion
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.indexes import parse_offset_index, parse_time_index
from metadata_log.log.log_dir import (
    META_PROPERTIES,
    PARTITION_DIRECTORY,
    PARTITION_METADATA,
    parse_meta_properties,
    parse_partition_metadata,
)
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.quorum_state_file import parse_quorum_state
from metadata_log.log.segment import SUFFIX as LOG_SUFFIX
from metadata_log.log.segment import next_sound_batch, parse_file_name, scan_file
from metadata_log.log.snapshot import DELETED_SUFFIX, PARTIAL_SUFFIX, control_types
from metadata_log.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from metadata_log.reading.annotate import value_position
from metadata_log.records.batch import RecordBatch, records
from metadata_log.records.frame import ControlRecordType, decode_control, read_record
from metadata_log.serde.fields import Message

_RESYNC_BUDGET: Final = 256 << 20
"""How many bytes may at least be read to find a valid batch behind damage."""
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


class Damage(Struct, frozen=True, kw_only=True):
    """One defect of a file or directory.

    Args:
        where: The path of the file or directory.
        what: The defect as a text.
        expected: The expected content as a text.
        position: The first wrong byte, if known.
        offset: The offset of the affected record, if known.
        unfinished: Whether the file ends inside a batch and may still grow.
    """

    where: str
    what: str
    expected: str
    position: int | None = None
    offset: int | None = None
    unfinished: bool = False
    """Whether the file ends inside a batch and may still grow: usual at the end of a running node's log."""

    def __str__(self) -> str:
        places = [self.where]
        if self.position is not None:
            places.append(f"byte {self.position}")
        if self.offset is not None:
            places.append(f"offset {self.offset}")
        return f"{self.what} ({', '.join(places)})"


class OnDamage(StrEnum):
    """A reader's reaction to damage. An unfinished last batch is reported, but is damage in none of the modes."""

    STRICT = "strict"
    """Raise `DamagedFile`; also for a record of an unknown type, which would prevent a controller's start."""
    STOP = "stop-at-damage"
    """Report the damage and stop."""
    SKIP = "skip-damage"
    """Report the damage and continue with the next valid batch or record."""


class DamagedFile(MetadataLogError):
    """The damage that ended a strict reading, as an error.

    Args:
        damage: The damage.
    """

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.what, where=damage.where, position=damage.position)
        self.damage = damage

    def __str__(self) -> str:
        return str(self.damage)


def stops(damage: Damage, on_damage: OnDamage) -> bool:
    """Whether reading ends with this damage; raises `DamagedFile` in strict mode."""
    if damage.unfinished:
        return False
    if on_damage is OnDamage.STRICT:
        raise DamagedFile(damage)
    return on_damage is OnDamage.STOP


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
    """The base offset in the name of a segment or an index; 0 for any other name."""
    name = path.rpartition("/")[2].removesuffix(".deleted")
    for suffix in (LOG_SUFFIX, ".index", ".timeindex"):
        base = parse_file_name(name, suffix)
        if base is not None:
            return base
    return 0


# --------------------------------------------------------------------------------------------------------- batches


def read_file(disk: Disk, path: str, *, on_damage: OnDamage = OnDamage.SKIP) -> Iterator[RecordBatch | Damage]:
    """The batches of a segment or snapshot and the damage between them, in order of position.

    Args:
        disk: The disk.
        path: The segment or snapshot.
        on_damage: Whether reading continues behind damage, at the next batch with a good CRC. Batches in a wrong order
            are damage too.

    Returns:
        Batches and damage (Kafka's `DumpLogSegments`).

    Raises:
        DamagedFile: The file is damaged, and the mode is strict.
        OSError: The file is unreadable.
    """
    file = disk.open(path, writable=False)
    try:
        base = parse_file_name(path.rpartition("/")[2])
        found = read_range(file, expected=base, may_grow=may_grow(disk, path))
        for item in framed(found, path) if path.endswith(SNAPSHOT_SUFFIX) else found:
            last = isinstance(item, Damage) and stops(item, on_damage)
            yield item
            if last:
                return
    finally:
        file.close()


def may_grow(disk: Disk, path: str) -> bool:
    """Whether a node may be writing the end of a file: only of the last segment and of an unfinished snapshot."""
    if path.endswith((SNAPSHOT_SUFFIX, DELETED_SUFFIX, ".deleted")):
        return False
    base_offset = parse_file_name(path.rpartition("/")[2])
    if base_offset is None:
        return True
    names = disk.list(path.rpartition("/")[0] or ".")
    return not any((other := parse_file_name(name)) is not None and other > base_offset for name in names)


def read_range(
    file: File,
    start: int = 0,
    end: int | None = None,
    *,
    expected: int | None = None,
    epoch: int = 0,
    may_grow: bool = True,
) -> Iterator[RecordBatch | Damage]:
    """The batches of an open file from `start`, a batch boundary, to `end`, and the damage between them.

    `expected` is the first offset, if known; `epoch` is the epoch of the batch before. `may_grow` is whether an
    unfinished batch at the end is usual.
    """
    position, size = start, file.size() if end is None else end
    while position < size:
        try:
            for batch in scan_file(file, position, end=size):
                if (wrong := order_damage(batch, expected, epoch, file.path)) is not None:
                    yield wrong
                position, expected, epoch = batch.end_position, batch.next_offset, batch.epoch
                yield batch
        except (CorruptBatch, UnsupportedVersion) as bad:
            budget = max(_RESYNC_BUDGET, 4 * (size - position))
            following = next_sound_batch(file, position + 1, end=size, budget=budget)
            resumed = size if following is None else following.position
            yield Damage(
                where=file.path,
                what=f"{bad.what}; {resumed - position} bytes cannot be read",
                expected="a batch of format 2" + ("" if expected is None else f" with offset {expected}"),
                position=position,
                offset=expected,
                unfinished=may_grow and isinstance(bad, IncompleteBatch) and following is None,
            )
            # The offset behind damage is not known: the next batch sets a new expectation.
            position, expected = resumed, None


def order_damage(batch: RecordBatch, expected: int | None, epoch: int, path: str) -> Damage | None:
    """The error of a batch that follows one of `epoch` with the end `expected`; None if the order is right."""
    if expected is not None and batch.base_offset != expected:
        what = f"a batch begins at offset {batch.base_offset} where {expected} comes next"
        wanted = f"a batch with offset {expected}"
    elif batch.last_offset_delta < 0:
        what = f"a batch ends {-batch.last_offset_delta} offsets before it begins"
        wanted = "a last offset delta of at least 0"
    elif batch.epoch < epoch:
        what = f"a batch of epoch {batch.epoch} follows one of epoch {epoch}"
        wanted = f"a batch of epoch {epoch} or later"
    else:
        return None
    return Damage(where=path, what=what, expected=wanted, position=batch.position, offset=batch.base_offset)


def framed(
    found: Iterator[RecordBatch | Damage], path: str, *, begins: bool = True, ends: bool = True
) -> Iterator[RecordBatch | Damage]:
    """Check that a snapshot begins with its header and ends with its footer; in a part, only the included end."""
    first = last = None
    header, footer = (
        "a control batch that begins with SnapshotHeaderRecord",
        "a control batch with SnapshotFooterRecord",
    )
    for item in found:
        if first is None:
            first = item
            if begins and isinstance(item, RecordBatch) and ControlRecordType.SNAPSHOT_HEADER not in _types(item)[:1]:
                what = "the snapshot does not begin with its header"
                yield Damage(where=path, what=what, expected=header, position=0)
        last = item
        yield item
    if first is None:
        yield Damage(where=path, what="the snapshot is empty", expected=header, position=0)
    elif ends and isinstance(last, RecordBatch) and ControlRecordType.SNAPSHOT_FOOTER not in _types(last)[-1:]:
        what = "the snapshot ends without its footer"
        yield Damage(where=path, what=what, expected=footer, position=last.end_position)


def _types(batch: RecordBatch) -> list[int]:
    try:
        return control_types(batch)
    except (CorruptBatch, DecodeError):
        return []


def read_log(
    disk: Disk, partition_directory: str, from_offset: int = 0, *, on_damage: OnDamage = OnDamage.SKIP
) -> Iterator[RecordBatch | Damage]:
    """The batches of all segments in a partition directory, in order, from the one that holds `from_offset` on.

    Args:
        disk: The disk.
        partition_directory: The partition directory.
        from_offset: The first offset.
        on_damage: Whether reading continues behind damage.

    Returns:
        Batches and damage. A gap between two segments is damage.

    Raises:
        DamagedFile: The log is damaged, and the mode is strict.
        OSError: A file is unreadable.
    """
    bases = [base for name in disk.list(partition_directory) if (base := parse_file_name(name)) is not None]
    end: int | None = None  # of the segment before; unknown behind damage
    for index, base in enumerate(bases):
        if index + 1 < len(bases) and bases[index + 1] <= from_offset:
            continue
        path = f"{partition_directory}/{base:020d}{LOG_SUFFIX}"
        if (gap := gap_before(path, base, end)) is not None:
            last = stops(gap, on_damage)
            yield gap
            if last:
                return
        end = base
        for found in read_file(disk, path, on_damage=on_damage):
            if isinstance(found, Damage):
                yield found
                if stops(found, on_damage):
                    return
                end = None
            else:
                end = found.next_offset
                if end > from_offset:
                    yield found


def gap_before(path: str, base_offset: int, end_offset: int | None) -> Damage | None:
    """The damage if a segment does not begin at the end of the one before; None if it does, or if that is unknown."""
    if end_offset is None or base_offset == end_offset:
        return None
    return Damage(
        where=path,
        what=f"the segment begins at offset {base_offset} where {end_offset} comes next",
        expected=f"a segment file that begins at offset {end_offset}",
        position=0,
        offset=end_offset,
    )


# --------------------------------------------------------------------------------------------------------- records


class Entry(Struct, frozen=True, gc=False):
    """One record of the metadata log, decoded as far as this software knows its type.

    Args:
        offset: The offset in the log.
        timestamp: The time in ms.
        epoch: The partition leader epoch.
        is_control: Whether the record is a control record.
        type: The number of the metadata or control record type.
        version: The version of the record.
        name: The name of the record type, or its number.
        record: The record; None for an unknown type.
        key: The key; None for a metadata record.
        value: The encoded value.
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


def read_entries(batch: RecordBatch, where: str, *, on_damage: OnDamage = OnDamage.SKIP) -> Iterator[Entry | Damage]:
    """The records of a batch.

    Args:
        batch: The batch.
        where: The path of its file, for damage.
        on_damage: Whether reading continues behind an undecodable record.

    Returns:
        Records and damage.

    Raises:
        DamagedFile: A record is damaged or unknown, and the mode is strict.
    """
    contents = records(batch, where=where)
    epoch, is_control = batch.epoch, batch.is_control
    strict = on_damage is OnDamage.STRICT
    index = -1
    try:
        for index, record in enumerate(contents):
            key, value = record.key, record.value or b""
            try:
                kind, version, name, message = _read_control(key, value) if is_control else read_record(value)
                if message is None and strict:
                    raise UnsupportedVersion(f"{name} in version {version} is not known", position=0)
            except DecodeError as bad:
                damage = _record_damage(batch, index, record.offset, bad, where)
                last = stops(damage, on_damage)
                yield damage
                if last:
                    return
                continue
            yield Entry(record.offset, record.timestamp, epoch, is_control, kind, version, name, message, key, value)
    except (CorruptBatch, UnsupportedVersion) as bad:
        damage = Damage(
            where=where,
            what=bad.what,
            expected=f"{batch.record_count} records that fill the batch",
            position=bad.position,
            offset=batch.base_offset,
        )
        stops(damage, on_damage)
        yield damage


def _read_control(key: bytes | None, value: bytes) -> tuple[int, int, str, Message | None]:
    kind, message = decode_control(key or b"", value)
    version = int.from_bytes(value[:2], "big", signed=True)
    return kind, version, type(message).__name__ if message else f"control record type {kind}", message


def _record_damage(batch: RecordBatch, index: int, offset: int, bad: DecodeError, where: str) -> Damage:
    """The damage of a record: the position in the file, and the cause."""
    inside = value_position(batch, index)
    position = batch.position + (0 if inside is None else inside + (bad.position or 0))
    field = f" at {bad.field}" if bad.field else ""
    return Damage(
        where=where,
        what=f"the record cannot be decoded: {bad.what}{field}",
        expected="a control record" if batch.is_control else "a metadata record with frame version 1",
        position=position,
        offset=offset,
    )


# ----------------------------------------------------------------------------------------------------- other files


def read_index(disk: Disk, path: str, kind: FileKind) -> list[tuple[int, int]]:
    """The entries of an index file: (offset, position), or (timestamp, offset) of a time index."""
    data, base = disk.read(path), base_offset_of(path)
    return parse_offset_index(data, base) if kind is FileKind.OFFSET_INDEX else parse_time_index(data, base)


def read_small_file(disk: Disk, path: str, kind: FileKind) -> dict[str, object]:
    """The content of a small file, for display; raises `MetadataLogError`."""
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
