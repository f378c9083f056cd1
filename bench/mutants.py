"""The number of seeds that find each planted bug, and the length of the shortest schedule; makes the table of
docs/reference/mutants.md.

    python bench/mutants.py [NAME …] [--scope core] [--write] [--keep DIR]

The bench searches for each bug from five first seeds, with three voters each. It shrinks the five schedules, the
shortest first, until one is short enough to read. The saved schedule in docs/schedules is no longer than that.
`--write` puts the rows into the page, `--keep` the shrunk schedules into a directory. All bugs take some hours of one
processor.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct

from kraft.sim.mutants import MUTANTS, Mutant, Scope
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule, function_of
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.search.shrink import MOST_EVENTS, shrink

DOCS: Final = Path(__file__).parent.parent / "docs"
PAGE: Final = DOCS / "reference" / "mutants.md"
FIRST_SEEDS: Final = range(0, 50_000, 10_000)
READABLE_STEPS: Final = 30
"""The length of a schedule that is short enough to read."""
NOT_MEASURED: Final = "—"


class Measured(Struct, frozen=True):
    """The figures of one mutant. `seeds` is the median, `steps` the length of the shrunk schedule."""

    mutant: Mutant
    found_by: tuple[str, ...]
    seeds: float | None
    steps: int | None

    @property
    def row(self) -> str:
        """The mutant's line in the table."""
        mutant = self.mutant
        seeds = NOT_MEASURED if self.seeds is None else f"{self.seeds:g}"
        steps = NOT_MEASURED if self.steps is None else str(self.steps)
        cells = f"`{mutant.name}`", mutant.what, mutant.scope.value, " or ".join(self.found_by), seeds, steps
        return f"| {' | '.join(cells)} |"


def measure(mutant: Mutant, most_events: int, keep: Path | None) -> Measured:
    """Search for one mutant from each first seed, and shrink the schedules until one is short enough to read.

    Raises:
        AssertionError: The mutant's budget was not enough from a first seed.
    """
    hunts = [look_for(mutant, first) for first in FIRST_SEEDS] if mutant.budget else []
    schedules = [schedule for _, schedule in hunts]
    path = DOCS / "schedules" / f"{mutant.name}.json"
    saved = [decode_schedule(path.read_bytes(), path.name)] if path.exists() else []
    shrunk: list[Schedule] = []
    for found in sorted(schedules, key=_length):
        shrunk.append(shrink(found, most_events=most_events))
        if _length(shrunk[-1]) <= READABLE_STEPS:
            break
    if shrunk and keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{mutant.name}.json").write_bytes(encode_schedule(min(shrunk, key=_length)))
    return Measured(
        mutant,
        tuple(dict.fromkeys(told(schedule.violated) for schedule in schedules or saved)),
        median(count for count, _ in hunts) if hunts else None,
        min(map(_length, [*saved, *shrunk]), default=None),
    )


def _length(schedule: Schedule) -> int:
    return len(schedule.actions)


def look_for(mutant: Mutant, first: int) -> tuple[int, Schedule]:
    """The number of seeds from this one on until the bug shows, and the schedule."""
    search = SeedSearch(members=mutant.scope, mutant=mutant.name, faults=mutant.faults)
    for seed in range(first, first + mutant.budget):
        outcome = search.run(seed)
        if isinstance(outcome, Schedule):
            return seed - first + 1, outcome
    raise AssertionError(f"{mutant.budget} seeds from {first} on did not find {mutant.name}")


def told(violated: str) -> str:
    """A check, as `check_of` names it, in the page's notation."""
    failure, function = violated.partition(" by ")[0], function_of(violated)
    match failure:
        case "InvariantViolated":
            return f"`{function}`"
        case "NoProgress":
            return "no progress in the end"
        case "AssertionError":
            return f"the node's own assertion in `{function}`"
        case _:
            return f"`{failure}` in `{function}`"


def write(measured: Measured) -> None:
    """Put a row into the page; rows of removed bugs go, those of new ones wait for a measurement."""
    before, after = PAGE.read_text(encoding="utf-8").split("| --- |\n", 1)
    rows = {line.split("`")[1]: line for line in after.splitlines() if line.startswith("| `")}
    rows[measured.mutant.name] = measured.row
    rest = [line for line in after.splitlines() if not line.startswith("| `")]
    table = [rows.get(name) or Measured(mutant, (), None, None).row for name, mutant in MUTANTS.items()]
    lines = [before + "| --- |", *table, *rest]
    PAGE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--scope", choices=[scope.value for scope in Scope], help="only the mutants of such runs")
    parser.add_argument("--most-events", type=int, default=MOST_EVENTS, help="the limit on events to shrink a schedule")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="save the shrunk schedules there")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/reference/mutants.md")
    options = parser.parse_args()
    for name in options.names or MUTANTS:
        mutant = MUTANTS[name]
        if options.scope not in (None, mutant.scope):
            continue
        start = time.process_time()
        measured = measure(mutant, options.most_events, options.keep)
        print(f"{measured.row} {time.process_time() - start:.0f} s", flush=True)
        if options.write:
            write(measured)


if __name__ == "__main__":
    main()
