"""A thread with a Trio loop, for programs that have none or another one: tests, asyncio, threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Generic, TypeVar, TypeVarTuple

import trio

from transport.causes import one_cause

T = TypeVar("T")
R = TypeVar("R")
P = TypeVarTuple("P")


class LoopEnded(Exception):
    """The thread has ended, so that nobody does what was asked."""


class TrioThread(Generic[T]):
    """Keeps an asynchronous context manager open in a thread of its own, and runs functions beside it.

    `trio.from_thread` does much of this, but refuses a caller that runs in a Trio loop of its own, which a test may.

    Args:
        opened: What to keep open.
        name: The name of the thread.
    """

    def __init__(self, opened: AbstractAsyncContextManager[T], name: str) -> None:
        self._opened = opened
        self._started: Future[T] = Future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        # A daemon: an interpreter that ends without `stop` must not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            self.value = self._started.result()
        except BaseException:
            self.stop()
            raise

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as failed:
            if self._started.done():
                raise
            self._started.set_exception(failed)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with one_cause():
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                async with self._opened as value:
                    self._started.set_result(value)
                    await trio.sleep_forever()

    def call(self, function: Callable[[*P], Awaitable[R]], *args: *P) -> R:
        """Run an asynchronous function in the thread, and wait for its result in this one.

        Raises:
            LoopEnded: The thread has ended.
        """
        answer: Future[R] = Future()

        async def run() -> None:
            try:
                result = await function(*args)
            except trio.Cancelled:
                answer.set_exception(LoopEnded("the cluster of this test has ended"))
                raise
            except Exception as failed:
                answer.set_exception(failed)
            else:
                answer.set_result(result)

        self._start(run)
        return answer.result()

    def _start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self._token is not None
        assert self._nursery is not None
        try:
            self._token.run_sync_soon(partial(self._nursery.start_soon, run))
        except trio.RunFinishedError:
            raise LoopEnded("the cluster of this test has ended") from None

    def stop(self) -> None:
        """End the loop and the thread, and what was kept open. A second call does nothing."""
        if self._token is not None and self._nursery is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
        self._thread.join()
