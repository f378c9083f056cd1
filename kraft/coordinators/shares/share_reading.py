"""Reads of a share partition for a member (Kafka: `DelayedShareFetch`, `ShareFetchUtils.processFetchResponse`)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from kraft.coordinators.shares.leader import Led
from kraft.coordinators.shares.share_partition import Acquired, ShareLimits, Span, Take
from kraft.limits import SHARE_READ_BYTES
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.manager import ReplicaManager
from metadata_log.records.batch import BEFORE_LENGTH, CONTROL, HEADER_BYTES, TRANSACTIONAL
from transport.protocol.errors import Error

_FRONT: Final = Layout(">qiibIhi")
_PRODUCER_AT: Final = 43


class _Header(Struct, frozen=True, gc=False):
    """A record batch of a read: its offsets, where it ends in the bytes, and the producer of a transaction in it."""

    span: Span
    end: int
    producer_id: int | None


class Delivery(Struct, frozen=True):
    """Records that a member has been given, with the record batches in which they are."""

    acquired: Sequence[Acquired]
    records: bytes


NOTHING: Final = Delivery((), b"")


def bound_of(led: Led, limits: ShareLimits) -> int:
    """The offset at which members stop to read."""
    log = led.part.log
    return log.last_stable_offset if limits.is_committed else log.high_watermark


def is_readable(led: Led, limits: ShareLimits) -> bool:
    """Whether a fetch may get something of a share partition now."""
    partition, log = led.partition, led.part.log
    if partition is None:
        return led.read is not None
    if log.start_offset > partition.start:
        return True
    return partition.has_room(limits) and partition.next_fetch() < bound_of(led, limits)


def deliver(
    manager: ReplicaManager, led: Led, take: Take, limits: ShareLimits, max_bytes: int, now_ms: int
) -> Delivery | Error:
    """Read on for a member, and give it what it may have."""
    partition, log = led.partition, led.part.log
    assert partition is not None, led
    partition.raise_start(log.start_offset)
    offset, bound = partition.next_fetch(), bound_of(led, limits)
    if offset >= bound or offset < log.local_start or not partition.has_room(limits):
        return NOTHING
    data = _read(manager, led, offset, bound, max_bytes, min(take.most, limits.window))
    if isinstance(data, Error):
        return data
    headers = _headers(data)
    acquired = partition.acquire(take, offset, [each.span for each in headers], limits, now_ms)
    if acquired and limits.is_committed:
        acquired = partition.archive(_aborted(log, headers), acquired)
    return Delivery(acquired, _around(data, headers, acquired)) if acquired else NOTHING


def _read(manager: ReplicaManager, led: Led, offset: int, bound: int, max_bytes: int, most: int) -> bytes | Error:
    """Whole record batches from an offset on, until they have as many offsets as a member may be given.

    A member names a few hundred records and fifty megabytes: what it cannot get is not read.
    """
    parts: list[bytes] = []
    at, left = offset, max_bytes
    while at < bound and (left > 0 or not parts):
        part = manager.hosting.read(
            led.part,
            at,
            min(left, SHARE_READ_BYTES),
            end_offset=bound,
            at_least_one=not parts or left >= SHARE_READ_BYTES,
        )
        if isinstance(part, RefusedAppend):
            return part.error
        if not part:
            break
        parts.append(part)
        left -= len(part)
        at = _end_of(part)
        if at - offset >= most:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _end_of(data: bytes) -> int:
    """The offset after the last of these whole batches."""
    at = end = 0
    while at + HEADER_BYTES <= len(data):
        base, length, _, _, _, _, delta = _FRONT.unpack_from(data, at)
        end = base + delta + 1
        at += BEFORE_LENGTH + length
    return end


def _headers(data: bytes) -> list[_Header]:
    headers = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, length, _, _, _, bits, delta = _FRONT.unpack_from(data, at)
        producer_id = None
        if bits & TRANSACTIONAL and not bits & CONTROL:
            producer_id = int.from_bytes(data[at + _PRODUCER_AT : at + _PRODUCER_AT + 8], "big", signed=True)
        at += BEFORE_LENGTH + length
        headers.append(_Header(Span(base, base + delta), at, producer_id))
    return headers


def _aborted(log: PartitionLog, headers: Sequence[_Header]) -> list[Span]:
    """The record batches that an aborted transaction has written."""
    if not any(each.producer_id is not None for each in headers):
        return []
    ended: dict[int, list[Span]] = {}
    for one in log.aborted(headers[0].span.first, headers[-1].span.last + 1):
        ended.setdefault(one.producer_id, []).append(Span(one.first_offset, one.last_offset))
    return [
        each.span
        for each in headers
        if each.producer_id is not None
        and any(one.first <= each.span.first <= one.last for one in ended.get(each.producer_id, ()))
    ]


def _around(data: bytes, headers: Sequence[_Header], acquired: Sequence[Acquired]) -> bytes:
    """The record batches from the first to the last acquired offset."""
    first, last = acquired[0].first, acquired[-1].last
    begin, end = 0, len(data)
    for each in headers:
        if each.span.last < first:
            begin = each.end
        if each.span.first <= last:
            end = each.end
    return data if (begin, end) == (0, len(data)) else data[begin:end]
