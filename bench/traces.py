"""Holds simulated runs against the specification of the protocol: each is a behaviour of `docs/protocol/Quorum.tla`, or
the bench tells the step that is none.

    python bench/traces.py [WHICH] [--members replica] [--profile NAME] [--seeds A..B] [--at-once 25]
    python bench/traces.py [WHICH] --bugs [NAME …] [--seeds A..B]
    python bench/traces.py --files FILE…

WHICH is the specification; without it the quorum of a run is held against `Quorum.tla`.
`--partitions` holds the partitions of brokers with data against `Partition.tla`;
`--groups` holds consumer groups against `Group.tla`, `--transactions` transactional ids against `Transaction.tla`
(`--members coordinator-cluster`).
`--bugs` plants bugs of the protocol, with the checks of the simulator switched off, and says which the specification
finds: those that `bench/protocol_bugs.py` names, and its own ten, which were chosen before any of them was tried. With
`--partitions`, `--groups` or `--transactions` they are those that are listed for these.
`--files` holds one run of real nodes against it: what each `kraft serve --protocol FILE` of the quorum has written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kraft.invariants.groups import GroupLedger
from kraft.invariants.transactions import TransactionLedger
from kraft.sim.faults.profiles import BY_TURNS
from kraft.sim.protocol.files import (
    GROUP,
    PARTITION,
    QUORUM,
    TRANSACTION,
    Specification,
    group_runs,
    grouped,
    partition_runs,
    quorum_run,
    run_of_nodes,
    transaction_runs,
)
from kraft.sim.runs.scenario import Scenario
from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.record_watch import RecordWatch
from kraft.sim.world.world import World
from planted_bugs import MUTANTS
from planted_bugs.registry import Patches

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from group_bugs import OF_GROUPS
from protocol_bugs import OF_PARTITIONS, OWN, PLANTED, Bug
from transaction_bugs import OF_TRANSACTIONS

from support.tlc import explain, judge

_WAYS: Final[dict[str, tuple[Specification, Callable[[SeedSearch, int], list[Any]]]]] = {
    "partitions": (PARTITION, partition_runs),
    "groups": (GROUP, group_runs),
    "transactions": (TRANSACTION, transaction_runs),
}
_BUGS: Final[dict[str, dict[str, Callable[[Patches], None]]]] = {
    "partitions": {name: MUTANTS[name].plant for name in OF_PARTITIONS},
    "groups": OF_GROUPS,
    "transactions": OF_TRANSACTIONS,
}
_OF_GROUPS = ("told", "accepted", "acknowledged", "pended", "fetched", "committed")
_OF_TRANSACTIONS = ("initialized", "ended_by", "acknowledged", "decided", "committed", "appended", "concluded")
"""The checks of the ledgers of coordinators."""


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="replica")
    parser.add_argument("--profile", default=BY_TURNS, help="by default the profiles of these members take turns")
    parser.add_argument("--seeds", default="0..24")
    parser.add_argument("--at-once", type=int, default=25)
    parser.add_argument("--chaos-ms", type=int, help="how long the faults of brokers last, in simulated ms")
    for way in _WAYS:
        parser.add_argument(f"--{way}", dest="way", action="store_const", const=way)
    parser.add_argument("--bugs", nargs="*")
    parser.add_argument("--files", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(".."))
    seeds = range(first, last + 1)
    if asked.bugs is not None:
        if asked.way is not None:
            for name, plant in _BUGS[asked.way].items():
                if not asked.bugs or name in asked.bugs:
                    print(_hunt_in_brokers(name, plant, seeds, asked), flush=True)
            return
        for bug in (*PLANTED, *OWN):
            if not asked.bugs or bug.name in asked.bugs:
                print(_hunt(bug, seeds), flush=True)
        return
    if asked.files is not None:
        run = run_of_nodes("these files", asked.files)
        found = [f"{name}:\n{text}" for name, text in refusals(QUORUM, [run])]
        print(*found, f"{len(run.steps)} steps, {'refused' if found else 'a behaviour of the specification'}", sep="\n")
        sys.exit(bool(found))
    sys.exit(_hold(asked, seeds))


def _hold(asked: argparse.Namespace, seeds: range) -> bool:
    """Hold the runs of seeds against the specification; returns whether one was refused."""
    begin, refused, steps, count = time.perf_counter(), 0, 0, 0
    runs: list[Any]
    for at in range(0, len(seeds), asked.at_once):
        some = seeds[at : at + asked.at_once]
        search = SeedSearch(members=asked.members, profile=asked.profile, chaos_ms=asked.chaos_ms)
        if asked.way is None:
            specification, runs = QUORUM, []
            for run, outcome in (quorum_run(search, seed) for seed in some):
                runs.append(run)
                if isinstance(outcome, Schedule):
                    refused += 1
                    print(f"{run.name} ends: {outcome.violated}: {outcome.message}", flush=True)
        else:
            specification, runs_of = _WAYS[asked.way]
            runs = [run for seed in some for run in runs_of(search, seed)]
        count += len(runs)
        steps += sum(len(run.steps) for run in runs)
        for name, told in refusals(specification, runs):
            refused += 1
            print(f"{name}:\n{told}", flush=True)
    took = time.perf_counter() - begin
    print(f"{len(seeds)} seeds of {asked.members}, {count} traces, {steps} steps, {refused} refused, {took:.0f} s")
    return bool(refused)


def refusals(specification: Specification, runs: list[Any]) -> Iterator[tuple[str, str]]:
    """The runs that are no behaviours, with the step that is refused. Runs of one group are checked together."""
    for group in grouped(runs):
        with tempfile.TemporaryDirectory() as scratch:
            found = judge(specification, group, Path(scratch))
        suspects = [run for at, run in enumerate(group, 1) if at not in found.whole]
        for run in suspects:
            with tempfile.TemporaryDirectory() as scratch:
                alone = judge(specification, [run], Path(scratch))
            if alone.whole and not alone.violated:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                told = explain(Path(scratch), specification, [run])
            yield run.name, "\n".join(filter(None, (alone.violated, told)))


def _hunt(bug: Bug, seeds: range) -> str:
    for seed in seeds:
        patches = Patches()
        try:
            bug.plant(patches)
            with unchecked():
                run = quorum_run(SeedSearch(members=bug.members), seed)[0]
        finally:
            patches.undo()
        for _, told in refusals(QUORUM, [run]):
            return f"{bug.name}: found by seed {seed} ({bug.members}): {' | '.join(told.splitlines())[:400]}"
    return f"{bug.name}: not found by {len(seeds)} seeds ({bug.members})"


def _hunt_in_brokers(name: str, plant: Callable[[Patches], None], seeds: range, asked: argparse.Namespace) -> str:
    specification, runs_of = _WAYS[asked.way]
    members = "data-cluster" if asked.way == "partitions" else "coordinator-cluster"
    profile = MUTANTS[name].profile if name in MUTANTS else BY_TURNS
    for seed in seeds:
        patches = Patches()
        try:
            plant(patches)
            with unwatched():
                runs = runs_of(SeedSearch(members=members, profile=profile, chaos_ms=asked.chaos_ms), seed)
        finally:
            patches.undo()
        for run, told in refusals(specification, runs):
            return f"{name}: found by seed {seed}, {run}: {' | '.join(told.splitlines())[:400]}"
    return f"{name}: not found by {len(seeds)} seeds"


@contextmanager
def unwatched() -> Iterator[None]:
    """No check of brokers with data ends a run while the block lasts."""
    patches = Patches()
    for name in ("started", "stepped", "concluded"):
        patches.replace(RecordWatch, name, _quiet(vars(RecordWatch)[name]))
    for ledger, names in ((GroupLedger, _OF_GROUPS), (TransactionLedger, _OF_TRANSACTIONS)):
        for name in names:
            patches.replace(ledger, name, _quiet(vars(ledger)[name]))
    try:
        yield
    finally:
        patches.undo()


def _quiet(sound: Callable[..., None]) -> Callable[..., None]:
    def quiet(watch: object, *given: Any, **named: Any) -> None:
        with suppress(AssertionError):
            sound(watch, *given, **named)

    return quiet


@contextmanager
def unchecked() -> Iterator[None]:
    """No check of the simulator ends a run while the block lasts."""
    patches = Patches()
    make_world = Scenario.make_world

    def make(scenario: Scenario, *given: Any) -> World:
        world = make_world(scenario, *given)
        watch = world.watch
        world.demand_only_survival()
        world.watch = watch
        return world

    patches.replace(Scenario, "make_world", make)
    try:
        with suppress(AssertionError):
            yield
    finally:
        patches.undo()


if __name__ == "__main__":
    main()
