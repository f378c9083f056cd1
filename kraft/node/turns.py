"""Measures how long the owner of a replica blocks all other tasks, and by which events.

A turn is the time between two checkpoints: the events of a burst. Meanwhile no fetch is answered and no heartbeat is
taken, so that a leader with a turn of seconds loses its leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, Final, TypeVar

import trio
from msgspec import Struct

from kraft.limits import START_ROOM_MS, TURN_MS, TURN_ROOM_MS
from kraft.node.clock import counter
from kraft.node.logging import NodeLog
from kraft.node.monitoring import TurnMeter
from kraft.process.parts import Input
from kraft.wire import WireRequest
from transport.protocol.apis import ApiKey

R = TypeVar("R")
ROOM_S: Final = TURN_ROOM_MS / 1000
START_ROOM_S: Final = START_ROOM_MS / 1000
MEASURED_EVENTS: Final = 8
"""The meter gets the times of one in so many events: those of every event would cost a commit some percent."""
_S: Final = 1000


class LongestTurn(Struct):
    """The longest turn so far: the milliseconds that it took, and the kind of event that took most of them."""

    ms: float = 0.0
    event: str = ""


class Turns:
    """Measures the turns of one owner by Trio's clock. In virtual time each turn takes no time."""

    __slots__ = (
        "_began_s",
        "_clock",
        "_dearest",
        "_dearest_s",
        "_events",
        "_log",
        "_mark_s",
        "_meter",
        "_own",
        "longest",
    )

    def __init__(self, log: NodeLog, meter: TurnMeter | None = None) -> None:
        self.longest = LongestTurn()
        self._meter = meter
        self._events = 0
        self._log = log
        self._clock = counter()
        self._began_s = self._mark_s = 0.0
        self._dearest: Input | None = None
        self._dearest_s = 0.0
        self._own: tuple[str, float] = ("", 0.0)

    def begin(self) -> None:
        """Begin to measure a turn."""
        self._began_s = self._mark_s = self._clock()
        self._dearest, self._dearest_s = None, 0.0
        self._own = ("", 0.0)

    def did(self, event: Input) -> bool:
        """Note that an event was handled; returns whether the turn has room for more."""
        now_s = self._clock()
        took_s = now_s - self._mark_s
        if self._meter is not None:
            self._events += 1
            if not self._events % MEASURED_EVENTS:
                self._meter.event(self._mark_s - self._began_s, took_s)
        self._mark_s = now_s
        if took_s > self._dearest_s:
            self._dearest, self._dearest_s = event, took_s
        return now_s - self._began_s < ROOM_S

    def end(self) -> None:
        """End the turn: record the longest turn, and log a turn that took too long."""
        now_s = self._clock()
        took_ms = _S * (now_s - self._began_s)
        if self._meter is not None:
            self._meter.turn(now_s - self._began_s, now_s, self._events)
        longest = self.longest
        if took_ms > longest.ms:
            longest.ms, longest.event = took_ms, _kind(self._dearest)
        if took_ms > TURN_MS:
            facts: dict[str, object] = {
                "ms": round(took_ms),
                "bound_ms": TURN_MS,
                "turn_of": _kind(self._dearest),
                "turn_of_ms": round(_S * self._dearest_s),
            }
            what, own_s = self._own
            if what:
                facts |= {"of_which": f"StateMachine.{what}", "of_which_ms": round(_S * own_s)}
            self._log.long_turn(facts)

    def watched(self, what: str, function: Callable[..., R]) -> Callable[..., R]:
        """Wrap a function of the user; the report of a long turn names the longest call of the function."""

        def call(*args: Any) -> R:
            began_s = self._clock()
            try:
                return function(*args)
            finally:
                took_s = self._clock() - began_s
                if took_s > self._own[1]:
                    self._own = (what, took_s)

        return call


async def start_in_turns(steps: Generator[None, None, R], node_log: NodeLog) -> R:
    """Run the steps of a start to their end, and let other tasks run after every 10 ms. Closes the generator if this
    is cancelled. A step of more than 50 ms is logged: only the `restore` of a state machine is expected to take longer.
    """
    with closing(steps):
        turn_s = step_s = trio.current_time()
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: R = done.value
                return result
            now_s = trio.current_time()
            took_ms = _S * (now_s - step_s)
            if took_ms > TURN_MS:
                node_log.long_turn({"ms": round(took_ms), "bound_ms": TURN_MS, "turn_of": "start"})
            if now_s - turn_s >= START_ROOM_S:
                await trio.lowlevel.checkpoint()
                turn_s = now_s = trio.current_time()
            step_s = now_s


def _kind(event: Input | None) -> str:
    """The name of an event in the log; for a request with its API."""
    if event is None:
        return ""
    kind = type(event).__name__
    return f"{kind}:{ApiKey(event.api_key).name}" if isinstance(event, WireRequest) else kind
