"""Copies snapshots into an archive; each is checked up to its footer before it counts."""

from __future__ import annotations

from metadata_log.archive.manifest import CheckpointFacts, digest_of
from metadata_log.archive.source import Source
from metadata_log.archive.writing import TMP, copy_file
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.log.snapshot import read_snapshot, read_snapshot_start, read_snapshot_values, snapshot_name
from metadata_log.reading.damage import Damage, DamagedFile
from metadata_log.types import OffsetAndEpoch


def copy_checkpoint(disk: Disk, source: Source, directory: str, id: OffsetAndEpoch) -> CheckpointFacts:
    """Copy a snapshot into a directory; raises `DamagedFile` for an incomplete one, and `FileNotFoundError`."""
    name = snapshot_name(id)
    original = f"{source.directory}/{name}"
    copy = copy_file(source.disk, original, disk, directory, name)
    try:
        return facts_of_checkpoint(disk, directory, id)
    except MetadataLogError as bad:
        disk.remove(copy)
        raise _not_whole(original, bad) from bad


def facts_of_checkpoint(disk: Disk, directory: str, id: OffsetAndEpoch) -> CheckpointFacts:
    """Check a snapshot that was written under a temporary name, and rename it to its own name.

    Raises `MetadataLogError` for an incomplete snapshot.
    """
    name = snapshot_name(id)
    path = f"{directory}/{name}"
    for _ in read_snapshot(disk, path + TMP):
        pass  # reading to the end checks every batch
    timestamp_ms = read_snapshot_start(disk, path + TMP).header.last_contained_log_timestamp
    file = disk.open(path + TMP, writable=False)
    try:
        size, sha256 = file.size(), digest_of(file)
    finally:
        file.close()
    disk.rename(path + TMP, path)
    disk.fsync_dir(directory)
    return CheckpointFacts(
        file=name,
        end_offset=id.offset,
        epoch=id.epoch,
        size_bytes=size,
        sha256=sha256,
        last_contained_timestamp_ms=timestamp_ms,
    )


def differs_from(disk: Disk, source: Source, directory: str, known: CheckpointFacts) -> bool:
    """Whether a snapshot of the source holds other records than the archive's snapshot.

    Every controller writes its own snapshots: times and batch boundaries differ, the records do not.
    """
    path = f"{source.directory}/{known.file}"
    file = source.disk.open(path, writable=False)
    try:
        if file.size() == known.size_bytes and digest_of(file) == known.sha256:
            return False
    finally:
        file.close()
    try:
        return _values(source.disk, path) != _values(disk, f"{directory}/{known.file}")
    except MetadataLogError as bad:
        raise _not_whole(bad.where or path, bad) from bad


def _not_whole(path: str, bad: MetadataLogError) -> DamagedFile:
    return DamagedFile(Damage(where=path, what=bad.what, expected="a whole snapshot", position=bad.position))


def _values(disk: Disk, path: str) -> list[bytes]:
    return sorted(read_snapshot_values(disk, path))
