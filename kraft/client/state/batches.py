"""The batches of a producer (Kafka: `ProducerBatch`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.compression import Compression
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Header, Record
from metadata_log.types import NO_EPOCH

BATCH_BYTES: Final = 64 << 10
"""The most bytes of a batch before compression, but for a single larger record (Kafka: `batch.size`, 16 KiB)."""
_RECORD_BYTES: Final = 24
"""The bytes of a record beside its key, its value and its headers, at most."""
_HEADER_BYTES: Final = 10


class NewRecord(Struct, frozen=True, kw_only=True):
    """A record to write (Kafka: `ProducerRecord`).

    Args:
        value: The value; None deletes the key of a compacted topic.
        key: The key, which selects the partition; None for any partition.
        headers: The headers, in order.
        partition: The number of the partition; None to let the key or the producer select it.
        timestamp_ms: The time in ms since 1970; None for now.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Numbered(Struct, frozen=True):
    """A record with its number, its time, and the time at which the user gave it."""

    number: int
    record: NewRecord
    timestamp_ms: int
    added_ms: int


class Sequence(Struct, frozen=True):
    """The identity of a batch of an idempotent producer."""

    producer_id: int
    epoch: int
    first: int


def size_of(record: NewRecord) -> int:
    """The bytes that a record takes in a batch without compression, at most."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for header in record.headers:
        size += _HEADER_BYTES + len(header.key.encode()) + len(header.value or b"")
    return size


class Batch:
    """The records of one partition that are sent together."""

    def __init__(self, partition: int, compression: Compression) -> None:
        self.partition = partition
        self.entries: list[Numbered] = []
        self.size = 0
        """The bytes of the records before compression."""
        self.attempts = 0
        """How many requests with this batch have failed."""
        self.due_ms = 0
        """When the batch may be sent again."""
        self.is_sent = False
        """Whether a request with this batch is on its way."""
        self.sequence: Sequence | None = None
        self._compression = compression
        self._data: bytes | None = None

    @property
    def added_ms(self) -> int:
        """The time at which the first record was added: the age of the batch counts from there."""
        return self.entries[0].added_ms

    @property
    def is_frozen(self) -> bool:
        """Whether the batch takes no more records, as its bytes are made."""
        return self._data is not None

    def has_room_for(self, entry: Numbered) -> bool:
        """Whether another record fits."""
        return not self.is_frozen and (not self.entries or self.size + size_of(entry.record) <= BATCH_BYTES)

    def add(self, entry: Numbered) -> None:
        """Append a record."""
        assert not self.is_frozen, self.partition
        self.entries.append(entry)
        self.size += size_of(entry.record)

    def freeze(self, sequence: Sequence | None, *, is_transactional: bool = False) -> None:
        """Make the bytes of the batch; a repetition sends the same bytes, so that the leader recognizes them."""
        self.sequence = sequence
        made = sequence or Sequence(-1, -1, -1)
        self._data = write_batch(
            [
                Record(index, one.timestamp_ms, 0, one.record.key, one.record.value, one.record.headers)
                for index, one in enumerate(self.entries)
            ],
            epoch=NO_EPOCH,
            compression=self._compression,
            producer_id=made.producer_id,
            producer_epoch=made.epoch,
            base_sequence=made.first,
            transactional=is_transactional,
        )

    def send(self) -> bytes:
        """The bytes of the batch, which is now on its way."""
        assert self._data is not None, self.partition
        self.is_sent = True
        return self._data

    def halves(self) -> tuple[Batch, Batch]:
        """Two batches with the records of this one, which is too large (Kafka: `ProducerBatch.split`)."""
        middle = len(self.entries) // 2
        parts = Batch(self.partition, self._compression), Batch(self.partition, self._compression)
        for index, entry in enumerate(self.entries):
            parts[index >= middle].add(entry)
        return parts
