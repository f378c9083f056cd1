"""Room for what is outstanding, by its weight: callers wait while there is none, and are let in one after the other."""

from __future__ import annotations

import trio


class Room:
    """The weight of what is outstanding. Further callers wait while it is `limit` or more."""

    __slots__ = ("_turn", "crowd", "is_closed", "limit", "weight")

    def __init__(self, limit: int) -> None:
        self.weight = 0
        """The weight of all that is outstanding."""
        self.is_closed = False
        """Whether nobody has to wait any more, as nothing is taken any more."""
        self.limit = limit
        """The weight with which further callers wait."""
        self._turn = trio.lowlevel.ParkingLot()
        self.crowd = 0
        """How many callers wait: with some of them, whoever changes the weight calls `let_in`."""

    @property
    def is_full(self) -> bool:
        """Whether callers wait."""
        return self.weight >= self.limit

    async def wait(self) -> None:
        """Wait until there is room, or there is none needed any more; this is no checkpoint if there is room."""
        while self.weight >= self.limit and not self.is_closed:
            self.crowd += 1
            try:
                await self._turn.park()
            finally:
                self.crowd -= 1

    def add(self, weight: int) -> None:
        """Add to what is outstanding; a negative weight takes away."""
        self.weight += weight
        if self.crowd:
            self.let_in()

    def let_in(self) -> None:
        """Let a caller in. Each of them lets in the next one, as one heavy caller may have made room for many."""
        if self.weight < self.limit:
            self._turn.unpark()

    def close(self) -> None:
        """Take nothing any more, and wake all callers."""
        self.is_closed = True
        self._turn.unpark_all()
