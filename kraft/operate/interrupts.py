"""Ctrl-C in commands that run tasks or processes: they end and clean up, and then the command is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
P = TypeVarTuple("P")


def run_tasks(work: Callable[[*P], Awaitable[T]], *arguments: *P) -> T:
    """Like `trio.run`, but Ctrl-C cancels the work, and raises KeyboardInterrupt when all of it has ended.

    Trio itself raises KeyboardInterrupt in whichever task runs, also between the making of a coroutine and its first
    step, which Python then reports on stderr. The second Ctrl-C ends the process at once, without any cleaning up.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        return trio.run(work, *arguments)
    scope: trio.CancelScope | None = None
    token: trio.lowlevel.TrioToken | None = None
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if token is not None and scope is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(scope.cancel)

    async def cancellable() -> T:
        nonlocal scope, token
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            if interrupted:
                scope.cancel()
            return await work(*arguments)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        return trio.run(cancellable)
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupted:
            raise KeyboardInterrupt


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Keep Ctrl-C, which a terminal sends to all processes of a command, from those that start within the block.

    This process gets it after the block. One that ignored the signal by itself would still be interrupted while Python
    starts in it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
