"""The soak tests with a report: all of them, or a portion.

    uv run poe soak                       # everything that is marked `soak`: hours
    uv run poe soak simulation            # one portion of it
    uv run poe soak --list [simulation]   # what would run, and for how long by the lengths that were measured
    uv run poe soak --store-lengths       # write the lengths of the last run into tests/soak/lengths.txt
    uv run poe soak --continue            # go on after a run that was ended

The report is in out/soak: `report.md` for people, `report.json` with the same facts, and `cases.jsonl`, to which each
case is added as it ends. Other arguments go to pytest: `-n 1`, `-k sim`.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, json

from support import ROOT, TESTS
from support.soak.portions import LENGTHS, PORTIONS, portion_of, read_lengths, whole_seconds, with_measured
from support.soak.soak_report import Case, read_cases
from support.tiers import without_parameters

OUT = ROOT / "out" / "soak"
PYTEST = (sys.executable, "-m", "pytest", "-m", "soak")


class Test(Struct, frozen=True):
    """One soak test: all its cases together."""

    name: str
    passed: int
    failed: int
    skipped: int
    seeds: int
    seconds: float
    longest: float


class Report(Struct, frozen=True):
    """The results of a run of soak tests, and where it ran."""

    what: str
    commit: str
    machine: str
    python: str
    started: str
    seconds: float
    """From the start to the end; `tests` add up to more where several processes ran."""
    load: tuple[float, float]
    """The load average of a minute, at the start and at the end."""
    passed: int
    failed: int
    skipped: int
    missing: tuple[str, ...]
    """Cases that should have run, and of which nothing is known."""
    seeds: int
    tests: tuple[Test, ...]
    cases: tuple[Case, ...]


def collected() -> list[str]:
    """The ids of all cases that are marked `soak`."""
    done = subprocess.run(
        [*PYTEST, "--collect-only", "-q", "-n", "0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"the soak tests cannot be collected:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return [line for line in done.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def show_plan(cases: Sequence[str]) -> Iterator[str]:
    """Show how many tests will run, for how long, and the portions that they are in."""
    lengths = read_lengths(LENGTHS.read_text())
    tests = {without_parameters(case) for case in cases}
    guessed = tests - set(lengths)
    whole = duration(whole_seconds(cases, lengths))
    yield f"{len(tests)} soak tests with {len(cases):,} cases, {whole} one after the other by {LENGTHS.name}"
    if guessed:
        yield f"without a length, taken for a minute a case: {len(guessed)} of them"
    for name in PORTIONS:
        if mine := [case for case in cases if portion_of(case) == name]:
            yield f"  {name}: {len(mine):,} cases, {duration(whole_seconds(mine, lengths))}"


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"


def run(cases: Sequence[str], results: Path, arguments: Sequence[str]) -> int:
    """Run these cases; returns the exit code of pytest."""
    listed = results.with_suffix(".txt")
    listed.write_text("".join(f"{case}\n" for case in cases))
    search = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [
        *PYTEST,
        "-p",
        "support.soak.soak_report",
        f"--soak-results={results}",
        "-q",
        *_processes(arguments),
        *arguments,
    ]
    return subprocess.run(
        [*command, f"@{listed}"], cwd=ROOT, env={**os.environ, "PYTHONPATH": search}, check=False
    ).returncode


def _processes(arguments: Sequence[str]) -> tuple[str, ...]:
    """Two processes, unless the arguments say otherwise."""
    return () if any(one.startswith(("-n", "--numprocesses")) for one in arguments) else ("-n", "2")


def summed(cases: Sequence[Case]) -> tuple[Test, ...]:
    """The tests of these cases, by name."""
    tests: dict[str, list[Case]] = {}
    for case in cases:
        tests.setdefault(without_parameters(case.id), []).append(case)
    return tuple(_test(name, some) for name, some in sorted(tests.items()))


def _test(name: str, cases: Sequence[Case]) -> Test:
    outcomes = Counter(case.outcome for case in cases)
    return Test(
        name=name,
        passed=outcomes["passed"],
        failed=outcomes["failed"],
        skipped=outcomes["skipped"],
        seeds=sum(last - first + 1 for case in cases for first, last in case.seeds),
        seconds=round(sum(case.seconds for case in cases), 1),
        longest=max(case.seconds for case in cases),
    )


def report_of(
    what: str, wanted: Sequence[str], cases: Sequence[Case], seconds: float, started: str, load: tuple[float, float]
) -> Report:
    """Add up what the cases did."""
    tests = summed(cases)
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return Report(
        what=what,
        commit=git.stdout.strip() or "unknown",
        machine=f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, Linux {platform.release()}",
        python=platform.python_version(),
        started=started,
        seconds=round(seconds, 1),
        load=load,
        passed=sum(test.passed for test in tests),
        failed=sum(test.failed for test in tests),
        skipped=sum(test.skipped for test in tests),
        missing=tuple(sorted(set(wanted) - {case.id for case in cases})),
        seeds=sum(test.seeds for test in tests),
        tests=tests,
        cases=tuple(cases),
    )


def markdown(report: Report) -> Iterator[str]:
    """The report as a page."""
    yield f"# Soak tests: {report.what}\n"
    load = f"load average {report.load[0]:.1f} at the start and {report.load[1]:.1f} at the end"
    yield f"Commit {report.commit}, {report.started}, Python {report.python}, {report.machine}, {load}.\n"
    counts = f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped"
    unknown = f"{len(report.missing)} without a result"
    yield f"**{counts}, {unknown}; {report.seeds:,} printed seeds; {duration(report.seconds)}.**\n"
    yield "| test | passed | failed | skipped | seeds | seconds | longest |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for test in report.tests:
        times = (f"{test.seconds:,.0f}", f"{test.longest:,.1f}")
        figures = (test.passed, test.failed, test.skipped, f"{test.seeds:,}", *times)
        yield f"| `{test.name}` | {' | '.join(map(str, figures))} |"
    for title, outcome in (("Failed", "failed"), ("Skipped", "skipped")):
        some = [case for case in report.cases if case.outcome == outcome]
        if some:
            yield f"\n## {title}\n"
        for case in some:
            seeds = "".join(f", seeds {first} to {last}" for first, last in case.seeds)
            yield f"- `{case.id}`{seeds}:\n\n```\n{case.reason}\n```"
    if report.missing:
        yield "\n## Without a result\n"
        yield from (f"- `{case}`" for case in report.missing)


def store_lengths(cases: Sequence[Case]) -> None:
    """Replace the lengths of the tests that passed by those of their longest cases; keep those of other tests."""
    measured = {test.name: test.longest for test in summed([one for one in cases if one.outcome == "passed"])}
    LENGTHS.write_text(with_measured(LENGTHS.read_text(), measured))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("portion", nargs="?", choices=[*PORTIONS], help="only this portion")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--store-lengths", action="store_true", help="run nothing, and store what the last run took")
    parser.add_argument("--continue", action="store_true", dest="go_on", help="leave out what passed in the last run")
    parser.add_argument("--out", type=Path, default=OUT, help="the directory of the report")
    options, arguments = parser.parse_known_args()
    out: Path = options.out.resolve()
    results = out / "cases.jsonl"
    if options.store_lengths:
        store_lengths(read_cases(results))
        return 0
    cases = collected()
    wanted = [case for case in cases if options.portion in (None, portion_of(case))]
    for line in show_plan(wanted):
        print(line, flush=True)
    if options.list:
        return 0
    out.mkdir(parents=True, exist_ok=True)
    before = [case for case in read_cases(results) if case.outcome == "passed"] if options.go_on else []
    done = {case.id for case in before}
    started, began, load = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), time.monotonic(), os.getloadavg()[0]
    code = run([case for case in wanted if case not in done], results, arguments)
    cases_done = before + read_cases(results)
    # A run that goes on after this one finds all that passed so far.
    results.write_bytes(b"".join(json.encode(case) + b"\n" for case in cases_done))
    report = report_of(
        options.portion or "everything",
        wanted,
        cases_done,
        time.monotonic() - began,
        started,
        (load, os.getloadavg()[0]),
    )
    (out / "report.json").write_bytes(json.format(json.encode(report)))
    page = "\n".join(markdown(report))
    (out / "report.md").write_text(f"{page}\n")
    print(page)
    return code or int(bool(report.missing) and not arguments)


if __name__ == "__main__":
    sys.exit(main())
