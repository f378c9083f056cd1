"""Whole runs of a quorum from one seed: a phase with faults, with a check of the invariants after every event, then a
calm phase that must make progress (Kafka: `RaftEventSimulationTest`).

Runs with voter changes have reads, and a share of the other runs. Only logs are read here: the clients of a state
machine read by its own workload, and a controller confirms no reads. A static voter with an empty disk keeps its id,
and so votes and acknowledges a second time (`docs/howto/damaged-disk.md`): `documented` tells such violations from
others.
"""

from __future__ import annotations

from functools import partial
from random import Random
from traceback import walk_tb
from typing import Final, Unpack

from msgspec import Struct

from kraft.invariants.violation import InvariantViolated
from kraft.sim.faults.nemesis import FORGED_FRAMES
from kraft.sim.faults.profiles import BROAD
from kraft.sim.nodes.member_kinds import MACHINES, MakeMember, replica_member
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.runs.scenario import Scenario, kind_of
from kraft.sim.runs.simulator import RunOptions, Simulator
from kraft.sim.workloads.client_history import ClientHistory
from kraft.sim.world.actions import Read
from kraft.sim.world.world import World

DOCUMENTED: Final = {
    "_check_leader": "an epoch has two leaders, as a voter votes twice",
    "_append": "two leaders of an epoch write different records at one offset",
    "_check_leading": "a leader lacks committed records",
    "_cut": "a follower truncates committed records",
    "_check_high_watermark": "two nodes have committed different records",
}
"""The events that may happen, by the check that notices them."""


def documented(world: World, failure: InvariantViolated) -> str:
    """Explain a violation by a lost disk that has returned against the rules; empty if that does not explain it."""
    if not world.disk_losses.has_broken_rules:
        return ""
    names = [frame.f_code.co_name for frame, _ in walk_tb(failure.__traceback__)]
    return next((meaning for name, meaning in DOCUMENTED.items() if name in names), "")


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


SHARES: Final = {"dynamic": 1.0, "core": 0.25, "replica": 0.25}
"""The share of the seeds with reads, by the kind of members. All other seeds have the same run as without reads."""


def begin_reads(simulator: Simulator) -> None:
    """Schedule the reads of a run, if the seed has any."""
    scenario = simulator.scenario
    rng = Random(f"reads:{scenario.seed}")
    if rng.random() < SHARES.get(scenario.members, 0):
        workload = ReadWorkload(rng)
        simulator.queue.schedule(workload.pause_ms(), partial(_read, simulator, workload))


def _read(simulator: Simulator, workload: ReadWorkload) -> None:
    for node_id, read_id in workload.next_reads(simulator.world):
        simulator.queue.perform_when_awake(Read(simulator.now_ms, node_id, read_id))
    simulator.queue.schedule(workload.pause_ms(), partial(_read, simulator, workload))


CHAOS_MS: Final = 8_000
"""The default virtual time with faults."""
CALM_MS: Final = 60_000
"""The default virtual time without faults in which the quorum must make progress."""


class Result(Struct, frozen=True, kw_only=True):
    """The result of a run without a failure."""

    seed: int
    nodes: int
    """The number of voters, or of controllers in a cluster."""
    digest: str
    """The digest of the trace, in hexadecimal: equal for equal runs."""
    events: int
    """The number of inputs to all nodes."""
    elapsed_ms: int
    """The virtual time of the run, in ms."""
    leaders: tuple[int, ...]
    """The ids of the leaders, in the order of epochs."""
    committed: int
    """The offset after the last committed record."""
    acknowledged: int
    """The number of submissions that were acknowledged as committed."""
    voter_sets: int
    """The number of committed Voters records."""
    snapshots: int
    """The number of snapshot ids in the run."""
    documented: str = ""
    """The documented violation that has ended the run, after an operator has broken the rules; empty if none has."""
    undecided: int
    """The number of client histories that the check of linearizability did not decide."""
    trace: str
    """The kept lines of the trace: all of them with `keep_trace`, otherwise the last ones."""


