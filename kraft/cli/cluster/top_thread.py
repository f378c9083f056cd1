"""Polls a cluster in a thread with a loop of Trio, beside a screen with a loop of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Final

import trio

from kraft.admin import AdminClient
from kraft.cli.cluster.administration import Cluster
from kraft.operate.top.poll import Control, Poller
from kraft.operate.top.samples import Sample
from transport.interface import Endpoint

JOIN_SECONDS: Final = 5.0


def now_ms() -> int:
    """The clock of this host."""
    return time.time_ns() // 1_000_000


class PollThread:
    """The polls of one run. The callbacks are called in the thread of the polls."""

    def __init__(self, cluster: Cluster, listeners: tuple[Endpoint, ...], interval_s: float) -> None:
        self._cluster = cluster
        self._listeners = listeners
        self._interval_s = interval_s
        self._thread: Thread | None = None
        self._begun = Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: trio.CancelScope | None = None
        self._control: Control | None = None

    def start(self, on_sample: Callable[[Sample], None], on_failure: Callable[[Exception], None]) -> None:
        """Begin to poll. A failure is the error of a first answer, or a defect; the polls have ended then."""

        async def look(admin: AdminClient) -> None:
            poller = Poller(admin, on_sample, clock_ms=now_ms, listeners=self._listeners)
            with trio.CancelScope() as scope:
                self._token, self._scope, self._control = trio.lowlevel.current_trio_token(), scope, poller.control
                self._begun.set()
                await poller.run(self._interval_s)

        def run() -> None:
            try:
                self._cluster.ask(look, shows_states=True)
            except Exception as failed:
                on_failure(failed)
            finally:
                self._begun.set()

        self._thread = Thread(target=run, name="kraft-top", daemon=True)
        self._thread.start()

    def pause(self, is_paused: bool) -> None:
        """Stop the polls for a while, or go on."""
        if self._control is not None:
            self._soon(partial(self._control.pause, is_paused))

    def refresh(self) -> None:
        """Poll now."""
        if self._control is not None:
            self._soon(self._control.refresh)

    def stop(self) -> None:
        """End the polls, and close the connections."""
        if self._thread is not None and self._begun.wait(JOIN_SECONDS):
            if self._scope is not None:
                self._soon(self._scope.cancel)
            self._thread.join(JOIN_SECONDS)

    def _soon(self, work: Callable[[], None]) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(work)
