"""How much a leader has written that is not committed, so that a leader without its followers does not take ever more.

Kafka bounds only the time for which a request waits in its queue.
"""

from __future__ import annotations

from collections import deque


class Backlog:
    """The batches of this leader that are not committed, and their bytes."""

    __slots__ = ("_batches", "size_bytes")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        """Where each batch ends, and its bytes."""
        self.size_bytes = 0

    def written(self, next_offset: int, size_bytes: int) -> None:
        """A batch of so many bytes that ends before `next_offset` is in the log."""
        self._batches.append((next_offset, size_bytes))
        self.size_bytes += size_bytes

    def release(self, committed_offset: int) -> None:
        """Everything below `committed_offset` is committed."""
        batches = self._batches
        while batches and batches[0][0] <= committed_offset:
            self.size_bytes -= batches.popleft()[1]

    def forget(self) -> None:
        """Nothing that was written is this replica's to commit any more."""
        self._batches.clear()
        self.size_bytes = 0
