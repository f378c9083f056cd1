"""The number of seeds that find each planted bug, and the length of the shortest schedule; makes the two tables of
docs/reference/mutants.md.

    python bench/mutants.py [NAME …] [--scope core] [--write] [--keep DIR] [--seeds-only]
    python bench/mutants.py [NAME …] --tests
    python bench/mutants.py --survivors 200 [NAME …]

The bench searches for each bug from five first seeds, with the faults that the registry names. It shrinks the five
schedules, the shortest first, until one is short enough to read. The saved schedule in docs/schedules is no longer than
that.
`--write` puts the rows into the page, `--keep` the shrunk schedules into a directory; `--seeds-only` shrinks nothing.
All bugs take some hours of one processor.

`--tests` plants each survivor and runs the test that the registry names: that test must fail, each in a process of its
own. `--survivors` searches for the survivors once more, within a number of seeds, and fails if a seed finds one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from msgspec import Struct

from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule, function_of
from kraft.sim.search.shrink import MOST_EVENTS, shrink
from planted_bugs import MUTANTS, Mutant, Scope, planted
from planted_bugs.registry import search_for

DOCS: Final = Path(__file__).parent.parent / "docs"
PAGE: Final = DOCS / "reference" / "mutants.md"
FIRST_SEEDS: Final = range(0, 50_000, 10_000)
READABLE_STEPS: Final = 30
"""The length of a schedule that is short enough to read."""
NOT_MEASURED: Final = "—"
NO_TEST_OF_OURS: Final = "tests/test_dependencies.py"
"""A file that imports nothing that a bug is planted into."""
FOUND: Final = "| mutant | what is broken | runs | found by | seeds | steps |"
SURVIVORS: Final = "| mutant | what is broken | runs | seeds tried | killed by | why no search finds the bug |"
"""The first lines of the page's two tables."""


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


def survivor_row(mutant: Mutant) -> str:
    """A survivor's line in the second table."""
    survival = mutant.survival
    assert survival is not None, mutant.name
    killed_by = "no test" if survival.killed_by is None else f"`{survival.killed_by}`"
    tried = f"{survival.tried} + {survival.tried_classic}"
    cells = f"`{mutant.name}`", mutant.what, mutant.scope.value, tried, killed_by, survival.because
    return f"| {' | '.join(cells)} |"


def measure(mutant: Mutant, most_events: int | None, keep: Path | None) -> Measured:
    """Search for one mutant from each first seed, and shrink the schedules until one is short enough to read; none of
    them without `most_events`.

    Raises:
        AssertionError: The mutant's budget was not enough from a first seed.
    """
    hunts = [look_for(mutant, first) for first in FIRST_SEEDS] if mutant.budget else []
    schedules = [schedule for _, schedule in hunts]
    path = DOCS / "schedules" / f"{mutant.name}.json"
    saved = [decode_schedule(path.read_bytes(), path.name)] if path.exists() else []
    shrunk: list[Schedule] = []
    for found in [] if most_events is None else sorted(schedules, key=_length):
        assert most_events is not None
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
    search = search_for(mutant)
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


def write(measured: Measured | None) -> None:
    """Put a row into the page, and all survivors; rows of removed bugs go, those of new ones wait for a measurement."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = {line.split("`")[1]: line for line in lines[slice(*_table(lines, FOUND))]}
    if measured is not None:
        rows[measured.mutant.name] = measured.row
    sought = [mutant for mutant in MUTANTS.values() if mutant.survival is None]
    found = [rows.get(mutant.name) or Measured(mutant, (), None, None).row for mutant in sought]
    survivors = [survivor_row(mutant) for mutant in MUTANTS.values() if mutant.survival is not None]
    for head, table in ((FOUND, found), (SURVIVORS, survivors)):
        lines[slice(*_table(lines, head))] = table
    PAGE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _table(lines: list[str], head: str) -> tuple[int, int]:
    """The first line of the table with this head, and the line after its last one."""
    start = lines.index(head) + 2
    return start, next((at for at in range(start, len(lines)) if not lines[at].startswith("| ")), len(lines))


def fails_when_planted(name: str, test: str) -> bool:
    """Whether a test fails with a bug planted, in a process of its own. The test passes in sound code."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            told = StringIO()
            with planted(name), redirect_stdout(told):
                code = pytest.main(["-p", "no:cacheprovider", "-n", "0", "-q", "-x", "-m", "", "--tb=no", test])
            if " failed" not in told.getvalue():
                print(told.getvalue(), file=sys.stderr, flush=True)
                code = 71
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == pytest.ExitCode.TESTS_FAILED


def load_pytest() -> None:
    """Load pytest's plugins and the settings of all tests, and no test of ours, so that no fork has to."""
    with redirect_stdout(StringIO()):
        pytest.main(["-p", "no:cacheprovider", "-n", "0", "-q", "--collect-only", str(DOCS.parent / NO_TEST_OF_OURS)])


def run_tests(names: list[str]) -> bool:
    """Run the named test of each survivor; whether all of them fail."""
    passed: list[str] = []
    load_pytest()
    for name in names:
        survival = MUTANTS[name].survival
        if survival is None or survival.killed_by is None:
            continue
        is_killed = fails_when_planted(name, survival.killed_by)
        print(f"{name}: {'killed' if is_killed else 'NOT KILLED'} by {survival.killed_by}", flush=True)
        if not is_killed:
            passed.append(name)
    return not passed


def run_survivors(names: list[str], seeds: int) -> bool:
    """Search for each survivor; whether no seed finds one."""
    found: list[str] = []
    for name in names:
        mutant = MUTANTS[name]
        if mutant.survival is None:
            continue
        search = search_for(mutant)
        outcomes = ((seed, search.run(seed)) for seed in range(seeds))
        seen = next(((seed, one) for seed, one in outcomes if isinstance(one, Schedule)), None)
        print(f"{name}: {'survives' if seen is None else f'seed {seen[0]}: {seen[1].violated}'}", flush=True)
        if seen is not None:
            found.append(name)
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--scope", choices=[scope.value for scope in Scope], help="only the mutants of such runs")
    parser.add_argument("--most-events", type=int, default=MOST_EVENTS, help="the limit on events to shrink a schedule")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="save the shrunk schedules there")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/reference/mutants.md")
    parser.add_argument("--seeds-only", action="store_true", help="count the seeds, and shrink nothing")
    parser.add_argument("--tests", action="store_true", help="run the test that kills each survivor")
    parser.add_argument("--survivors", type=int, metavar="SEEDS", help="search for the survivors in this many seeds")
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    if options.tests:
        sys.exit(not run_tests(names))
    if options.survivors is not None:
        sys.exit(not run_survivors(names, options.survivors))
    if options.write:
        write(None)
    for name in names:
        mutant = MUTANTS[name]
        if options.scope not in (None, mutant.scope) or mutant.survival is not None:
            continue
        start = time.process_time()
        measured = measure(mutant, None if options.seeds_only else options.most_events, options.keep)
        budget = f"budget {mutant.budget} seeds of {mutant.profile}"
        print(f"{measured.row} {budget}, {time.process_time() - start:.0f} CPU s", flush=True)
        if options.write:
            write(measured)


if __name__ == "__main__":
    main()
