"""The last batch that a reading has read, and whether a log still holds that batch (KIP-595, KIP-101).

A node truncates its log to the common prefix with a new leader's log. So a log that was read to its end may have lost
what was read, and the epoch of the last batch that was read shows this.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.log.segment import file_name, scan_headers
from metadata_log.reading.missing import segments_in
from metadata_log.records.batch import RecordBatch


class Place(Struct, frozen=True):
    """The last batch that a reading has read: another reading continues after it.

    By Raft, a log that holds this batch holds all batches before it (the log matching property of KIP-595).

    Args:
        offset: The offset that follows the batch.
        epoch: The epoch of the batch.
        crc: The CRC-32C of the batch; None after a snapshot, where no batch is known.
        segment: The base offset of the segment with the batch; None after a snapshot.
        position: The position of the batch in that segment, in bytes.
        end_position: The position after the batch in that segment, in bytes.
    """

    offset: int
    epoch: int
    crc: int | None = None
    segment: int | None = None
    position: int = 0
    end_position: int = 0


class Standing(Enum):
    """Whether a log still holds a place, ends before it, or was rewritten."""

    HOLDS = auto()
    """The log holds the batch, or begins where the batch ends, or has lost older records only."""
    BEHIND = auto()
    """The log ends before the place, in the same epoch: another copy, or one that is still being copied."""
    REWRITTEN = auto()
    """The log holds another batch at the place, or ends before the place in a later epoch."""


def find_place(disk: Disk, directory: str, place: Place) -> tuple[Standing, Place]:
    """Look for a place in a log, and find where it is now: another copy has other segments.

    Reads the headers of at most one segment, and none before the place in the segment that the place names.

    Args:
        disk: The disk.
        directory: The partition directory.
        place: The place.

    Returns:
        The standing, and the place with its present segment; of a rewritten log the epoch that it has there.

    Raises:
        OSError: A file is unreadable.
    """
    segments = segments_in(disk, directory)
    below = [base for base in segments if base < place.offset]
    if not below:
        # The records before the place are deleted, or there is no log: a snapshot or a gap shows when reading.
        return (Standing.HOLDS if segments else Standing.BEHIND), Place(place.offset, place.epoch)
    base = below[-1]
    last: RecordBatch | None = None
    for start in (place.position, 0) if base == place.segment else (0,):
        last = _batch_before(disk, f"{directory}/{file_name(base)}", start, place.offset)
        if last is not None and (last.next_offset, last.epoch) == (place.offset, place.epoch):
            break
    if last is not None and last.next_offset >= place.offset:
        same = last.next_offset == place.offset and last.epoch == place.epoch and place.crc in (None, last.crc)
        now = Place(place.offset, last.epoch, last.crc, base, last.position, last.end_position)
        return (Standing.HOLDS if same else Standing.REWRITTEN), now
    if last is not None and last.epoch > place.epoch:
        return Standing.REWRITTEN, Place(last.next_offset, last.epoch, last.crc)
    if len(below) < len(segments):
        return Standing.HOLDS, Place(place.offset, place.epoch)
    return Standing.BEHIND, place


def _batch_before(disk: Disk, path: str, start: int, offset: int) -> RecordBatch | None:
    """The batch that ends at an offset or after it, else the last one before damage; only headers are read."""
    last: RecordBatch | None = None
    file = disk.open(path, writable=False)
    try:
        for batch in scan_headers(file, start):
            last = batch
            if batch.next_offset >= offset:
                break
    except (CorruptBatch, UnsupportedVersion):
        pass
    finally:
        file.close()
    return last
