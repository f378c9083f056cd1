"""Confirms reads of the application: no other leader has committed records, and this replica has applied all committed
records (Raft thesis, 6.4).
"""

from __future__ import annotations

from collections import deque

from kraft.quorum.effects import ReadConfirmed


class Confirmations:
    """The reads that wait, by their tokens."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self.confirmed: deque[ReadConfirmed] = deque()
        """The reads that the quorum has confirmed, until the application has applied what they need."""

    def wait(self, token: int) -> None:
        """Add a read that waits."""
        self._waiting.append(token)

    def confirm(self, confirmed: ReadConfirmed) -> None:
        """Note reads that the quorum has confirmed."""
        self.confirmed.append(confirmed)

    def take(self, applied_offset: int) -> list[int]:
        """Take the confirmed reads that need no record at or after this offset; returns their tokens."""
        confirmed = self.confirmed
        taken: list[int] = []
        while confirmed and confirmed[0].offset <= applied_offset:
            taken += confirmed.popleft().read_ids
        for token in taken:
            self._waiting.remove(token)
        return taken

    def abandon(self) -> list[int]:
        """Take all reads, as none will be confirmed; returns their tokens."""
        self.confirmed.clear()
        abandoned, self._waiting = self._waiting, []
        return abandoned
