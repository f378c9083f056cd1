"""Holds simulated runs against the specification of the protocol: each is a behaviour of `docs/protocol/Quorum.tla`, or
the bench tells the step that is none.

    python bench/traces.py [--members replica] [--seeds A..B] [--at-once 25]
    python bench/traces.py --bugs [NAME …] [--seeds A..B]
    python bench/traces.py --files FILE…

`--bugs` plants bugs of the protocol, with the checks of the simulator switched off, and says which the specification
finds: those that `bench/protocol_bugs.py` names, and its own ten, which were chosen before any of them was tried.
`--files` holds one run of real nodes against it: what each `kraft serve --protocol FILE` of the quorum has written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kraft.sim.protocol.files import CONFIGURATION, run_of_nodes, within_protocol
from kraft.sim.protocol.trace import Run, Trace, module_of, run_of
from kraft.sim.runs.scenario import Scenario
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.world import World
from planted_bugs.registry import Patches

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from protocol_bugs import OWN, PLANTED, Bug

from support.tlc import check, explain


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="replica")
    parser.add_argument("--seeds", default="0..24")
    parser.add_argument("--at-once", type=int, default=25)
    parser.add_argument("--bugs", nargs="*")
    parser.add_argument("--files", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(".."))
    seeds = range(first, last + 1)
    if asked.bugs is not None:
        for bug in (*PLANTED, *OWN):
            if not asked.bugs or bug.name in asked.bugs:
                print(_hunt(bug, seeds), flush=True)
        return
    if asked.files is not None:
        run = run_of_nodes("these files", asked.files)
        found = [f"{name}:\n{text}" for name, text in refusals([run])]
        print(*found, f"{len(run.steps)} steps, {'refused' if found else 'a behaviour of the specification'}", sep="\n")
        sys.exit(bool(found))
    begin, refused, steps = time.perf_counter(), 0, 0
    for at in range(0, len(seeds), asked.at_once):
        runs = [recorded(SeedSearch(members=asked.members), seed) for seed in seeds[at : at + asked.at_once]]
        steps += sum(len(run.steps) for run in runs)
        for name, told in refusals(runs):
            refused += 1
            print(f"{name}:\n{told}", flush=True)
    print(
        f"{len(seeds)} runs of {asked.members}, {steps} steps, {refused} refused, {time.perf_counter() - begin:.0f} s"
    )
    sys.exit(bool(refused))


def recorded(search: SeedSearch, seed: int) -> Run:
    """The trace of the run of a seed, up to a failure."""
    trace = Trace()
    replace(within_protocol(search, seed), recorder=trace.record).run(seed, [])
    return run_of(f"{search.members} {seed}", trace.turns)


def refusals(runs: list[Run]) -> Iterator[tuple[str, str]]:
    """The runs that are no behaviours, with the step that is refused. Runs of one group are checked together."""
    groups: dict[object, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    for group in groups.values():
        with tempfile.TemporaryDirectory() as scratch:
            found = check("QuorumTrace", CONFIGURATION, Path(scratch), files={"Runs": module_of(group)}, heap="3g")
        suspects = [run for at, run in enumerate(group, 1) if at not in found.whole]
        for run in suspects:
            with tempfile.TemporaryDirectory() as scratch:
                alone = check("QuorumTrace", CONFIGURATION, Path(scratch), files={"Runs": module_of([run])}, heap="3g")
            if alone.whole and not alone.violated:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                told = explain(Path(scratch), CONFIGURATION, {"Runs": module_of([run])})
            yield run.name, "\n".join(filter(None, (alone.violated, told)))


def _hunt(bug: Bug, seeds: range) -> str:
    for seed in seeds:
        patches = Patches()
        try:
            bug.plant(patches)
            with unchecked():
                run = recorded(SeedSearch(members=bug.members), seed)
        finally:
            patches.undo()
        for _, told in refusals([run]):
            return f"{bug.name}: found by seed {seed} ({bug.members}): {' | '.join(told.splitlines())[:400]}"
    return f"{bug.name}: not found by {len(seeds)} seeds ({bug.members})"


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
