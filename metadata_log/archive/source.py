"""A source directory of an archive, read without a lock while its node appends, truncates, rolls and deletes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from metadata_log.archive.manifest import ArchiveError, read_manifest
from metadata_log.disk import Disk, File
from metadata_log.errors import CorruptBatch, DecodeError, IncompleteBatch, MetadataLogError, UnsupportedVersion
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import EpochHistory, parse_epochs
from metadata_log.log.log_dir import META_PROPERTIES, read_meta_properties
from metadata_log.log.segment import file_name, parse_file_name, scan_file
from metadata_log.log.snapshot import list_snapshots
from metadata_log.reading.damage import Damage
from metadata_log.reading.missing import check_topic, missing_end
from metadata_log.reading.reader import gap_before, is_absurd
from metadata_log.records.batch import RecordBatch
from metadata_log.types import PARTITION_DIRECTORY, OffsetAndEpoch

Located = tuple[int, RecordBatch]
"""A batch with the base offset of its segment; the batch's position is a position in that segment."""


class Source:
    """A partition directory and the known facts about it. Nothing is written or locked there."""

    def __init__(self, disk: Disk, directory: str, cluster_id: str | None, meta: bytes | None) -> None:
        self.disk = disk
        self.directory = directory
        self.cluster_id = cluster_id
        self.meta = meta
        """The text of meta.properties."""
        self.ended: Damage | None = None
        """The damage that ended the last reading before the end of the last file; an unfinished batch is usual."""
        self.mark: Located | None = None
        """A batch of an earlier reading: a later reading that begins with it needs no search."""
        self.known_checkpoints: set[OffsetAndEpoch] = set()
        """The snapshots that were checked already."""

    def segments(self) -> list[int]:
        """The base offsets of the present segments."""
        return [base for name in self.disk.list(self.directory) if (base := parse_file_name(name)) is not None]

    def start_offset(self) -> int:
        """The first offset of the oldest segment."""
        bases = self.segments()
        if not bases:
            raise ArchiveError("the directory has no segment any more", where=self.directory)
        return bases[0]

    def checkpoints(self) -> tuple[OffsetAndEpoch, ...]:
        """The ids of the present snapshots, oldest first."""
        return tuple(sorted(list_snapshots(self.disk, self.directory), key=lambda id: (id.offset, id.epoch)))

    def batches(self, from_offset: int = 0) -> Iterator[Located]:
        """The batches from the one that holds `from_offset` on, or from the first one of the log.

        The iteration ends at the first damage, which `ended` then names. The files are those of this moment: later
        appends and segments belong to the next reading.
        """
        self.ended = None
        epochs = self._epochs()
        checkpoints = self.checkpoints()
        files = self._open_all(from_offset)
        end: int | None = None
        epoch = 0
        try:
            for base, file in files:
                self.ended = gap_before(file.path, base, end)
                if self.ended is not None:
                    return
                try:
                    for batch in self._segment(file, base, from_offset, None if end is None else epoch):
                        self.ended = self._wrong_epoch(batch, epochs, file.path)
                        if self.ended is not None:
                            return
                        end, epoch = batch.next_offset, batch.epoch
                        if end > from_offset:
                            yield base, batch
                except (CorruptBatch, UnsupportedVersion) as bad:
                    unfinished = (
                        base == files[-1][0]
                        and isinstance(bad, IncompleteBatch)
                        and not is_absurd(file, bad.position or 0)
                    )
                    self.ended = self._lost_end(files, checkpoints, end or 0) if unfinished else None
                    self.ended = self.ended or Damage(
                        where=file.path,
                        what=bad.what,
                        expected="a batch of format 2",
                        position=bad.position,
                        offset=end,
                        unfinished=unfinished,
                    )
                    return
                end = base if end is None else end
            self.ended = self._lost_end(files, checkpoints, end or 0)
        finally:
            for _, file in files:
                file.close()

    def _lost_end(
        self, files: list[tuple[int, File]], checkpoints: Sequence[OffsetAndEpoch], end: int
    ) -> Damage | None:
        """The evidence that the log was longer; `checkpoints` are those from before the files were opened."""
        bases = [base for base, _ in files]
        return next(missing_end(self.disk, self.directory, bases, checkpoints, end), None)

    def _open_all(self, from_offset: int) -> list[tuple[int, File]]:
        """The segments from that of `from_offset` on, all open, so that a deletion does not affect them."""
        while True:
            bases = self.segments()
            wanted = [base for base, after in pairwise((*bases, sys.maxsize)) if after > from_offset]
            files: list[tuple[int, File]] = []
            try:
                files.extend((base, self._open(base)) for base in wanted)
                return files
            except FileNotFoundError:
                for _, file in files:
                    file.close()
                if bases == self.segments():
                    raise

    def _open(self, base: int) -> File:
        return self.disk.open(f"{self.directory}/{file_name(base)}", writable=False)

    def _segment(self, file: File, base: int, from_offset: int, before: int | None) -> Iterator[RecordBatch]:
        """The batches of one segment; raises `CorruptBatch` also for a wrong order of offsets or epochs.

        `before` is the epoch of the segment before; None for the first segment.
        """
        position, expected, epoch = 0, base, before or 0
        if before is None and self.mark is not None:
            marked_base, marked = self.mark
            if (marked_base, marked.base_offset) == (base, from_offset) and _holds(file, marked):
                position, expected = marked.position, marked.base_offset
        for batch in scan_file(file, position):
            if batch.base_offset != expected or batch.last_offset_delta < 0 or batch.epoch < epoch:
                raise CorruptBatch(
                    f"a batch of epoch {batch.epoch} begins at offset {batch.base_offset} where offset {expected} "
                    f"of epoch {epoch} or later comes next",
                    where=file.path,
                    position=batch.position,
                )
            expected, epoch = batch.next_offset, batch.epoch
            yield batch

    def _epochs(self) -> EpochHistory:
        path = f"{self.directory}/{EPOCHS_FILE}"
        try:
            return parse_epochs(self.disk.read(path), where=path)
        except (FileNotFoundError, DecodeError):
            return EpochHistory()

    def _wrong_epoch(self, batch: RecordBatch, known: EpochHistory, path: str) -> Damage | None:
        """Whether the epoch in a batch, which no checksum covers, contradicts the directory's epoch checkpoint.

        The last entry of the checkpoint may be outdated: a node writes it late.
        """
        if not _contradicts(batch, known) or not _contradicts(batch, self._epochs()):
            return None
        return Damage(
            where=path,
            what=f"a batch says epoch {batch.epoch}, and {EPOCHS_FILE} says {known.epoch_at(batch.base_offset)}",
            expected="one epoch",
            position=batch.position,
            offset=batch.base_offset,
        )


