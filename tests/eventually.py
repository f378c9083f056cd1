"""Waits for a condition by polling: for tests of real processes, which have no event to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
    """Ask until the condition holds; fails after `timeout` seconds, and says `what` was waited for."""
    deadline = time.monotonic() + timeout
    never = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        never.wait(0.05)
