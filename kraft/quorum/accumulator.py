"""Records on their way into the log: gathered to batches by size and linger (Kafka: `BatchAccumulator`).

Offsets are given out at once, so the application can already act on them; the batches are written when `drain` is due.
"""

from __future__ import annotations

from msgspec import Struct

BATCH_OVERHEAD = 61
"""The bytes of a batch header."""
RECORD_OVERHEAD = 21
"""More than a record takes beside its value: lengths, deltas, attributes (`DefaultRecordBatch`, varints at their
widest).
"""


class GatheredBatch(Struct, frozen=True):
    """The values of one batch; the first has `base_offset`, the timestamp is when the batch was opened."""

    base_offset: int
    timestamp_ms: int
    values: tuple[bytes, ...]


class BatchAccumulator:
    """The not yet written batches of one leader."""

    def __init__(self, *, next_offset: int, linger_ms: int, max_batch_bytes: int) -> None:
        self.next_offset = next_offset
        self._linger_ms = linger_ms
        self._lingers = False
        """The first batch of a leader does not linger: its sender has already waited for the election."""
        self._max_batch_bytes = max_batch_bytes
        self._complete: list[GatheredBatch] = []
        self._open: list[bytes] = []
        self._open_bytes = BATCH_OVERHEAD
        self._open_since_ms = 0
        self.pending_bytes = 0
        """What was taken and not handed out."""
        self.drain_at_ms: int | None = None
        """When `drain` is due; None while there is nothing to write."""

    def append(self, values: tuple[bytes, ...], now_ms: int) -> int | None:
        """Take the values, which stay together in one batch; returns the offset of the first, or None where one batch
        cannot hold them.
        """
        size = sum(map(len, values)) + RECORD_OVERHEAD * len(values)
        if size + BATCH_OVERHEAD > self._max_batch_bytes:
            return None
        if self._open and self._open_bytes + size > self._max_batch_bytes:
            self._complete_open()
            self.drain_at_ms = now_ms
        if not self._open:
            self._open_since_ms = now_ms
        if self.drain_at_ms is None:
            self.drain_at_ms = now_ms + (self._linger_ms if self._lingers else 0)
        base_offset = self.next_offset
        self._open.extend(values)
        self._open_bytes += size
        self.pending_bytes += size
        self.next_offset += len(values)
        return base_offset

    def drain(self) -> list[GatheredBatch]:
        """Hand out all batches, in the order of their offsets."""
        self._complete_open()
        drained, self._complete = self._complete, []
        self.pending_bytes = 0
        self.drain_at_ms = None
        return drained

    def _complete_open(self) -> None:
        if not self._open:
            return
        base_offset = self.next_offset - len(self._open)
        self._complete.append(GatheredBatch(base_offset, self._open_since_ms, tuple(self._open)))
        self._open = []
        self._open_bytes = BATCH_OVERHEAD
        self._lingers = True
