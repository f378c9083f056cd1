"""Confirms reads of the application: no other leader has committed records, and this replica has applied all committed
records (Raft thesis, 6.4).
"""

from __future__ import annotations

from collections import deque

from kraft.quorum.effects import ReadConfirmed


class Confirmations:
    """By their tokens the reads that wait."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self.confirmed: deque[ReadConfirmed] = deque()
        """What the quorum has confirmed, and what has not been applied so far."""

    def wait(self, token: int) -> None:
        """A read waits from now on."""
        self._waiting.append(token)

    def confirm(self, confirmed: ReadConfirmed) -> None:
        """The quorum has confirmed some."""
        self.confirmed.append(confirmed)

    def take(self, applied_offset: int) -> list[int]:
        """The tokens of those that are confirmed and need nothing at or beyond this offset."""
        confirmed = self.confirmed
        taken: list[int] = []
        while confirmed and confirmed[0].offset <= applied_offset:
            taken += confirmed.popleft().read_ids
        for token in taken:
            self._waiting.remove(token)
        return taken

    def abandon(self) -> list[int]:
        """The tokens of all: none will be confirmed."""
        self.confirmed.clear()
        abandoned, self._waiting = self._waiting, []
        return abandoned
