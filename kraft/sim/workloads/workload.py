"""The workload of a run: the requests of clients to state machines, or submissions of records with unique values to any
node that regards itself as the leader.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.workloads.client_history import ClientWorkload
from kraft.sim.world.world import World

WRITES_MS: Final = (20, 100, 500)
"""The default mean times between submissions, of which a run draws one."""


class Workload:
    """Draws submissions."""

    def __init__(self, rng: Random, means_ms: tuple[int, ...] = WRITES_MS) -> None:
        self._rng = rng
        self._mean_ms = rng.choice(means_ms)
        self.next_id = 1
        """The id of the next submission."""

    def candidates(self, world: World) -> list[int]:
        """The possible targets of a submission: the nodes in the leader state, or else the running voters."""
        return world.leaders() or world.running_voters()

    def pause_ms(self) -> int:
        """The time until the next submission, in ms."""
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def next_submission(self, candidates: list[int]) -> tuple[int, int, str]:
        """The id of a new submission, its target node, and its record."""
        submit_id = self.next_id
        self.next_id += 1
        return submit_id, self._rng.choice(candidates), f"value-{submit_id}"


def make_workload(
    rng: Random, workload_spec: WorkloadSpec | None, writes_ms: tuple[int, ...]
) -> Workload | ClientWorkload:
    """The workload of the clients of a state machine; submissions of records without one."""
    if workload_spec is not None:
        return ClientWorkload(rng, workload_spec)
    return Workload(rng, writes_ms)
