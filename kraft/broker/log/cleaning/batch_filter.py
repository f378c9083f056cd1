"""Which records of a batch a cleaning keeps (Kafka: `Cleaner.cleanInto`, `MemoryRecords.filterTo`)."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from msgspec import Struct

from kraft.broker.log.cleaning.offset_map import OffsetMap
from kraft.broker.log.producers import Producer
from metadata_log.log.indexes import NO_TIMESTAMP
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import retained_batch
from metadata_log.records.record import Record, encode_record, records

_RECORDS_PER_STEP = 4096


class Filter(Struct, eq=False):
    """What decides about the batches of one cleaning.

    Args:
        offsets: The last offset of each key, up to the end of the cleaning.
        producers: The producers of the log.
        end_offset: The offset behind the part of the log that may be cleaned.
        now_ms: The time of the cleaning, in ms since 1970.
        delete_retention_ms: `delete.retention.ms`.
        where: The file, for errors.
    """

    offsets: OffsetMap
    producers: Mapping[int, Producer]
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    where: str = ""

    def filtering(self, batch: RecordBatch, *, may_discard: bool) -> Generator[None, None, bytes]:
        """What is left of a batch, in steps of some milliseconds.

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
            UnsupportedVersion: The compression codec is undefined.
        """
        horizon = batch.delete_horizon_ms
        is_over = horizon is not None and horizon <= self.now_ms
        discards = may_discard and (is_over or not batch.is_control)
        stays = self._is_last_of_producer(batch) or batch.next_offset == self.end_offset
        if discards:
            return _empty(batch) if stays else b""
        kept: list[Record] = []
        has_tombstone = False
        for number, record in enumerate(records(batch, where=self.where), 1):
            if number % _RECORDS_PER_STEP == 0:
                yield None
            if batch.is_control or self._keeps(record, is_over=is_over):
                kept.append(record)
                has_tombstone = has_tombstone or record.value is None
        if not kept:
            return _empty(batch) if stays else b""
        sets_horizon = horizon is None and (has_tombstone or (may_discard and batch.is_control))
        if len(kept) == batch.record_count and not sets_horizon:
            return batch.data
        if sets_horizon:
            horizon = self.now_ms + self.delete_retention_ms
        return (yield from _encoding(batch, kept, horizon))

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        """Whether only this batch keeps the last sequence number, or the epoch, of its producer."""
        known = self.producers.get(batch.producer_id)
        if batch.producer_id < 0 or known is None:
            return False
        if known.batches:
            return batch.last_offset == known.batches[-1].last_offset
        return batch.is_control and batch.producer_epoch == known.epoch

    def _keeps(self, record: Record, *, is_over: bool) -> bool:
        if record.offset > self.offsets.latest_offset:
            return True
        if record.key is None:
            return False
        return record.offset >= self.offsets.get(record.key) and (record.value is not None or not is_over)


def _empty(batch: RecordBatch) -> bytes:
    times = (NO_TIMESTAMP, batch.max_timestamp)
    return retained_batch(batch, (), timestamps=times, has_delete_horizon=False)


def _encoding(batch: RecordBatch, kept: list[Record], horizon: int | None) -> Generator[None, None, bytes]:
    """The batch with some of its records, in steps of some milliseconds."""
    base_time = kept[0].timestamp if horizon is None else horizon
    bodies: list[bytes] = []
    newest = NO_TIMESTAMP
    for number, record in enumerate(kept, 1):
        if number % _RECORDS_PER_STEP == 0:
            yield None
        newest = max(newest, record.timestamp)
        delta = record.offset - batch.base_offset
        bodies.append(encode_record(record.timestamp - base_time, delta, record.key, record.value, record.headers))
    if batch.is_log_append_time:
        newest = batch.max_timestamp
    return retained_batch(batch, bodies, timestamps=(base_time, newest), has_delete_horizon=horizon is not None)
