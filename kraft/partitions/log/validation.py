"""Checks the batches of a producer and prepares them for the log of a leader (Kafka: `LogValidator`, the checks of
`UnifiedLog.analyzeAndValidateRecords`).

Records stay bytes: a leader sets the offset and the epoch in the header of a batch. The checksum is computed again only
if a time in the header changes. A batch may have millions of records in a few kilobytes, so it is checked in steps.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import repeat
from struct import Struct as Layout
from typing import Final

from msgspec import Struct, structs

from kraft.limits import STEPS_PER_PIECE
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import RecordRefusal, RefusedAppend
from kraft.partitions.log.producers import AppendedBatch, ProducerStates
from metadata_log.compression import Compression, deflating
from metadata_log.errors import CorruptBatch, IncompleteBatch, OversizedBatch, UnsupportedVersion
from metadata_log.records.batch import (
    BEFORE_LENGTH,
    CHECKED_AT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    RecordBatch,
    check_crc,
    read_batch,
)
from metadata_log.records.batch_builder import packed_batch, with_checksum
from metadata_log.records.record import unpacking
from metadata_log.records.walk import (
    MOST_RECORDS,
    Walked,
    Wanted,
    frames,
    largest_record,
    oversized_text,
    rewriting,
    walking,
)
from metadata_log.serde.codec import finished
from transport.protocol.errors import Error

_FRONT: Final = Layout(">qii")
_ATTRIBUTES: Final = Layout(">h")
_MAX_TIMESTAMP_AT: Final = 35
_TIMESTAMP: Final = Layout(">q")


class CheckedBatch(Struct, frozen=True):
    """A batch with sound records, which needs only its place in the log.

    Args:
        batch: The batch, as it was sent or encoded again; its base offset is that of the client.
        append_time_ms: The log append time that it gets, in ms since 1970; None for the times of its records.
        newest_ms: The largest time of its records, in ms since 1970; None if the header keeps its own.
    """

    batch: RecordBatch
    append_time_ms: int | None = None
    newest_ms: int | None = None


class Checked(Struct, frozen=True):
    """The checked batches of a request for one partition."""

    batches: tuple[CheckedBatch, ...]

    def placed(self, offset: int, epoch: int) -> list[RecordBatch]:
        """The batches as the log stores them from an offset on, in an epoch."""
        record_batches: list[RecordBatch] = []
        for one in self.batches:
            append_ms, newest_ms = one.append_time_ms, one.newest_ms
            record_batches.append(
                place(one.batch, offset=offset, epoch=epoch, append_time_ms=append_ms, max_timestamp=newest_ms)
            )
            offset = record_batches[-1].next_offset
        return record_batches


Checking = Generator[None, None, CheckedBatch | RefusedAppend]


def batches_of_client(data: bytes, options: LogOptions) -> list[RecordBatch] | RefusedAppend:
    """The batches of a client, checked by their headers and checksums; an incomplete one at the end is left out.

    Args:
        data: The records of a Produce request for one partition.
        options: The settings of the log.
    """
    record_batches: list[RecordBatch] = []
    position, end = 0, len(data)
    try:
        while position < end:
            batch = read_batch(data, position, verify=False)
            position += batch.size_bytes
            if batch.base_offset != 0:
                return RefusedAppend(Error.INVALID_RECORD, f"the base offset of a batch is {batch.base_offset}, not 0")
            if batch.size_bytes > options.max_message_bytes:
                return RefusedAppend(
                    Error.MESSAGE_TOO_LARGE,
                    f"a batch has {batch.size_bytes} bytes; max.message.bytes allows {options.max_message_bytes}",
                )
            check_crc(batch)
            record_batches.append(batch)
    except IncompleteBatch:
        return record_batches
    except (CorruptBatch, UnsupportedVersion) as bad:
        return RefusedAppend(Error.CORRUPT_MESSAGE, str(bad))
    return record_batches


def checking_all(
    data: bytes, *, options: LogOptions, now_ms: int, is_client: bool
) -> Generator[None, None, Checked | RefusedAppend]:
    """Check the batches of a request, in steps of less than a millisecond.

    Args:
        data: The records of a request for one partition. An incomplete batch at the end is left out, as in Kafka.
        options: The settings of the log.
        now_ms: The time in ms since 1970.
        is_client: Whether a producer sent the batches; a coordinator may append control batches, too.

    Returns:
        The batches, or why one is refused.
    """
    sent = batches_of_client(data, options)
    if isinstance(sent, RefusedAppend):
        return sent
    checked_batches: list[CheckedBatch] = []
    for batch in sent:
        checked = yield from checking(batch, options=options, now_ms=now_ms, is_client=is_client)
        if isinstance(checked, RefusedAppend):
            return checked
        checked_batches.append(checked)
    return Checked(tuple(checked_batches))


def checking(batch: RecordBatch, *, options: LogOptions, now_ms: int, is_client: bool = True) -> Checking:
    """Check the records of one batch with a good checksum; see `checking_all`."""
    wrong = _header_refusal(batch, is_client=is_client)
    if wrong is not None:
        return wrong
    append_time = now_ms if options.is_log_append_time else None
    if batch.is_control:
        return CheckedBatch(batch, append_time)
    if options.is_log_append_time and batch.is_log_append_time:
        return RefusedAppend(Error.INVALID_TIMESTAMP, "a producer may not set the log append time")
    try:
        data = (yield from unpacking(batch)) if batch.is_compressed else batch.data[HEADER_BYTES:]
    except OversizedBatch as bad:
        # As for a batch with too many bytes, Kafka's producer splits the batch.
        return RefusedAppend(Error.MESSAGE_TOO_LARGE, str(bad))
    except (CorruptBatch, UnsupportedVersion) as bad:
        return RefusedAppend(Error.UNKNOWN_SERVER_ERROR, str(bad))
    if (most := options.max_decompressed_bytes) < len(data) and batch.is_compressed:
        largest = yield from largest_record(batch.record_count, data)
        if largest > most:
            return RefusedAppend(Error.INVALID_RECORD, oversized_text(largest, most))
    codec = batch.attributes & COMPRESSION_MASK
    target = codec if options.compression is None else options.compression
    wanted = _wanted(options, now_ms, needs_order=0 < codec == target)
    try:
        walked = yield from walking(batch, data, wanted)
    except CorruptBatch as bad:
        return RefusedAppend(Error.INVALID_RECORD, str(bad))
    if walked.refused:
        return _record_refusal(walked, now_ms)
    if codec == target and walked.is_in_order:
        return CheckedBatch(batch, append_time, walked.newest)
    if wanted.needs_order:
        return RefusedAppend(Error.UNKNOWN_SERVER_ERROR, "the offsets in a compressed batch are not consecutive")
    made = yield from _encoding_again(batch, data, Compression(target), options.max_message_bytes)
    return made if isinstance(made, RefusedAppend) else CheckedBatch(made, append_time, walked.newest)


def _wanted(options: LogOptions, now_ms: int, *, needs_order: bool) -> Wanted:
    if options.is_log_append_time:
        return Wanted(has_keys=options.is_compacted, needs_order=needs_order)
    return Wanted(
        has_keys=options.is_compacted,
        needs_order=needs_order,
        now_ms=now_ms,
        before_max_ms=options.timestamp_before_max_ms,
        after_max_ms=options.timestamp_after_max_ms,
    )


def prepare_all(
    data: bytes, *, offset: int, epoch: int, options: LogOptions, now_ms: int, is_client: bool
) -> list[RecordBatch] | RefusedAppend:
    """The batches of a request as the log stores them from an offset on, or why one is refused, at once."""
    checked = finished(checking_all(data, options=options, now_ms=now_ms, is_client=is_client))
    return checked if isinstance(checked, RefusedAppend) else checked.placed(offset, epoch)


def check_producers(states: ProducerStates, batches: Sequence[RecordBatch]) -> AppendedBatch | RefusedAppend | None:
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
            return RefusedAppend(refusal.error, refusal.text)
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
    front = _FRONT.pack(offset, batch.size_bytes - BEFORE_LENGTH, epoch)
    if attributes == batch.attributes and newest == batch.max_timestamp:
        data = b"".join((front, memoryview(batch.data)[_FRONT.size :]))
        return structs.replace(batch, base_offset=offset, epoch=epoch, data=data, position=0)
    changed = bytearray(batch.data)
    changed[: _FRONT.size] = front
    _ATTRIBUTES.pack_into(changed, CHECKED_AT, attributes)
    _TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_AT, newest)
    whole = with_checksum(bytes(changed))
    return structs.replace(
        batch,
        base_offset=offset,
        epoch=epoch,
        attributes=attributes,
        max_timestamp=newest,
        crc=int.from_bytes(whole[17:21], "big"),
        data=whole,
        position=0,
    )


def _header_refusal(batch: RecordBatch, *, is_client: bool) -> RefusedAppend | None:
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta + 1 != count:
        return RefusedAppend(
            Error.INVALID_RECORD, f"a batch of {count} records has the last offset delta {batch.last_offset_delta}"
        )
    if batch.is_compressed and count > MOST_RECORDS:
        return RefusedAppend(Error.MESSAGE_TOO_LARGE, f"a batch has {count} records, where {MOST_RECORDS} are the most")
    if batch.is_control and is_client:
        return RefusedAppend(Error.INVALID_RECORD, "a client may not write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0 and not batch.is_control:
        return RefusedAppend(Error.INVALID_RECORD, f"a batch of producer {batch.producer_id} has no sequence number")
    return None


def _record_refusal(walked: Walked, now_ms: int) -> RefusedAppend:
    """The refusal of a batch for some of its records."""
    bad = tuple(
        RecordRefusal(
            index,
            "a compacted topic needs a key in each record"
            if time is None
            else f"the time {time} is too far from the broker's time {now_ms}",
        )
        for index, time in walked.refused
    )
    has_bad_time = any(time is not None for _, time in walked.refused)
    error = Error.INVALID_TIMESTAMP if has_bad_time else Error.INVALID_RECORD
    return RefusedAppend(error, f"{len(bad)} records or more are refused", bad)


def _encoding_again(
    batch: RecordBatch, data: bytes | bytearray, target: Compression, most_bytes: int
) -> Generator[None, None, RecordBatch | RefusedAppend]:
    """The records of a batch with consecutive offsets and another codec."""
    # The times of the records count, not the log append time that the batch may claim.
    own_times = structs.replace(batch, attributes=batch.attributes & ~LOG_APPEND_TIME)
    first = next(frames(own_times, data))
    assert first is not None, "a batch has records"
    body = yield from rewriting(own_times, data, base_time=first.timestamp, renumbers=True)
    packed = bytearray()
    for piece in deflating(target, body):
        packed += piece
        if len(packed) + HEADER_BYTES > most_bytes:
            return RefusedAppend(
                Error.MESSAGE_TOO_LARGE,
                f"the batch has {len(packed) + HEADER_BYTES} bytes or more in the codec of the topic; "
                f"max.message.bytes allows {most_bytes}",
            )
        yield from repeat(None, STEPS_PER_PIECE)
    return packed_batch(own_times, target, first.timestamp, bytes(packed))
