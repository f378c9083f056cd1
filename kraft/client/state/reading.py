"""Reads the records of a Fetch answer (Kafka: `CompletedFetch`).

The records become objects only as somebody takes them: a few kilobytes may hold millions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop

from msgspec import Struct

from kraft.client.state.positions import ConsumedRecord
from metadata_log.errors import IncompleteBatch
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.record import records
from transport.protocol.messages.fetch import AbortedTransaction

_ABORT = b"\x00\x00\x00\x00"
"""The key of an abort marker: version 0, type 0."""


class ReadAnswer(Struct):
    """The records of a Fetch answer for one partition.

    Args:
        partition: The number of the partition.
        records: The records. One with damage inside of its batch raises `CorruptBatch` as it is taken.
        most: How many are left at most.
        following: The offset after the last whole batch.
    """

    partition: int
    records: Iterator[ConsumedRecord]
    most: int
    following: int


def read_answer(
    data: bytes, partition: int, first: int, aborted: Sequence[AbortedTransaction], *, where: str
) -> ReadAnswer:
    """The records from an offset on.

    Args:
        data: The records of a Fetch answer. The last batch may be cut.
        partition: The number of the partition.
        first: The offset of the first wanted record.
        aborted: The aborted transactions in the answer; empty to read them, too.
        where: The name of the partition and the leader, for errors.

    Raises:
        CorruptBatch: A batch is damaged.
        UnsupportedVersion: A batch has a format before 2.
    """
    position = first
    transactions = _Aborted(aborted)
    wanted: list[RecordBatch] = []
    for batch in _whole_batches(data, where):
        position = max(position, batch.next_offset)
        if transactions.has_record_of(batch):
            wanted.append(batch)
    count = sum(max(0, batch.record_count) for batch in wanted)
    return ReadAnswer(partition, _records_of(wanted, partition, first, where), count, position)


def _records_of(batches: Sequence[RecordBatch], partition: int, first: int, where: str) -> Iterator[ConsumedRecord]:
    for batch in batches:
        is_append_time, epoch = batch.is_log_append_time, batch.epoch
        for one in records(batch, where=where):
            if one.offset >= first:
                yield ConsumedRecord(
                    partition, one.offset, one.timestamp, is_append_time, one.key, one.value, one.headers, epoch
                )


def _whole_batches(data: bytes, where: str) -> Iterator[RecordBatch]:
    try:
        yield from scan(data, where=where)
    except IncompleteBatch:
        return  # Kafka sends a range of a file, which may end within a batch


class _Aborted:
    """The aborted transactions while batches are read in order: a marker ends the one of its producer."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._waiting = [(one.first_offset, one.producer_id) for one in aborted]
        heapify(self._waiting)
        self._open: set[int] = set()

    def has_record_of(self, batch: RecordBatch) -> bool:
        """Whether the batch has records for the user: no markers, nothing aborted."""
        while self._waiting and self._waiting[0][0] <= batch.last_offset:
            self._open.add(heappop(self._waiting)[1])
        if not batch.is_control:
            return not (batch.is_transactional and batch.producer_id in self._open)
        if batch.producer_id in self._open and any(one.key == _ABORT for one in records(batch)):
            self._open.discard(batch.producer_id)
        return False
