"""A segment of a partition: batches, offset and time index, and the aborted transactions (Kafka: `LogSegment`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Final

from kraft.limits import SEGMENT_BYTES_PER_STEP
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.producer_files import ProducerStateManager
from kraft.partitions.log.producers import EndedTransaction
from kraft.partitions.log.transaction_index import SUFFIX as ABORTED_SUFFIX
from kraft.partitions.log.transaction_index import decode_transactions, encode_transactions
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, MetadataLogError, UnsupportedVersion
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from metadata_log.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    MAX_RELATIVE_OFFSET,
    SUFFIX,
    Segment,
    file_name,
    scan_file,
)
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import RecordBatch

DATA_SUFFIXES: Final = (SUFFIX, *INDEX_SUFFIXES, ABORTED_SUFFIX)
_BYTES_PER_BATCH: Final = 4096


class DataSegment:
    """The batches from `base_offset` on, with the aborted transactions that end among them."""

    def __init__(self, disk: Disk, directory: str, batches: Segment, created_ms: int) -> None:
        self.batches = batches
        self.base_offset = batches.base_offset
        self.aborted: list[AbortedTxn] = []
        self.created_ms = created_ms
        """When this object was made, in ms since 1970; a segment without a time rolls by it."""
        self._disk = disk
        self._directory = directory

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, now_ms: int
    ) -> DataSegment:
        """Make a new segment; files of this base offset that are there already are removed, as in Kafka."""
        for suffix in DATA_SUFFIXES:
            path = f"{directory}/{file_name(base_offset, suffix)}"
            if disk.exists(path):
                disk.remove(path)
        made = Segment.create(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        return cls(disk, directory, made, now_ms)

    @classmethod
    def open(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, now_ms: int
    ) -> DataSegment:
        """Open an existing segment; the caller must call `load` or `recovering` next."""
        segment = Segment.open(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        return cls(disk, directory, segment, now_ms)

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self._directory}/{file_name(self.base_offset, suffix)}"

    def load(self, *, is_active: bool) -> str | None:
        """Take over the index files; returns the reason if the segment has to be recovered instead."""
        try:
            with suppress(FileNotFoundError):
                content = self._disk.read(self.path(ABORTED_SUFFIX))
                self.aborted = decode_transactions(
                    content, base_offset=self.base_offset, where=self.path(ABORTED_SUFFIX)
                )
            self.batches.load_indexes(is_active=is_active)
        except FileNotFoundError:
            return f"{self.path(INDEX_SUFFIXES[0])} is missing"
        except MetadataLogError as bad:
            return str(bad)
        return None

    def recovering(
        self, producers: ProducerStateManager, epochs: EpochHistory
    ) -> Generator[None, None, tuple[EpochHistory, str | None]]:
        """Check every batch and rebuild the indexes, in steps of some milliseconds (`LogSegment.recover`).

        The file is truncated before the first damaged batch.

        Args:
            producers: The producers before this segment; they go on to its end.
            epochs: The epochs so far.

        Returns:
            The epochs, and the damage as a text if the file was truncated.
        """
        self.batches.forget()
        self.aborted = []
        damage = None
        left = SEGMENT_BYTES_PER_STEP
        try:
            for batch in scan_file(self.batches.file):
                left -= batch.size_bytes + _BYTES_PER_BATCH
                if left <= 0:
                    left = SEGMENT_BYTES_PER_STEP
                    yield None
                self._check_offsets(batch)
                if batch.epoch >= 0 and (epochs.last_epoch is None or batch.epoch > epochs.last_epoch):
                    epochs = epochs.assign(batch.epoch, batch.base_offset)
                ended = producers.note(batch)
                self.batches.note(batch)
                if ended is not None:
                    self.end_transaction(ended, producers)
        except (CorruptBatch, UnsupportedVersion) as bad:
            damage = str(bad)
            self.batches.cut_file(self.batches.size_bytes)
        self.batches.end_recovery()
        self.write_indexes()
        return epochs, damage

    def _check_offsets(self, batch: RecordBatch) -> None:
        """Refuse offsets that an index cannot hold, and those before the end of the batch before."""
        if (
            not self.batches.end_offset <= batch.base_offset < batch.next_offset
            or batch.last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        ):
            raise CorruptBatch(
                f"a batch of the offsets {batch.base_offset} to {batch.last_offset} cannot follow offset "
                f"{self.batches.end_offset - 1} in this segment",
                where=self.path(SUFFIX),
                position=batch.position,
                field="order",
            )

    def end_transaction(self, ended: EndedTransaction, producers: ProducerStateManager) -> None:
        """Close a transaction, and index an aborted one (`LogSegment.updateTxnIndex`)."""
        if ended.is_aborted:
            stable = producers.states.stable_offset_behind(ended)
            self.aborted.append(AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, stable))
        producers.states.end(ended)

    def is_to_roll(self, size: int, newest: int, last_offset: int, options: LogOptions, now_ms: int) -> bool:
        """Whether an append does not belong into this segment any more (`LogSegment.shouldRoll`).

        Args:
            size: The bytes to append.
            newest: The largest time of their records, in ms since 1970.
            last_offset: The last offset of their records.
            options: The settings of the log.
            now_ms: The time in ms since 1970.
        """
        held = self.batches
        # An index without room for one more batch is full, as in Kafka (`OffsetIndex.isFull`).
        offsets, times = held.index_entries
        waited = newest - held.first_timestamp if held.first_timestamp >= 0 else now_ms - self.created_ms
        return (
            held.size_bytes + size > options.segment_bytes
            or (held.size_bytes > 0 and waited > options.segment_ms)
            or offsets >= options.index_bytes // OFFSET_ENTRY_BYTES
            or times >= options.index_bytes // TIME_ENTRY_BYTES - 1
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def write_indexes(self) -> None:
        """Write the index files as Kafka writes those of a closed segment. `flush` brings them to disk."""
        self.batches.write_indexes()
        path, content = self.path(ABORTED_SUFFIX), encode_transactions(self.aborted)
        if self._disk.exists(path):
            if self._disk.read(path) == content:
                return
            self._disk.remove(path)
        if content:
            self._write(path, content)

    def _write(self, path: str, content: bytes) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.append(content)
        finally:
            file.close()

    def flush(self) -> None:
        """Return once the batches and the index files that exist are on disk; raises `OSError`."""
        self.batches.file.fsync()
        for suffix in (*INDEX_SUFFIXES, ABORTED_SUFFIX):
            if self._disk.exists(self.path(suffix)):
                fsync_file(self._disk, self.path(suffix))

    def remove_indexes(self) -> None:
        """Delete the index files: they would be wrong for a segment that was truncated."""
        self.batches.remove_indexes()
        if self._disk.exists(self.path(ABORTED_SUFFIX)):
            self._disk.remove(self.path(ABORTED_SUFFIX))

    def truncate(self, offset: int) -> None:
        """Remove the batches that hold `offset` or a later one, durably (`LogSegment.truncateTo`).

        Raises:
            CorruptBatch: A header on the way to the cut is damaged. Nothing was cut.
            OSError: The disk failed.
        """
        self.remove_indexes()
        self.batches.truncate(offset, is_dense=False)
        self.aborted = [each for each in self.aborted if each.last_offset < offset]

    def relocate(self, directory: str) -> None:
        """Take the new name of the partition directory; raises `OSError`."""
        self._directory = directory
        self.batches.relocate(directory)

    def mark_deleted(self) -> tuple[str, ...]:
        """Rename the files with `.deleted`, durably, and close the segment; returns the new paths for later removal."""
        self.batches.file.close()
        marked = list[str]()
        path = self.path(ABORTED_SUFFIX)
        if self._disk.exists(path):
            self._disk.rename(path, path + DELETED_SUFFIX)
            marked.append(path + DELETED_SUFFIX)
        return (*marked, *self.batches.mark_deleted())

    def close(self) -> None:
        """Close the file; does not flush."""
        self.batches.file.close()


def fsync_file(disk: Disk, path: str) -> None:
    """Return once the content of a closed file is on disk; raises `OSError`."""
    file = disk.open(path)
    try:
        file.fsync()
    finally:
        file.close()
