"""Recovers the segments of a log at every start (Kafka: `LogLoader`, `LogSegment.recover`).

The recovery checks every batch of every segment, rebuilds indexes and epochs, and truncates a torn write after the
last valid batch. A full segment is on disk before the next one begins, so only the last segment can have a torn write.
Any other damage is an error (`torn_write`), and then the recovery changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk, make_directory
from metadata_log.errors import REMEDY, CorruptBatch, UnsupportedVersion
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import EpochHistory, format_epochs, write_epochs
from metadata_log.log.segment import INDEX_SUFFIXES, SUFFIX, Segment, parse_file_name, scan_file
from metadata_log.log.snapshot import list_snapshots
from metadata_log.log.torn_write import refuse_damage
from metadata_log.records.batch import RecordBatch
from metadata_log.types import OffsetAndEpoch

_BYTES_PER_STEP: Final = 1 << 20
"""The bytes of the log that the recovery checks in one step."""
_BYTES_PER_BATCH: Final = 4096
"""The bytes that take about as long to check as the header of a batch."""


class RecoveredLog(Struct, frozen=True, eq=False):
    """The segments of a recovered log, all of them on disk.

    Args:
        segments: The open segments in order; at least one.
        epochs: The epochs of their batches.
        control_batches: The control batches, oldest first.
        findings: The truncations and removals, as texts.
    """

    segments: tuple[Segment, ...]
    epochs: EpochHistory
    control_batches: tuple[RecordBatch, ...]
    findings: tuple[str, ...]


def recovering(disk: Disk, directory: str, *, index_interval_bytes: int) -> Generator[None, None, RecoveredLog]:
    """Open and check all segments of a partition directory, in steps of some milliseconds.

    A generator that is closed before its end closes the files.

    Args:
        disk: The disk.
        directory: The partition directory; made if missing.
        index_interval_bytes: The bytes between two entries of an index.

    Returns:
        The recovered log; an empty log has one empty segment.

    Raises:
        CorruptBatch: Damage that no torn write explains, or valid batches in a wrong order. Nothing was changed.
        UnsupportedVersion: A batch of a newer format. Nothing was changed.
        OSError: The disk failed.
    """
    segments: list[Segment] = []
    try:
        return (yield from _recover(disk, directory, segments, index_interval_bytes))
    except BaseException:
        for segment in segments:
            segment.file.close()
        raise


def _recover(
    disk: Disk, directory: str, segments: list[Segment], index_interval_bytes: int
) -> Generator[None, None, RecoveredLog]:
    """`recovering`, with the segments that are open so far."""
    make_directory(disk, directory)
    names = disk.list(directory)
    bases = [base for name in names if (base := parse_file_name(name, SUFFIX)) is not None]
    epochs, damage = EpochHistory(), None
    control: list[RecordBatch] = []
    for base in bases:
        segment = Segment.open(disk, directory, base, index_interval_bytes=index_interval_bytes)
        before = segments[-1] if segments else None
        segments.append(segment)
        # The page cache may still hold data that an earlier write failed to bring to disk.
        segment.file.fsync()
        segment.file.drop_cache()
        epochs, damage = yield from _read_segment(segment, before, epochs, control)
        if damage is not None:
            break
    findings = []
    if damage is not None:
        last = segments[-1]
        end = OffsetAndEpoch(epoch=epochs.last_epoch or 0, offset=last.end_offset)
        refuse_damage(last.file, damage, end, bases[len(segments) :], list_snapshots(disk, directory))
        last.cut_file(last.size_bytes)
        findings.append(f"truncated the log at offset {last.end_offset}: {damage}")
    findings += _sweep(disk, directory, names, bases)
    if not segments:
        segments.append(Segment.create(disk, directory, 0, index_interval_bytes=index_interval_bytes))
    yield None
    _write_indexes(segments)
    _write_epochs(disk, directory, epochs)
    disk.fsync_dir(directory)
    return RecoveredLog(tuple(segments), epochs, tuple(control), tuple(findings))


def _sweep(disk: Disk, directory: str, names: list[str], bases: list[int]) -> list[str]:
    """Remove indexes without a segment, and the files that Kafka renames and deletes a minute later."""
    findings = []
    for name in names:
        orphaned = any(
            (base := parse_file_name(name, suffix)) is not None and base not in bases for suffix in INDEX_SUFFIXES
        )
        if orphaned:
            findings.append(f"removed {directory}/{name}, an index without its segment")
        if orphaned or (name.endswith(".deleted") and not name.endswith(".checkpoint.deleted")):
            disk.remove(f"{directory}/{name}")
    return findings


def _read_segment(
    segment: Segment, before: Segment | None, epochs: EpochHistory, control: list[RecordBatch]
) -> Generator[None, None, tuple[EpochHistory, CorruptBatch | UnsupportedVersion | None]]:
    """Check the batches of a segment up to the first damaged one, and collect its control batches, in steps.

    Returns the epochs so far, and the damage.
    """
    path = segment.file.path
    if before is not None and before.end_offset != segment.base_offset:
        raise CorruptBatch(
            f"the log has no records from offset {before.end_offset} to {segment.base_offset}",
            where=path,
            hint=f"A segment file is missing. {REMEDY}",
        )
    left = _BYTES_PER_STEP
    try:
        for batch in scan_file(segment.file):
            left -= batch.size_bytes + _BYTES_PER_BATCH
            if left <= 0:
                left = _BYTES_PER_STEP
                yield None
            _check_order(batch, segment.end_offset, epochs.last_epoch, path)
            epochs = epochs.assign(batch.epoch, batch.base_offset)
            segment.note(batch)
            if batch.is_control:
                control.append(batch)
    except UnsupportedVersion as damage:
        return epochs, damage
    except CorruptBatch as damage:
        if damage.field in {"magic", "order"}:
            # A newer format, or valid batches in a wrong order: truncation might lose valid records.
            raise
        return epochs, damage
    return epochs, None


def _check_order(batch: RecordBatch, end_offset: int, last_epoch: int | None, path: str) -> None:
    """Refuse gaps and repeats. Kafka serves such a log; a replica here must not."""
    what = None
    if batch.base_offset != end_offset:
        what = f"a batch begins at offset {batch.base_offset} where {end_offset} comes next"
    elif batch.last_offset_delta < 0:
        what = f"a batch ends {-batch.last_offset_delta} offsets before it begins"
    elif batch.epoch < (0 if last_epoch is None else last_epoch):
        what = f"a batch of epoch {batch.epoch} follows one of epoch {last_epoch}"
    if what is not None:
        raise CorruptBatch(
            what,
            where=path,
            position=batch.position,
            field="order",
            hint=REMEDY,
        )


def _write_indexes(segments: list[Segment]) -> None:
    """Write the rebuilt indexes of all segments but the last, which grows."""
    for segment in segments:
        segment.end_recovery()
    for segment in segments[:-1]:
        segment.write_indexes()
    segments[-1].remove_indexes()


def _write_epochs(disk: Disk, directory: str, epochs: EpochHistory) -> None:
    """Write the rebuilt epochs, unless the file has them already."""
    path = f"{directory}/{EPOCHS_FILE}"
    if not disk.exists(path) or disk.read(path) != format_epochs(epochs):
        write_epochs(disk, directory, epochs)
