"""Flushes the log: in a thread while there is other work to do, and in place otherwise.

Kafka has no such thread: its raft thread waits for the disk. With 16 and 128 clients a leader commits a fifth more
values if it serves them meanwhile. (The thread is long-lived: `trio.to_thread` would cost half a millisecond per
flush.) But passing a flush to the thread and back takes about ten futex calls, a sixth of the CPU time of a follower,
which has no other work. So a node with little work flushes in place, as long as the disk is quick.

Under MockClock a replica flushes within its step (`ReplicaOptions.inline_flush`): virtual time must not pass while a
thread works.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Final

import trio

from kraft.process.parts import Input
from kraft.replica.interface.events import FlushDone, StartFlush

_QUICK_S: Final = 0.005
"""If the last flush took longer than this, the thread runs the next one."""


class Flusher:
    """Runs flushes one after the other, and puts a `FlushDone` into `events` after each. The thread also calls `wake`.

    `now` is the clock, in seconds, that measures the disk.
    """

    def __init__(
        self, events: deque[Input], wake: Callable[[], None], *, now: Callable[[], float] = perf_counter
    ) -> None:
        self._events = events
        self._wake = wake
        self._now = now
        self.wanted: StartFlush | None = None
        """The flush that has not begun."""
        self._last_s = _QUICK_S
        self._jobs: SimpleQueue[StartFlush | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._failed = trio.Event()

    def start(self, flush: StartFlush) -> None:
        """Take a flush, which `begin` begins."""
        assert self.wanted is None, "a replica has one flush outstanding"
        self.wanted = flush

    def begin(self, *, is_busy: bool) -> bool:
        """Begin the wanted flush, if there is one; returns whether it is done.

        The flush runs in the thread if the node is busy or the disk is slow, and within this call otherwise. The caller
        calls this after everything else that can be done. A failure of the disk within this call is raised.
        """
        flush, self.wanted = self.wanted, None
        if flush is None:
            return False
        if is_busy or self._last_s >= _QUICK_S:
            self._hand_over(flush)
            return False
        self._last_s = self._timed(flush)
        self._events.append(FlushDone(flush.ticket))
        return True

    def _hand_over(self, flush: StartFlush) -> None:
        if self._thread is None:
            token = trio.lowlevel.current_trio_token()
            self._thread = threading.Thread(target=self._work, args=(token,), name="kraft-flush", daemon=True)
            self._thread.start()
        self._jobs.put(flush)

    async def run(self) -> None:
        """Wait until cancelled; returns only after the thread has ended.

        The error of a flush in the thread is raised here, which stops the node. No flush is retried: a kernel that once
        failed to write a page may report success the second time without having written it. If a flush fails while the
        node stops, the error replaces the cancellation.
        """
        try:
            await self._failed.wait()
        finally:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread.join()
            if self._failure is not None:
                raise self._failure

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        while (flush := self._jobs.get()) is not None:
            try:
                took_s = self._timed(flush)
            except BaseException as failure:  # the Trio thread raises any error
                # Set before the Trio thread is woken: that thread may already wait for the end of this one.
                self._failure = failure
                token.run_sync_soon(self._failed.set)
                return
            self._last_s = took_s
            self._events.append(FlushDone(flush.ticket))
            self._wake()

    def _timed(self, flush: StartFlush) -> float:
        """Run a flush; returns the seconds that it took."""
        began = self._now()
        flush.handle.run()
        return self._now() - began
