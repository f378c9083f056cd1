"""The content of an archive with digests: `manifest.json`, the file that is replaced to commit a change."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec import Struct

from metadata_log.disk import Disk, File, replace_file
from metadata_log.errors import MetadataLogError
from metadata_log.log.log_dir import ARCHIVE_MANIFEST
from metadata_log.records.batch import RecordBatch
from metadata_log.types import OffsetAndEpoch

FILE_NAME: Final = ARCHIVE_MANIFEST
SUPERSEDED: Final = "superseded"
"""The folder of records that a later leader has overwritten; readers of the history ignore the folder."""
FORMAT: Final = 1
PIECE_BYTES: Final = 1 << 20


class ArchiveError(MetadataLogError):
    """An archive refuses an addition, or contradicts its manifest."""


class SegmentFacts(Struct, frozen=True, kw_only=True):
    """One segment file: offsets from `base_offset` up to, not including, `end_offset`."""

    file: str
    base_offset: int
    end_offset: int
    size_bytes: int
    sha256: str
    batches: int
    records: int
    epochs: tuple[tuple[int, int], ...]
    """Each epoch in the file with its first offset there: no checksum of Kafka covers the epoch of a batch."""
    first_timestamp_ms: int
    last_timestamp_ms: int


class CheckpointFacts(Struct, frozen=True, kw_only=True):
    """One snapshot file: the state after the record at `end_offset` - 1."""

    file: str
    end_offset: int
    epoch: int
    size_bytes: int
    sha256: str
    last_contained_timestamp_ms: int

    @property
    def id(self) -> OffsetAndEpoch:
        """The snapshot's id, which is also its name."""
        return OffsetAndEpoch(epoch=self.epoch, offset=self.end_offset)


class SupersededFacts(Struct, frozen=True, kw_only=True):
    """The end of a log that was archived before its commit and then overwritten by a later leader."""

    file: str
    base_offset: int
    end_offset: int
    epoch: int
    by_epoch: int
    """The epoch of the batch that is at `base_offset` now."""
    size_bytes: int
    sha256: str
    noticed_ms: int


class GapFacts(Struct, frozen=True, kw_only=True):
    """Records that the leader no longer had: the archive continues after them, with a snapshot of their effect."""

    base_offset: int
    end_offset: int


class Manifest(Struct, frozen=True, kw_only=True):
    """Everything in an archive, segments and checkpoints in order. Files outside of the manifest do not count."""

    format: int = FORMAT
    cluster_id: str | None = None
    segments: tuple[SegmentFacts, ...] = ()
    checkpoints: tuple[CheckpointFacts, ...] = ()
    superseded: tuple[SupersededFacts, ...] = ()
    gaps: tuple[GapFacts, ...] = ()

    def files(self) -> tuple[SegmentFacts | CheckpointFacts | SupersededFacts, ...]:
        """Every file that the manifest names."""
        return (*self.segments, *self.checkpoints, *self.superseded)

    @property
    def start_offset(self) -> int | None:
        """The first offset; None for an empty archive."""
        return self.segments[0].base_offset if self.segments else None

    @property
    def end_offset(self) -> int | None:
        """The offset after the last one."""
        return self.segments[-1].end_offset if self.segments else None

    @property
    def last_epoch(self) -> int | None:
        """The epoch of the last batch."""
        return next((each.epochs[-1][0] for each in reversed(self.segments) if each.epochs), None)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at an offset; None if the record is not archived."""
        for segment in self.segments:
            if segment.base_offset <= offset < segment.end_offset:
                return max((epoch for epoch, start in segment.epochs if start <= offset), default=None)
        return None


class Draft:
    """The facts of a segment while it is written: offsets, epochs, times and the digest so far."""

    def __init__(self, file: str, base_offset: int) -> None:
        self.file = file
        self.base_offset = self.end_offset = base_offset
        self.size_bytes = self.batches = self.records = 0
        self._digest = hashlib.sha256()
        self._epochs: list[tuple[int, int]] = []
        self._first_ms = self._last_ms = -1

    def note(self, batch: RecordBatch) -> None:
        """Add the next batch of the file."""
        if not self._epochs or self._epochs[-1][0] != batch.epoch:
            self._epochs.append((batch.epoch, batch.base_offset))
        if not self.batches:
            self._first_ms = batch.base_timestamp
        self._last_ms = max(self._last_ms, batch.max_timestamp)
        self._digest.update(batch.data)
        self.end_offset = batch.next_offset
        self.size_bytes += batch.size_bytes
        self.batches += 1
        self.records += batch.record_count

    def facts(self) -> SegmentFacts:
        """The manifest's entry for the present file."""
        return SegmentFacts(
            file=self.file,
            base_offset=self.base_offset,
            end_offset=self.end_offset,
            size_bytes=self.size_bytes,
            sha256=self._digest.hexdigest(),
            batches=self.batches,
            records=self.records,
            epochs=tuple(self._epochs),
            first_timestamp_ms=self._first_ms,
            last_timestamp_ms=self._last_ms,
        )


def read_manifest(disk: Disk, directory: str) -> Manifest | None:
    """The manifest of an archive; None without one. Raises `ArchiveError` for a damaged manifest."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        manifest = msgspec.json.decode(disk.read(path), type=Manifest)
    except msgspec.MsgspecError as bad:
        raise ArchiveError(
            f"the manifest cannot be read: {bad}", where=path, hint="Restore it from a backup: it proves the rest."
        ) from bad
    if manifest.format != FORMAT:
        raise ArchiveError(
            f"unknown manifest format {manifest.format}", where=path, hint="A newer release wrote this archive."
        )
    return manifest


def write_manifest(disk: Disk, directory: str, manifest: Manifest) -> None:
    """Replace the manifest; the change is on disk when this returns."""
    replace_file(disk, directory, FILE_NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")


def digest_of(file: File, size: int | None = None) -> str:
    """The SHA-256 of the first `size` bytes of a file, or of all of it, in hex."""
    digest, position, end = hashlib.sha256(), 0, file.size() if size is None else size
    while piece := file.pread(min(PIECE_BYTES, end - position), position):
        digest.update(piece)
        position += len(piece)
    return digest.hexdigest()
