"""Generates source-level mutants of the consensus core, of the log and of the replica, and reports what kills them.

    python bench/mutate_source.py --package kraft.quorum --sample 400 --seconds 300
    python bench/mutate_source.py --again [--package NAME] [--budget 60]
    python bench/mutate_source.py --only 'KEY' [--only 'KEY' …]
    python bench/mutate_source.py --report
    python bench/mutate_source.py --list | --check

A mutant is one change of one function: another comparison, a negated condition, `and` for `or`, another constant or
operator, a removed statement, a dropped result. No file changes: the tool collects the tests of a package once, and
forks for each mutant. The fork gives the function the changed code, and runs the tests and the seeds that reach the
changed lines, the fastest first, up to the first failure.

The seed puts the mutants of each package into an order. `--sample N` tries the first N; `--state` has the outcomes of
earlier runs, which count as long as the function has not changed, so that runs add up. `--seconds` ends a run: the next
one goes on. `--again` tries the survivors once more, after new tests. `--report` writes the page.

`bench/equivalent_mutants.toml` has the reviewed mutants that no test can tell from the sound code, each with the
reason; `--check` verifies that each of them still exists, and counts the outcomes that no longer hold.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from source_mutants.changes import PACKAGES, ROOT, Source, SourceMutant, sources
from source_mutants.checks import Examination, examine, profile
from source_mutants.page import page
from source_mutants.trials import Outcome, run_trials

EQUIVALENT: Final = Path(__file__).with_name("equivalent_mutants.toml")
STATE: Final = Path(__file__).with_name("source_mutants") / "outcomes.jsonl"
PAGE: Final = ROOT / "docs" / "reference" / "source-mutants.md"
PROFILES: Final = ROOT / "out" / "mutants"
"""Where the time and the lines of the checks are kept."""
BUDGET: Final = 20.0

Pair = tuple[Source, SourceMutant]


def equivalent() -> dict[str, str]:
    """The reviewed equivalent mutants: the reason by key."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]
    return {one["mutant"]: one["because"] for one in listed}


def mutants_of(package: str, seed: int) -> list[Pair]:
    """The mutants of a package in the order of a seed. A mutant that is new does not change the order of the others."""
    pairs = [(source, mutant) for source in sources(package) for mutant in source.mutants]
    return sorted(pairs, key=lambda pair: hashlib.sha256(f"{seed}:{pair[1].key}".encode()).digest())


def outcomes_of(pairs: list[Pair], state: Path) -> dict[str, Outcome]:
    """The outcomes that hold for the present source, by the key of the mutant; the last one of each."""
    lines = state.read_bytes().splitlines() if state.exists() else []
    known = {one.mutant: one for one in (msgspec.json.decode(line, type=Outcome) for line in lines)}
    return {
        mutant.key: known[mutant.key]
        for source, mutant in pairs
        if mutant.key in known and known[mutant.key].digest == source.digests[mutant.function]
    }


def save(outcomes: dict[str, Outcome], state: Path) -> None:
    """Write each outcome once, in the order of the keys."""
    state.write_bytes(b"".join(msgspec.json.encode(outcomes[key]) + b"\n" for key in sorted(outcomes)))


def try_all(package: str, pairs: list[Pair], options: argparse.Namespace) -> list[Outcome]:
    """Try mutants of one package, and append each outcome to the state."""
    begin = time.monotonic()
    outcomes: list[Outcome] = []

    def until_late() -> Iterator[Pair]:
        for pair in pairs:
            if time.monotonic() - begin > options.seconds:
                return
            yield pair

    def use(examination: Examination) -> None:
        checks = profile(examination, options.profiles / f"{package}.jsonl")
        failed = [check.name for check in checks if not check.passed]
        print(f"{len(checks)} checks of {package}", *(f"fails without a mutant: {name}" for name in failed), sep="\n")
        for source, _ in pairs:
            importlib.import_module(source.name)
        gc.collect()
        gc.freeze()
        trials = run_trials(examination, checks, until_late(), jobs=options.jobs, budget=options.budget)
        with options.state.open("ab") as file:
            for one in trials:
                file.write(msgspec.json.encode(one) + b"\n")
                file.flush()
                outcomes.append(one)
                print(f"{one.result:11} {one.seconds:5.1f} s  {one.mutant}  {one.by}", flush=True)

    examine(package, use, options.tests)
    return outcomes


