"""The records of a share partition that are on their way, as runs of neighbours with one state (Kafka: `InFlightBatch`,
`InFlightState`).

Kafka keeps a state for each offset of a batch that was touched in part. Runs say the same with less: a batch may have
more offsets than there are records.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from operator import attrgetter
from typing import Final

from msgspec import Struct


class State(IntEnum):
    """The state of a record, by its number on the wire and on disk; ACQUIRED is never on disk."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """On the way to the dead-letter queue."""
    ARCHIVED = 4


TERMINAL: Final = frozenset((State.ACKNOWLEDGED, State.ARCHIVED))
"""The states that nothing leaves."""
_first: Final = attrgetter("first")


class Run(Struct, eq=False, gc=False):
    """Neighbouring offsets, both ends included, with the same state."""

    first: int
    last: int
    state: State
    count: int
    """How often they were delivered."""
    member: str = ""
    """The holder of the lock; empty without one."""
    lock_ms: int = 0
    """When the lock ends."""
    is_moving: bool = False
    """Whether the share coordinator has yet to write the state; the lock is kept until then."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire the offsets."""
        return self.state is State.AVAILABLE and not self.is_moving

    @property
    def is_over(self) -> bool:
        """Whether the offsets are done with, and the share coordinator knows or need not know."""
        return self.state in TERMINAL and not self.is_moving

    def lock(self, member: str, lock_ms: int) -> None:
        """Deliver the offsets to a member."""
        self.state, self.count, self.member, self.lock_ms = State.ACQUIRED, self.count + 1, member, lock_ms

    def rest(self, state: State) -> None:
        """Take the lock away; the offsets have a state for good, or until the next delivery."""
        self.state, self.member, self.lock_ms, self.is_moving = state, "", 0, False


class Batch(Struct, eq=False):
    """Offsets that were acquired together, or a gap in what the share coordinator knows."""

    first: int
    last: int
    runs: list[Run]
    is_gap: bool = False
    """Whether nobody ever acquired these offsets, although later ones were: they are handed out as new ones are."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def within(self, first: int, last: int) -> list[Run]:
        """The runs with offsets in a range."""
        runs = self.runs
        if len(runs) == 1:
            return runs if runs[0].last >= first and runs[0].first <= last else []
        begin = max(bisect_right(runs, first, key=_first) - 1, 0)
        if runs[begin].last < first:
            begin += 1
        return runs[begin : bisect_right(runs, last, key=_first)]

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs of a range, which begin and end with it: those at its ends are split."""
        for at in (first, last + 1):
            index = bisect_right(self.runs, at, key=_first) - 1
            if index >= 0:
                run = self.runs[index]
                if run.first < at <= run.last:
                    self._split(index, at)
        return self.within(first, last)

    def _split(self, index: int, at: int) -> None:
        run = self.runs[index]
        rest = Run(at, run.last, run.state, run.count, run.member, run.lock_ms, run.is_moving)
        run.last = at - 1
        self.runs.insert(index + 1, rest)

    def join(self) -> None:
        """Make one run of neighbours that say the same. Those on the move are known to somebody, and stay."""
        if len(self.runs) == 1:
            return
        joined = [self.runs[0]]
        for run in self.runs[1:]:
            last = joined[-1]
            if (
                run.state is last.state
                and run.count == last.count
                and run.lock_ms == last.lock_ms
                and run.member == last.member
                and not (run.is_moving or last.is_moving)
            ):
                last.last = run.last
            else:
                joined.append(run)
        self.runs = joined
