"""A thread with a Trio loop, for programs that have none or another one: tests, asyncio, threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar, TypeVarTuple

import trio

from transport.causes import one_cause

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")
P = TypeVarTuple("P")


class LoopEnded(Exception):
    """The thread has ended, so that nobody does what was asked."""


class Forked(RuntimeError):
    """This process is a fork of the one that has the thread: it must open what it needs for itself."""


class Kept(Generic[V]):
    """A context manager that a task of the thread keeps open; see `TrioThread.keep`."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.opened: Future[V] = Future()
        """The value that the context manager has yielded. To cancel it is to give up."""
        self.ended: Future[None] = Future()
        """Done when the context manager is left, with its error if it has one, also before `close`."""
        self.close = close
        """Leave the context manager; `ended` follows. Raises `Forked` in a fork."""


class TrioThread(Generic[T]):
    """Keeps an asynchronous context manager open in a thread of its own, and runs functions beside it.

    `trio.from_thread` does much of this, but refuses a caller that runs in a Trio loop of its own, which a test may.
    No method waits but `call`, `value` and `stop`.

    Args:
        opened: What to keep open.
        name: The name of the thread.
    """

    def __init__(self, opened: AbstractAsyncContextManager[T], name: str) -> None:
        self.opened: Future[T] = Future()
        """The value that the context manager has yielded."""
        self.ended: Future[None] = Future()
        """Done when the thread ends, with the error of what was kept open, if it had one."""
        self.ahead: Callable[[], object] = _nothing
        """Called in the thread before whatever is asked of it; must not raise."""
        self._manager = opened
        self._name = name
        self._process = os.getpid()
        self._is_known = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._closing: trio.Event | None = None
        self._unanswered: set[Future[Any]] = set()
        # A daemon: an interpreter that ends without `stop` must not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._is_known.wait()

    @property
    def value(self) -> T:
        """The value that the context manager has yielded; waits until then, and raises its error."""
        return self.opened.result()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            trio.run(self._main)
        except BaseException as failed:
            failure = failed
        self._is_known.set()
        if not self.opened.done():
            self.opened.set_exception(failure or LoopEnded(self._why()))
        # Whoever has asked since the loop ended hears it from `_soon`.
        for answer in list(self._unanswered):
            _settle(answer.set_exception, LoopEnded(self._why()))
        if failure is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(failure)

    def _why(self) -> str:
        return f"the thread {self._name} has ended with the block that opened it: open it again"

    async def _main(self) -> None:
        self._closing = trio.Event()
        with one_cause():
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._token = trio.lowlevel.current_trio_token()
                self._is_known.set()
                async with self._manager as value:
                    _settle(self.opened.set_result, value)
                    await self._closing.wait()
                nursery.cancel_scope.cancel()

    def start(self, function: Callable[[*P], Awaitable[R]], *args: *P) -> Future[R]:
        """Run an asynchronous function in the thread. To cancel the future is to cancel the function.

        Returns:
            The result of the function, or its exception; `LoopEnded` if the thread ends before.

        Raises:
            LoopEnded: The thread has ended.
            Forked: This process is not the one that has the thread.
        """
        answer: Future[R] = Future()
        scope = trio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    _settle(answer.set_result, await function(*args))
            except trio.Cancelled:
                _settle(answer.set_exception, LoopEnded(self._why()))
                raise
            except Exception as failed:
                _settle(answer.set_exception, failed)

        self._begin(run, answer)
        answer.add_done_callback(lambda done: self._cancel(scope) if done.cancelled() else None)
        return answer

    def do(self, function: Callable[[*P], R], *args: *P) -> Future[R]:
        """Run a function that does not wait in the thread, before whatever is asked after it.

        Raises:
            LoopEnded: The thread has ended.
            Forked: This process is not the one that has the thread.
        """
        answer: Future[R] = Future()

        def run() -> None:
            try:
                _settle(answer.set_result, function(*args))
            except Exception as failed:
                _settle(answer.set_exception, failed)

        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
        self._soon(run)
        return answer

    def call(self, function: Callable[[*P], Awaitable[R]], *args: *P, timeout: float | None = None) -> R:
        """Run an asynchronous function in the thread, and wait for its result in this one, for so many seconds.

        Raises:
            LoopEnded: The thread has ended.
            Forked: This process is not the one that has the thread.
            TimeoutError: There was no result in time; the function is cancelled.
        """
        return wait_for(self.start(function, *args), timeout)

    def keep(self, manager: AbstractAsyncContextManager[V]) -> Kept[V]:
        """Open a context manager in a task of the thread, and keep it open until `close` of what this returns.

        Raises:
            LoopEnded: The thread has ended.
            Forked: This process is not the one that has the thread.
        """
        closing = trio.Event()
        scope = trio.CancelScope()

        def close() -> None:
            with suppress(LoopEnded):
                self._soon(closing.set)

        kept: Kept[V] = Kept(close)

        async def run() -> None:
            failure: BaseException | None = None
            try:
                with scope:
                    async with manager as value:
                        if _settle(kept.opened.set_result, value):
                            await closing.wait()
            except trio.Cancelled:
                failure = LoopEnded(self._why())
                raise
            except Exception as failed:
                failure = failed
            finally:
                if failure is not None:
                    _settle(kept.opened.set_exception, failure)
                    _settle(kept.ended.set_exception, failure)
                _settle(kept.ended.set_result, None)

        self._begin(run, kept.opened, kept.ended)
        kept.opened.add_done_callback(lambda done: self._cancel(scope) if done.cancelled() else None)
        return kept

    def _begin(self, run: Callable[[], Awaitable[None]], *answers: Future[Any]) -> None:
        def begin() -> None:
            assert self._nursery is not None
            try:
                self._nursery.start_soon(run)
            except RuntimeError:
                # The nursery is closed, and the loop about to end.
                for answer in answers:
                    _settle(answer.set_exception, LoopEnded(self._why()))

        for answer in answers:
            self._unanswered.add(answer)
            answer.add_done_callback(self._unanswered.discard)
        self._soon(begin)

    def wake(self) -> None:
        """Have `ahead` called. Raises `LoopEnded` and `Forked`, as `do` does."""
        self._soon(_nothing)

    def check_process(self) -> None:
        """Raise `Forked` if this process is not the one that has the thread."""
        if os.getpid() != self._process:
            raise Forked(
                f"the thread {self._name} belongs to process {self._process}, of which this one is a fork: open another"
                " one here, after the fork"
            )

    def _soon(self, function: Callable[[], object]) -> None:
        self.check_process()
        if self._token is None:
            raise LoopEnded(self._why())
        try:
            self._token.run_sync_soon(self._run_soon, function)
        except trio.RunFinishedError:
            raise LoopEnded(self._why()) from None

    def _run_soon(self, function: Callable[[], object]) -> None:
        self.ahead()
        function()

    def _cancel(self, scope: trio.CancelScope) -> None:
        with suppress(LoopEnded, Forked):
            self._soon(scope.cancel)

    def close(self) -> None:
        """Leave what is kept open, in its own time, and end the thread; `ended` follows. A second call does nothing."""
        with suppress(LoopEnded):
            assert self._closing is not None
            self._soon(self._closing.set)

    def cancel(self) -> None:
        """Cancel what is kept open, and end the thread; `ended` follows. A second call does nothing."""
        with suppress(LoopEnded):
            assert self._nursery is not None
            self._soon(self._nursery.cancel_scope.cancel)

    def stop(self) -> None:
        """Cancel what is kept open, and wait until the thread has ended. Raises the error of what was kept open."""
        self.cancel()
        self._thread.join()
        self.ended.result()


def wait_for(answer: Future[R], timeout: float | None = None) -> R:
    """The result of a future, in this thread. Whoever gives up, at a time or by Ctrl-C, cancels the future."""
    try:
        return answer.result(timeout)
    except BaseException as failed:
        if answer.cancel() and isinstance(failed, TimeoutError):
            raise TimeoutError(f"not done within {timeout} s: a change may have been made or not") from None
        raise


def _nothing() -> None:
    """Do nothing."""


def _settle(settle: Callable[[V], None], outcome: V) -> bool:
    """Settle a future; False if it was cancelled, or is settled already."""
    try:
        settle(outcome)
    except InvalidStateError:
        return False
    return True
