"""Waits for a condition by polling: for tests of real processes, which have no event to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import trio

_POLL_SECONDS = 0.05


async def pause() -> None:
    """Wait a moment before an asynchronous condition is asked again, on the real clock."""
    await trio.to_thread.run_sync(threading.Event().wait, _POLL_SECONDS)


def eventually(condition: Callable[..., bool], what: str, timeout: float = 60) -> None:
    """Ask until the condition holds; fails after `timeout` seconds, and says `what` was waited for."""
    deadline = time.monotonic() + timeout
    never = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        never.wait(_POLL_SECONDS)
