"""Reads one partition for a Fetch (Kafka: `Partition.fetchRecords`, `Partition.readRecords`, `UnifiedLog.read`)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct

from kraft.broker.request.sessions import NO_DIVERGENCE, Wanted
from kraft.partitions.log.outcomes import Place, RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.epoch_ends import end_of_epoch
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from metadata_log.records.batch import HEADER_BYTES
from metadata_log.types import NO_EPOCH, NO_OFFSET, OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData

READ_COMMITTED: Final = 1
"""The isolation level of a client that reads no open and no aborted transaction."""


class Isolation(IntEnum):
    """Up to where a client reads (`FetchIsolation`)."""

    HIGH_WATERMARK = 0
    TXN_COMMITTED = 1
    LOG_END = 2


class FetchParams(Struct, frozen=True):
    """The parameters of one Fetch that hold for all its partitions (Kafka: `FetchParams`). Sizes are bytes."""

    replica_id: int
    replica_epoch: int
    isolation: Isolation
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    needs_leader: bool
    rack: str | None
    """The rack of a consumer that may be sent to a nearer replica; None if it may not."""
    is_follower: bool
    """Whether another broker fetches."""


def failed(number: int, error: Error) -> PartitionData:
    """The result of a partition that cannot be read."""
    return PartitionData(
        partition_index=number,
        error_code=error,
        high_watermark=NO_OFFSET,
        last_stable_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )


def bound_of(partition: HostedPartition, isolation: Isolation) -> int:
    """The offset at which a read ends."""
    if isolation is Isolation.LOG_END:
        return partition.log.end_offset
    return partition.log.high_watermark if isolation is Isolation.HIGH_WATERMARK else partition.log.last_stable_offset


def divergence(partition: HostedPartition, wanted: Wanted) -> OffsetAndEpoch | Error | None:
    """Where the log of a reader parts from this one; OFFSET_OUT_OF_RANGE if this log does not know, None if nowhere."""
    if wanted.last_fetched_epoch == NO_EPOCH:
        return None
    log = partition.log
    if wanted.last_fetched_epoch == log.last_epoch and log.start_offset <= wanted.fetch_offset <= log.end_offset:
        return None
    end = end_of_epoch(log.epochs, wanted.last_fetched_epoch, log.end_offset)
    if end is None or wanted.fetch_offset < log.start_offset:
        return Error.OFFSET_OUT_OF_RANGE
    return end if end.epoch < wanted.last_fetched_epoch or end.offset < wanted.fetch_offset else None


class Readable(Struct, frozen=True, gc=False):
    """A partition with records for a reader, and the offsets that held when the reader asked."""

    partition: HostedPartition
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    bound: int
    """The offset at which the read ends."""


def look(partition: HostedPartition, wanted: Wanted, isolation: Isolation) -> PartitionData | Readable:
    """Look for data for a client in one partition from an offset on, without a read.

    Args:
        partition: The replica, which may answer this client.
        wanted: What the client asks for.
        isolation: Up to where the client reads.

    Returns:
        The result if that needs no records; otherwise what `read` reads.
    """
    log = partition.log
    start, end, offset = log.start_offset, log.end_offset, wanted.fetch_offset
    is_within = log.local_start <= offset <= end
    # Most readers are in the last epoch, where nothing parts.
    apart = None if is_within and wanted.last_fetched_epoch == log.last_epoch else divergence(partition, wanted)
    if isinstance(apart, Error):
        return failed(partition.number, apart)
    if apart is None:
        if not is_within:
            return _out_of_range(partition, offset, isolation)
        bound = end if isolation is Isolation.LOG_END else bound_of(partition, isolation)
        if offset < bound:
            return Readable(partition, log.high_watermark, log.last_stable_offset, start, bound)
    # A reader at the bound is the usual case: most partitions of a session have nothing new.
    is_committed = apart is None and isolation is Isolation.TXN_COMMITTED
    return PartitionData(
        partition_index=partition.number,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=start,
        diverging_epoch=NO_DIVERGENCE if apart is None else EpochEndOffset(epoch=apart.epoch, end_offset=apart.offset),
        aborted_transactions=[] if is_committed else None,
        records=b"",
    )


def _out_of_range(partition: HostedPartition, offset: int, isolation: Isolation) -> PartitionData:
    """The result for an offset that this replica does not hold (`ReplicaManager.handleOffsetOutOfRangeError`).

    A follower learns that the records are in tiered storage, and reads there. A consumer gets the error of a broker of
    Kafka that cannot read there, upon which it asks again: after OFFSET_OUT_OF_RANGE it would go on elsewhere.
    """
    log = partition.log
    if not log.start_offset <= offset < log.local_start:
        return failed(partition.number, Error.OFFSET_OUT_OF_RANGE)
    if isolation is not Isolation.LOG_END:
        return failed(partition.number, Error.UNKNOWN_SERVER_ERROR)
    return PartitionData(
        partition_index=partition.number,
        error_code=Error.OFFSET_MOVED_TO_TIERED_STORAGE,
        high_watermark=log.high_watermark,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=b"",
    )


def withheld(found: Readable) -> PartitionData:
    """The result for a follower that gets none of the records that there are."""
    return PartitionData(
        partition_index=found.partition.number,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.start_offset,
        aborted_transactions=None,
        records=b"",
    )


def read(
    manager: ReplicaManager,
    found: Readable,
    wanted: Wanted,
    isolation: Isolation,
    max_bytes: int,
    *,
    at_least_one: bool,
) -> PartitionData:
    """The records of one partition from an offset on, with the offsets that held before the read.

    Args:
        manager: The replicas of this broker: a failure of the disk takes the log directory offline.
        found: What `look` has found.
        wanted: What the client asks for.
        isolation: Up to where the client reads.
        max_bytes: How much room the answer has left.
        at_least_one: Whether the first batch is returned even if it is larger than the room.
    """
    partition = found.partition
    records = manager.hosting.read(
        partition,
        wanted.fetch_offset,
        min(wanted.max_bytes, max_bytes),
        end_offset=found.bound,
        at_least_one=at_least_one,
    )
    if isinstance(records, RefusedAppend):
        return failed(partition.number, records.error)
    aborted: list[AbortedTransaction] | None = None
    if isolation is Isolation.TXN_COMMITTED:
        ended = partition.log.aborted(wanted.fetch_offset, end_of(records)) if records else ()
        aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in ended]
    return PartitionData(
        partition_index=partition.number,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.start_offset,
        aborted_transactions=aborted,
        records=records,
    )


def end_of(data: bytes) -> int:
    """The offset after the last of these whole batches."""
    at = end = 0
    while at + HEADER_BYTES <= len(data):
        end = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return end


class Reader(Struct):
    """Where a waiting reader of one partition begins. As in Kafka, the place is found once."""

    log: PartitionLog
    cuts: int
    place: Place


def readable_bytes(
    manager: ReplicaManager, partition: HostedPartition, offset: int, bound: int, reader: Reader | None
) -> tuple[int, Reader] | None:
    """How many bytes there are between a reader and its bound, for the decision whether a Fetch waits on.

    Nothing is read for that but the headers on the way to the two places, and those once for all readers: an append
    wakes each of them (`DelayedFetch.tryComplete`).

    Args:
        manager: The replicas of this broker.
        partition: The replica.
        offset: The offset of the reader, below `bound`.
        bound: The offset at which the read ends.
        reader: What the last call returned for this reader; None before the first one.

    Returns:
        The bytes, and the reader for the next call; None if the wait is over: the segment of the reader is complete, or
        cannot be read, or the log begins after the reader's offset by now.
    """
    log = partition.log
    if offset < log.local_start:
        return None
    end = manager.hosting.place_of(partition, bound)
    if isinstance(end, RefusedAppend):
        return None
    if reader is None or reader.log is not log or reader.cuts != log.cuts:
        begin = manager.hosting.place_of(partition, offset)
        if isinstance(begin, RefusedAppend):
            return None
        reader = Reader(log, log.cuts, begin)
    if reader.place.segment < end.segment:
        return None
    return end.position - reader.place.position, reader
