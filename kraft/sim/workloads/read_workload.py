"""The workload of reads: clients read from every node that regards itself as the leader, deposed ones included."""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.sim.world.world import World

MEANS_MS: Final = (20, 60, 200)
"""The mean time between reads in a run; one of these is drawn."""


class ReadWorkload:
    """Draws reads."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._mean_ms = rng.choice(MEANS_MS)
        self._next_id = 1

    def pause_ms(self) -> int:
        """The time until the next reads, in ms."""
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def next_reads(self, world: World) -> list[tuple[int, int]]:
        """The node and the id of the next read of each leader."""
        reads = []
        for node_id in world.leaders():
            reads.append((node_id, self._next_id))
            self._next_id += 1
        return reads
