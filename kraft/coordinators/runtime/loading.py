"""Replays the log of a coordinator's partition, in steps (Kafka: `CoordinatorLoaderImpl`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

from msgspec import Struct, field, structs

from kraft.coordinators.runtime.shard import Record, Shard
from kraft.limits import COORDINATOR_RECORDS_PER_STEP, LOADED_BYTES_PER_STEP
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.producers import marker_of
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from metadata_log.errors import DecodeError
from metadata_log.records.batch import COMPRESSION_MASK, HEADER_BYTES, RecordBatch, scan
from metadata_log.records.coordinator import decode_pair
from metadata_log.records.record import records, unpacking
from metadata_log.types import NO_PRODUCER

S = TypeVar("S")
_BYTES_PER_RECORD: Final = 200
"""So much of a value takes as long as a small record: there may be thousands of members or partitions in it."""
_MOST_TOLD: Final = 3
"""Of so many records of a partition the log of the broker tells what they lack."""
Snapshots = list[tuple[int, S]]
"""States with the offsets after them, oldest first."""


class Lacking(Struct):
    """The records on which others follow, and which cleaning has removed."""

    count: int = 0
    told: list[str] = field(default_factory=list)
    """The first of them, in words."""

    def note(self, what: str) -> None:
        """Count a record that lacks something."""
        self.count += 1
        if len(self.told) < _MOST_TOLD:
            self.told.append(what)


class _Pace(Struct):
    """How many records the present step may still take, in however many batches: a batch may have only one."""

    left: int = COORDINATOR_RECORDS_PER_STEP

    def renew(self) -> None:
        """Another step begins."""
        self.left = COORDINATOR_RECORDS_PER_STEP


def loading(
    hosting: Hosting, part: HostedPartition, shard: Shard[S], lacking: Lacking
) -> Generator[None, None, Snapshots[S]]:
    """Replay the log up to its end, which is beyond the high watermark at a new leader.

    Args:
        hosting: What reads the log.
        part: The partition, which this broker leads.
        shard: The coordinator.
        lacking: Takes what cleaning has removed.

    Returns:
        The state at the high watermark, and the state after each later batch.

    Raises:
        MetadataLogError: The log cannot be read or replayed.
    """
    offset, state = part.log.start_offset, shard.empty()
    snapshots: Snapshots[S] = [(offset, state)]
    pace = _Pace()
    while not part.is_offline and offset < part.log.end_offset:
        data = hosting.read(part, offset, LOADED_BYTES_PER_STEP)
        if isinstance(data, RefusedAppend):
            raise DecodeError(data.text, where=str(part))
        if not data:
            break
        yield None
        pace.renew()
        where = str(part)
        for batch in scan(data, where=where):
            state = yield from _replaying(shard, state, batch, where, lacking, pace)
            offset = batch.next_offset
            if offset <= part.log.high_watermark:
                snapshots = [(offset, state)]
            else:
                snapshots.append((offset, state))
            if pace.left <= 0:
                pace.renew()
                yield None
    return snapshots


def _replaying(
    shard: Shard[S], state: S, batch: RecordBatch, where: str, lacking: Lacking, pace: _Pace
) -> Generator[None, None, S]:
    if batch.is_control:
        pace.left -= 1
        marker = marker_of(batch, where=where)
        if marker is None:
            return state
        return (yield from shard.end_transaction(state, batch.producer_id, is_commit=not marker.is_abort))
    if batch.is_compressed:
        data = yield from unpacking(batch, where=where)
        plain = batch.data[:HEADER_BYTES] + bytes(data)
        batch = structs.replace(batch, attributes=batch.attributes & ~COMPRESSION_MASK, data=plain)
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
    for record in records(batch, where=where):
        at = f"{where}, offset {record.offset}"
        if record.key is None:
            raise DecodeError("a record of a coordinator has no key", where=at)
        pace.left -= 1 + len(record.value or b"") // _BYTES_PER_RECORD
        is_large = pace.left <= -COORDINATOR_RECORDS_PER_STEP
        if is_large:
            # One of the largest: what came before, its decoding and its replay have a step each.
            yield None
        pair = decode_pair(shard.kinds, record.key, record.value, where=at)
        if is_large:
            yield None
        if pair is not None:
            found = Record(pair.key, pair.value, pair.version)
            if what := shard.lacking(state, found):
                lacking.note(f"offset {record.offset}: {what}")
            state = shard.replay(state, found, record.offset, producer_id)
        if pace.left <= 0:
            pace.renew()
            yield None
    return state
