"""Committed batches, in order, each once (Kafka: `RaftMessageQueue` and `ListenerContext.fireHandleCommit`).

A leader remembers what it appends, so that committing costs no read; everything else is read from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from kraft.replica.events import CommittedBatch
from metadata_log.batch import RecordBatch, records
from metadata_log.errors import CorruptBatch
from metadata_log.log import MetadataLog

READ_BYTES: Final = 1 << 20
"""How much of the log one step applies at most, so that a long catch-up does not keep the owner from answering."""


class Applier:
    """Hands out what lies between what was applied and the high watermark."""

    __slots__ = ("_log", "_remembered", "next_offset")

    def __init__(self, log: MetadataLog, next_offset: int) -> None:
        self.next_offset = next_offset
        """Everything below was handed out."""
        self._log = log
        self._remembered: deque[CommittedBatch] = deque()

    def remember(self, batch: CommittedBatch) -> None:
        """The leader appended this batch; a control batch has no values."""
        self._remembered.append(batch)

    def forget(self) -> None:
        """What was appended may not be what gets committed."""
        self._remembered.clear()

    def advance(self, high_watermark: int) -> Iterator[CommittedBatch]:
        """The next batches below `high_watermark`: not always all of them, but at least one if there is one.

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
        self.next_offset = offset

    def skip(self, high_watermark: int) -> None:
        """Nobody wants to see the batches below `high_watermark`."""
        self._remembered.clear()
        self.next_offset = max(self.next_offset, high_watermark)

    def _read(self, high_watermark: int) -> Iterator[CommittedBatch]:
        if self.next_offset >= high_watermark:
            return
        for batch in self._log.read_batches(self.next_offset, READ_BYTES, end_offset=high_watermark):
            values = _values(batch, self._log.directory)
            self.next_offset = batch.next_offset
            yield CommittedBatch(
                batch.base_offset, batch.next_offset, batch.epoch, batch.base_timestamp, values, batch.size_bytes
            )

    def fork(self, log: MetadataLog) -> Applier:
        """An independent copy over the copy of a log."""
        copy = Applier(log, self.next_offset)
        copy._remembered = self._remembered.copy()
        return copy


def _values(batch: RecordBatch, where: str) -> tuple[bytes, ...]:
    """The values of a data batch; a control batch has none."""
    if batch.is_control:
        return ()
    values = []
    for record in records(batch, where=where):
        if record.value is None:
            raise CorruptBatch(f"the data record at offset {record.offset} has no value", where=where)
        values.append(record.value)
    return tuple(values)
