"""Distinguishes a torn write at the end of a log from other damage of the disk.

A log is appended to, and flushed as a whole. So a torn write is at the end of the last segment, and only unflushed data
can be torn. Kafka truncates the log before any damage and continues (`LogSegment.recover`, `LogLoader.recoverLog`),
which loses acknowledged records after any other damage.

A file system may write the pages of one unflushed range in any order. Unwritten pages read as zeros, in whole sectors:
so valid batches after zeros may be the rest of a torn write. Valid batches after any other bytes prove other damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata_log.disk import File
from metadata_log.errors import REMEDY, CorruptBatch, UnsupportedVersion
from metadata_log.log.segment import file_name, next_sound_batch
from metadata_log.log.snapshot import snapshot_name
from metadata_log.types import OffsetAndEpoch

SECTOR_BYTES: Final = 512
"""The smallest unit that a disk writes atomically."""
_SMALLEST_HOLE: Final = 12
"""This many zeros at the position of a batch are no batch: they include its length, which is never 0."""


def refuse_damage(
    file: File,
    damage: CorruptBatch | UnsupportedVersion,
    end: OffsetAndEpoch,
    later_segments: Sequence[int],
    snapshots: Sequence[OffsetAndEpoch],
) -> None:
    """Raise `CorruptBatch`, which names file, byte and remedy, unless the damage may be a torn write.

    `end` is the end of the valid log before the damage, `later_segments` the base offsets of the segments after the
    damaged one.
    """
    position = damage.position or 0
    proof = _proof(file, position, end, later_segments, snapshots)
    if proof is not None:
        raise CorruptBatch(
            f"{damage.what}, and no torn write has left it: {proof}",
            where=file.path,
            position=position,
            field=damage.field,
            hint=REMEDY,
        ) from damage


def _proof(
    file: File,
    position: int,
    end: OffsetAndEpoch,
    later_segments: Sequence[int],
    snapshots: Sequence[OffsetAndEpoch],
) -> str | None:
    """Why the damaged bytes were on disk before; None without proof."""
    if later_segments:
        return f"a segment is on the disk before the next one begins, here {file_name(later_segments[0])}"
    if snapshots and snapshots[-1].offset > end.offset:
        return f"the log was on the disk up to the offset of the snapshot {snapshot_name(snapshots[-1])}"
    following = next_sound_batch(file, position + 1, end=file.size(), offset=end.offset + 1, epoch=end.epoch)
    if following is None or _has_hole(file, position, following.position):
        return None
    return (
        f"the batch of offset {following.base_offset} at byte {following.position} is whole, and no sector is missing"
    )


def _has_hole(file: File, start: int, end: int) -> bool:
    """Whether a sector between two positions is zeros from its beginning, or from `start`, to its end."""
    while start < end:
        behind = (start // SECTOR_BYTES + 1) * SECTOR_BYTES
        size = behind - start
        if behind <= end and size >= _SMALLEST_HOLE and file.pread(size, start) == bytes(size):
            return True
        start = behind
    return False
