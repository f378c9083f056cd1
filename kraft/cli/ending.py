"""Ends a long-running command after a signal or a given time."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from transport.causes import one_cause


@asynccontextmanager
async def ending(seconds: float | None) -> AsyncIterator[trio.CancelScope]:
    """A scope for the work, which Ctrl-C, SIGTERM or the end of the time cancels; later cleanup is not cancelled."""
    scope = trio.CancelScope(deadline=float("inf") if seconds is None else trio.current_time() + seconds)
    with one_cause():
        async with trio.open_nursery() as nursery:
            await nursery.start(_cancel_on_signal, scope)
            yield scope
            nursery.cancel_scope.cancel()


async def _cancel_on_signal(
    scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
