"""Whose turn it is: which slice of the soak tests `.ci/run` takes, and which of the long tests `uv run pytest` takes.

    PYTHONPATH=tests python -m support.soak.turns   # the turn of this commit, and the long tests whose turn it is
    PYTHONPATH=tests python -m support.soak.turns out/tests.xml
                                            # store what the long tests took in a run with --junitxml=out/tests.xml

The turn follows from the commit, so that nobody has to count: every `COMMITS` commits it is the next one. `SOAK_TURN=7`
repeats another turn. `turns.txt` lists the long tests, with the seconds of one case. A line without `::` is for a whole
file, whose tests share what takes long to start, and so have their turn together.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support import ROOT, TESTS

LONG_TESTS = TESTS / "soak" / "turns.txt"
COMMITS = 100
"""A submission has as many, or fewer, so that none skips a turn."""
PARTS = 8
"""After so many turns each long test has run."""
LONG_SECONDS = 3
"""A test is long if its cases take so many seconds together, and one of them at least one. `turns.txt` may omit it."""

NUMBER = pytest.StashKey[int | None]()
"""In the configuration of pytest: the turn of this run, or None if the run takes all that it was asked for."""


def turn() -> int:
    """The turn of this commit, or of the environment. A shallow clone counts only the commits that it has."""
    if given := os.environ.get("SOAK_TURN"):
        return int(given)
    git = ["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"]
    counted = subprocess.run(git, capture_output=True, text=True, check=False)
    return int(counted.stdout or 0) // COMMITS


def without_parameters(case: str) -> str:
    """The function of a case."""
    return case.partition("[")[0]


def read_lengths(text: str) -> dict[str, float]:
    """The seconds of one case of each test, from lines like `12.5 tests/a.py::test_b`; an estimate begins with `~`."""
    rows = (line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(seconds.removeprefix("~")) for seconds, name in rows}


def with_measured(text: str, measured: Mapping[str, float]) -> str:
    """The text of the lengths with these in place of former ones, and of estimates."""
    lines = text.splitlines()
    heading = [line for line in lines if line.startswith("#")]
    rows = {line.split(maxsplit=1)[1]: line for line in lines if line not in heading}
    rows |= {name: f"{seconds:.2g} {name}" for name, seconds in measured.items()}
    return "".join(f"{line}\n" for line in [*heading, *(rows[name] for name in sorted(rows))])


def parts(cases: Iterable[str], lengths: Mapping[str, float]) -> list[list[str]]:
    """The long ones of these cases in `PARTS` parts that take equally long, as do their tests of each folder."""
    units: dict[str, list[str]] = defaultdict(list)
    seconds: dict[str, float] = {}
    for case in cases:
        file, function = case.partition("::")[0], without_parameters(case)
        if file in lengths or function in lengths:
            unit = file if file in lengths else case
            units[unit].append(case)
            seconds[unit] = lengths[file if file in lengths else function]
    found: list[list[str]] = [[] for _ in range(PARTS)]
    load: dict[tuple[int, str], float] = defaultdict(float)
    for unit in sorted(units, key=lambda unit: (-seconds[unit], unit)):
        folder = unit.partition("::")[0].rpartition("/")[0]
        part = min(range(PARTS), key=lambda number: load[number, ""] + load[number, folder])
        found[part] += units[unit]
        load[part, ""] += seconds[unit]
        load[part, folder] += seconds[unit]
    return found


def waiting(cases: Iterable[str], number: int) -> set[str]:
    """The long ones of these cases that another turn runs."""
    found = parts(cases, read_lengths(LONG_TESTS.read_text()))
    return {case for place, some in enumerate(found) if place != number % PARTS for case in some}


def seconds_of_run(results: Path) -> dict[str, list[float]]:
    """The seconds of each test's cases, from a file of `--junitxml`."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(results).iter("testcase"):
        names = case.attrib["classname"].split(".")
        files = {count: Path(*names[:count]).with_suffix(".py") for count in range(1, len(names) + 1)}
        [(count, file)] = [(count, file) for count, file in files.items() if (ROOT / file).is_file()]
        test = "::".join([str(file), *names[count:], without_parameters(case.attrib["name"])])
        found[test].append(float(case.attrib["time"]))
    return found


def store(results: Path) -> None:
    """Write what the listed tests took in this run; print which long tests are not listed."""
    text, run = LONG_TESTS.read_text(), seconds_of_run(results)
    measured: dict[str, float] = {}
    for name in read_lengths(text):
        if "::" in name:
            measured |= {name: sum(run[name]) / len(run[name])} if name in run else {}
        elif took := sum(sum(seconds) for test, seconds in run.items() if test.startswith(f"{name}::")):
            measured[name] = took
    LONG_TESTS.write_text(with_measured(text, measured))
    print(
        f"{sum(map(sum, run.values())):,.0f} s in all; long, and in every turn, for they are not in {LONG_TESTS.name}:"
    )
    for test, seconds in sorted(run.items(), key=lambda row: -sum(row[1])):
        if sum(seconds) >= LONG_SECONDS and max(seconds) >= 1 and not {test, test.partition("::")[0]} & measured.keys():
            print(f"{sum(seconds):6.1f} {test}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]))
    else:
        print(f"turn {turn()}: part {turn() % PARTS + 1} of {PARTS} of the tests of {LONG_TESTS.relative_to(ROOT)}")