def _contradicts(batch: RecordBatch, known: EpochHistory) -> bool:
    if not known.entries or batch.base_offset >= known.entries[-1].offset:
        return False
    return known.epoch_at(batch.base_offset) not in {None, batch.epoch}


def _holds(file: File, marked: RecordBatch) -> bool:
    return file.pread(marked.size_bytes, marked.position) == marked.data


def open_source(disk: Disk, path: str) -> Source:
    """The log of a log directory, of a partition directory or of another archive.

    Raises `FileNotFoundError` for a missing path, `ArchiveError` for any other directory.
    """
    base = path.rstrip("/") or "/"
    try:
        names = disk.list(base)
    except NotADirectoryError as bad:
        raise ArchiveError(
            "this is a file", where=path, hint="Name the directory: segments and checkpoints are kept together."
        ) from bad
    inner = f"{base}/{PARTITION_DIRECTORY}" if PARTITION_DIRECTORY in names else base
    check_topic(disk, inner)
    if not any(parse_file_name(name) is not None for name in disk.list(inner)):
        raise ArchiveError(
            "there is no metadata log here",
            where=path,
            hint=f"Name a log directory, its {PARTITION_DIRECTORY}, or an archive.",
        )
    around = base if inner != base or META_PROPERTIES in names else base.rpartition("/")[0] or "/"
    cluster_id, meta = _identity(disk, around)
    if cluster_id is None and (manifest := read_manifest(disk, inner)) is not None:
        cluster_id = manifest.cluster_id
    return Source(disk, inner, cluster_id, meta)


def _identity(disk: Disk, directory: str) -> tuple[str | None, bytes | None]:
    """The cluster id and the text of meta.properties; damage of that file is an error."""
    try:
        meta = read_meta_properties(disk, directory)
    except MetadataLogError as bad:
        raise ArchiveError(bad.what, where=bad.where, hint="Without it the cluster of this log is unknown.") from bad
    return (None, None) if meta is None else (meta.cluster_id, disk.read(f"{directory}/{META_PROPERTIES}"))
