"""Shrinks a schedule of each planted bug of brokers with data, and writes docs/reference/shrunk-schedules.md.

    python bench/schedules/shrink.py [NAME …] [--write] [--most-events N]

The bench searches for each bug from seed 0 on, as the registry says, and shrinks the first schedule with a failed
check. A schedule without progress is not shrunk: each replay would need a calm of its own. A bug of coordinators is
sought in clusters of one controller and two brokers, where most of them show as soon. A schedule that the correct code
does not survive is not kept. `--write` puts the rows into the
page, and the schedules into tests/data/shrunk_schedules.jsonl.gz, which a test replays.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from kraft.sim.search.schedule import Schedule, decode_schedule, function_of, replay
from kraft.sim.search.shrink import shrink
from kraft.sim.world.world import NoProgress
from planted_bugs import MUTANTS, Mutant, Scope
from planted_bugs.registry import search_for

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "shrunk-schedules.md"
SCHEDULES: Final = ROOT / "tests" / "data" / "shrunk_schedules.jsonl.gz"
HEAD: Final = "| mutant | found by | seed | actions | shrunk | nodes | CPU |"
MOST_EVENTS: Final = 2_000_000
OF_DATA: Final = (Scope.DATA_CLUSTER, Scope.COORDINATOR_CLUSTER, Scope.SHARE_CLUSTER)


class Shrunk(Struct, frozen=True):
    """One row: the schedule as found and as shrunk."""

    mutant: Mutant
    found: Schedule
    shrunk: Schedule
    seconds: float

    @property
    def row(self) -> str:
        """The line of the page."""
        scenario = self.shrunk.scenario
        cells = (
            f"`{self.mutant.name}`",
            f"`{function_of(self.found.violated)}`",
            self.found.scenario.seed,
            f"{len(self.found.actions):,}",
            len(self.shrunk.actions),
            f"{scenario.nodes} + {scenario.brokers}",
            f"{self.seconds:.0f} s",
        )
        return f"| {' | '.join(map(str, cells))} |"


def look_for(mutant: Mutant) -> Schedule | None:
    """The schedule of the first seed that fails a check, also one of a node; None within the budget of the mutant."""
    search = search_for(mutant)
    if mutant.scope in (Scope.COORDINATOR_CLUSTER, Scope.SHARE_CLUSTER):
        search = structs.replace(search, nodes=1, brokers=2)
    outcomes = (search.run(seed) for seed in range(mutant.budget))
    found = (one for one in outcomes if isinstance(one, Schedule))
    return next((one for one in found if not one.violated.startswith(NoProgress.__name__)), None)


def write(made: Shrunk) -> None:
    """Put a row into the page, and its schedule among the saved ones, in the order of the names."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEAD) + 2
    end = next((at for at in range(start, len(lines)) if not lines[at].startswith("| ")), len(lines))
    rows = {line.split("`")[1]: line for line in lines[start:end]} | {made.mutant.name: made.row}
    lines[start:end] = [rows[name] for name in sorted(rows)]
    PAGE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    old = gzip.decompress(SCHEDULES.read_bytes()).splitlines() if SCHEDULES.exists() else []
    saved = {one.mutant or "": one for one in (decode_schedule(line, SCHEDULES.name) for line in old)}
    saved[made.mutant.name] = made.shrunk
    data = b"".join(msgspec.json.encode(saved[name]) + b"\n" for name in sorted(saved))
    SCHEDULES.write_bytes(gzip.compress(data, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all bugs of such brokers")
    parser.add_argument("--most-events", type=int, default=MOST_EVENTS, help="the limit on events to shrink a schedule")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/reference/shrunk-schedules.md")
    options = parser.parse_args()
    names = options.names or [one.name for one in MUTANTS.values() if one.scope in OF_DATA and one.budget]
    for name in names:
        found = look_for(MUTANTS[name])
        if found is None:
            print(f"{name}: no seed fails a check", flush=True)
            continue
        start = time.process_time()
        shrunk = shrink(found, most_events=options.most_events)
        made = Shrunk(MUTANTS[name], found, shrunk, time.process_time() - start)
        print(made.row, flush=True)
        if (failure := replay(structs.replace(shrunk, mutant=None)).failure) is not None:
            print(f"{name}: not kept, the correct code fails, too: {failure}", flush=True)
            continue
        if options.write:
            write(made)


if __name__ == "__main__":
    main()
