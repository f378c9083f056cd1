"""The thread that fsyncs the log, so that the owner task serves others while the disk works.

Kafka has none: its one raft thread waits for the disk. `trio.to_thread` would cost half a millisecond per flush; one
long-lived thread costs a tenth of that. Under MockClock replicas flush inline (`ReplicaOptions.inline_flush`), because
virtual time must not run on while a real thread works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import trio

from kraft.replica.events import FlushDone, StartFlush


class Flusher:
    """Runs flushes one after the other in a thread of its own, which the first of them starts."""

    def __init__(self, done: Callable[[FlushDone], None]) -> None:
        self._done = done
        self._jobs: SimpleQueue[StartFlush | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._failed = trio.Event()

    def start(self, flush: StartFlush) -> None:
        """Hand a flush to the thread; its `FlushDone` is reported in the Trio thread."""
        if self._thread is None:
            token = trio.lowlevel.current_trio_token()
            self._thread = threading.Thread(target=self._work, args=(token,), name="kraft-flush", daemon=True)
            self._thread.start()
        self._jobs.put(flush)

    async def run(self) -> None:
        """Live until cancelled; returns only after the thread has ended.

        A failed flush is raised here, which stops the node: it is never retried, because a kernel that once failed to
        write a page may report success the second time without having written it.
        """
        try:
            await self._failed.wait()
            assert self._failure is not None
            raise self._failure
        finally:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread.join()

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
