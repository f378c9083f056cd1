"""Records proposed within one burst of events: they have their offsets at once, and reach the core together at its end.

Handing each unit to the core by itself would cost as much as deciding on it. All units of a burst stand in one batch,
which is more than their authors asked for. How much was taken is known until it is committed, so that a leader without
its followers does not take ever more (Kafka bounds only the time that a request waits in its queue).
"""

from __future__ import annotations

from collections import deque

from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD


class Gathered:
    """The values that the core does not have yet; the first of them has `base_offset`."""

    __slots__ = ("_bytes", "_handed_over", "_max_batch_bytes", "backlog_bytes", "base_offset", "values")

    def __init__(self, max_batch_bytes: int) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._bytes = BATCH_OVERHEAD
        self._handed_over: deque[tuple[int, int]] = deque()
        """What is not committed: where each burst ends, and its bytes."""
        self.backlog_bytes = 0
        """What was taken and is not committed."""
        self.base_offset = 0
        self.values: list[bytes] = []

    @property
    def next_offset(self) -> int:
        """The offset of the next value."""
        return self.base_offset + len(self.values)

    def add(self, values: tuple[bytes, ...]) -> bool:
        """Take the values, or refuse them if they cannot stand in one batch with those gathered so far."""
        size = sum(map(len, values)) + RECORD_OVERHEAD * len(values)
        if self._bytes + size > self._max_batch_bytes:
            return False
        self._bytes += size
        self.backlog_bytes += size
        self.values.extend(values)
        return True

    def take(self) -> tuple[bytes, ...]:
        """Hand out what was gathered and begin anew."""
        taken = tuple(self.values)
        self._handed_over.append((self.base_offset + len(taken), self._bytes - BATCH_OVERHEAD))
        self._clear()
        return taken

    def release(self, committed_offset: int) -> None:
        """Everything below `committed_offset` is committed."""
        handed_over = self._handed_over
        while handed_over and handed_over[0][0] <= committed_offset:
            self.backlog_bytes -= handed_over.popleft()[1]

    def forget(self) -> None:
        """Nothing that was taken is this replica's to commit any more."""
        self._handed_over.clear()
        self.backlog_bytes = 0
        self._clear()

    def _clear(self) -> None:
        self.values = []
        self._bytes = BATCH_OVERHEAD
