"""Retention of the metadata log (KIP-630; `KafkaRaftLog.maybeClean`, `KafkaRaftLog.deleteBeforeSnapshot`).

The newest snapshot is never deleted. While log and snapshots are too large, or the oldest snapshot is too old, the log
start moves to the end of the next snapshot; earlier records and the older snapshot are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.log.log import MetadataLog
from metadata_log.log.snapshot import (
    list_snapshots,
    mark_snapshots_deleted,
    read_snapshot_start,
    snapshot_bytes,
    snapshot_name,
)
from metadata_log.types import OffsetAndEpoch

REMOVE_AFTER_MS: Final = 60_000
"""The delay between renaming and removing a file, for readers that have the file open."""


class Retention(Struct, frozen=True, kw_only=True):
    """The retention limits; a negative number is no limit."""

    max_bytes: int = 100 << 20
    """`metadata.max.retention.bytes`: the total size of log and snapshots."""
    max_ms: int = 7 * 24 * 3600 * 1000
    """`metadata.max.retention.ms`: the age of the last record in the oldest snapshot."""


class Cleaned(Struct, frozen=True):
    """The snapshots and files that one round deleted."""

    snapshots: tuple[OffsetAndEpoch, ...] = ()
    files: tuple[str, ...] = ()
    """The renamed files, for `remove_files` after `REMOVE_AFTER_MS`; the next start removes any remaining ones."""


def clean(log: MetadataLog, disk: Disk, retention: Retention, now_ms: int) -> Cleaned:
    """Run one round over a log and its snapshots, by size and then by age.

    A snapshot beyond the flushed offset is kept for a later round: a follower knows of commits before its own fsync.
    Raises `CorruptBatch` for a damaged snapshot.
    """
    gone: list[OffsetAndEpoch] = []
    files: list[str] = []
    for too_much in (_too_large, _too_old):
        for oldest, successor in pairwise(list_snapshots(disk, log.directory)):
            if not too_much(log, disk, retention, oldest, now_ms):
                break
            if not log.start_offset < successor.offset <= log.flushed_offset:
                break
            files += log.raise_start(successor.offset)
            forgotten = [one for one in list_snapshots(disk, log.directory) if one < successor]
            files += mark_snapshots_deleted(disk, log.directory, forgotten)
            gone += forgotten
    return Cleaned(tuple(gone), tuple(files))


def _too_large(log: MetadataLog, disk: Disk, retention: Retention, oldest: OffsetAndEpoch, now_ms: int) -> bool:
    snapshots = list_snapshots(disk, log.directory)
    total = log.size_bytes + sum(snapshot_bytes(disk, log.directory, one) for one in snapshots)
    return total > retention.max_bytes >= 0


def _too_old(log: MetadataLog, disk: Disk, retention: Retention, oldest: OffsetAndEpoch, now_ms: int) -> bool:
    if retention.max_ms < 0:
        return False
    start = read_snapshot_start(disk, f"{log.directory}/{snapshot_name(oldest)}")
    return now_ms - start.header.last_contained_log_timestamp > retention.max_ms


def remove_files(disk: Disk, directory: str, files: Iterable[str]) -> None:
    """Remove files that were renamed earlier; a missing file is no error."""
    for path in files:
        if disk.exists(path):
            disk.remove(path)
    disk.fsync_dir(directory)
