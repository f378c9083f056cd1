"""Puts a cleaned segment in the place of others, safe against a crash at each step (Kafka: `LocalLog.replaceSegments`).

The files of the new segment are renamed from `.cleaned` to `.swap`: from then on a start completes the replacement.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.partitions.log.data_segment import DATA_SUFFIXES, DataSegment
from kraft.partitions.log.loading import CLEANED_SUFFIX, SWAP_SUFFIX
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch
from metadata_log.log.segment import DELETED_SUFFIX, file_name


def swap_in(
    disk: Disk, directory: str, old: Sequence[DataSegment], index_interval_bytes: int
) -> tuple[list[str], DataSegment]:
    """Replace segments by the cleaned one with the base offset of the first of them.

    Args:
        disk: The disk.
        directory: The partition directory.
        old: The segments to replace; their files are closed.
        index_interval_bytes: `index.interval.bytes`.

    Returns:
        The old files, with the suffix `.deleted` for later removal; and the new segment.

    Raises:
        OSError: The disk failed.
    """
    base_offset = old[0].base_offset
    _rename(disk, directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)
    disk.fsync_dir(directory)
    doomed = []
    for segment in old:
        segment.close()
        # A log file without indexes is still complete, so the log file goes last.
        for suffix in reversed(DATA_SUFFIXES):
            path = segment.path(suffix)
            if disk.exists(path):
                disk.rename(path, path + DELETED_SUFFIX)
                doomed.append(path + DELETED_SUFFIX)
    # The old names are gone for good before the new segment takes one of them.
    disk.fsync_dir(directory)
    _rename(disk, directory, base_offset, SWAP_SUFFIX, "")
    disk.fsync_dir(directory)
    made = DataSegment.open(
        disk, directory, base_offset, index_interval_bytes=index_interval_bytes, now_ms=old[-1].created_ms
    )
    reason = made.load(is_active=False)
    if reason is not None:
        raise CorruptBatch(f"the cleaned segment cannot be read: {reason}", where=directory)
    return doomed, made


def _rename(disk: Disk, directory: str, base_offset: int, before: str, after: str) -> None:
    for suffix in DATA_SUFFIXES:
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path + before):
            disk.rename(path + before, path + after)
