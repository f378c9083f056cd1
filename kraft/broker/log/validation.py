"""Checks the batches of a producer and prepares them for the log of a leader (Kafka: `LogValidator`, the checks of
`UnifiedLog.analyzeAndValidateRecords`).

Records stay bytes: a leader sets the offset and the epoch in the header of a batch. The checksum is computed again only
if a time in the header changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import structs

from kraft.broker.log.options import LogOptions
from kraft.broker.log.outcomes import RecordRefusal, Refused
from kraft.broker.log.producers import AppendedBatch, ProducerStates
from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch, IncompleteBatch, UnsupportedVersion
from metadata_log.records.batch import (
    CHECKED_AT,
    COMPRESSION_MASK,
    LOG_APPEND_TIME,
    RecordBatch,
    read_batch,
    scan,
)
from metadata_log.records.batch_builder import with_checksum, write_batch
from metadata_log.records.record import Record, RecordTimes, consecutive_times, records
from transport.protocol.errors import Error

_FRONT: Final = Layout(">qii")
_ATTRIBUTES: Final = Layout(">h")
_MAX_TIMESTAMP_AT: Final = 35
_TIMESTAMP: Final = Layout(">q")
_NO_TIMESTAMP: Final = -1


def batches_of_client(data: bytes, options: LogOptions) -> list[RecordBatch] | Refused:
    """The batches of a client, checked by their headers and checksums; an incomplete one at the end is left out.

    Args:
        data: The records of a Produce request for one partition.
        options: The settings of the log.
    """
    found: list[RecordBatch] = []
    try:
        for batch in scan(data, verify=False):
            if batch.base_offset != 0:
                return Refused(Error.INVALID_RECORD, f"the base offset of a batch is {batch.base_offset}, not 0")
            if batch.size_bytes > options.max_message_bytes:
                return Refused(
                    Error.MESSAGE_TOO_LARGE,
                    f"a batch has {batch.size_bytes} bytes; max.message.bytes allows {options.max_message_bytes}",
                )
            found.append(read_batch(batch.data))
    except IncompleteBatch:
        return found
    except (CorruptBatch, UnsupportedVersion) as bad:
        return Refused(Error.CORRUPT_MESSAGE, str(bad))
    return found


def prepare(
    batch: RecordBatch, *, offset: int, epoch: int, options: LogOptions, now_ms: int, is_client: bool = True
) -> RecordBatch | Refused:
    """Check the records of a batch, and give the batch its place in the log.

    Args:
        batch: The batch, with a good checksum.
        offset: The offset of its first record.
        epoch: The leader epoch.
        options: The settings of the log.
        now_ms: The time in ms since 1970.
        is_client: Whether a producer sent the batch; a coordinator may append control batches, too.

    Returns:
        The batch as the log stores it, or why the batch is refused.
    """
    wrong = _header_refusal(batch, is_client=is_client)
    if wrong is not None:
        return wrong
    if batch.is_control:
        time = now_ms if options.is_log_append_time else None
        return place(batch, offset=offset, epoch=epoch, append_time_ms=time)
    target = batch.attributes & COMPRESSION_MASK if options.compression is None else options.compression
    if target == batch.attributes & COMPRESSION_MASK and not batch.is_log_append_time:
        times = consecutive_times(batch, needs_keys=options.is_compacted)
        if times is not None and _are_accepted(batch.base_timestamp, times, options, now_ms):
            if options.is_log_append_time:
                return place(batch, offset=offset, epoch=epoch, append_time_ms=now_ms)
            return place(batch, offset=offset, epoch=epoch, max_timestamp=batch.base_timestamp + times.most)
    return _prepare_by_record(batch, offset, epoch, target, options, now_ms)


def _are_accepted(base_timestamp: int, times: RecordTimes, options: LogOptions, now_ms: int) -> bool:
    """Whether no record of a batch has a time that is refused, and none has no time."""
    least, most = base_timestamp + times.least, base_timestamp + times.most
    return options.is_log_append_time or (
        least > _NO_TIMESTAMP
        and now_ms - least <= options.timestamp_before_max_ms
        and most - now_ms <= options.timestamp_after_max_ms
    )


def _prepare_by_record(
    batch: RecordBatch, offset: int, epoch: int, target: int, options: LogOptions, now_ms: int
) -> RecordBatch | Refused:
    """As `prepare`, with an object for each record: to refuse single records, and to encode them again."""
    try:
        contents = list(records(batch))
    except (CorruptBatch, UnsupportedVersion) as bad:
        error = Error.UNKNOWN_SERVER_ERROR if batch.is_compressed else Error.INVALID_RECORD
        return Refused(error, str(bad))
    refused = _record_refusal(batch, contents, options, now_ms)
    if refused is not None:
        return refused
    in_order = all(record.offset == batch.base_offset + index for index, record in enumerate(contents))
    if target != batch.attributes & COMPRESSION_MASK or not in_order:
        return _encode_again(batch, contents, offset, epoch, Compression(target), options, now_ms)
    if options.is_log_append_time:
        return place(batch, offset=offset, epoch=epoch, append_time_ms=now_ms)
    newest = max(record.timestamp for record in contents) if not batch.is_log_append_time else _newest(batch, contents)
    return place(batch, offset=offset, epoch=epoch, max_timestamp=newest)


def prepare_all(
    data: bytes, *, offset: int, epoch: int, options: LogOptions, now_ms: int, is_client: bool
) -> list[RecordBatch] | Refused:
    """The batches of a request as the log stores them from an offset on, or why one is refused; see `prepare`."""
    sent = batches_of_client(data, options)
    if isinstance(sent, Refused):
        return sent
    placed: list[RecordBatch] = []
    for batch in sent:
        made = prepare(batch, offset=offset, epoch=epoch, options=options, now_ms=now_ms, is_client=is_client)
        if isinstance(made, Refused):
            return made
        placed.append(made)
        offset = made.next_offset
    return placed


def check_producers(states: ProducerStates, batches: Sequence[RecordBatch]) -> AppendedBatch | Refused | None:
    """The batch that the log holds already, or why a batch may not follow; None if the batches may be written."""
    if len(batches) > 1:
        states = states.copy()
    for batch in batches:
        if batch.producer_id < 0:
            continue
        known = states.duplicate_of(batch)
        if known is not None:
            return known
        refusal = states.check(batch)
        if refusal is not None:
            return Refused(refusal.error, refusal.text)
        if len(batches) > 1:
            states.note(batch, None)
    return None


def place(
    batch: RecordBatch,
    *,
    offset: int,
    epoch: int,
    append_time_ms: int | None = None,
    max_timestamp: int | None = None,
) -> RecordBatch:
    """The batch at an offset and in an epoch, with the same records; the checksum changes only if a time does.

    Args:
        batch: The batch, with its bytes.
        offset: The offset of its first record.
        epoch: The leader epoch.
        append_time_ms: The log append time, in ms since 1970; None for the times of the records.
        max_timestamp: The largest time of a record, in ms since 1970; None if the batch keeps its own.
    """
    attributes, newest = batch.attributes, batch.max_timestamp
    if append_time_ms is not None:
        attributes, newest = attributes | LOG_APPEND_TIME, append_time_ms
    elif max_timestamp is not None:
        attributes, newest = attributes & ~LOG_APPEND_TIME, max_timestamp
    data = bytearray(batch.data)
    _FRONT.pack_into(data, 0, offset, batch.size_bytes - 12, epoch)
    crc = batch.crc
    if (attributes, newest) != (batch.attributes, batch.max_timestamp):
        _ATTRIBUTES.pack_into(data, CHECKED_AT, attributes)
        _TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, newest)
        whole = with_checksum(bytes(data))
        crc = int.from_bytes(whole[17:21], "big")
        return structs.replace(
            batch,
            base_offset=offset,
            epoch=epoch,
            attributes=attributes,
            max_timestamp=newest,
            crc=crc,
            data=whole,
            position=0,
        )
    return structs.replace(batch, base_offset=offset, epoch=epoch, data=bytes(data), position=0)


def _newest(batch: RecordBatch, contents: list[Record]) -> int:
    """The largest time by the deltas of the records, for a batch that claims a log append time of its own."""
    return max(batch.base_timestamp + record.timestamp_delta for record in contents)


def _header_refusal(batch: RecordBatch, *, is_client: bool) -> Refused | None:
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta + 1 != count:
        return Refused(
            Error.INVALID_RECORD, f"a batch of {count} records has the last offset delta {batch.last_offset_delta}"
        )
    if batch.is_control and is_client:
        return Refused(Error.INVALID_RECORD, "a client may not write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0 and not batch.is_control:
        return Refused(Error.INVALID_RECORD, f"a batch of producer {batch.producer_id} has no sequence number")
    return None


def _record_refusal(batch: RecordBatch, contents: list[Record], options: LogOptions, now_ms: int) -> Refused | None:
    """The refusal of a batch for some of its records."""
    if options.is_log_append_time and batch.is_log_append_time:
        return Refused(Error.INVALID_TIMESTAMP, "a producer may not set the log append time")
    bad: list[RecordRefusal] = []
    error = Error.INVALID_RECORD
    for index, record in enumerate(contents):
        if options.is_compacted and record.key is None:
            bad.append(RecordRefusal(index, "a compacted topic needs a key in each record"))
        elif not options.is_log_append_time:
            time = batch.base_timestamp + record.timestamp_delta
            is_early = now_ms - time > options.timestamp_before_max_ms
            is_late = time - now_ms > options.timestamp_after_max_ms
            if time != _NO_TIMESTAMP and (is_early or is_late):
                error = Error.INVALID_TIMESTAMP
                bad.append(RecordRefusal(index, f"the time {time} is too far from the broker's time {now_ms}"))
    if not bad:
        return None
    return Refused(error, f"{len(bad)} of {len(contents)} records are refused", tuple(bad))


def _encode_again(
    batch: RecordBatch,
    contents: list[Record],
    offset: int,
    epoch: int,
    compression: Compression,
    options: LogOptions,
    now_ms: int,
) -> RecordBatch | Refused:
    """The records of a batch with consecutive offsets and another codec."""
    moved = [
        structs.replace(record, offset=offset + index, timestamp=batch.base_timestamp + record.timestamp_delta)
        for index, record in enumerate(contents)
    ]
    data = write_batch(
        moved,
        epoch=epoch,
        compression=compression,
        append_time_ms=now_ms if options.is_log_append_time else None,
        transactional=batch.is_transactional,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    if len(data) > options.max_message_bytes:
        return Refused(
            Error.MESSAGE_TOO_LARGE,
            f"the batch has {len(data)} bytes in the codec of the topic; max.message.bytes allows "
            f"{options.max_message_bytes}",
        )
    return next(scan(data, verify=False))
