"""Answers held until their offset is committed (Kafka: `DeferredEventQueue`)."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from kraft.limits import MOST_TOLD
from kraft.replica.interface.actions import ForRequest, ForSubmit
from kraft.replica.interface.answer_weight import weight_of_answer, weight_of_refusal

_APPENDS_PER_WEIGHT: Final = 4
"""To wake a task takes a fourth of the time of an answer."""


class Held(Struct, frozen=True, gc=False):
    """A waiting request, answered once everything up to and including `last_offset` is committed."""

    base_offset: int
    last_offset: int
    waiting: ForRequest | ForSubmit


class Deferred:
    """The waiting requests, in the order of their offsets."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: deque[Held] = deque()

    def hold(self, held: Held) -> None:
        """Add a waiting request."""
        assert not self.held or held.last_offset >= self.held[-1].last_offset, (held, self.held[-1])
        self.held.append(held)

    def is_due(self, committed_offset: int) -> bool:
        """Whether the first request can be answered: all of its records are below `committed_offset`."""
        return bool(self.held) and self.held[0].last_offset < committed_offset

    def release(self, committed_offset: int, room: int) -> list[Held]:
        """Take the requests with all records below `committed_offset`, while there is room for their answers."""
        held = self.held
        released: list[Held] = []
        # So few answers fit, whatever they weigh, but those to a program that embeds the log.
        needs_weights = len(held) * MOST_TOLD > room or (bool(held) and type(held[0].waiting) is ForSubmit)
        while held and held[0].last_offset < committed_offset and room > 0:
            one = held.popleft()
            released.append(one)
            if needs_weights:
                room -= _weight(one, is_refused=False)
        return released

    def abandon(self) -> deque[Held]:
        """Take all requests: the leadership is over, and their records may never be committed."""
        abandoned, self.held = self.held, deque()
        return abandoned


class Abandoned:
    """The requests that waited when a leadership ended, in order; for each, whether its records were committed."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: deque[tuple[Held, bool]] = deque()

    def __bool__(self) -> bool:
        """Whether any request is not answered yet."""
        return bool(self._held)

    def add(self, held: deque[Held], committed_offset: int) -> None:
        """Add requests to answer. A request with committed records is answered with success."""
        self._held.extend((one, one.last_offset < committed_offset) for one in held)

    def take(self, room: int) -> list[tuple[Held, bool]]:
        """Take requests while there is room for their answers; for each, whether its records are committed."""
        taken: list[tuple[Held, bool]] = []
        held = self._held
        while held and room > 0:
            one, is_committed = held.popleft()
            taken.append((one, is_committed))
            room -= _weight(one, is_refused=not is_committed)
        return taken


def _weight(held: Held, *, is_refused: bool) -> int:
    waiting = held.waiting
    if isinstance(waiting, ForSubmit):
        # Each value may be an append that a task awaits.
        return 1 + (held.last_offset - held.base_offset) // _APPENDS_PER_WEIGHT
    return weight_of_refusal(waiting.request) if is_refused else weight_of_answer(waiting.response)
