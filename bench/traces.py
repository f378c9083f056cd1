"""Holds simulated runs against the specification of the protocol: each is a behaviour of `docs/protocol/Quorum.tla`, or
the bench tells the step that is none.

    python bench/traces.py [WHICH] [--members replica] [--profile NAME] [--seeds A..B] [--at-once 25]
    python bench/traces.py [WHICH] --bugs [NAME …] [--seeds A..B]
    python bench/traces.py --bugs NAME … --schedules
    python bench/traces.py --files FILE…

WHICH is the specification; without it the quorum of a run is held against `Quorum.tla`.
`--partitions` holds the partitions of brokers with data against `Partition.tla`;
`--groups` holds consumer groups against `Group.tla`, `--transactions` transactional ids against `Transaction.tla`
(`--members coordinator-cluster`).
`--bugs` plants bugs of the protocol, with the checks of the simulator switched off, and says which the specification
finds: those that `bench/protocol_bugs.py` names, and its own ten, which were chosen before any of them was tried. With
`--partitions`, `--groups` or `--transactions` they are those that are listed for these.
`--schedules` replays the schedules in `docs/schedules` of the bugs, with the bug and without.
`--files` holds one run of real nodes against it: what each `kraft serve --protocol FILE` of the quorum has written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from kraft.invariants.groups import GroupLedger
from kraft.invariants.transactions import TransactionLedger
from kraft.quorum.recorded import ProtocolStep, RecordedCore
from kraft.sim.faults.profiles import BY_TURNS
from kraft.sim.protocol.files import (
    GROUP,
    OUTSIDE_OF_QUORUM,
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
    within_protocol,
)
from kraft.sim.protocol.trace import Run, Trace, run_of
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule, decode_schedule, perform_all
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.record_watch import RecordWatch
from kraft.sim.workloads.voter_watch import VoterWatch
from kraft.sim.world.trace import Trace as Lines
from kraft.sim.world.world import World
from planted_bugs import MUTANTS, planted
from planted_bugs.registry import CLASSIC_FAULTS, Patches

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from group_bugs import OF_GROUPS
from protocol_bugs import OF_PARTITIONS, OWN, PLANTED, Bug
from transaction_bugs import OF_TRANSACTIONS

from support.tlc import explain, judge


def _quorum_runs(search: SeedSearch, seed: int) -> tuple[list[Run], Result | Schedule]:
    run, outcome = quorum_run(search, seed)
    return [run], outcome


_WAYS: Final[dict[str, tuple[Specification, Callable[[SeedSearch, int], tuple[list[Any], Result | Schedule]]]]] = {
    "quorum": (QUORUM, _quorum_runs),
    "partitions": (PARTITION, partition_runs),
    "groups": (GROUP, group_runs),
    "transactions": (TRANSACTION, transaction_runs),
}
_BUGS: Final[dict[str, dict[str, Callable[[Patches], None]]]] = {
    "partitions": {name: MUTANTS[name].plant for name in OF_PARTITIONS},
    "groups": OF_GROUPS,
    "transactions": OF_TRANSACTIONS,
}
SCHEDULES: Final = Path(__file__).parent.parent / "docs" / "schedules"
DEPARTED: Final = 8
"""How many runs that a bug has changed are judged at once: a start of TLC costs more than a short trace."""
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
        parser.add_argument(f"--{way}", dest="way", action="store_const", const=way, default="quorum")
    parser.add_argument("--bugs", nargs="*")
    parser.add_argument("--schedules", action="store_true", help="replay the schedules that are kept of the bugs")
    parser.add_argument("--files", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(".."))
    seeds = range(first, last + 1)
    if asked.bugs is not None:
        if asked.way != "quorum":
            for name, plant in _BUGS[asked.way].items():
                if not asked.bugs or name in asked.bugs:
                    print(_hunt_in_brokers(name, plant, seeds, asked), flush=True)
            return
        chosen = [bug for bug in (*PLANTED, *OWN) if not asked.bugs or bug.name in asked.bugs]
        if asked.schedules:
            for bug in chosen:
                _scheduled(bug)
            return
        _hunt(chosen, seeds)
        return
    if asked.files is not None:
        run = run_of_nodes("these files", asked.files)
        found = [f"{name}:\n{text}" for name, text in refusals(QUORUM, [run])]
        print(*found, f"{len(run.steps)} steps, {'refused' if found else 'a behaviour of the specification'}", sep="\n")
        sys.exit(bool(found))
    sys.exit(_hold(asked, seeds))


def _hold(asked: argparse.Namespace, seeds: range) -> bool:
    """Hold the runs of seeds against the specification; returns whether one was refused."""
    specification, runs_of = _WAYS[asked.way]
    begin, refused, ended, steps, count = time.perf_counter(), 0, 0, 0, 0
    for at in range(0, len(seeds), asked.at_once):
        some, runs = seeds[at : at + asked.at_once], list[Any]()
        search = SeedSearch(members=asked.members, profile=asked.profile, chaos_ms=asked.chaos_ms)
        for seed in some:
            found, outcome = runs_of(search, seed)
            runs += found
            if isinstance(outcome, Schedule):
                ended += 1
                print(f"{asked.members}-{seed} ends: {outcome.violated}: {outcome.message}", flush=True)
        count += len(runs)
        steps += sum(len(run.steps) for run in runs)
        for name, told in refusals(specification, runs):
            refused += 1
            print(f"{name}:\n{told}", flush=True)
    took = time.perf_counter() - begin
    runs_told = f"{len(seeds)} seeds of {asked.members}, {ended} ended by a check"
    print(f"{runs_told}, {count} traces, {steps} steps, {refused} refused, {took:.0f} s", flush=True)
    return bool(refused or ended)


def refusals(specification: Specification, runs: list[Any]) -> Iterator[tuple[str, str]]:
    """The runs that are no behaviours, with the step that is refused. Runs of one group are checked together."""
    for group in grouped(runs):
        with tempfile.TemporaryDirectory() as scratch:
            found = judge(specification, group, Path(scratch))
        suspects = [run for at, run in enumerate(group, 1) if at not in found.whole]
        for run in suspects:
            alone = found
            if len(group) > 1:
                with tempfile.TemporaryDirectory() as scratch:
                    alone = judge(specification, [run], Path(scratch))
            if alone.whole and not alone.violated:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                told = explain(Path(scratch), specification, [run])
            yield run.name, "\n".join(filter(None, (alone.violated, told)))


def _hunt(bugs: list[Bug], seeds: range) -> None:
    """Look for a run with each bug that is no behaviour. A run that the bug does not change is not judged, and of any
    other one its first steps after the change.
    """
    left = {bug.name: bug for bug in bugs}
    departed: dict[str, list[Run]] = {name: [] for name in left}
    for seed in seeds:
        for faults, which in ((None, "profiles by turns"), (CLASSIC_FAULTS, "classic faults")):
            sound: dict[SeedSearch, list[list[ProtocolStep]]] = {}
            for bug in tuple(left.values()):
                search = SeedSearch(members=bug.members, faults=faults, nodes=bug.nodes)
                if search not in sound:
                    sound[search] = _unchecked_turns(search, seed, Trace())
                turns = _unchecked_turns(search, seed, Departure(sound[search]), bug)
                if turns != sound[search]:
                    departed[bug.name].append(run_of(f"seed {seed} ({bug.members}, {which})", turns))
                if len(departed[bug.name]) == DEPARTED:
                    _judge(left, departed)
    _judge(left, departed)
    for name in left:
        print(f"{name}: not found by {len(seeds)} seeds", flush=True)


def _judge(left: dict[str, Bug], departed: dict[str, list[Run]]) -> None:
    """Judge the runs that bugs have changed; those that are found are not left."""
    for name, runs in departed.items():
        where = ", ".join(run.name for run in runs)
        for found, told in refusals(QUORUM, runs):
            del left[name]
            print(f"{name}: found by {found}: {' | '.join(told.splitlines())[:400]}", flush=True)
            break
        else:
            if runs:
                print(f"{name}: changes {where}, which are behaviours", flush=True)
        runs.clear()


def _scheduled(bug: Bug) -> None:
    """Hold the kept schedule of a bug against the specification, with the bug and without."""
    file = SCHEDULES / f"{bug.name}.json"
    schedule = decode_schedule(file.read_bytes(), file.name)
    for mutant in (None, bug.name):
        trace = Trace()
        with planted(mutant), unchecked():
            world = schedule.scenario.make_world(Lines(), None, None)
            for host in world.hosts.values():
                host.member.make_core = partial(RecordedCore, recorder=trace.record)
            perform_all(world, schedule)
        told = [line for _, text in refusals(QUORUM, [run_of(bug.name, trace.turns)]) for line in text.splitlines()]
        print(f"{file.name} with {mutant or 'sound code'}: {' | '.join(told)[:400] or 'a behaviour'}", flush=True)


class Departure(Trace):
    """The turns of a run up to some steps after it departs from a sound one."""

    def __init__(self, sound: list[list[ProtocolStep]], after: int = 2_000) -> None:
        super().__init__()
        self._sound, self._after, self._left = sound, after, after

    def record(self, turn: list[ProtocolStep]) -> None:
        """Receive the steps of one turn; raises `AssertionError` when there are enough."""
        at = len(self.turns)
        super().record(turn)
        if self._left < self._after or at >= len(self._sound) or self._sound[at] != turn:
            self._left -= len(turn)
            assert self._left > 0, "enough is known of this run"


def _unchecked_turns(search: SeedSearch, seed: int, trace: Trace, bug: Bug | None = None) -> list[list[ProtocolStep]]:
    patches = Patches()
    try:
        if bug is not None:
            bug.plant(patches)
        with unchecked():
            replace(within_protocol(search, seed, OUTSIDE_OF_QUORUM), recorder=trace.record).run(seed, [])
    finally:
        patches.undo()
    return trace.turns


def _hunt_in_brokers(name: str, plant: Callable[[Patches], None], seeds: range, asked: argparse.Namespace) -> str:
    specification, runs_of = _WAYS[asked.way]
    members = "data-cluster" if asked.way == "partitions" else "coordinator-cluster"
    profile = MUTANTS[name].profile if name in MUTANTS else BY_TURNS
    for seed in seeds:
        patches = Patches()
        try:
            plant(patches)
            with unwatched():
                runs, _ = runs_of(SeedSearch(members=members, profile=profile, chaos_ms=asked.chaos_ms), seed)
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
    for name in ("started", "stepped"):
        patches.replace(VoterWatch, name, _quiet(vars(VoterWatch)[name]))
    try:
        with suppress(AssertionError):
            yield
    finally:
        patches.undo()


if __name__ == "__main__":
    main()
