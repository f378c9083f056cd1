"""Partition logs that are cleaned, with the batches that survive, and a disk that loses power."""

from __future__ import annotations

from kraft.partitions.log.cleaning.choice import CleanerSettings, cleanable
from kraft.partitions.log.cleaning.cleaner import CleanedLog, cleaning
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.record import records
from metadata_log.serde.codec import finished

Survivor = tuple[int, bytes | None, bytes | None]


def batches_in(log: PartitionLog) -> list[RecordBatch]:
    return [each for segment in log.segments for each in scan(segment.batches.file.pread(1 << 30, 0))]


def survivors(log: PartitionLog) -> list[Survivor]:
    return [
        (record.offset, record.key, record.value)
        for batch in batches_in(log)
        if not batch.is_control
        for record in records(batch)
    ]


def clean(log: PartitionLog, disk: MemoryDisk, now_ms: int, settings: CleanerSettings | None = None) -> CleanedLog:
    found = cleanable(log, now_ms=now_ms)
    done = finished(cleaning(log, disk, found, settings or CleanerSettings(), now_ms=now_ms))
    assert done is not None
    log.cleaned_offset = done.end_offset
    return done


def committed(log: PartitionLog) -> list[tuple[int, bytes, bytes | None]]:
    """The records that a reader of committed records gets, in order."""
    aborted = log.aborted(0, log.end_offset)
    found = []
    ongoing = set[int]()
    for batch in batches_in(log):
        if batch.is_control:
            ongoing.discard(batch.producer_id)
            continue
        ongoing |= {each.producer_id for each in aborted if each.first_offset <= batch.last_offset <= each.last_offset}
        is_dropped = batch.is_transactional and any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
            for each in aborted
        )
        if not is_dropped:
            found += [(record.offset, record.key or b"", record.value) for record in records(batch)]
    return found


def sequences(log: PartitionLog) -> dict[int, tuple[int, int]]:
    """The epoch and the last sequence number of each producer."""
    return {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers.states.stored()}


def latest(found: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, tuple[int, bytes]]:
    state: dict[bytes, tuple[int, bytes]] = {}
    for offset, key, value in found:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = (offset, value)
    return state
