"""The times at which a part of a process has work to do. Whoever makes work due says so then, and nobody is asked.

Each kind of work has a slot. A turn takes the slots that are due, in their order, and does the work of each; work that
comes up meanwhile in a slot before is for the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metadata_log.types import NEVER_MS


class Slot:
    """The kinds of work of a broker, in the order in which a turn does them. Other parts name their own."""

    AGENT = 0
    """The registration, and the replicas of the broker."""
    LONG_REQUESTS = 1
    LEADERSHIPS = 2
    """Coordinators begin and end with the leadership of their partitions."""
    CHANGES = 3
    """Something has changed for which a request or a coordinator waits."""
    COORDINATORS = 4
    STATES = 5
    """The calls of the share coordinators, and their answers."""
    SHARES = 6
    """Locks of records have ended, or connections with share sessions."""
    WAITING_REQUESTS = 7
    VERIFICATIONS = 8
    PRODUCER_IDS = 9
    CREATIONS = 10
    FORWARDING = 11
    MARKERS = 12
    LOG_ENDS = 13
    """Questions for the ends of logs, of which share groups tell how far they are behind."""
    LETTERS = 14
    """Records on their way to dead-letter queues."""
    REPORTS = 15
    """News for the log of the node."""


_SLOTS: Final = Slot.REPORTS + 1
_AT_ONCE_MS: Final = 0


class Agenda:
    """The time at which the work of each slot is due, in ms since 1970."""

    __slots__ = ("deadline_ms", "times")

    def __init__(self, slots: int = _SLOTS) -> None:
        self.times = [NEVER_MS] * slots
        """By slot, for a look; only the methods change it."""
        self.deadline_ms = NEVER_MS
        """The first of these times."""

    def at(self, slot: int, due_ms: int) -> None:
        """The work of a slot is due at this time, whatever was said before."""
        times = self.times
        before, times[slot] = times[slot], due_ms
        if due_ms < self.deadline_ms:
            self.deadline_ms = due_ms
        elif before == self.deadline_ms:
            self.deadline_ms = min(times)

    def by(self, slot: int, due_ms: int) -> None:
        """The work of a slot is due at this time or before."""
        if due_ms < self.times[slot]:
            self.times[slot] = due_ms
            self.deadline_ms = min(self.deadline_ms, due_ms)

    def now(self, slot: int) -> None:
        """The work of a slot is due in the next turn."""
        self.times[slot] = self.deadline_ms = _AT_ONCE_MS

    def take_due(self, now_ms: int) -> Iterator[int]:
        """The slots that are due, one after the other: the work of one may make that of a later one due."""
        times = self.times
        for slot, due_ms in enumerate(times):
            if due_ms <= now_ms:
                times[slot] = NEVER_MS
                yield slot
        self.deadline_ms = min(times)
