"""Searches the seeds for a run that violates an invariant, and returns the schedule of that run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from kraft.quorum.recorded import Recorder
from kraft.sim.faults.nemesis import FORGED_FRAMES
from kraft.sim.faults.profiles import BROAD, BY_TURNS, PROFILES, Profile, profile_of
from kraft.sim.nodes.cluster import CLUSTERS
from kraft.sim.nodes.dynamic import DYNAMIC
from kraft.sim.nodes.member_kinds import LOADED, MEMBERS
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.runs import brokers, loaded, seeded_run, voter_change_run
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import Result
from kraft.sim.runs.simulator import RunOptions, Simulator
from kraft.sim.search.planting import planted
from kraft.sim.search.schedule import Schedule, check_of
from kraft.sim.world.actions import Action
from kraft.sim.world.world import World

KINDS = tuple(name for name in (*MEMBERS, *DYNAMIC, *CLUSTERS) if name != "steady-core")
"""The kinds of nodes in a run. Steady cores have no random numbers, and so never elect a leader in a run."""

SURVIVORS = ("core", "replica", "controller", *DYNAMIC)
"""The kinds of nodes in a run with forged messages."""


class SeedSearch(Struct, frozen=True, kw_only=True):
    """The settings of a search; each seed is one run."""

    members: str = "replica"
    """One of `KINDS`."""
    nodes: int | None = None
    """The number of voters; None for the choice of the profile."""
    brokers: int = 3
    """The number of brokers of a cluster."""
    workload_spec: WorkloadSpec | None = None
    """The state machine of `state-machine` members; None for counters."""
    mutant: str | None = None
    """The name of a bug to plant."""
    chaos_ms: int | None = None
    """The virtual time with faults, in ms; None for the default of the kind of run."""
    profile: str = BY_TURNS
    """The name of the profile of every run. By default, the profiles take turns, unless `faults` are chosen."""
    faults: tuple[str, ...] | None = None
    """The names of possible faults, of which each seed draws some; None for those of the profile."""
    allow_undecided: bool = False
    """Whether a run passes if the check of linearizability exceeds its budget."""

    recorder: Recorder | None = None
    """Receives the steps of the protocol that the nodes of each run take."""
    observer: Callable[[World, Action], None] | None = None
    """Called after each action of a run that is recorded."""

    def run(self, seed: int, recorded: list[Action] | None = None) -> Result | Schedule:
        """Simulate the run of a seed: its result, or the schedule of a run that violates an invariant.

        `recorded` receives all actions. Without this list, a run with a failure is repeated to record its actions.
        """
        with planted(self.mutant):
            actions = recorded
            if actions is None:
                actions = []
                with suppress(Exception):
                    return self._simulate(seed, None)
            try:
                return self._simulate(seed, actions)
            except Exception as failure:
                return Schedule(
                    scenario=self.scenario(seed),
                    mutant=self.mutant,
                    violated=check_of(failure),
                    message=str(failure),
                    actions=tuple(actions),
                )

    def scenario(self, seed: int) -> Scenario:
        """The initial state of the run of a seed."""
        if self.members == LOADED:
            return loaded.loaded_scenario(seed, self.nodes_of(seed))
        return Scenario.drawn(
            self.members,
            self.nodes_of(seed),
            seed,
            self.brokers if self.members in CLUSTERS else 0,
            profile=self.profile_of(seed),
            is_forged=self.faults is not None and FORGED_FRAMES in self.faults,
        )

    def profile_of(self, seed: int) -> Profile:
        """The profile of the run of a seed."""
        if self.profile != BY_TURNS:
            return PROFILES[self.profile]
        return profile_of(self.members, seed) if self.faults is None else BROAD

    def nodes_of(self, seed: int) -> int:
        """The number of voters in the run of a seed."""
        return self.profile_of(seed).nodes_of(seed) if self.nodes is None else self.nodes

    def simulator(self, seed: int, recorded: list[Action] | None = None) -> tuple[Simulator, int]:
        """The simulator of the run of a seed before its first event, and the virtual time with faults, in ms.

        The bug is not planted: the caller does that for as long as it uses the simulator.
        """
        nodes, kind = self.nodes_of(seed), self.members
        given = RunOptions(recorded=recorded, faults=self.faults, profile=self.profile_of(seed))
        simulator, usual_ms = _made(self, kind, nodes, seed, given)
        return simulator, usual_ms if self.chaos_ms is None else self.chaos_ms

    def _simulate(self, seed: int, recorded: list[Action] | None) -> Result:
        nodes, kind = self.nodes_of(seed), self.members
        given = RunOptions(
            recorded=recorded,
            faults=self.faults,
            profile=self.profile_of(seed),
            recorder=self.recorder,
            observer=self.observer,
        )

        def chaos_ms(default_ms: int) -> int:
            return default_ms if self.chaos_ms is None else self.chaos_ms

        if kind in CLUSTERS:
            chaos = chaos_ms(brokers.CHAOS_MS)
            return brokers.run_cluster(seed, nodes, self.brokers, kind=kind, chaos_ms=chaos, **given)[0]
        if kind in DYNAMIC:
            chaos = chaos_ms(voter_change_run.CHAOS_MS)
            return voter_change_run.run_dynamic(seed, nodes, kind=kind, chaos_ms=chaos, **given)
        if kind == LOADED:
            return loaded.run_loaded(seed, nodes, chaos_ms=chaos_ms(loaded.CHAOS_MS), **given)
        return seeded_run.run(
            seed,
            nodes,
            make_member=MEMBERS[kind],
            workload_spec=self.workload_spec,
            chaos_ms=chaos_ms(seeded_run.CHAOS_MS),
            allow_undecided=self.allow_undecided,
            **given,
        )


def _made(search: SeedSearch, kind: str, nodes: int, seed: int, given: RunOptions) -> tuple[Simulator, int]:
    """The simulator of a run, and the usual time with faults of this kind of run."""
    if kind in CLUSTERS:
        return brokers.cluster_simulator(seed, nodes, search.brokers, kind=kind, **given), brokers.CHAOS_MS
    if kind in DYNAMIC:
        return voter_change_run.dynamic_simulator(seed, nodes, kind=kind, **given), voter_change_run.CHAOS_MS
    if kind == LOADED:
        return loaded.loaded_simulator(seed, nodes, **given), loaded.CHAOS_MS
    simulator = seeded_run.quorum_simulator(
        seed, nodes, make_member=MEMBERS[kind], workload_spec=search.workload_spec, **given
    )
    return simulator, seeded_run.CHAOS_MS
