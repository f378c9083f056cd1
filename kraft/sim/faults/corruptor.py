"""Chooses the responses that are corrupted in transit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from kraft.sim.world.actions import Action, Corrupt
from kraft.sim.world.driver import Exchange

_WITH_RECORDS: Final = frozenset(("Fetch", "FetchSnapshot"))
_SEED_BITS: Final = 32


class Agenda(Protocol):
    """The scheduled calls, by virtual time."""

    now_ms: int

    def schedule(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after this much virtual time."""


class Corruptor:
    """The nodes with corrupted responses, and how many are still to come."""

    def __init__(self, rng: Random, agenda: Agenda, perform: Callable[[Action], bool]) -> None:
        """`perform` performs an action in the world."""
        self._rng = rng
        self._agenda = agenda
        self._perform = perform
        self._left: dict[int, int] = {}

    def lie_in_wait(self, node_id: int, answers: int) -> None:
        """Corrupt the next responses with records to a node, in this number."""
        self._left[node_id] = answers

    def end(self) -> None:
        """Corrupt no more responses."""
        self._left.clear()

    def answered(self, exchange: Exchange, copy: int) -> None:
        """A node has answered a delivery: corrupt the response before it arrives, if that is due."""
        if exchange.kind not in _WITH_RECORDS or not self._left.get(exchange.sender):
            return
        seed, now_ms = self._rng.getrandbits(_SEED_BITS), self._agenda.now_ms
        action = Corrupt(now_ms, exchange.sender, exchange.target, exchange.number, seed, copy, exchange.kind)
        self._agenda.schedule(0, partial(self._corrupt, action))

    def _corrupt(self, action: Corrupt) -> None:
        if self._left.get(action.node) and self._perform(action):
            self._left[action.node] -= 1
