"""The lines in which Kafka shows the files of a partition (Kafka: `DumpLogSegments`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kraft.partitions.log.producers import decrement_sequence, last_sequence_of, marker_of
from metadata_log.java_text import utf8
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import Record, records


def batch_line(batch: RecordBatch) -> str:
    """The line of a batch, whose checksum is right."""
    horizon = batch.delete_horizon_ms
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {last_sequence_of(batch)} "
        f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
        f"partitionLeaderEpoch: {batch.epoch} isTransactional: {_java(batch.is_transactional)} "
        f"isControl: {_java(batch.is_control)} "
        f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
        f"position: {batch.position} {_time_type(batch)}: {batch.max_timestamp} size: {batch.size_bytes} "
        f"magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} isvalid: true"
    )


ShownPair = tuple[str | None, str | None]
"""Key and value of a record as text."""


def plain_pair(record: Record) -> ShownPair:
    """Key and value as text."""
    return (
        None if record.key is None else utf8(record.key),
        None if record.value is None else utf8(record.value),
    )


def record_lines(
    batch: RecordBatch,
    *,
    where: str | None = None,
    wanted: Callable[[Record], bool] | None = None,
    shown: Callable[[Record], ShownPair] = plain_pair,
) -> Iterator[str]:
    """The lines of the records of a batch: keys and values as text, a transaction marker with its meaning.

    Args:
        batch: The batch, with its bytes.
        where: The file, for errors.
        wanted: Whether a record is shown; None for all.
        shown: Key and value of a record as text.

    Raises:
        CorruptBatch: The records are damaged.
        UnsupportedVersion: The compression codec is undefined.
    """
    for record in records(batch, where=where):
        if wanted is not None and not wanted(record):
            continue
        keys = ",".join(header.key for header in record.headers)
        line = (
            f"| offset: {record.offset} {_time_type(batch)}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {sequence_of(batch, record)} headerKeys: [{keys}]"
        )
        if batch.is_control:
            marker = marker_of(batch, where=where)
            if marker is not None:
                kind = "ABORT" if marker.is_abort else "COMMIT"
                line += f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
        else:
            key, value = shown(record)
            line += "" if key is None else f" key: {key}"
            line += "" if value is None else f" payload: {value}"
        yield line


def sequence_of(batch: RecordBatch, record: Record) -> int:
    """The sequence number of a record; -1 for a batch without."""
    if batch.base_sequence < 0:
        return -1
    return decrement_sequence(last_sequence_of(batch), batch.last_offset - record.offset)


def index_lines(entries: Iterable[tuple[int, int]], *, is_time: bool) -> Iterator[str]:
    """The lines of an offset index or a time index."""
    first, second = ("timestamp", "offset") if is_time else ("offset", "position")
    for one, other in entries:
        yield f"{first}: {one} {second}: {other}"


def transaction_lines(transactions: Iterable[AbortedTxn]) -> Iterator[str]:
    """The lines of a transaction index."""
    for each in transactions:
        yield (
            f"version: 0 producerId: {each.producer_id} firstOffset: {each.first_offset} "
            f"lastOffset: {each.last_offset} lastStableOffset: {each.last_stable_offset}"
        )


def producer_lines(producers: Iterable[StoredProducer]) -> Iterator[str]:
    """The lines of a producer snapshot."""
    for each in producers:
        first_offset = "OptionalLong.empty" if each.open_offset < 0 else f"OptionalLong[{each.open_offset}]"
        line = (
            f"producerId: {each.producer_id} producerEpoch: {each.epoch} coordinatorEpoch: {each.coordinator_epoch} "
            f"currentTxnFirstOffset: {first_offset} lastTimestamp: {each.timestamp} "
        )
        if each.last_offset >= 0:
            first_sequence = decrement_sequence(each.last_sequence, each.offset_delta)
            line += (
                f"firstSequence: {first_sequence} lastSequence: {each.last_sequence} lastOffset: {each.last_offset} "
                f"offsetDelta: {each.offset_delta} timestamp: {each.timestamp}"
            )
        yield line


def _java(value: bool) -> str:
    return "true" if value else "false"


def _time_type(batch: RecordBatch) -> str:
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
