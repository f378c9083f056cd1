"""Adds records from a live cluster to an archive: segments and their base snapshot, without a source directory.

As with a directory, written files count once the manifest names them. The caller guarantees that batches are committed,
consecutive, and continue the archive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from metadata_log.archive.archive import Added, Archive
from metadata_log.archive.checkpoints import facts_of_checkpoint
from metadata_log.archive.manifest import ArchiveError, GapFacts, SegmentFacts, write_manifest
from metadata_log.archive.writing import TMP, SegmentWriter, read_draft
from metadata_log.log.snapshot import snapshot_name
from metadata_log.records.batch import RecordBatch
from metadata_log.types import OffsetAndEpoch

SEGMENT_BYTES: Final = 1 << 26
"""The size of a segment file, after which a new one begins; opening an archive reads its last segment again."""


class Feed:
    """Adds to an archive of one cluster; raises `ArchiveError` for an archive of another cluster, or a changed one."""

    def __init__(self, archive: Archive, cluster_id: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        ours = archive.manifest.cluster_id
        if ours is not None and ours != cluster_id:
            raise ArchiveError(
                f"the archive is of cluster {ours}, the controllers of cluster {cluster_id}",
                where=archive.directory,
                hint="Each cluster needs an archive of its own.",
            )
        self._archive = archive
        self._cluster_id = cluster_id
        self._segment_bytes = segment_bytes
        segments = archive.manifest.segments
        self._draft = read_draft(archive.disk, archive.directory, segments[-1]) if segments else None
        self._whole: list[SegmentFacts] = []
        self._writer: SegmentWriter | None = None
        self._counts_from = 0
        self._batches = self._records = 0
        self._checkpoints: tuple[OffsetAndEpoch, ...] = ()
        self.end_offset = archive.manifest.end_offset or 0
        """The offset after the last written batch, published or not."""

    def position(self) -> OffsetAndEpoch | None:
        """The end of the archive, and the epoch of its last record; None for an empty archive."""
        manifest = self._archive.manifest
        end = manifest.end_offset
        if not end:
            return None
        epoch = manifest.epoch_at(end - 1)
        if epoch is None:
            epoch = next(each.epoch for each in manifest.checkpoints if each.end_offset == end)
        return OffsetAndEpoch(epoch=epoch, offset=end)

    def append(self, batches: Iterable[RecordBatch]) -> None:
        """Write batches, which count after `publish`."""
        for batch in batches:
            writer = self._writer
            if writer is None or writer.draft.size_bytes >= self._segment_bytes:
                writer = self._begin_segment(batch.base_offset)
            writer.append(batch)
            self._batches += 1
            self._records += batch.record_count
            self.end_offset = batch.next_offset
            if self._archive.on_progress is not None:
                self._archive.on_progress(self.end_offset)

    def begin_with(self, snapshot: OffsetAndEpoch, data: bytes, offset: int, missing_from: int | None) -> None:
        """Continue at `offset`, with a snapshot of the state before; `missing_from` is the first missing offset."""
        self.publish()
        self._end_segment()
        archive, name = self._archive, snapshot_name(snapshot)
        path = f"{archive.directory}/{name}{TMP}"
        if archive.disk.exists(path):
            archive.disk.remove(path)
        file = archive.disk.open(path, create=True)
        try:
            file.append(data)
            file.fsync()
        finally:
            file.close()
        checkpoint = facts_of_checkpoint(archive.disk, archive.directory, snapshot)
        gaps = archive.manifest.gaps
        if missing_from is not None:
            gaps = (*gaps, GapFacts(base_offset=missing_from, end_offset=offset))
        archive.manifest = replace(archive.manifest, checkpoints=(*archive.manifest.checkpoints, checkpoint), gaps=gaps)
        self._checkpoints = (*self._checkpoints, snapshot)
        self._draft, self.end_offset = None, offset
        self._counts_from = snapshot.offset
        if snapshot.offset == offset:
            self._begin_segment(offset)
            self.publish()

    def publish(self) -> bool:
        """Publish the written files; returns whether any new file counts now.

        An archive that begins before the end of its first snapshot waits until its log reaches that end.
        """
        is_new = self._writer is not None or bool(self._whole)
        if not is_new or self.end_offset < self._counts_from:
            return False
        self._end_segment()
        archive = self._archive
        kept = archive.manifest.segments
        if kept and kept[-1].base_offset == self._whole[0].base_offset:
            kept = kept[:-1]
        archive.manifest = replace(archive.manifest, cluster_id=self._cluster_id, segments=(*kept, *self._whole))
        write_manifest(archive.disk, archive.directory, archive.manifest)
        self._whole.clear()
        return True

    def added(self, source: str) -> Added:
        """The additions since the last call."""
        manifest = self._archive.manifest
        added = Added(
            source=source,
            batches=self._batches,
            records=self._records,
            start_offset=manifest.start_offset or 0,
            end_offset=manifest.end_offset or 0,
            checkpoints=self._checkpoints,
        )
        self._batches = self._records = 0
        self._checkpoints = ()
        return added

    def close(self) -> None:
        """Discard unpublished files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _begin_segment(self, offset: int) -> SegmentWriter:
        """Continue the last segment, or begin a new one if that segment is full."""
        self._end_segment()
        is_full = self._draft is not None and self._draft.size_bytes >= self._segment_bytes
        archive = self._archive
        self._writer = SegmentWriter(archive.disk, archive.directory, offset, None if is_full else self._draft)
        return self._writer

    def _end_segment(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._draft = self._writer.draft
            self._whole.append(self._draft.facts())
            self._writer = None
