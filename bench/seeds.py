"""Runs seeds of the simulator over all kinds of members and all profiles, and writes one report.

    python bench/seeds.py [--seeds 100000] [--first 1000000] [--jobs 2] [--seconds N] [--results FILE]
    python bench/seeds.py --again [--results FILE]
    python bench/seeds.py --check 20 [--results FILE]
    python bench/seeds.py --report [--results FILE]

Each kind of members has a share of the seeds: cheap kinds have large ones. The profiles take turns, as they do in
`kraft sim run`. `wiped-static-voters` has no turn there, and gets a share of its own. The kinds are run in a hundred
rounds, so that a run that ends early has seeds of each kind. A result is one line of the file of results; a second run
of the same command goes on where the first one ended. A violation ends nothing: its schedule is saved beside the
results, and the exit code is 1.

`--again` repeats the seeds with a violation with the present code. The page then says of each one that passes what was
mended. `--check N` repeats N seeds of each kind with the present code and compares the digests of their traces with the
stored ones. Equal digests say that a change of the code did not change these runs. `--report` writes the page, or
another file.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from kraft.sim.faults.profiles import BY_TURNS, WIPED_VOTERS, profile_of
from kraft.sim.search.schedule import Schedule, encode_schedule
from kraft.sim.search.seed_search import SeedSearch

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "seeds.md"
RESULTS: Final = ROOT / "out" / "seeds" / "results.jsonl"
ROUNDS: Final = 100
OBJECTS_AT_ONCE: Final = 50_000
"""The number of added objects after which a worker collects garbage."""
WIPED: Final = "replica, wiped"
SHARES: Final = {
    "core": 79_600,
    "replica": 11_000,
    "state-machine": 1_200,
    "store": 100,
    "controller": 2_500,
    "dynamic": 1_500,
    "dynamic-controller": 800,
    "upgraded-controller": 700,
    "cluster": 900,
    "dynamic-cluster": 450,
    "data-cluster": 700,
    "dynamic-data-cluster": 100,
    "combined-cluster": 100,
    "coordinator-cluster": 100,
    "share-cluster": 100,
    "loaded": 50,
    WIPED: 200,
}
"""Of 100,000 seeds, those of each kind."""
COLUMNS: Final = (
    "members",
    "profile",
    "seeds",
    "events",
    "virtual hours",
    "elections",
    "CPU s",
    "documented",
    "violations",
)
HEAD: Final = """\
# Seeds that were run

