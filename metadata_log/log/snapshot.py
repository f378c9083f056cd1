"""Snapshot files: an image as batches between header and footer (KIP-630; Kafka: `Snapshots`, `SnapshotReader`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk, File, file_bytes
from metadata_log.errors import REMEDY, CorruptBatch
from metadata_log.java_text import whole_number
from metadata_log.log.segment import scan_file
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.control import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord
from metadata_log.records.frame import ControlRecordType, decode_control, encode_control
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch

SUFFIX: Final = ".checkpoint"
PARTIAL_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"

_STEM: Final = re.compile(r"([0-9]{20})-([0-9]{10})")
_HINT: Final = f"Remove the file if an older snapshot and the log behind it are there. {REMEDY}"


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    """The file name of a snapshot: end offset and epoch."""
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


@lru_cache(4096)
def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """The id in a snapshot's file name, or None if it is not one."""
    stem = name[: -len(SUFFIX)]
    found = _STEM.fullmatch(stem) if name.endswith(SUFFIX) else None
    if found is None:
        return None
    offset, epoch = whole_number(found[1], bits=64), whole_number(found[2])
    return None if offset is None or epoch is None else OffsetAndEpoch(epoch=epoch, offset=offset)


def list_snapshots(disk: Disk, directory: str) -> tuple[OffsetAndEpoch, ...]:
    """The ids of the snapshots in a partition directory, oldest first."""
    ids = (parse_snapshot_name(name) for name in disk.list(directory))
    return tuple(sorted(id for id in ids if id is not None))


def sweep_snapshots(disk: Disk, directory: str, log_start_offset: int) -> tuple[str, ...]:
    """Remove unfinished and renamed snapshots, and those below the log start; returns the removed names."""
    removed = []
    for name in disk.list(directory):
        snapshot = parse_snapshot_name(name)
        too_old = snapshot is not None and snapshot.offset < log_start_offset
        if too_old or name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)):
            disk.remove(f"{directory}/{name}")
            removed.append(name)
    return tuple(removed)


def snapshot_bytes(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> int:
    """The size of a snapshot's file."""
    return file_bytes(disk, f"{directory}/{snapshot_name(snapshot)}")


def mark_snapshots_deleted(disk: Disk, directory: str, snapshots: Iterable[OffsetAndEpoch]) -> tuple[str, ...]:
    """Rename snapshots, durably, so that they no longer count; returns the new paths (`Snapshots.markForDelete`)."""
    marked = []
    for snapshot in snapshots:
        path = f"{directory}/{snapshot_name(snapshot)}"
        deleted = f"{path.removesuffix(SUFFIX)}{DELETED_SUFFIX}"
        disk.rename(path, deleted)
        marked.append(deleted)
    if marked:
        disk.fsync_dir(directory)
    return tuple(marked)


class SnapshotContent(Struct, frozen=True):
    """The first batch of a snapshot file."""

    header: SnapshotHeaderRecord
    kraft_version: int = 0
    voters: VotersRecord | None = None


def read_snapshot(disk: Disk, path: str) -> Iterator[RecordBatch]:
    """The batches of a snapshot file, header and footer included.

    Raises `CorruptBatch` for damage, for a missing header and for a missing footer, and `UnsupportedVersion` for the
    formats before 2.
    """
    file = disk.open(path, writable=False)
    try:
        yield from batches_of_snapshot(file)
    finally:
        file.close()


def batches_of_snapshot(file: File) -> Iterator[RecordBatch]:
    """As `read_snapshot`, of a file that is open."""
    path = file.path
    last: RecordBatch | None = None
    for batch in scan_file(file):
        if last is None and ControlRecordType.SNAPSHOT_HEADER not in control_types(batch, path)[:1]:
            raise CorruptBatch("the snapshot does not begin with its header", where=path, position=0, hint=_HINT)
        last = batch
        yield batch
    if last is None:
        raise CorruptBatch("the snapshot is empty", where=path, position=0, hint=_HINT)
    if ControlRecordType.SNAPSHOT_FOOTER not in control_types(last, path)[-1:]:
        raise CorruptBatch("the snapshot ends without its footer", where=path, position=last.end_position, hint=_HINT)


def read_snapshot_values(disk: Disk, path: str) -> Iterator[bytes]:
    """The values of the data records of a snapshot file; errors as of `read_snapshot`."""
    file = disk.open(path, writable=False)
    try:
        yield from values_of_snapshot(file)
    finally:
        file.close()


def values_of_snapshot(file: File) -> Iterator[bytes]:
    """As `read_snapshot_values`, of a file that is open."""
    for batch in batches_of_snapshot(file):
        if not batch.is_control:
            for record in records(batch, where=file.path):
                yield record.value or b""


def control_types(batch: RecordBatch, where: str | None = None) -> list[int]:
    """The types of a control batch's records; empty for a batch of data."""
    if not batch.is_control:
        return []
    return [
        decode_control(record.key or b"", record.value or b"", where=where)[0] for record in records(batch, where=where)
    ]


def read_snapshot_start(disk: Disk, path: str) -> SnapshotContent:
    """Header, kraft.version and voter set of a snapshot; errors as of `read_snapshot`."""
    first = next(read_snapshot(disk, path))
    header, kraft_version, voters = SnapshotHeaderRecord(), 0, None
    for record in records(first, where=path):
        match decode_control(record.key or b"", record.value or b"", where=path)[1]:
            case SnapshotHeaderRecord() as found:
                header = found
            case KRaftVersionRecord(kraft_version=found_version):
                kraft_version = found_version
            case VotersRecord() as found_voters:
                voters = found_voters
    return SnapshotContent(header, kraft_version, voters)


def encode_snapshot(
    values: Sequence[bytes],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_log_timestamp: int = 0,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytes:
    """The content of a small snapshot file (`RecordsSnapshotWriter`): header, one batch of metadata records, footer."""
    first = [SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp)]
    control = [encode_control(record) for record in first]
    if kraft_version > 0:
        control.append(encode_control(KRaftVersionRecord(kraft_version=kraft_version)))
    if voters is not None:
        assert kraft_version > 0, "a voter set needs kraft.version 1"
        control.append(encode_control(voters))
    header = build_control_batch(0, epoch, timestamp_ms, [(kind, value) for kind, _, value in control])
    offset = len(control)
    data = build_batch(offset, epoch, timestamp_ms, values) if values else b""
    kind, _, footer = encode_control(SnapshotFooterRecord())
    return header + data + build_control_batch(offset + len(values), epoch, timestamp_ms, [(kind, footer)])
