"""The clock of a node: the wall clock at its start, advanced by Trio's clock (Kafka: `Time`, but never backwards).

Under Trio's MockClock the same object gives virtual time.
"""

from __future__ import annotations

import time

import trio

_ROUNDING_MS = 1e-4
"""Larger than the error of the arithmetic below: a sleep until a deadline must not end one millisecond before it."""


class NodeClock:
    """Milliseconds since 1970 that never run backwards. Made inside `trio.run`; `start_ms` chooses the origin."""

    __slots__ = ("_origin", "_read", "_start_ms")

    def __init__(self, start_ms: int | None = None) -> None:
        self._start_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        # `trio.current_time` looks up the clock on each call, which takes three times as long.
        self._read = trio.lowlevel.current_clock().current_time
        self._origin = self._read()

    def now_ms(self) -> int:
        """The time now."""
        return self._start_ms + int((self._read() - self._origin) * 1000 + _ROUNDING_MS)

    def trio_time(self, at_ms: int) -> float:
        """The time on Trio's clock at which `now_ms` becomes `at_ms`."""
        return self._origin + (at_ms - self._start_ms) / 1000
