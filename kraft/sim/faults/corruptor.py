"""Chooses the responses that are corrupted in transit."""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.sim.world.actions import Corrupt
from kraft.sim.world.driver import Exchange

_WITH_RECORDS: Final = frozenset(("Fetch", "FetchSnapshot"))
_SEED_BITS: Final = 32


class Corruptor:
    """The nodes with corrupted responses, and how many are still to come."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._left: dict[int, int] = {}

    def lie_in_wait(self, node_id: int, answers: int) -> None:
        """Corrupt the next responses with records to a node, in this number."""
        self._left[node_id] = answers

    def end(self) -> None:
        """Corrupt no more responses."""
        self._left.clear()

    def corruption_of(self, exchange: Exchange, copy: int, now_ms: int) -> Corrupt | None:
        """The corruption of a response that has just been sent; None if the response is to arrive as it is."""
        if exchange.kind not in _WITH_RECORDS or not self._left.get(exchange.sender):
            return None
        seed = self._rng.getrandbits(_SEED_BITS)
        return Corrupt(now_ms, exchange.sender, exchange.target, exchange.number, seed, copy, exchange.kind)

    def corrupted(self, node_id: int) -> None:
        """A response to a node has been corrupted."""
        self._left[node_id] -= 1
