"""The end of a log: the offset and the time of its last record, from batch headers alone."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.disk import Disk, File
from metadata_log.errors import CorruptBatch, MetadataLogError, UnsupportedVersion
from metadata_log.log.segment import file_name, parse_file_name, scan_headers
from metadata_log.log.snapshot import list_snapshots, parse_snapshot_name, read_snapshot_start, snapshot_name
from metadata_log.reading.file_kinds import FileKind, kind_of
from metadata_log.reading.missing import last_entry, segments_in
from metadata_log.reading.reader import read_file
from metadata_log.reading.timeline import At, moment_text
from metadata_log.records.batch import RecordBatch
from metadata_log.types import PARTITION_DIRECTORY


class LogEnd(Struct, frozen=True):
    """The last record: its offset, and the latest timestamp near the end in ms; -1 for none."""

    offset: int = -1
    timestamp_ms: int = -1

    def reaches(self, at: At) -> bool:
        """Whether a point in time or offset is not beyond the last record."""
        is_late = at.offset is not None and at.offset > self.offset
        return not (is_late or (at.timestamp_ms is not None and at.timestamp_ms > self.timestamp_ms))

    def __str__(self) -> str:
        return (
            f"offset {self.offset}, {moment_text(At(timestamp_ms=self.timestamp_ms))}"
            if self.offset >= 0
            else "nothing"
        )


def find_log_end(disk: Disk, path: str) -> LogEnd:
    """The end of a log directory, a partition directory, a segment or a snapshot, as far as it is readable.

    A snapshot that ends beyond the log counts too. Raises `OSError`.
    """
    try:
        names = disk.list(path)
    except NotADirectoryError:
        return _of_file(disk, path)
    base = path.rstrip("/") or "/"
    directory = f"{base}/{PARTITION_DIRECTORY}" if PARTITION_DIRECTORY in names else base
    end = LogEnd()
    for segment in reversed(segments_in(disk, directory)):
        end = _of_segment(disk, f"{directory}/{file_name(segment)}", directory)
        if end.offset >= 0:
            break
    snapshots = list_snapshots(disk, directory)
    if snapshots and snapshots[-1].offset - 1 > end.offset:
        return _of_file(disk, f"{directory}/{snapshot_name(snapshots[-1])}")
    return end


def _of_file(disk: Disk, path: str) -> LogEnd:
    kind = kind_of(disk, path)
    if kind is FileKind.SEGMENT:
        return _of_segment(disk, path, path.rpartition("/")[0] or ".")
    snapshot = parse_snapshot_name(path.rpartition("/")[2].removesuffix(".deleted"))
    if kind is not FileKind.SNAPSHOT or snapshot is None:
        return LogEnd()
    try:
        header = read_snapshot_start(disk, path).header
    except MetadataLogError:
        return LogEnd(snapshot.offset - 1)
    return LogEnd(snapshot.offset - 1, header.last_contained_log_timestamp)


def _of_segment(disk: Disk, path: str, directory: str) -> LogEnd:
    file = disk.open(path, writable=False)
    try:
        base = parse_file_name(path.rpartition("/")[2])
        start = 0 if base is None else last_entry(disk, directory, base, file.size())[0]
        for position in dict.fromkeys((start, 0)):
            try:
                return _by_headers(file, position)
            except (CorruptBatch, UnsupportedVersion):
                pass
    finally:
        file.close()
    log_end = LogEnd()
    for item in read_file(disk, path):
        if isinstance(item, RecordBatch):
            log_end = LogEnd(item.last_offset, max(log_end.timestamp_ms, item.max_timestamp))
    return log_end


def _by_headers(file: File, position: int) -> LogEnd:
    log_end = LogEnd()
    for header in scan_headers(file, position):
        log_end = LogEnd(header.last_offset, max(log_end.timestamp_ms, header.max_timestamp))
    return log_end