`bench/seeds.py` runs the simulator over all kinds of members and all profiles, and `--report` writes this page from the
results. Each line is a kind of [members](../howto/simulate.md#run-many-seeds) in one profile. The
invariants are checked after every event. A *documented* violation is one that an operator causes by starting a static
voter [with an empty disk](../howto/damaged-disk.md); only the profile `wiped-static-voters` allows it.
"""


class SeedResult(Struct, frozen=True, omit_defaults=True):
    """The result of one seed."""

    kind: str
    seed: int
    code: str
    """The commit of the code that ran."""
    digest: str = ""
    events: int = 0
    virtual_ms: int = 0
    elections: int = 0
    committed: int = 0
    undecided: int = 0
    documented: str = ""
    seconds: float = 0.0
    """The processor time of the run."""
    violation: str = ""


class Task(Struct, frozen=True):
    """Seeds of one kind for one worker."""

    kind: str
    seeds: tuple[int, ...]
    code: str
    schedules: Path
    """The directory for schedules that break an invariant."""


def search_of(kind: str) -> SeedSearch:
    """How the seeds of a kind are run."""
    members, profile = ("replica", WIPED_VOTERS.name) if kind == WIPED else (kind, BY_TURNS)
    return SeedSearch(members=members, profile=profile)


def profile_name(kind: str, seed: int) -> str:
    """The profile of a seed."""
    return WIPED_VOTERS.name if kind == WIPED else profile_of(kind, seed).name


def run_task(task: Task) -> list[SeedResult]:
    """Run the seeds of a task, in a worker."""
    gc.set_threshold(OBJECTS_AT_ONCE)
    search, results = search_of(task.kind), []
    for seed in task.seeds:
        begin = time.process_time()
        outcome = search.run(seed)
        seconds = round(time.process_time() - begin, 3)
        if isinstance(outcome, Schedule):
            saved = task.schedules / f"{task.kind}-{seed}.json".replace(", ", "-")
            saved.write_bytes(encode_schedule(outcome))
            broken = outcome.message or outcome.violated
            results.append(SeedResult(task.kind, seed, task.code, seconds=seconds, violation=broken))
            continue
        results.append(
            SeedResult(
                kind=task.kind,
                seed=seed,
                code=task.code,
                digest=outcome.digest,
                events=outcome.events,
                virtual_ms=outcome.elapsed_ms,
                elections=len(outcome.leaders),
                committed=outcome.committed,
                undecided=outcome.undecided,
                documented=outcome.documented,
                seconds=seconds,
            )
        )
    return results


def code_version() -> str:
    """The commit of this checkout, with a `+` if files differ from it."""
    described = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"]
    return subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()


def read_results(path: Path) -> list[SeedResult]:
    """The last stored result of each seed."""
    return last_of(read_all(path))


def read_all(path: Path) -> list[SeedResult]:
    """Every stored result, as far as it was written whole, also those of seeds that were repeated."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line, type=SeedResult) for line in lines if line.endswith(b"\n")]


def last_of(stored: Iterable[SeedResult]) -> list[SeedResult]:
    """The last result of each seed."""
    return list({(one.kind, one.seed): one for one in stored}.values())


def wanted(seeds: int, first: int) -> Iterator[tuple[str, int]]:
    """Kinds and seeds in the order of the run: a hundredth of each kind in every round."""
    shares = {kind: round(share * seeds / sum(SHARES.values())) for kind, share in SHARES.items()}
    for number in range(ROUNDS):
        for kind, share in shares.items():
            for seed in range(share * number // ROUNDS, share * (number + 1) // ROUNDS):
                yield kind, first + seed


def tasks(pairs: Iterable[tuple[str, int]], code: str, schedules: Path) -> Iterator[Task]:
    """The pairs as tasks of at most 20 seeds of one kind."""
    for kind, group in groupby(pairs, key=lambda pair: pair[0]):
        seeds = [seed for _, seed in group]
        for begin in range(0, len(seeds), 20):
            yield Task(kind, tuple(seeds[begin : begin + 20]), code, schedules)


def run(path: Path, work: list[Task], jobs: int, seconds: float) -> list[SeedResult]:
    """Run tasks until all are done or the time is over, and store each result as soon as it is known."""
    end, found, rest = time.monotonic() + seconds, [], iter(work)
    with ProcessPoolExecutor(jobs) as pool, path.open("ab") as file:
        waiting = [pool.submit(run_task, task) for task in islice(rest, 2 * jobs)]
        while waiting:
            for result in waiting.pop(0).result():
                file.write(msgspec.json.encode(result) + b"\n")
                found += [result] * bool(result.violation)
            file.flush()
            if time.monotonic() < end:
                waiting += [pool.submit(run_task, task) for task in islice(rest, 1)]
    return found


def check(path: Path, count: int, jobs: int) -> int:
    """Repeat stored seeds and print how many digests are equal; the number of those that differ."""
    stored: dict[str, list[SeedResult]] = defaultdict(list)
    for result in read_results(path):
        if not result.violation:
            stored[result.kind].append(result)
    differ, code = 0, code_version()
    with ProcessPoolExecutor(jobs) as pool:
        for kind, results in stored.items():
            chosen = results[:: max(1, len(results) // count)][:count]
            repeated = pool.map(run_task, [Task(kind, (one.seed,), code, path.parent) for one in chosen])
            equal = sum(new.digest == old.digest for old, (new,) in zip(chosen, repeated, strict=True))
            differ += len(chosen) - equal
            print(f"{kind}: {equal} of {len(chosen)} digests are equal with {code}", flush=True)
    return differ


def page(stored: list[SeedResult]) -> str:
    """The page as Markdown: the last result of each seed, and the violations of seeds that pass now."""
    results = last_of(stored)
    rows: dict[tuple[str, str], list[SeedResult]] = defaultdict(list)
    for result in results:
        rows[result.kind.removesuffix(", wiped"), profile_name(result.kind, result.seed)].append(result)
    lines = [HEAD, f"| {' | '.join(COLUMNS)} |", f"| {' | '.join('---' for _ in COLUMNS)} |"]
    for (members, profile), group in sorted(rows.items()):
        lines.append(_row(f"`{members}` | {profile}", group))
    lines += [_row("all | ", results), ""]
    lines += ["| code | seeds |", "| --- | --- |"]
    lines += [f"| `{code}` | {number:,} |" for code, number in Counter(one.code for one in results).items()]
    lines.append("")
    failed = [one for one in results if one.violation]
    lines += [f"- `{one.kind}`, seed {one.seed} of `{one.code}`: {one.violation}" for one in failed]
    undecided = sum(one.undecided for one in results)
    lines.append(f"Undecided histories: {undecided}. Violations: {len(failed)}.")
    lines += _former(stored, results)
    return "\n".join(lines) + "\n"


def _former(stored: list[SeedResult], results: list[SeedResult]) -> Iterator[str]:
    """The violations of seeds that pass now, each with the code that passes."""
    passed = {(one.kind, one.seed): one.code for one in results if not one.violation}
    mended = [one for one in stored if one.violation and (one.kind, one.seed) in passed]
    if mended:
        yield "\nViolations that were examined and mended, in the product or in a check; the seed passes now:\n"
        for bad in mended:
            code = passed[bad.kind, bad.seed]
            yield f"- `{bad.kind}`, seed {bad.seed} of `{bad.code}`, passes with `{code}`: {bad.violation}"


def _row(name: str, group: list[SeedResult]) -> str:
    hours = sum(one.virtual_ms for one in group) / 3_600_000
    counts = (
        f"{len(group):,}",
        f"{sum(one.events for one in group):,}",
        f"{hours:,.1f}",
        f"{sum(one.elections for one in group):,}",
        f"{sum(one.seconds for one in group):,.0f}",
        str(sum(bool(one.documented) for one in group)),
        str(sum(bool(one.violation) for one in group)),
    )
    return f"| {name} | {' | '.join(counts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no seed after so many seconds")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", action="append", choices=SHARES, help="only this kind; may be repeated")
    parser.add_argument("--again", action="store_true", help="repeat the seeds with a violation")
    parser.add_argument("--check", type=int, metavar="N", help="repeat N stored seeds of each kind")
    parser.add_argument(
        "--report", nargs="?", const=PAGE, type=Path, metavar="FILE", help="write the page from the results"
    )
    options = parser.parse_args()
    path: Path = options.results
    path.parent.mkdir(parents=True, exist_ok=True)
    if options.report is not None:
        options.report.write_text(page(read_all(path)), encoding="utf-8")
        return
    if options.check is not None:
        sys.exit(1 if check(path, options.check, options.jobs) else 0)
    results = read_results(path)
    done = {(one.kind, one.seed) for one in results if not (options.again and one.violation)}
    kinds = options.only or SHARES
    asked = [(one.kind, one.seed) for one in results] if options.again else wanted(options.seeds, options.first)
    pairs = [pair for pair in asked if pair not in done and pair[0] in kinds]
    print(f"{len(done):,} seeds are done, {len(pairs):,} are left", flush=True)
    found = run(path, list(tasks(pairs, code_version(), path.parent)), options.jobs, options.seconds)
    for result in found:
        print(f"{result.kind}, seed {result.seed}: {result.violation}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