def chosen_of(package: str, options: argparse.Namespace) -> list[Pair]:
    """The mutants of a package that a run has to try."""
    everything = mutants_of(package, options.seed)
    if options.only:
        return [pair for pair in everything if pair[1].key in options.only]
    known = outcomes_of(everything, options.state)
    reviewed = equivalent()
    if options.again:
        left = {key for key, one in known.items() if one.result in {"survived", "not reached"}}
        return [pair for pair in everything if pair[1].key in left - reviewed.keys()]
    sample = everything[: options.sample]
    return [pair for pair in sample if pair[1].key not in known.keys() | reviewed.keys()]


def page_text(state: Path, seed: int) -> str:
    """The page of all outcomes."""
    by_package = {package: mutants_of(package, seed) for package in PACKAGES}
    outcomes = {package: outcomes_of(pairs, state) for package, pairs in by_package.items()}
    return page(by_package, outcomes, equivalent(), seed)


def check(state: Path, seed: int) -> tuple[list[str], int]:
    """The equivalent mutants that do not exist any more, and the number of outcomes that no longer hold."""
    keys: set[str] = set()
    holding = 0
    for package in PACKAGES:
        pairs = mutants_of(package, seed)
        keys |= {mutant.key for _, mutant in pairs}
        holding += len(outcomes_of(pairs, state))
    lines = state.read_bytes().splitlines() if state.exists() else []
    known = {msgspec.json.decode(line, type=Outcome).mutant for line in lines}
    return [key for key in equivalent() if key not in keys], len(known) - holding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sample", type=int, default=100, metavar="N", help="of each package, the first N; default 100"
    )
    parser.add_argument("--seed", type=int, default=1, help="determines the order; default 1")
    parser.add_argument("--package", choices=tuple(PACKAGES), help="only the mutants of this package")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="begin no trial after this time")
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="S", help="the time of a mutant's checks")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="the number of processes; default 1")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE", help="the outcomes of all runs")
    parser.add_argument("--profiles", type=Path, default=PROFILES, metavar="DIR", help="the lines of the checks")
    parser.add_argument("--tests", action="append", metavar="PATH", help="only these tests, and no seed")
    parser.add_argument("--only", action="append", metavar="KEY", help="try this mutant; may be given several times")
    parser.add_argument("--again", action="store_true", help="try the survivors once more")
    parser.add_argument("--report", action="store_true", help="write the page and sort the outcomes; try nothing")
    parser.add_argument("--list", action="store_true", help="print the keys of all mutants in their order")
    parser.add_argument("--check", action="store_true", help="verify the list of equivalent mutants and the page")
    options = parser.parse_args()
    packages = [options.package] if options.package else list(PACKAGES)
    if options.list:
        print("\n".join(mutant.key for package in packages for _, mutant in mutants_of(package, options.seed)))
        return
    if options.check:
        gone, void = check(options.state, options.seed)
        print(f"{len(equivalent())} equivalent mutants; {void} outcomes do not hold any more")
        print("\n".join(f"no such mutant: {key}" for key in gone))
        sys.exit(bool(gone))
    if options.report:
        save(
            {k: one for p in PACKAGES for k, one in outcomes_of(mutants_of(p, 1), options.state).items()}, options.state
        )
        PAGE.write_text(page_text(options.state, options.seed), encoding="utf-8")
        return
    chosen = {package: chosen_of(package, options) for package in packages}
    if options.only and sum(map(len, chosen.values())) != len(options.only):
        sys.exit("no such mutant: " + ", ".join(set(options.only) - {m.key for ps in chosen.values() for _, m in ps}))
    outcomes = [one for package, pairs in chosen.items() if pairs for one in try_all(package, pairs, options)]
    survivors = [one for one in outcomes if one.result in {"survived", "not reached"}]
    print(f"{len(outcomes)} of {sum(map(len, chosen.values()))} mutants tried, {len(survivors)} survived")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