def run(
    seed: int,
    nodes: int = 3,
    *,
    make_member: MakeMember = replica_member,
    workload_spec: WorkloadSpec | None = None,
    chaos_ms: int = CHAOS_MS,
    allow_undecided: bool = False,
    **given: Unpack[RunOptions],
) -> Result:
    """Simulate one quorum (Kafka: `RaftEventSimulationTest`). The seed determines the whole run.

    Args:
        seed: The seed.
        nodes: The number of voters.
        make_member: The kind of the nodes.
        workload_spec: A state machine for the nodes to host; the responses to its clients must be linearizable.
        chaos_ms: The virtual time with faults, in ms.
        allow_undecided: Whether the run passes if the check of linearizability exceeds its budget; the result counts
            such a history.
        given: See `RunOptions`.

    Raises:
        InvariantViolated: An invariant does not hold. The notes contain the seed and the end of the trace.
        HistoryUndecided: The check of linearizability exceeded its budget.
        NoProgress: The quorum made no progress in the calm phase.
    """
    simulator = quorum_simulator(seed, nodes, make_member=make_member, workload_spec=workload_spec, **given)
    watch, scenario = simulator.world.watch, simulator.scenario
    if isinstance(watch, ClientHistory):
        watch.allows_undecided = allow_undecided
    of_kind = f"of members of the kind {scenario.members}, profile {scenario.profile}"
    return whole_run(simulator, chaos_ms, CALM_MS, again=f"run({seed}, {nodes}, chaos_ms={chaos_ms}, …), {of_kind}")


def quorum_simulator(
    seed: int,
    nodes: int = 3,
    *,
    make_member: MakeMember = replica_member,
    workload_spec: WorkloadSpec | None = None,
    **given: Unpack[RunOptions],
) -> Simulator:
    """The simulator of one quorum before its first event; the arguments are those of `run`."""
    kind = kind_of(make_member) if workload_spec is None else MACHINES
    profile = given.get("profile", BROAD)
    scenario = Scenario.drawn(kind, nodes, seed, is_forged=is_forged(given), profile=profile)
    return Simulator(scenario, make_member=make_member, workload_spec=workload_spec, **given)


def is_forged(given: RunOptions) -> bool:
    """Whether the run has forged messages."""
    return FORGED_FRAMES in (given.get("faults") or ())


def whole_run(simulator: Simulator, chaos_ms: int, calm_ms: int, *, again: str) -> Result:
    """Run the phase with faults, then the calm. A failure gets the end of the trace and the call `again` as notes."""
    begin_reads(simulator)
    try:
        simulator.chaos(chaos_ms)
        if simulator.scenario.is_forged:
            simulator.aftermath()
        else:
            simulator.calm(calm_ms)
    except Exception as failure:
        broken = documented(simulator.world, failure) if isinstance(failure, InvariantViolated) else ""
        if broken:
            return result_of(simulator, broken)
        failure.add_note(simulator.world.trace.text)
        failure.add_note(f"seed {simulator.scenario.seed}: it happens again with {again}")
        raise
    return result_of(simulator)


def result_of(simulator: Simulator, broken: str = "") -> Result:
    """The result of a run without a failure, or with the documented violation `broken`."""
    world = simulator.world
    watch = world.watch
    return Result(
        seed=simulator.scenario.seed,
        nodes=simulator.scenario.nodes,
        digest=world.trace.digest,
        events=world.events,
        elapsed_ms=simulator.now_ms,
        leaders=world.invariants.votes.leaders,
        committed=world.invariants.commits.end_offset,
        acknowledged=world.acknowledged,
        voter_sets=len(world.invariants.voters.committed),
        snapshots=len(world.invariants.snapshots.ids),
        documented=broken,
        undecided=watch.undecided if isinstance(watch, ClientHistory) else 0,
        trace=world.trace.text,
    )
