"""Collects appended records into batches by size and linger (Kafka: `BatchAccumulator`).

Records get their offsets at once, so that the application can use the offsets before `drain` writes the batches.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.limits import APPENDED_BYTES_PER_TURN

BATCH_OVERHEAD = 61
"""The bytes of a batch header."""
RECORD_OVERHEAD = 21
"""The upper bound in bytes of a record beside its value: lengths, deltas and attributes (`DefaultRecordBatch`, widest
varints).
"""


class GatheredBatch(Struct, frozen=True, gc=False):
    """The values of one batch from `base_offset` on; `timestamp_ms` is the time of its first value."""

    base_offset: int
    timestamp_ms: int
    values: tuple[bytes, ...]


class BatchAccumulator:
    """The unwritten batches of one leader."""

    def __init__(self, *, next_offset: int, linger_ms: int, max_batch_bytes: int) -> None:
        self.next_offset = next_offset
        self._linger_ms = linger_ms
        self._lingers = False
        """False for the first batch of a leader: its sender has already waited for the election."""
        self._max_batch_bytes = max_batch_bytes
        self._complete: list[GatheredBatch] = []
        self._open: list[bytes] = []
        self._open_bytes = BATCH_OVERHEAD
        self._open_since_ms = 0
        self.pending_bytes = 0
        """The bytes of values that are appended and not drained."""
        self.drain_at_ms: int | None = None
        """The time at which `drain` is due; None while no batch is open or complete."""

    def append(self, values: tuple[bytes, ...], now_ms: int) -> int | None:
        """Append values as one unit in one batch; returns the offset of the first value, or None if the unit is larger
        than a batch.
        """
        count = len(values)
        size = (len(values[0]) if count == 1 else sum(map(len, values))) + RECORD_OVERHEAD * count
        total = self._open_bytes + size
        if total > self._max_batch_bytes:
            if size + BATCH_OVERHEAD > self._max_batch_bytes:
                return None
            self._complete_open()
            self.drain_at_ms = now_ms
            total = BATCH_OVERHEAD + size
        if not self._open:
            self._open_since_ms = now_ms
        if self.drain_at_ms is None:
            self.drain_at_ms = now_ms + (self._linger_ms if self._lingers else 0)
        base_offset = self.next_offset
        self._open.extend(values)
        self._open_bytes = total
        pending = self.pending_bytes = self.pending_bytes + size
        if pending >= APPENDED_BYTES_PER_TURN:
            # So much is worth a write, and a turn that wrote much more would be long.
            self.drain_at_ms = now_ms
        self.next_offset = base_offset + count
        return base_offset

    def drain(self) -> list[GatheredBatch]:
        """Remove and return all batches in the order of their offsets."""
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
