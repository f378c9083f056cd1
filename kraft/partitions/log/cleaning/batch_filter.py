"""The records of a batch that a cleaning keeps (Kafka: `Cleaner.cleanInto`, `MemoryRecords.filterTo`)."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from msgspec import Struct

from kraft.partitions.log.cleaning.offset_map import OffsetMap
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.producers import Producer
from metadata_log.compression import deflating
from metadata_log.log.indexes import NO_TIMESTAMP
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import retained_batch
from metadata_log.records.record import unpacking
from metadata_log.records.walk import frames, key_of, rewriting


class Filter(Struct, eq=False):
    """Decides which records of each batch stay in one cleaning.

    Args:
        offsets: The last offset of each key, up to the end of the cleaning.
        producers: The producers of the log.
        end_offset: The offset after the part of the log that may be cleaned.
        now_ms: The time of the cleaning, in ms since 1970.
        options: The settings of the log: `delete.retention.ms`, `max.decompressed.message.bytes`.
        where: The file, for errors.
    """

    offsets: OffsetMap
    producers: Mapping[int, Producer]
    end_offset: int
    now_ms: int
    options: LogOptions
    where: str = ""

    def filtering(self, batch: RecordBatch, *, may_discard: bool) -> Generator[None, None, bytes]:
        """Remove the records of a batch that need not stay, in steps of some milliseconds.

        The first cleaning that meets a tombstone, or a marker without data, gives the batch a delete horizon; a
        cleaning after that time removes the record.

        Args:
            batch: The batch, with its bytes.
            may_discard: What `CleanedTransactions.read` says of the batch.

        Returns:
            The bytes for the cleaned segment: those of the batch if every record stays, an empty batch that keeps the
            sequence number of its producer or the last offset, or nothing.

        Raises:
            CorruptBatch: The records are damaged.
            OversizedRecord: A record of a compressed batch has more than `max.decompressed.message.bytes`.
            UnsupportedVersion: The compression codec is undefined.
        """
        horizon = batch.delete_horizon_ms
        is_over = horizon is not None and horizon <= self.now_ms
        discards = may_discard and (is_over or not batch.is_control)
        stays = self._is_last_of_producer(batch) or batch.next_offset == self.end_offset
        if discards:
            return _empty(batch) if stays else b""
        data = yield from unpacking(batch, where=self.where)
        kept = bytearray(batch.record_count)
        first_time, newest = None, NO_TIMESTAMP
        has_tombstone = False
        index = -1
        for frame in frames(batch, data, most_bytes=self.options.max_decompressed_bytes, where=self.where):
            if frame is None:
                yield None
                continue
            index += 1
            key, has_value = (None, True) if batch.is_control else key_of(data, frame)
            if batch.is_control or self._keeps(frame.offset, key, has_value=has_value, is_over=is_over):
                kept[index] = 1
                first_time = frame.timestamp if first_time is None else first_time
                newest = max(newest, frame.timestamp)
                has_tombstone = has_tombstone or not has_value
        if first_time is None:
            return _empty(batch) if stays else b""
        sets_horizon = horizon is None and (has_tombstone or (may_discard and batch.is_control))
        if all(kept) and not sets_horizon:
            return batch.data
        if sets_horizon:
            horizon = self.now_ms + self.options.delete_retention_ms
        base_time = first_time if horizon is None else horizon
        body = yield from rewriting(batch, data, base_time=base_time, kept=kept, where=self.where)
        packed = bytearray()
        for piece in deflating(batch.compression, body):
            packed += piece
            yield None
        if batch.is_log_append_time:
            newest = batch.max_timestamp
        return retained_batch(
            batch,
            kept.count(1),
            bytes(packed),
            timestamps=(base_time, newest),
            has_delete_horizon=horizon is not None,
        )

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        """Whether only this batch keeps the last sequence number, or the epoch, of its producer."""
        known = self.producers.get(batch.producer_id)
        if batch.producer_id < 0 or known is None:
            return False
        if known.batches:
            return batch.last_offset == known.batches[-1].last_offset
        return batch.is_control and batch.producer_epoch == known.epoch

    def _keeps(self, offset: int, key: bytes | None, *, has_value: bool, is_over: bool) -> bool:
        """Whether a record stays: it was not looked at, or is the last one of its key. A deletion (a record without a
        value) goes once its time is over.
        """
        if offset > self.offsets.latest_offset:
            return True
        if key is None:
            return False
        return offset >= self.offsets.get(key) and (has_value or not is_over)


def _empty(batch: RecordBatch) -> bytes:
    times = (NO_TIMESTAMP, batch.max_timestamp)
    return retained_batch(batch, 0, b"", timestamps=times, has_delete_horizon=False)
