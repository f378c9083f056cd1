"""Mutants of a replica's files: missing or overestimated fsyncs, unsafe replacement of files, and wrong recovery."""

from __future__ import annotations

from typing import Any

from kraft.replica.storage import storage
from metadata_log.disk import Disk
from metadata_log.log import recovery
from metadata_log.log.log import FlushHandle, MetadataLog
from metadata_log.log.quorum_state_file import FILE_NAME, StoredElection, format_quorum_state
from metadata_log.log.segment import Segment, file_name, scan_file
from metadata_log.records.batch import scan
from planted_bugs.registry import Patches, Scope, mutant

# The quorum-state file


def _write_quorum_state(disk: Disk, path: str, state: StoredElection, *, with_fsync: bool) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append(format_quorum_state(state))
        if with_fsync:
            file.fsync()
    finally:
        file.close()


@mutant(Scope.REPLICA, budget=50)
def quorum_state_without_fsync(code: Patches) -> None:
    """The new quorum-state file gets its name before its content is on disk."""

    def write(disk: Disk, directory: str, state: StoredElection) -> None:
        _write_quorum_state(disk, f"{directory}/{FILE_NAME}.tmp", state, with_fsync=False)
        disk.rename(f"{directory}/{FILE_NAME}.tmp", f"{directory}/{FILE_NAME}")
        disk.fsync_dir(directory)

    code.replace(storage, "write_quorum_state", write)


@mutant(Scope.REPLICA, budget=50)
def directory_not_fsynced(code: Patches) -> None:
    """The node renames the new quorum-state file without an fsync of the directory: a crash restores the old file."""

    def write(disk: Disk, directory: str, state: StoredElection) -> None:
        _write_quorum_state(disk, f"{directory}/{FILE_NAME}.tmp", state, with_fsync=True)
        disk.rename(f"{directory}/{FILE_NAME}.tmp", f"{directory}/{FILE_NAME}")

    code.replace(storage, "write_quorum_state", write)


@mutant(Scope.REPLICA, budget=50)
def quorum_state_written_in_place(code: Patches) -> None:
    """The node overwrites quorum-state in place, so that a crash leaves neither the old nor the new content."""

    def write(disk: Disk, directory: str, state: StoredElection) -> None:
        _write_quorum_state(disk, f"{directory}/{FILE_NAME}", state, with_fsync=True)
        disk.fsync_dir(directory)

    code.replace(storage, "write_quorum_state", write)


# Flushes


@mutant(Scope.REPLICA, budget=20)
def flush_nothing(code: Patches) -> None:
    """No fsync ever flushes a record (PySyncObj's journal)."""
    code.replace(FlushHandle, "run", lambda handle: None)


@mutant(Scope.REPLICA, budget=200)
def segment_without_directory_flush(code: Patches) -> None:
    """A new segment's directory entry is not fsynced: a crash loses the segment with all its flushed records."""

    def create(disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int) -> Segment:
        file = disk.open(f"{directory}/{file_name(base_offset)}", create=True)
        return Segment(disk, directory, base_offset, file, index_interval_bytes)

    code.replace(Segment, "create", staticmethod(create))


# Recovery


@mutant(Scope.REPLICA, budget=50)
def recovery_drops_the_last_batch(code: Patches) -> None:
    """Recovery drops the last batch of the log, torn or not."""
    init = MetadataLog.__init__

    def init_without_last(of: MetadataLog, *arguments: Any, **named: Any) -> None:
        init(of, *arguments, **named)
        last = of._segments[-1]
        if last.size_bytes:
            batches = list(scan(last.file.pread(last.size_bytes, 0), verify=False))
            of.truncate(batches[-1].base_offset)

    code.replace(MetadataLog, "__init__", init_without_last)


@mutant(Scope.REPLICA, budget=400)
def recovery_trusts_every_batch(code: Patches) -> None:
    """Recovery keeps batches without a check of their checksums."""
    code.replace(
        recovery, "scan_file", lambda file, *rest, **named: scan_file(file, *rest, **{**named, "verify": False})
    )
