"""Request timeouts and delayed actions (Kafka: `InFlightRequests`, `DelayedOperation`)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Sized
from typing import Final, Protocol

import trio

_WORTH_SWEEPING: Final = 4096


class LiveTokens(Container[int], Sized, Protocol):
    """The tokens with a timeout that still counts."""


class Timer:
    """One heap of deadlines. A dead token stays in the heap until its time, or until too many tokens are dead."""

    def __init__(self, live: LiveTokens, expire: Callable[[int], None], batch_delivered: Callable[[], object]) -> None:
        """`batch_delivered` is called after everything that was due at one time."""
        self._live = live
        self._expire = expire
        self._batch_delivered = batch_delivered
        self._heap: list[tuple[float, int, int | Callable[[], None]]] = []
        self._entered = 0
        self._wakes_at = math.inf
        self._nudge = trio.Event()

    def __len__(self) -> int:
        """The number of entries, dead tokens included."""
        return len(self._heap)

    def start(self, token: int, at: float) -> None:
        """Expire `token` at that time (of Trio's clock) unless the token is dead by then."""
        if len(self._heap) > _WORTH_SWEEPING + 4 * len(self._live):
            self._heap = [entry for entry in self._heap if not self._is_stale(entry[2])]
            heapq.heapify(self._heap)
        self._enter(at, token)

    def at(self, at: float, action: Callable[[], None]) -> None:
        """Run `action` in the timer's task at that time; for equal times in the order of calls."""
        self._enter(at, action)

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        """Run `action` in the timer's task after `delay_s` seconds."""
        self._enter(trio.current_time() + delay_s, action)

    def _enter(self, at: float, item: int | Callable[[], None]) -> None:
        self._entered += 1
        heapq.heappush(self._heap, (at, self._entered, item))
        if at < self._wakes_at:
            self._wakes_at = at
            self._nudge.set()

    def _is_stale(self, item: int | Callable[[], None]) -> bool:
        return isinstance(item, int) and item not in self._live

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for item in self._take_due():
                if not isinstance(item, int):
                    item()
                elif item in self._live:
                    self._expire(item)
            self._batch_delivered()
            self._nudge = trio.Event()
            self._wakes_at = self._heap[0][0] if self._heap else math.inf
            with trio.move_on_at(self._wakes_at):
                await self._nudge.wait()

    def _take_due(self) -> list[int | Callable[[], None]]:
        """The entries due now. Entries that these make due at once wait until other tasks have run."""
        due: list[int | Callable[[], None]] = []
        now = trio.current_time()
        while self._heap and (self._heap[0][0] <= now or self._is_stale(self._heap[0][2])):
            due.append(heapq.heappop(self._heap)[2])
        return due
