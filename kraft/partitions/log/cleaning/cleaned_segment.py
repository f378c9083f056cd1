"""The segment that a cleaner writes: files with the suffix `.cleaned` (Kafka: `UnifiedLog.createNewCleanedSegment`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kraft.partitions.log.data_segment import DATA_SUFFIXES
from kraft.partitions.log.loading import CLEANED_SUFFIX
from kraft.partitions.log.transaction_index import encode_transactions
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch
from metadata_log.log.segment import MAX_RELATIVE_OFFSET, Segment, file_name
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import read_batch

_FLUSH_BYTES = 4 << 20
"""How many bytes one fsync brings to disk at most: an fsync of a whole segment could take seconds."""


class CleanedSegment:
    """A new segment in the making. No load takes its files for a part of the log.

    Args:
        disk: The disk.
        directory: The partition directory.
        base_offset: The base offset.
        index_interval_bytes: `index.interval.bytes`.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self._disk = disk
        self._directory = directory
        self._unsynced = 0
        self.remove()
        file = disk.open(self._path(DATA_SUFFIXES[0]), create=True)
        self._batches = Segment(disk, directory, base_offset, file, index_interval_bytes)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"

    @property
    def size_bytes(self) -> int:
        """The size of the batches so far."""
        return self._batches.size_bytes

    def append(self, data: bytes) -> None:
        """Add a batch; raises `OSError`.

        Raises:
            CorruptBatch: No index of this segment can hold the offset.
        """
        batch = read_batch(data, verify=False)
        if batch.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptBatch(
                f"offset {batch.last_offset} is too far from the base offset of its segment",
                where=self._batches.file.path,
                position=self.size_bytes,
                field="order",
            )
        self._batches.append(data, [batch])
        self._unsynced += batch.size_bytes

    def flush_some(self) -> bool:
        """Bring what was written to disk if that is a portion; returns whether it was. Raises `OSError`."""
        if self._unsynced < _FLUSH_BYTES:
            return False
        self._batches.file.fsync()
        self._unsynced = 0
        return True

    def finish(self, aborted: Sequence[AbortedTxn]) -> None:
        """Write the index files, and return once all files are on disk; raises `OSError`.

        Args:
            aborted: The aborted transactions that stay.
        """
        self._batches.file.fsync()
        self._batches.file.close()
        contents = (*self._batches.closed_indexes(), encode_transactions(aborted))
        for suffix, content in zip(DATA_SUFFIXES[1:], contents, strict=True):
            if content or suffix != DATA_SUFFIXES[-1]:
                file = self._disk.open(self._path(suffix), create=True)
                try:
                    file.append(content)
                    file.fsync()
                finally:
                    file.close()
        self._disk.fsync_dir(self._directory)

    def remove(self) -> None:
        """Remove the files; raises `OSError`."""
        for suffix in DATA_SUFFIXES:
            if self._disk.exists(self._path(suffix)):
                self._disk.remove(self._path(suffix))

    def give_up(self) -> None:
        """Close and remove the files of an unfinished segment. What cannot be removed goes with the next start."""
        with suppress(OSError):
            self._batches.file.close()
            self.remove()
