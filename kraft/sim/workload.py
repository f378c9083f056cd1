"""Who writes what: records with values that never repeat, to whoever takes itself for the leader."""

from __future__ import annotations

from random import Random

from kraft.sim.member import Outcome


class Workload:
    """Hands out submissions and remembers what became of them."""

    def __init__(self, rng: Random, means_ms: tuple[int, ...] = (20, 100, 500)) -> None:
        self._rng = rng
        self._mean_ms = rng.choice(means_ms)
        self._pending: dict[int, bytes] = {}
        self._next_id = 1
        self.acknowledged = 0
        self.refused: list[bytes] = []

    def pause_ms(self) -> int:
        """How long until the next submission."""
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def next_submission(self, candidates: list[int]) -> tuple[int, int, bytes]:
        """The id of a new submission, the node to hand it to, and the record."""
        submit_id = self._next_id
        self._next_id += 1
        value = b"value-%d" % submit_id
        self._pending[submit_id] = value
        return submit_id, self._rng.choice(candidates), value

    def done(self, submit_id: int, outcome: Outcome) -> bytes:
        """A submission is over; the record that it was about."""
        value = self._pending.pop(submit_id)
        self.acknowledged += outcome is Outcome.COMMITTED
        if outcome is Outcome.REFUSED:
            self.refused.append(value)
        return value
