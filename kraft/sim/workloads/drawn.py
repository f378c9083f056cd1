"""Makes the workload of a run: the requests of clients to state machines, or records for a log."""

from __future__ import annotations

from random import Random

from kraft.sim.nodes.member_kinds import MACHINES
from kraft.sim.nodes.state_machine_member import COUNTS
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.workloads.client_history import ClientWorkload
from kraft.sim.workloads.workload import Workload


def make_workload(
    rng: Random, members: str, workload_spec: WorkloadSpec | None, writes_ms: tuple[int, ...]
) -> Workload | ClientWorkload:
    """The workload for a kind of members.

    Args:
        rng: Draws the requests and their times.
        members: The kind of the nodes.
        workload_spec: The state machine of the nodes, if not counters.
        writes_ms: The mean times between submissions of records, of which the run draws one.
    """
    if members == MACHINES:
        return ClientWorkload(rng, workload_spec or COUNTS)
    return Workload(rng, writes_ms)
