"""Writes the files of a recovery beside the originals, each one durable before the next begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from kraft.operate.recover.description import RECOVERY_FILE
from kraft.operate.recover.recovery import CopiedFile, FileToWrite, NewFile, NewSnapshot, Recovery, recovery_json
from metadata_log.disk import Disk, make_directory
from metadata_log.errors import DirectoryError
from metadata_log.image.records import records
from metadata_log.log.snapshot import snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records.frame import encode_record

_CHUNK_BYTES: Final = 1 << 20


def check_new(disk: Disk, target: str) -> None:
    """Raise `DirectoryError` unless the directory is new, or has no files."""
    if disk.exists(target):
        existing = next(files_below(disk, target), None)
        if existing is not None:
            raise DirectoryError(
                f"the directory holds files already: {existing}",
                where=target,
                hint="Give --into a new directory. The originals and finished recoveries are never changed.",
            )


def files_below(disk: Disk, path: str) -> Iterator[str]:
    """The files in a directory and below."""
    for name in disk.list(path):
        child = f"{path}/{name}"
        try:
            disk.list(child)
        except NotADirectoryError:
            yield child
        else:
            yield from files_below(disk, child)


def write_recovery(disk: Disk, target: str, recovery: Recovery) -> None:
    """Write the new directories, one for each voter, into an empty one. After a crash, a directory without
    meta.properties is unfinished, and no node starts. If the disk fails, the written files are removed again, as far as
    it permits.
    """
    check_new(disk, target)
    written: list[str] = []
    try:
        make_directory(disk, target)
        for node in recovery.nodes:
            for file in node.files:
                _write(disk, f"{target}/{node.directory}", file, written)
        text = json.dumps(recovery_json(recovery), indent=1, ensure_ascii=False)
        _write(disk, target, NewFile(path=RECOVERY_FILE, content=text.encode()), written)
    except BaseException:
        for path in written:
            with suppress(OSError):
                disk.remove(path)
        raise


def _write(disk: Disk, directory: str, file: FileToWrite, written: list[str]) -> None:
    match file:
        case NewSnapshot():
            _write_snapshot(disk, directory, file, written)
            return
        case NewFile(path=path) | CopiedFile(path=path):
            pass
    target = f"{directory}/{path}"
    parent = target.rpartition("/")[0]
    make_directory(disk, parent)
    written.append(target)
    new = disk.open(target, create=True)
    try:
        if isinstance(file, CopiedFile):
            _copy(disk, file, new.append)
            if file.appended:
                new.append(file.appended)
        else:
            new.append(file.content)
        new.fsync()
    finally:
        new.close()
    if isinstance(file, CopiedFile) and file.read_only:
        disk.make_read_only(target)
    disk.fsync_dir(parent)


def _copy(disk: Disk, file: CopiedFile, append: Callable[[bytes], None]) -> None:
    source = disk.open(file.source, writable=False)
    try:
        size = source.size() if file.size is None else file.size
        position = 0
        while position < size:
            piece = source.pread(min(_CHUNK_BYTES, size - position), position)
            if not piece:
                raise DirectoryError(
                    f"the file ends at byte {position}, and the plan has seen {size} bytes",
                    where=file.source,
                    hint="A node uses the directory. Stop the node, and make the plan again.",
                )
            append(piece)
            position += len(piece)
    finally:
        source.close()


def _write_snapshot(disk: Disk, directory: str, file: NewSnapshot, written: list[str]) -> None:
    path = f"{directory}/{file.directory}"
    make_directory(disk, path)
    writer = SnapshotWriter(
        disk,
        path,
        file.snapshot,
        timestamp_ms=file.timestamp_ms,
        last_contained_log_timestamp=file.timestamp_ms,
        kraft_version=file.kraft_version,
        voters=file.voters,
    )
    try:
        for record, version in records(file.image):
            writer.append([encode_record(record, version)], file.timestamp_ms)
        writer.freeze(file.timestamp_ms)
    except BaseException:
        with suppress(OSError):
            writer.abandon()
        raise
    written.append(f"{path}/{snapshot_name(file.snapshot)}")
