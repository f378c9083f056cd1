"""Runs the state of a producer or consumer: sends its requests, and passes their outcomes on."""

from __future__ import annotations

from typing import Protocol

import trio

from kraft.client.state.errors import ClientError
from kraft.client.state.requests import Ask, Engine
from transport.interface import Failed, Reply


class Carrier(Protocol):
    """The time and the transport of a client."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def ask(self, driver: Driver, ask: Ask) -> None:
        """Send a request of an engine."""


class Driver:
    """Runs one engine: sends its requests, and tells it their outcomes."""

    def __init__(self, client: Carrier, engine: Engine, lane: int) -> None:
        self.lane = lane
        """The connections of this engine, whose requests wait for no other engine's."""
        self._client = client
        self._engine = engine
        self._wake = trio.Event()
        self._changed = trio.Event()
        self._failure: ClientError | None = None

    async def run(self) -> None:
        """Run until cancelled, or until the engine cannot go on: then `check` raises the error."""
        client, engine = self._client, self._engine
        try:
            while True:
                now_ms = client.now_ms()
                for ask in engine.poll(now_ms):
                    client.ask(self, ask)
                self._tell()
                with trio.move_on_after(max(0.0, (engine.deadline_ms() - client.now_ms()) / 1000)):
                    await self._wake.wait()
                self._wake = trio.Event()
        except ClientError as failure:
            self.fail(failure)

    async def run_in(self, scope: trio.CancelScope) -> None:
        """Run until this scope is cancelled."""
        with scope:
            await self.run()

    def on_outcome(self, token: int, outcome: Reply | Failed) -> None:
        """Pass the outcome of a request on; called by the transport."""
        if self._failure is not None:
            return
        try:
            self._engine.on_outcome(
                token, outcome.message if isinstance(outcome, Reply) else outcome, self._client.now_ms()
            )
        except ClientError as failure:
            self.fail(failure)
        self.wake()

    def wake(self) -> None:
        """Let the engine look at what the user has done."""
        self._wake.set()

    def fail(self, failure: ClientError) -> None:
        """End the work with this error."""
        self._failure = self._failure or failure
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def check(self) -> None:
        """Raise the error that has ended the work, if there is one."""
        if self._failure is not None:
            raise self._failure.copy()

    async def wait_for_change(self) -> None:
        """Wait until the engine was polled again."""
        self.check()
        await self._changed.wait()
