"""Runs with voter changes, under all other faults (KIP-853; Kafka: the tests of `RaftEventSimulationTest` that add,
remove and swap voters).

`run_dynamic` is the entry point.
"""

from __future__ import annotations

from random import Random
from typing import Final, Unpack

from kraft.sim.faults.profiles import BROAD
from kraft.sim.nodes.dynamic import UPGRADED
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import CALM_MS, Result, is_forged, whole_run
from kraft.sim.runs.simulator import RunOptions, Simulator, Work
from kraft.sim.workloads.former_selves import FormerSelves
from kraft.sim.workloads.voter_workload import AskVoters, MoveNode, VoterWorkload, WipeDisk

CHAOS_MS: Final = 20_000


class Reconfiguration(Work):
    """The changes and faults of voters in one run, in addition to the faults of all nodes."""

    pauses_ms: tuple[int, ...] = (500, 1500, 4000)
    writes_ms: tuple[int, ...] = (20, 100, 500)

    def __init__(self, scenario: Scenario, observers: tuple[int, ...] = (), *, has_former_selves: bool = False) -> None:
        """`observers` are the ids of nodes that never vote. With `has_former_selves`, lost disks send late requests."""
        self._former = FormerSelves(Random(f"{scenario.seed}/former-selves")) if has_former_selves else None
        rng, timeout_ms = Random(f"{scenario.seed}/membership"), scenario.config.request_timeout_ms
        self._workload = VoterWorkload(rng, timeout_ms, upgrades=scenario.members == UPGRADED, observers=observers)
        self._is_over = False

    def begin(self, simulator: Simulator) -> None:
        """Begin to change the voters."""
        self._simulator = simulator
        simulator.queue.schedule(self._workload.pause_ms(), self._change)
        if self._former is not None:
            simulator.queue.schedule(self._former.pause_ms(), self._haunt)

    def end(self) -> None:
        """Request no more changes, so that the quorum can settle."""
        self._is_over = True

    def on_administered(self, request_id: int) -> None:
        """A change was made or refused."""
        self._workload.answered(request_id)

    def on_died(self, node_id: int) -> None:
        """A node has crashed and answers no more requests."""
        self._workload.died(node_id)

    def bears_loss(self, node_id: int) -> bool:
        """Whether a majority is possible without the disk of a node, which is lost from now on."""
        return self._workload.bears_loss(self._simulator.world, self._simulator.now_ms, node_id)

    def _haunt(self) -> None:
        """A late request of a replica that is no more."""
        if self._is_over or self._former is None:
            return
        asked = self._former.next_request(self._simulator.world)
        if asked is not None:
            self._simulator.administer(*asked)
        self._simulator.queue.schedule(self._former.pause_ms(), self._haunt)

    def _change(self) -> None:
        if self._is_over:
            return
        simulator = self._simulator
        for step in self._workload.next_steps(simulator.world, simulator.now_ms):
            match step:
                case AskVoters(node_id, request_id, request):
                    simulator.administer(node_id, request_id, request)
                case WipeDisk(node_id, down_ms):
                    simulator.wipe(node_id, down_ms)
                case MoveNode(node_id, port, down_ms):
                    simulator.move(node_id, port, down_ms)
        simulator.queue.schedule(self._workload.pause_ms(), self._change)


def run_dynamic(
    seed: int,
    nodes: int = 5,
    *,
    kind: str = "dynamic",
    chaos_ms: int = CHAOS_MS,
    **given: Unpack[RunOptions],
) -> Result:
    """Simulate one quorum with voter changes (KIP-853), as `run` does one without.

    `kind` is a key of `kraft.sim.nodes.dynamic.DYNAMIC`. The seed draws how many of the nodes are the first voters.
    """
    simulator = dynamic_simulator(seed, nodes, kind=kind, **given)
    return whole_run(
        simulator, chaos_ms, CALM_MS, again=f"run_dynamic({seed}, {nodes}, kind={kind!r}, chaos_ms={chaos_ms})"
    )


def dynamic_simulator(seed: int, nodes: int = 5, *, kind: str = "dynamic", **given: Unpack[RunOptions]) -> Simulator:
    """The simulator of one quorum with voter changes before its first event; the arguments are those of `run_dynamic`.

    Without strikes, nobody but the caller changes the voters.
    """
    profile = given.get("profile", BROAD)
    scenario = Scenario.drawn(kind, nodes, seed, is_forged=is_forged(given), profile=profile)
    if not profile.has_strikes:
        return Simulator(scenario, **given)
    work = Reconfiguration(scenario, has_former_selves=profile.has_former_selves)
    return Simulator(scenario, work=work, **given)
