"""The producers of a partition: sequence numbers, epochs and open transactions (Kafka: `ProducerStateManager`,
`ProducerAppendInfo`, `ProducerStateEntry`).

The state is a function of the batches of the log, in order. `producer_files` keeps the state in snapshots.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import takewhile
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from kraft.limits import PRODUCERS_PER_STEP
from metadata_log.errors import CorruptBatch
from metadata_log.log.producer_snapshot import StoredProducer, encode_entries
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import records
from metadata_log.types import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE
from transport.protocol.errors import Error

CACHED_BATCHES: Final = 5
"""How many batches of a producer are known, so that a copy of one is answered and not appended."""
_MAX_SEQUENCE: Final = 2**31 - 1
MARKER_KEY: Final = Layout(">hh")
_MARKER_VALUE: Final = Layout(">hi")
ABORT: Final = 0
_SMALLEST_TABLE: Final = 16


class AppendedBatch(Struct, frozen=True, gc=False):
    """A batch that the log holds (Kafka: `BatchMetadata`).

    Args:
        last_sequence: The sequence number of the last record.
        last_offset: The offset of the last record.
        offset_delta: The distance from the first to the last offset.
        timestamp: The largest time of a record, in ms since 1970.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of the first record; sequence numbers begin again at 0 after 2³¹ - 1."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class Producer(Struct, frozen=True):
    """The state of one producer, as the log knows it (Kafka: `ProducerStateEntry`)."""

    producer_id: int
    epoch: int = NO_EPOCH
    batches: tuple[AppendedBatch, ...] = ()
    """The last batches of this epoch, at most `CACHED_BATCHES`."""
    coordinator_epoch: int = -1
    timestamp: int = -1
    open_offset: int | None = None
    """The first offset of the open transaction."""

    @property
    def last_sequence(self) -> int:
        """The last sequence number; `NO_SEQUENCE` without a batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def stored(self) -> StoredProducer:
        """The entry in a snapshot: only the last batch is kept, as in Kafka."""
        last = self.batches[-1] if self.batches else AppendedBatch(NO_SEQUENCE, -1, 0, -1)
        return StoredProducer(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.timestamp,
            self.coordinator_epoch,
            -1 if self.open_offset is None else self.open_offset,
        )


class EndedTransaction(Struct, frozen=True):
    """A transaction with records in this partition that a marker has ended (Kafka: `CompletedTxn`)."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerRefusal(Struct, frozen=True):
    """Why a batch of a producer is not appended."""

    error: Error
    text: str


