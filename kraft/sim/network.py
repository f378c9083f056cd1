"""Messages between simulated nodes: each request is delivered, lost, repeated or late as the `FaultPlan` decides, and
ends at its sender with exactly one reply or failure, as `transport.interface` promises.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from msgspec import Struct

from kraft.quorum.events import FailureCause
from transport.faults import FaultPlan, Kind


class Schedule(Protocol):
    """The event heap: call a function after some virtual milliseconds."""

    def __call__(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` when the time has come."""


class Exchange(Struct):
    """One request and its way back. `life` is the sender's: a reply to a former life is lost."""

    sender: int
    life: int
    request_id: int
    target: int
    message: object
    is_settled: bool = False


class Hosts(Protocol):
    """The nodes, as the network reaches them; each of these ignores what is meant for a former life."""

    def arrived(self, exchange: Exchange) -> None:
        """A request arrives at its target, which may be down."""

    def replied(self, exchange: Exchange, message: object) -> None:
        """The reply is back at the sender."""

    def failed(self, exchange: Exchange, cause: FailureCause) -> None:
        """The sender learns that there will be no reply."""


class Network:
    """Carries exchanges between hosts."""

    def __init__(self, rng: Random, plan: FaultPlan, schedule: Schedule, hosts: Hosts) -> None:
        self._rng = rng
        self._plan = plan
        self._schedule = schedule
        self._hosts = hosts

    def send(self, exchange: Exchange, timeout_ms: int) -> None:
        """Put a request on its way."""
        for delay_ms in self._plan.decide(exchange.sender, exchange.target, Kind.REQUEST):
            self._schedule(delay_ms, lambda: self._hosts.arrived(exchange))
        self._schedule(timeout_ms, lambda: self._fail(exchange, FailureCause.TIMEOUT))

    def answer(self, exchange: Exchange, message: object) -> None:
        """Put a reply on its way."""
        for delay_ms in self._plan.decide(exchange.target, exchange.sender, Kind.REPLY):
            self._schedule(delay_ms, lambda: self._reply(exchange, message))

    def break_off(self, exchange: Exchange) -> None:
        """The target is not there, or has died over the request; perhaps the sender notices before its timeout."""
        if self._rng.random() < 0.5:
            cause = self._rng.choice((FailureCause.REFUSED, FailureCause.RESET))
            self._schedule(1, lambda: self._fail(exchange, cause))

    def _reply(self, exchange: Exchange, message: object) -> None:
        if not exchange.is_settled:
            exchange.is_settled = True
            self._hosts.replied(exchange, message)

    def _fail(self, exchange: Exchange, cause: FailureCause) -> None:
        if not exchange.is_settled:
            exchange.is_settled = True
            self._hosts.failed(exchange, cause)
