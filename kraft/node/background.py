"""The thread that fsyncs the log, so that the owner task serves others while the disk works.

Kafka has none: its one raft thread waits for the disk. `trio.to_thread` would cost half a millisecond per flush; one
long-lived thread costs a tenth of that. Under MockClock an `InlineFlusher` takes its place, because virtual time must
not run on while a real thread works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

import trio

from kraft.replica.events import FlushDone, StartFlush


class Flusher(Protocol):
    """Runs flushes, at most one at a time."""

    def start(self, flush: StartFlush) -> None:
        """Begin a flush and return at once or after it; its `FlushDone` reaches the inbox."""

    async def run(self) -> None:
        """Live until cancelled. A failed flush is raised here, which stops the node: it is never retried, because a
        kernel that once failed to write a page may report success the second time without having written it.
        """


class InlineFlusher:
    """Flushes within `start`: deterministic, for memory disks and virtual time."""

    def __init__(self, done: Callable[[FlushDone], None]) -> None:
        self._done = done

    def start(self, flush: StartFlush) -> None:
        """Flush now."""
        flush.run()
        self._done(FlushDone(flush.ticket))

    async def run(self) -> None:
        """Nothing runs beside `start`, whose caller sees the failure."""
        await trio.sleep_forever()


class ThreadFlusher:
    """Flushes in a thread of its own, which lives as long as `run`."""

    def __init__(self, done: Callable[[FlushDone], None]) -> None:
        self._done = done
        self._jobs: SimpleQueue[StartFlush | None] = SimpleQueue()
        self._failure: BaseException | None = None
        self._failed = trio.Event()

    def start(self, flush: StartFlush) -> None:
        """Hand a flush to the thread."""
        self._jobs.put(flush)

    async def run(self) -> None:
        """Own the thread until cancelled or a flush fails; returns only after the thread has ended."""
        token = trio.lowlevel.current_trio_token()
        thread = threading.Thread(target=self._work, args=(token,), name="kraft-flush", daemon=True)
        thread.start()
        try:
            await self._failed.wait()
            assert self._failure is not None
            raise self._failure
        finally:
            self._jobs.put(None)
            thread.join()

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        while (flush := self._jobs.get()) is not None:
            try:
                flush.run()
            except BaseException as failure:  # whatever it is, the Trio thread must hear of it
                token.run_sync_soon(self._fail, failure)
                return
            token.run_sync_soon(self._done, FlushDone(flush.ticket))

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._failed.set()
