"""The steps of runs as files for the model checker: of simulated ones, and of real nodes (`kraft serve --protocol`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kraft.quorum.recorded_turns import turns_in
from kraft.sim.nodes.cluster import COORDINATOR_CLUSTER, WITH_DATA
from kraft.sim.protocol import group_module, partition_module, transaction_module
from kraft.sim.protocol.group_module import GroupRun, group_module_of, group_run
from kraft.sim.protocol.group_steps import GroupRecorder
from kraft.sim.protocol.partition_module import PartitionRun, partition_module_of, partition_run
from kraft.sim.protocol.partition_steps import PartitionRecorder
from kraft.sim.protocol.trace import Run, Trace, module_of, run_of
from kraft.sim.protocol.transaction_module import TransactionRun, transaction_module_of, transaction_run
from kraft.sim.protocol.transaction_steps import TransactionRecorder
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.actions import Action
from kraft.sim.world.world import World

_R = TypeVar("_R")

OUTSIDE: Final = (
    "disk-rot",
    "disk-wiped",
    "disk-swapped",
    "quorum-state-damaged",
    "batch-epochs-damaged",
    "forged-frames",
)
"""The faults that no specification allows: disks that lose what an fsync has covered, and forged messages."""
OUTSIDE_OF_QUORUM: Final = (*OUTSIDE, "absurd-frames")
"""The same for the quorum, in which a message is a fact: a pre-vote that nobody has sent raises an epoch."""
CONFIGURATION: Final = """SPECIFICATION TraceSpec
CONSTANTS
  None = None
  Replicas <- RunReplicas
  First <- RunFirst
  NoPreVotes <- RunReplicas
VIEW Place
INVARIANTS OneLeaderPerEpoch
"""
"""The configuration of QuorumTrace.tla: every replica may be of an old release, and the trace says if one was."""


class Specification(msgspec.Struct, frozen=True):
    """A module that runs are held against. Runs with an equal `group` fit into one module of runs."""

    module: str
    runs: str
    """The name of the module with the runs."""
    configuration: str
    write: Callable[[list[Any]], str]


QUORUM: Final = Specification("QuorumTrace", "Runs", CONFIGURATION, module_of)
PARTITION: Final = Specification("PartitionTrace", "PartitionRuns", partition_module.CONFIGURATION, partition_module_of)

GROUP: Final = Specification("GroupTrace", "GroupRuns", group_module.CONFIGURATION, group_module_of)
TRANSACTION: Final = Specification(
    "TransactionTrace", "TransactionRuns", transaction_module.CONFIGURATION, transaction_module_of
)


def within_protocol(search: SeedSearch, seed: int, outside: tuple[str, ...] = OUTSIDE) -> SeedSearch:
    """The search for the run of a seed with its profile, without the faults outside of the specification."""
    profile = search.profile_of(seed)
    faults = profile.faults if search.faults is None else search.faults
    return replace(search, profile=profile.name, faults=tuple(one for one in faults if one not in outside))


def quorum_run(search: SeedSearch, seed: int) -> tuple[Run, Result | Schedule]:
    """The steps of a quorum in the run of a seed, up to a failure."""
    trace = Trace()
    outcome = replace(within_protocol(search, seed, OUTSIDE_OF_QUORUM), recorder=trace.record).run(seed, [])
    return run_of(f"{search.members}-{seed}", trace.turns), outcome


def _observed(
    recorder: PartitionRecorder | GroupRecorder | TransactionRecorder,
    run_of_trace: Callable[[str, Any], _R],
    search: SeedSearch,
    seed: int,
) -> tuple[list[_R], Result | Schedule]:
    outcome = replace(within_protocol(search, seed), observer=recorder).run(seed, [])
    name = f"{search.members}-{seed}"
    return [run_of_trace(name, one) for one in recorder.traces.values() if one.steps], outcome


def partition_runs(search: SeedSearch, seed: int) -> tuple[list[PartitionRun], Result | Schedule]:
    """The steps of each partition in the run of a seed, up to a failure."""
    return _observed(PartitionRecorder(), partition_run, search, seed)


def group_runs(search: SeedSearch, seed: int) -> tuple[list[GroupRun], Result | Schedule]:
    """The steps of each consumer group in the run of a seed of coordinators, up to a failure."""
    return _observed(GroupRecorder(), group_run, search, seed)


def transaction_runs(search: SeedSearch, seed: int) -> tuple[list[TransactionRun], Result | Schedule]:
    """The steps of each transactional id in the run of a seed of coordinators, up to a failure."""
    return _observed(TransactionRecorder(), transaction_run, search, seed)


def grouped(runs: Iterable[Any]) -> Iterator[list[Any]]:
    """Runs that fit into one module each."""
    groups: dict[object, list[Any]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    yield from groups.values()


def run_and_write(search: SeedSearch, seed: int, *, directory: Path) -> Result | Schedule:
    """Simulate the run of a seed, and write its steps below a directory. Brokers with data have a directory for each
    kind of partitions, too, and coordinators one for consumer groups and one for each version of transactions.
    """
    recorder, groups, transactions, trace = PartitionRecorder(), GroupRecorder(), TransactionRecorder(), Trace()

    def observe(world: World, action: Action) -> None:
        recorder(world, action)
        if search.members == COORDINATOR_CLUSTER:
            groups(world, action)
            transactions(world, action)

    observer = observe if search.members in WITH_DATA else None
    within = within_protocol(search, seed, OUTSIDE_OF_QUORUM)
    outcome = replace(within, recorder=trace.record, observer=observer).run(seed, [])
    name = f"{search.members}-{seed}"
    _write(QUORUM, [run_of(name, trace.turns)], directory / name)
    runs = [partition_run(name, one) for one in recorder.traces.values() if one.steps]
    for number, of_group in enumerate(grouped(runs), 1):
        _write(PARTITION, of_group, directory / name / f"partitions-{number}")
    of_groups = [group_run(name, one) for one in groups.traces.values() if one.steps]
    if of_groups:
        _write(GROUP, of_groups, directory / name / "groups")
    of_transactions = [transaction_run(name, one) for one in transactions.traces.values() if one.steps]
    for number, of_version in enumerate(grouped(of_transactions), 1):
        _write(TRANSACTION, of_version, directory / name / f"transactions-{number}")
    return outcome


def _write(specification: Specification, runs: list[Any], place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{specification.runs}.tla").write_text(specification.write(runs))
    (place / f"{specification.module}.cfg").write_text(specification.configuration)


def run_of_nodes(name: str, files: Iterable[Path]) -> Run:
    """The run of real nodes of one machine, from the file of each node."""
    turns = (turn for file in files for turn in turns_in(file.read_bytes()))
    return run_of(name, [turn for _, turn in sorted(turns, key=itemgetter(0))])
