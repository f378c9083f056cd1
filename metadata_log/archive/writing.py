"""Writes the files of an archive, under temporary names until they are complete and on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from msgspec import Struct

from metadata_log.archive.manifest import PIECE_BYTES, ArchiveError, Draft, SegmentFacts
from metadata_log.archive.source import Located
from metadata_log.disk import Disk
from metadata_log.log.segment import file_name, scan_file
from metadata_log.records.batch import RecordBatch

TMP = ".tmp"


class SegmentWriter:
    """A new segment, or an appended last segment. The written batches count once the manifest names them."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, grown: Draft | None = None) -> None:
        self.draft = Draft(file_name(base_offset), base_offset) if grown is None else grown
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{self.draft.file}"
        self._is_new = grown is None
        if self._is_new and disk.exists(self._path + TMP):
            disk.remove(self._path + TMP)
        self._file = disk.open(self._path + (TMP if self._is_new else ""), create=self._is_new)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def append(self, batch: RecordBatch) -> None:
        """Write a batch at the end."""
        self.draft.note(batch)
        self._waiting.append(batch.data)
        self._waiting_bytes += batch.size_bytes
        if self._waiting_bytes >= PIECE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.append(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    def finish(self) -> None:
        """Flush the file and rename it to its final name."""
        self._write()
        self._file.fsync()
        self.close()
        if self._is_new:
            self._disk.rename(self._path + TMP, self._path)
            self._disk.fsync_dir(self._directory)

    def close(self) -> None:
        """Discard the written batches."""
        self._file.close()


class Written(Struct, frozen=True):
    """Written batches that do not count yet."""

    drafts: tuple[Draft, ...]
    digests: dict[int, str]
    """A digest of the batches from each segment of the source: a second reading must give the same."""
    last: Located | None
    batches: int
    records: int


def write_batches(
    disk: Disk,
    directory: str,
    batches: Iterable[Located],
    *,
    grown: Draft | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Written:
    """Write batches to segments: a new one where the source has one, else at the end of `grown`."""
    drafts: list[Draft] = []
    digests: dict[int, hashlib._Hash] = {}
    writer: SegmentWriter | None = None
    last: Located | None = None
    count = record_count = 0
    try:
        for base, batch in batches:
            if writer is None and grown is not None and batch.base_offset != base:
                writer = SegmentWriter(disk, directory, grown.base_offset, grown)
            elif writer is None or batch.base_offset == base:
                if writer is not None:
                    writer.finish()
                    drafts.append(writer.draft)
                writer = SegmentWriter(disk, directory, batch.base_offset)
            writer.append(batch)
            digests.setdefault(base, hashlib.sha256()).update(batch.data)
            last = base, batch
            count += 1
            record_count += batch.record_count
            if on_progress is not None:
                on_progress(batch.next_offset)
        if writer is not None:
            writer.finish()
            drafts.append(writer.draft)
    finally:
        if writer is not None:
            writer.close()
    return Written(tuple(drafts), {base: each.hexdigest() for base, each in digests.items()}, last, count, record_count)


def read_draft(disk: Disk, directory: str, facts: SegmentFacts, *, until: int | None = None) -> Draft:
    """A segment of the archive, for appending; with `until` only its part before that offset.

    Raises `ArchiveError` if the file contradicts the manifest.
    """
    path = f"{directory}/{facts.file}"
    draft, whole = Draft(facts.file, facts.base_offset), Draft(facts.file, facts.base_offset)
    file = disk.open(path, writable=False)
    try:
        for batch in scan_file(file, end=facts.size_bytes):
            whole.note(batch)
            if until is None or batch.next_offset <= until:
                draft.note(batch)
    finally:
        file.close()
    if whole.facts() != facts:
        raise ArchiveError("the file is not what the manifest says", where=path, hint="Restore it from a backup.")
    return draft


def copy_file(source: Disk, original_path: str, disk: Disk, directory: str, name: str) -> str:
    """Copy a file to `name` + `.tmp` and flush the copy; returns its path."""
    path = f"{directory}/{name}{TMP}"
    if disk.exists(path):
        disk.remove(path)
    original = source.open(original_path, writable=False)
    try:
        copy = disk.open(path, create=True)
        try:
            position = 0
            while piece := original.pread(PIECE_BYTES, position):
                copy.append(piece)
                position += len(piece)
            copy.fsync()
        finally:
            copy.close()
    finally:
        original.close()
    return path