def decrement_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` records before `sequence` (`DefaultRecordBatch.decrementSequence`)."""
    return sequence - by if sequence >= by else _MAX_SEQUENCE - (by - sequence) + 1


def last_sequence_of(batch: RecordBatch) -> int:
    """The sequence number of the last record of a batch (`DefaultRecordBatch.lastSequence`)."""
    if batch.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    over = batch.base_sequence - (_MAX_SEQUENCE - batch.last_offset_delta)
    return over - 1 if over > 0 else batch.base_sequence + batch.last_offset_delta


class Marker(Struct, frozen=True):
    """The end of a transaction, as a control record has it (Kafka: `EndTransactionMarker`)."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


def marker_of(batch: RecordBatch, *, where: str | None = None) -> Marker | None:
    """The transaction marker in a control batch; None if compaction has removed the record.

    Raises:
        CorruptBatch: The record is not a transaction marker.
    """
    record = next(iter(records(batch, where=where)), None)
    if record is None:
        return None
    key, value = record.key or b"", record.value or b""
    if len(key) < MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
        raise CorruptBatch("a control record is not a transaction marker", where=where, position=batch.position)
    _, kind = MARKER_KEY.unpack_from(key)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return Marker(kind == ABORT, coordinator_epoch, record.timestamp)


def _buckets(count: int) -> int:
    """The size of a JVM's hash table with so many entries."""
    buckets = _SMALLEST_TABLE
    while count * 4 > buckets * 3:
        buckets *= 2
    return buckets


def _bucket(producer_id: int, buckets: int) -> int:
    """The place of a producer in a JVM's hash table, and so in a snapshot: entries of one place keep their order."""
    return _java_hash(producer_id) & (buckets - 1)


def stored_in_steps(producers: Sequence[Producer]) -> Generator[None, None, list[bytes]]:
    """The entries of a snapshot of these producers, encoded, in pieces.

    A client may use a million producer ids, of which all are in each snapshot of the partition.
    """
    buckets = _buckets(len(producers))
    ranges: list[list[Producer]] = [[] for _ in range(len(producers) // PRODUCERS_PER_STEP + 1)]
    for first in range(0, len(producers), PRODUCERS_PER_STEP):
        for each in producers[first : first + PRODUCERS_PER_STEP]:
            ranges[_bucket(each.producer_id, buckets) * len(ranges) // buckets].append(each)
        yield None
    pieces: list[bytes] = []
    for some in ranges:
        some.sort(key=lambda each: _bucket(each.producer_id, buckets))
        pieces.append(encode_entries(each.stored() for each in some))
        yield None
    return pieces


class ProducerStates:
    """All producers of a partition, with their transactions. The only way to change it is to go on in the log."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.open_transactions: dict[int, int] = {}
        """The producers of open transactions by their first offsets, smallest first."""
        self.unreplicated: dict[int, EndedTransaction] = {}
        """The ended transactions by their first offsets, until the high watermark has passed their markers. They are in
        the order of the markers."""

    def load(self, stored: Iterable[StoredProducer]) -> None:
        """Take over the entries of a snapshot."""
        for each in stored:
            last = AppendedBatch(each.last_sequence, each.last_offset, each.offset_delta, each.timestamp)
            open_offset = each.open_offset if each.open_offset >= 0 else None
            self.producers[each.producer_id] = Producer(
                each.producer_id,
                each.epoch,
                (last,) if each.last_offset >= 0 else (),
                each.coordinator_epoch,
                each.timestamp,
                open_offset,
            )
            if open_offset is not None:
                self.open_transactions[open_offset] = each.producer_id
        self.open_transactions = dict(sorted(self.open_transactions.items()))

    def stored(self) -> list[StoredProducer]:
        """The entries of a snapshot, in their order."""
        buckets = _buckets(len(self.producers))
        return [
            each.stored()
            for each in sorted(self.producers.values(), key=lambda each: _bucket(each.producer_id, buckets))
        ]

    def duplicate_of(self, batch: RecordBatch) -> AppendedBatch | None:
        """The batch of the log that `batch` is a copy of (`ProducerStateEntry.findDuplicateBatch`)."""
        producer = self.producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        first, last = batch.base_sequence, last_sequence_of(batch)
        return next(
            (each for each in producer.batches if each.first_sequence == first and each.last_sequence == last), None
        )

    def check(self, batch: RecordBatch) -> ProducerRefusal | None:
        """Why a client's batch may not be appended; None if it may (`ProducerAppendInfo.maybeValidateDataBatch`)."""
        known = self.producers.get(batch.producer_id)
        if known is None:
            return None
        name = f"producer {batch.producer_id}"
        if batch.producer_epoch < known.epoch:
            text = f"{name} has epoch {known.epoch}; the batch has epoch {batch.producer_epoch}"
            return ProducerRefusal(Error.INVALID_PRODUCER_EPOCH, text)
        first = batch.base_sequence
        if batch.producer_epoch != known.epoch:
            is_next = first == 0 or known.epoch == NO_EPOCH
        else:
            last = known.last_sequence
            is_next = first == last + 1 or (first == 0 and last == _MAX_SEQUENCE)
        if not is_next:
            text = f"{name} of epoch {known.epoch} has sequence {known.last_sequence}; the batch begins with {first}"
            return ProducerRefusal(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        if known.open_offset is not None and not batch.is_transactional:
            text = f"{name} has an open transaction; the batch is not part of it"
            return ProducerRefusal(Error.INVALID_TXN_STATE, text)
        return None

    def note(self, batch: RecordBatch, marker: Marker | None) -> EndedTransaction | None:
        """Go on after a batch of the log, without any check; returns the transaction that the batch ends.

        Args:
            batch: The batch, with its offsets.
            marker: The marker of a control batch (`marker_of`).
        """
        if batch.producer_id <= NO_PRODUCER:
            return None
        known = self.producers.get(batch.producer_id) or Producer(batch.producer_id)
        if batch.is_control:
            return None if marker is None else self._end(known, batch, marker)
        batches = known.batches if known.epoch == batch.producer_epoch else ()
        added = AppendedBatch(last_sequence_of(batch), batch.last_offset, batch.last_offset_delta, batch.max_timestamp)
        begins = known.open_offset is None and batch.is_transactional
        self.producers[batch.producer_id] = Producer(
            batch.producer_id,
            batch.producer_epoch,
            (*batches[1 - CACHED_BATCHES :], added),
            known.coordinator_epoch,
            batch.max_timestamp,
            batch.base_offset if begins else known.open_offset,
        )
        if begins:
            self._begin(batch.base_offset, batch.producer_id)
        return None

    def _end(self, known: Producer, batch: RecordBatch, marker: Marker) -> EndedTransaction | None:
        self.producers[batch.producer_id] = Producer(
            batch.producer_id,
            batch.producer_epoch,
            known.batches if known.epoch == batch.producer_epoch else (),
            marker.coordinator_epoch,
            marker.timestamp,
            None,
        )
        if known.open_offset is None:
            return None
        return EndedTransaction(batch.producer_id, known.open_offset, batch.base_offset, marker.is_abort)

    def _begin(self, first_offset: int, producer_id: int) -> None:
        assert first_offset > next(reversed(self.open_transactions), -1), "batches come in the order of the log"
        self.open_transactions[first_offset] = producer_id

    def stable_offset_behind(self, ended: EndedTransaction) -> int:
        """The last stable offset once `ended` is over (`ProducerStateManager.lastStableOffset`)."""
        others = (first for first, owner in self.open_transactions.items() if owner != ended.producer_id)
        return next(others, ended.last_offset + 1)

    def end(self, ended: EndedTransaction) -> None:
        """Close a transaction; it stays unstable until the high watermark has passed its marker."""
        self.open_transactions.pop(ended.first_offset, None)
        self.unreplicated[ended.first_offset] = ended

    def pass_high_watermark(self, high_watermark: int) -> None:
        """Forget the ended transactions below the high watermark (`onHighWatermarkUpdated`)."""
        done = takewhile(lambda one: one[1].last_offset < high_watermark, self.unreplicated.items())
        for first_offset in [first for first, _ in done]:
            del self.unreplicated[first_offset]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or not replicated; None without one."""
        first_open = next(iter(self.open_transactions), None)
        if not self.unreplicated:
            return first_open
        first_ended = min(self.unreplicated)
        return first_ended if first_open is None else min(first_open, first_ended)

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget the producers without an open transaction that wrote nothing for `after_ms` (`isProducerExpired`)."""
        self.producers = {
            key: each
            for key, each in self.producers.items()
            if each.open_offset is not None or now_ms - each.timestamp < after_ms
        }

    def copy(self) -> ProducerStates:
        """An independent copy."""
        made = ProducerStates()
        made.producers = self.producers.copy()
        made.open_transactions = self.open_transactions.copy()
        made.unreplicated = self.unreplicated.copy()
        return made


def _java_hash(number: int) -> int:
    """The spread hash of a `Long` in a Java `HashMap`."""
    short = (number ^ (number >> 32)) & 0xFFFFFFFF
    return short ^ (short >> 16)
