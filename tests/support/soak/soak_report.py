"""A plugin of pytest that writes what each soak test did, one line of JSON for each case, as soon as the case ends.

`--soak-results FILE` names the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, json

SEEDS = re.compile(r"\bseeds? (\d+)(?: to (\d+))?", re.IGNORECASE)
"""How tests print what they draw from: `seed 7`, `seeds 1000 to 1199`."""


class Case(Struct, omit_defaults=True):
    """The result of one case."""

    id: str
    outcome: str
    """`passed`, `failed` or `skipped`."""
    seconds: float
    seeds: tuple[tuple[int, int], ...] = ()
    """Ranges of the seeds that the test printed, each with its last one."""
    reason: str = ""
    """Why the case failed or was skipped."""


def seeds_of(printed: str) -> tuple[tuple[int, int], ...]:
    """The seeds that a test printed."""
    return tuple((int(match[1]), int(match[2] or match[1])) for match in SEEDS.finditer(printed))


def read_cases(path: Path) -> list[Case]:
    """The cases of a file of results, as far as they were written whole."""
    return [
        json.decode(line, type=Case) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption("--soak-results", type=Path, help="write what each case did into this file")


def pytest_configure(config: pytest.Config) -> None:
    results = config.getoption("--soak-results")
    if results is not None and not hasattr(config, "workerinput"):
        results.write_bytes(b"")
        config.pluginmanager.register(_Results(results))


class _Results:
    """Adds up the phases of each case, and writes the case when its teardown has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, Case] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = self._open.setdefault(report.nodeid, Case(report.nodeid, "passed", 0.0))
        case.seconds = round(case.seconds + report.duration, 3)
        if report.when == "call":
            case.seeds = seeds_of(report.capstdout)
        if report.outcome != "passed" and case.outcome != "failed":
            case.outcome = report.outcome
            case.reason = "".join(_reasons(report))
        if report.when not in ("setup", "call"):  # The teardown, or the end of a process that crashed.
            with self._path.open("ab") as file:
                file.write(json.encode(self._open.pop(report.nodeid)) + b"\n")


def _reasons(report: pytest.TestReport) -> Iterator[str]:
    """Why a phase failed or was skipped: the reason of a skip, or the last lines of the failure."""
    if isinstance(report.longrepr, tuple):
        yield report.longrepr[2].removeprefix("Skipped: ")
    else:
        yield "\n".join(report.longreprtext.splitlines()[-15:])
