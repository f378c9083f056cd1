"""Counts the bytes that a leader has written and not committed. The count bounds what a leader without followers takes.

Kafka bounds only the time for which a request waits in its queue.
"""

from __future__ import annotations

from collections import deque


class Backlog:
    """The batches of this leader that are not committed, and their bytes."""

    __slots__ = ("_batches", "size_bytes")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        """The end offset and the size of each batch."""
        self.size_bytes = 0

    def written(self, next_offset: int, size_bytes: int) -> None:
        """Count a batch in the log that ends before `next_offset`."""
        self._batches.append((next_offset, size_bytes))
        self.size_bytes += size_bytes

    def release(self, committed_offset: int) -> None:
        """Stop counting the batches below `committed_offset`."""
        batches = self._batches
        while batches and batches[0][0] <= committed_offset:
            self.size_bytes -= batches.popleft()[1]

    def forget(self) -> None:
        """Count nothing: this replica does not lead any more, and commits nothing."""
        self._batches.clear()
        self.size_bytes = 0
