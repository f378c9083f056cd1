"""Timers by key (Kafka: `CoordinatorTimer`)."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from kraft.limits import TIMERS_CLEARED_PER_STEP
from metadata_log.types import NEVER_MS

_SLACK: Final = 64


class Timers:
    """The times at which something is due, by key. To set a timer again moves it; most are moved before they end.

    The heap keeps an entry for each key that is never later than the timer. A moved timer goes back when its entry
    comes up, so that a heartbeat costs one entry of a dictionary. An entry does not hold its key, of which
    clients choose the names: of a cancelled timer only numbers stay.
    """

    def __init__(self) -> None:
        self._at: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._entered: dict[Hashable, tuple[int, int]] = {}
        """The entry of each key in the heap: the time and the number."""
        self._keys: dict[int, Hashable] = {}
        """The keys by the numbers of their entries."""
        self._numbers = count()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    def at_ms(self, key: Hashable) -> int | None:
        """When a timer ends; None for none."""
        return self._at.get(key)

    def set(self, key: Hashable, at_ms: int) -> None:
        """Let a timer end at a time in ms since 1970, instead of any other time."""
        self._at[key] = at_ms
        entered = self._entered.get(key)
        if entered is not None:
            if at_ms >= entered[0]:
                return
            del self._keys[entered[1]]
        number = next(self._numbers)
        self._entered[key] = entry = at_ms, number
        self._keys[number] = key
        heappush(self._heap, entry)

    def cancel(self, key: Hashable) -> None:
        """Forget a timer; unknown keys are allowed."""
        if self._at.pop(key, None) is None:
            return
        del self._keys[self._entered.pop(key)[1]]
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = list(self._entered.values())
            heapify(self._heap)

    def take_due(self, now_ms: int) -> Hashable | None:
        """Take one key that is due; None if none is."""
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._keys.pop(heappop(self._heap)[1], None)
            if key is None:
                continue
            del self._entered[key]
            at_ms = self._at[key]
            if at_ms <= now_ms:
                del self._at[key]
                return key
            self.set(key, at_ms)
        return None

    def clear(self) -> Generator[None, None, None]:
        """Forget all timers, in steps: to free very many takes long."""
        for held in (self._heap, self._at, self._entered, self._keys):
            while held:
                for _ in range(min(len(held), TIMERS_CLEARED_PER_STEP)):
                    if isinstance(held, dict):
                        held.popitem()
                    else:
                        held.pop()
                yield None

    def deadline_ms(self) -> int:
        """A time before which no timer ends; `NEVER_MS` if there is none."""
        return self._heap[0][0] if self._heap else NEVER_MS
