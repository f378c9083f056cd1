"""Tells what a power failure leaves at the end of a log from what a damaged disk has lost.

A log is appended to, and brought to the disk as a whole. So a torn write is at the end of the last segment, and only
what was never on the disk can be torn. Kafka cuts the log before any damage and goes on (`LogSegment.recover`,
`LogLoader.recoverLog`), which loses acknowledged records if the damage is something else.

A file system may write the pages of one unflushed range in any order. What it has not written reads as zeros, a whole
number of sectors: so sound batches behind zeros may be the rest of a torn write. Behind anything else they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata_log.disk import File
from metadata_log.errors import REMEDY, CorruptBatch, UnsupportedVersion
from metadata_log.segment import file_name, next_sound_batch
from metadata_log.snapshot import snapshot_name
from metadata_log.types import OffsetAndEpoch

SECTOR_BYTES: Final = 512
"""The smallest piece that a disk writes as a whole."""
_SMALLEST_HOLE: Final = 12
"""So many zeros at the place of a batch are none: its length ends there, and is never 0."""


def refuse_damage(
    file: File,
    damage: CorruptBatch | UnsupportedVersion,
    end: OffsetAndEpoch,
    later_segments: Sequence[int],
    snapshots: Sequence[OffsetAndEpoch],
) -> None:
    """Raise `CorruptBatch`, which names file, byte and remedy, unless the damage may be a torn write.

    `end` is the end of the sound log before the damage, `later_segments` the base offsets of the segments behind the
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
    """Why what is damaged was on the disk before; None if nothing proves it."""
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
    """Whether a sector between two positions is zeros from where it begins, or from `start`, up to its end."""
    while start < end:
        behind = (start // SECTOR_BYTES + 1) * SECTOR_BYTES
        size = behind - start
        if behind <= end and size >= _SMALLEST_HOLE and file.pread(size, start) == bytes(size):
            return True
        start = behind
    return False
