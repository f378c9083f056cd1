"""The clock of a node: the wall clock at its start, advanced by Trio's clock (Kafka: `Time`, but never backwards).

Under Trio's MockClock the same object gives virtual time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

_ROUNDING_MS = 1e-4
"""Larger than the error of the arithmetic below: a sleep until a deadline must not end one millisecond before it."""


def counter() -> Callable[[], float]:
    """A clock in seconds that runs as Trio's does, from some origin. To be called inside `trio.run`.

    Trio's own clock outside of tests is this counter and a random number: a call of Python for each of a dozen readings
    that a commit takes.
    """
    clock = trio.lowlevel.current_clock()
    return time.perf_counter if type(clock).__name__ == "SystemClock" else clock.current_time


class NodeClock:
    """Milliseconds since 1970 that never run backwards. Made inside `trio.run`; `start_ms` chooses the origin."""

    __slots__ = ("_origin", "_origin_of_trio", "_read", "_start_ms")

    def __init__(self, start_ms: int | None = None) -> None:
        self._start_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        self._read = counter()
        self._origin = self._read()
        # In this order a sleep until `trio_time` never ends before `now_ms` has come to that time.
        self._origin_of_trio = trio.current_time()

    def now_ms(self) -> int:
        """The time now."""
        return self._start_ms + int((self._read() - self._origin) * 1000 + _ROUNDING_MS)

    def trio_time(self, at_ms: int) -> float:
        """The time on Trio's clock at which `now_ms` becomes `at_ms`."""
        return self._origin_of_trio + (at_ms - self._start_ms) / 1000
