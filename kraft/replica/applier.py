"""Committed batches, in order, each once (Kafka: `RaftMessageQueue` and `ListenerContext.fireHandleCommit`).

A leader remembers what it appends, so that committing costs no read; everything else is read from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from kraft.replica.interface.events import CommittedBatch
from metadata_log.errors import CorruptBatch
from metadata_log.log.log import MetadataLog
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import Record, records

READ_BYTES: Final = 1 << 20
"""How much of the log one step applies at most, so that a long catch-up does not keep the owner from answering."""


RECORDS_PER_TURN: Final = 10_000
"""How many records of one batch are read in a turn, some ten milliseconds; as many as a controller writes at once."""


class _Reading:
    """A batch of which not all records were read in one turn."""

    __slots__ = ("_batch", "_records", "_values", "_where")

    def __init__(self, batch: RecordBatch, where: str) -> None:
        self._batch = batch
        self._where = where
        self._values: list[bytes] = []
        self._records: Iterator[Record] = iter(()) if batch.is_control else records(batch, where=where)

    def go_on(self) -> CommittedBatch | None:
        """Read the next records; returns the batch when those were the last."""
        where = self._where
        found = list(islice(self._records, RECORDS_PER_TURN))
        for record in found:
            if record.value is None:
                raise CorruptBatch(f"the data record at offset {record.offset} has no value", where=where)
            self._values.append(record.value)
        batch = self._batch
        if len(found) == RECORDS_PER_TURN and len(self._values) < batch.record_count:
            return None
        # Beyond the last record the reader finds what is wrong with the end of the batch.
        for _ in self._records:
            pass
        values = tuple(self._values)
        return CommittedBatch(
            batch.base_offset, batch.next_offset, batch.epoch, batch.base_timestamp, values, batch.size_bytes
        )


class Applier:
    """Hands out what lies between what was applied and the high watermark."""

    __slots__ = ("_log", "_reading", "_remembered", "next_offset")

    def __init__(self, log: MetadataLog, next_offset: int) -> None:
        self.next_offset = next_offset
        """Everything below was handed out."""
        self._log = log
        self._remembered: deque[CommittedBatch] = deque()
        self._reading: _Reading | None = None
        """The batch at `next_offset`, if a former call has not come to its end."""

    def remember(self, batch: CommittedBatch) -> None:
        """The leader appended this batch; a control batch has no values."""
        self._remembered.append(batch)

    def forget(self) -> None:
        """What was appended may not be what gets committed."""
        self._remembered.clear()

    def advance(self, high_watermark: int) -> Iterator[CommittedBatch]:
        """The next batches below `high_watermark`: not always all of them, but at least one if there is one.

        A batch with too many records to be read at once comes with a later call, when all its records are read.

        A batch without values holds control records. Raises `CorruptBatch` where the log cannot be read.
        """
        remembered = self._remembered
        while remembered and remembered[0].base_offset < self.next_offset:
            remembered.popleft()
        if not remembered or remembered[0].base_offset != self.next_offset:
            yield from self._read(high_watermark)
            return
        while remembered and remembered[0].next_offset <= high_watermark:
            batch = remembered.popleft()
            self.next_offset = batch.next_offset
            yield batch

    def begin_at(self, offset: int) -> None:
        """A snapshot has everything below."""
        self._remembered.clear()
        self._reading = None
        self.next_offset = offset

    def skip(self, high_watermark: int) -> None:
        """Skip the batches below `high_watermark`, as the application does not read batches."""
        self._remembered.clear()
        self._reading = None
        self.next_offset = max(self.next_offset, high_watermark)

    def _read(self, high_watermark: int) -> Iterator[CommittedBatch]:
        if self.next_offset >= high_watermark:
            return
        batches: Iterable[_Reading]
        if self._reading is None:
            log = self._log
            found = log.read_batches(self.next_offset, READ_BYTES, end_offset=high_watermark)
            batches = (_Reading(batch, log.directory) for batch in found)
        else:
            # Committed records do not change: a later turn may read on in the batch.
            batches, self._reading = (self._reading,), None
        for reading in batches:
            whole = reading.go_on()
            if whole is None:
                self._reading = reading
                return
            self.next_offset = whole.next_offset
            yield whole
