"""Messages between simulated nodes: each request is delivered, lost, repeated or late as the `FaultPlan` decides, and
ends at its sender with exactly one reply or failure, as `transport.interface` promises.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from kraft.quorum.events import FailureCause
from kraft.sim.actions import Action, Deliver, Fail, Return
from kraft.sim.world import Exchange
from transport.faults import FaultPlan, Kind


class Agenda(Protocol):
    """What is to happen, by virtual time."""

    now_ms: int

    def plan(self, action: Action) -> None:
        """Let something happen at its time."""


class Network:
    """Decides when the messages of exchanges arrive, if at all."""

    def __init__(self, rng: Random, plan: FaultPlan, agenda: Agenda) -> None:
        self._rng = rng
        self._plan = plan
        self._agenda = agenda

    def send(self, exchange: Exchange) -> None:
        """Put a request on its way."""
        sender, target, now_ms = exchange.sender, exchange.target, self._agenda.now_ms
        for delay_ms in self._plan.decide(sender, target, Kind.REQUEST):
            self._agenda.plan(Deliver(now_ms + delay_ms, target, sender, exchange.number, exchange.kind))
        self._fail(exchange, now_ms + exchange.timeout_ms, FailureCause.TIMEOUT)

    def answer(self, exchange: Exchange, copy: int) -> None:
        """Put the reply to one delivery on its way."""
        sender, target, now_ms = exchange.sender, exchange.target, self._agenda.now_ms
        for delay_ms in self._plan.decide(target, sender, Kind.REPLY):
            self._agenda.plan(Return(now_ms + delay_ms, sender, target, exchange.number, copy, exchange.kind))

    def break_off(self, exchange: Exchange) -> None:
        """The target is not there, or has died over the request; perhaps the sender notices before its timeout."""
        if self._rng.random() < 0.5:
            cause = self._rng.choice((FailureCause.REFUSED, FailureCause.RESET))
            self._fail(exchange, self._agenda.now_ms + 1, cause)

    def _fail(self, exchange: Exchange, at_ms: int, cause: FailureCause) -> None:
        self._agenda.plan(Fail(at_ms, exchange.sender, exchange.target, exchange.number, cause, exchange.kind))
