"""Reads committed batches in order, each once (Kafka: `ListenerContext.fireHandleCommit`).

A leader remembers the batches that it appends, so that a commit needs no read. All other batches come from the log. A
follower has decoded them when they arrived, and keeps that until the commit: for the very object that the log holds in
memory, so that nothing is kept of a batch that was truncated or never appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from kraft.committed import CommittedBatch
from kraft.limits import APPLIED_BYTES_PER_STEP, DECODED_RECORDS_PER_TURN, KEPT_BYTES
from metadata_log.errors import CorruptBatch
from metadata_log.log.log import MetadataLog
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import Record, records
from metadata_log.serde import Message


class _Reading:
    """A batch that takes several turns to read."""

    __slots__ = ("_batch", "_records", "_values", "_where")

    def __init__(self, batch: RecordBatch, where: str) -> None:
        self._batch = batch
        self._where = where
        self._values: list[bytes] = []
        self._records: Iterator[Record] = iter(()) if batch.is_control else records(batch, where=where)

    def go_on(self) -> CommittedBatch | None:
        """Read the next records; returns the batch when those were the last."""
        where = self._where
        found = list(islice(self._records, DECODED_RECORDS_PER_TURN))
        for record in found:
            if record.value is None:
                raise CorruptBatch(f"the data record at offset {record.offset} has no value", where=where)
            self._values.append(record.value)
        batch = self._batch
        if len(found) == DECODED_RECORDS_PER_TURN and len(self._values) < batch.record_count:
            return None
        # After the last record the reader checks the end of the batch.
        for _ in self._records:
            pass
        return _committed(batch, tuple(self._values))


def _committed(batch: RecordBatch, values: tuple[bytes, ...], records: tuple[Message, ...] = ()) -> CommittedBatch:
    return CommittedBatch(
        batch.base_offset, batch.next_offset, batch.epoch, batch.base_timestamp, values, batch.size_bytes, records
    )


class Kept(Struct, frozen=True, gc=False):
    """A batch of a leader, decoded when it arrived."""

    batch: RecordBatch
    whole: CommittedBatch


class Applier:
    """Returns the batches between the last applied one and the high watermark."""

    __slots__ = ("_kept", "_kept_bytes", "_log", "_reading", "_remembered", "next_offset")

    def __init__(self, log: MetadataLog, next_offset: int) -> None:
        self.next_offset = next_offset
        """All batches below this offset were returned."""
        self._log = log
        self._remembered: deque[CommittedBatch] = deque()
        self._kept: dict[int, Kept] = {}
        """The values that `keep` was given, by base offset."""
        self._kept_bytes = 0
        self._reading: _Reading | None = None
        """The batch at `next_offset`, if an earlier call has read a part of it."""

    def remember(self, batch: CommittedBatch) -> None:
        """Keep a batch that this leader appended. A control batch has no values."""
        self._remembered.append(batch)

    def keep(self, batch: RecordBatch, values: Sequence[bytes], records: Sequence[Message]) -> None:
        """Keep a decoded batch of a leader, which may never be appended, until its commit, if there is room."""
        self._drop(batch.base_offset)
        if self._kept_bytes + batch.size_bytes <= KEPT_BYTES:
            self._kept_bytes += batch.size_bytes
            self._kept[batch.base_offset] = Kept(batch, _committed(batch, tuple(values), tuple(records)))

    def _drop(self, base_offset: int) -> Kept | None:
        kept = self._kept.pop(base_offset, None)
        if kept is not None:
            self._kept_bytes -= kept.batch.size_bytes
        return kept

    def forget(self) -> None:
        """Forget the appended batches: after a loss of leadership others may be committed at their offsets."""
        self._remembered.clear()

    def advance(self, high_watermark: int) -> Iterator[CommittedBatch]:
        """The next batches below `high_watermark`: not always all of them, but at least one if there is one.

        A batch with too many records for one turn is returned by a later call, once all of its records are read. A
        batch without values holds control records. Raises `CorruptBatch` where the log cannot be read.
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
        """Go on at this offset: a snapshot contains all records before it."""
        self._remembered.clear()
        self._reading = None
        self.next_offset = offset

    def skip(self, high_watermark: int) -> None:
        """Skip the batches below `high_watermark`, as the application does not read batches."""
        self._remembered.clear()
        self._reading = None
        self.next_offset = max(self.next_offset, high_watermark)

    def _read(self, high_watermark: int) -> Iterator[CommittedBatch]:
        taken = 0
        while self._reading is None and (kept := self._kept.get(self.next_offset)) is not None:
            # What a follower that keeps up has: the batch was decoded on its arrival, and is still in memory.
            batch, whole = kept.batch, kept.whole
            if whole.next_offset > high_watermark or self._log.batch_in_memory(self.next_offset) is not batch:
                break
            taken += batch.size_bytes
            if taken > APPLIED_BYTES_PER_STEP and taken > batch.size_bytes:
                return
            self._drop(self.next_offset)
            self.next_offset = whole.next_offset
            yield whole
        if self.next_offset >= high_watermark:
            return
        batches: Iterable[_Reading | CommittedBatch]
        if self._reading is None:
            log = self._log
            for base_offset in [one for one in self._kept if one < self.next_offset]:
                self._drop(base_offset)
            stored = log.read_batches(self.next_offset, APPLIED_BYTES_PER_STEP - taken, end_offset=high_watermark)
            batches = map(self._reading_of, stored)
        else:
            # Committed records do not change: a later turn may read on in the batch.
            batches, self._reading = (self._reading,), None
        for reading in batches:
            if isinstance(reading, CommittedBatch):
                whole = reading
            elif (found := reading.go_on()) is not None:
                whole = found
            else:
                self._reading = reading
                return
            self.next_offset = whole.next_offset
            yield whole

    def _reading_of(self, batch: RecordBatch) -> _Reading | CommittedBatch:
        """A batch of the log, decoded if this very object was kept."""
        kept = self._drop(batch.base_offset)
        return kept.whole if kept is not None and kept.batch is batch else _Reading(batch, self._log.directory)
