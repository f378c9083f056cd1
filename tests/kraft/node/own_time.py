"""A clock for tests of whole nodes on a busy machine: the time that other processes get does not pass."""

from __future__ import annotations

import time

import trio
from trio.abc import Clock, Instrument


class OwnTime(Clock, Instrument):
    """Passes while the thread of Trio computes or waits for events, no longer than it wanted to wait.

    A busy machine, which runs other processes for longer than an election timeout, ends no leadership then. What a node
    itself does for too long still does.
    """

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._began_s = 0.0

    def start_clock(self) -> None:
        trio.lowlevel.add_instrument(self)

    def current_time(self) -> float:
        return time.thread_time() + self._waited_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    def before_io_wait(self, timeout: float) -> None:
        self._began_s = time.monotonic()

    def after_io_wait(self, timeout: float) -> None:
        self._waited_s += min(timeout, time.monotonic() - self._began_s)
