"""Plants bugs that were chosen before any check was tried on them, five for each kind, and says who finds each.

    python bench/kinds.py --list
    python bench/kinds.py [NAME …] --seeds 20     the first seed of the simulator that fails
    python bench/kinds.py [NAME …] --old          the first test that fails, of the tests that existed before
    python bench/kinds.py [NAME …] --new          whether the check of the kind fails
    python bench/kinds.py --report                write docs/reference/bugs-by-kind.md
    python bench/kinds.py --check                 whether each bug can be planted, and the page is that of the outcomes

`bench/kinds.toml` has the bugs, `bench/kinds_outcomes.json` what was found. A bug is a piece of text in place of
another one in a module: the tool compiles the changed module, and gives the changed functions of this process their new
code. Each trial runs in a fork of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import CodeType
from typing import Final

import msgspec
import pytest
from msgspec import Struct
from source_mutants.changes import ROOT, codes, function_of

from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch

BUGS: Final = Path(__file__).with_suffix(".toml")
OUTCOMES: Final = Path(__file__).with_name("kinds_outcomes.json")
PAGE: Final = ROOT / "docs" / "reference" / "bugs-by-kind.md"
CHECKS: Final = {
    "exact boundaries": "tests/kraft/kinds/test_exact_boundaries.py",
    "combined dimensions": "tests/kraft/kinds/test_combined_dimensions.py",
    "state handed over": "tests/kraft/kinds/test_handed_over.py",
    "comparisons that stop early": "tests/kraft/kinds/test_early_ends.py",
    "what a new coordinator arms": "tests/kraft/kinds/test_armed_after_loading.py",
    "two ways to the same key": "tests/kraft/kinds/test_two_ways.py",
    "forgetting": "tests/kraft/kinds/test_forgetting.py",
    "from when a deadline counts": "tests/kraft/kinds/test_lease_deadlines.py",
    "what runs did not simulate": "tests/kraft/kinds/test_in_runs.py",
}
"""The check of each kind."""


class Bug(Struct, frozen=True):
    """One bug: a piece of text that stands once in a module, and what takes its place."""

    kind: str
    name: str
    what: str
    module: str
    before: str
    after: str
    members: str
    """The simulated runs that reach the module; empty if none do."""
    tests: tuple[str, ...]
    """The tests of the neighbourhood that existed before the check of the kind."""

    @property
    def path(self) -> Path:
        """The file of the module."""
        return ROOT.joinpath(*self.module.split(".")).with_suffix(".py")

    def changed(self) -> tuple[str, int, CodeType]:
        """The changed function: its qualified name, its first line, and its code.

        Raises:
            ValueError: The text does not stand once in the module, or the change is not one of a single function.
        """
        sound = self.path.read_text(encoding="utf-8")
        if sound.count(self.before) != 1:
            raise ValueError(f"{self.name}: the text stands {sound.count(self.before)} times in {self.module}")
        old, new = (
            {(one.co_qualname, one.co_firstlineno): one for one in codes(compile(text, str(self.path), "exec"))}
            for text in (sound, sound.replace(self.before, self.after))
        )
        changed = [key for key, code in new.items() if "<locals>" not in key[0] and old.get(key) != code]
        # The body of a class is a code, too, which differs with its functions.
        inner = [key for key in changed if not any(other[0].startswith(f"{key[0]}.") for other in changed)]
        if len(inner) != 1:
            raise ValueError(f"{self.name} changes {inner}")
        return (*inner[0], new[inner[0]])

    def plant(self) -> None:
        """Give the changed function of this process its new code."""
        name, line, code = self.changed()
        function_of(self.module, name, line).__code__ = code


class Outcome(Struct):
    """Who has found a bug: empty for nobody, None where nobody has tried."""

    seeds: int | None = None
    """How many seeds were tried."""
    seed: str | None = None
    old: str | None = None
    new: str | None = None


def bugs() -> dict[str, Bug]:
    """The bugs by name, in their order."""
    listed = msgspec.convert(tomllib.loads(BUGS.read_text(encoding="utf-8"))["bug"], list[Bug])
    return {one.name: one for one in listed}


def outcomes(state: Path) -> dict[str, Outcome]:
    """The outcomes so far."""
    return msgspec.json.decode(state.read_bytes(), type=dict[str, Outcome]) if state.exists() else {}


def save(found: dict[str, Outcome], state: Path) -> None:
    """Keep the outcomes, in the order of the bugs."""
    text = msgspec.json.encode({name: found[name] for name in bugs() if name in found})
    state.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


class _First:
    """A plugin of pytest that remembers the first failure."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def first_failure(tests: tuple[str, ...], *codes: pytest.ExitCode) -> str:
    """The first of these tests that fails in this process; empty if all pass, or if pytest ends with one of `codes`."""
    first = _First()
    code = pytest.main(
        ["-p", "no:cacheprovider", "-n", "0", "-q", "-x", "--tb=no", "--no-header", *tests], plugins=[first]
    )
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, *codes), (code, tests)
    return first.failed


def failure_of_check(bug: Bug, before: str) -> str:
    """The test of the check that fails. The one that found the bug before is asked alone, and all if it has gone."""
    found = first_failure((before,), pytest.ExitCode.USAGE_ERROR) if before else ""
    return found or first_failure((CHECKS[bug.kind],))


def first_seed(members: str, seeds: int) -> str:
    """The first seed from 0 on that fails, and the failure; empty if none does."""
    search = SeedSearch(members=members)
    for seed in range(seeds):
        outcome = search.run(seed)
        if isinstance(outcome, Schedule):
            return f"seed {seed}: {outcome.violated}"
    return ""


def load_checks() -> None:
    """Import the checks, so that no fork has to: a bug changes functions in place, whoever has imported them."""
    with redirect_stdout(StringIO()):
        pytest.main(["-p", "no:cacheprovider", "-n", "0", "-q", "--collect-only", *CHECKS.values()])


def in_fork(bug: Bug, find: Callable[[], str]) -> str:
    """Run the search with the bug planted, in a process of its own, and return what it finds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            bug.plant()
            os.write(writing, b"!" + find().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        found = told.read()
    os.waitpid(child, 0)
    assert found.startswith(b"!"), f"the trial of {bug.name} has failed"
    return found[1:].decode()


def cell(found: str | None, without: str) -> str:
    """An outcome in the page."""
    if found is None:
        return without
    return f"`{found}`" if found else "not found"


def page() -> str:
    """The page as Markdown."""
    found = outcomes(OUTCOMES)
    lines = [HEAD]
    for kind in dict.fromkeys(one.kind for one in bugs().values()):
        lines += [f"## {kind[0].upper()}{kind[1:]}\n"]
        if kind in CHECKS:
            lines += [f"The check: `{CHECKS[kind]}`.\n"]
        lines += [
            "| bug | what is broken | a seed | an older test | the new check |",
            "| --- | --- | --- | --- | --- |",
        ]
        for bug in bugs().values():
            if bug.kind == kind:
                outcome = found.get(bug.name, Outcome())
                seed = cell(outcome.seed, "—" if bug.members else "out of reach")
                if outcome.seed == "":
                    seed += f" in {outcome.seeds} of `{bug.members}`"
                cells = f"`{bug.name}`", bug.what, seed, cell(outcome.old, "—"), cell(outcome.new, "—")
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


ROW: Final = "| bug | what is broken | a seed | an older test | the new check |"
HEAD: Final = """\
# Bugs by kind

Bugs that no test had seen came in kinds. For each kind below five bugs were chosen, written down in `bench/kinds.toml`
and committed before any check was tried on them. Then each was planted alone: into the simulator from seed 0 on, where
a run reaches the code; into the tests of the neighbourhood that existed before; and into the check that was written for
the whole kind. `bench/kinds.py` does all three, and writes this page from `bench/kinds_outcomes.json`.

The columns say what failed first. *Out of reach* means that no simulated run executes the code. In its first form the
check missed three bugs: `producers-that-gave-up-keep-their-identity`, `last-byte-of-a-stored-key` and
`beginning-of-a-nonce`. It was widened for the kind of each, and then found them.

The seeds of the last five kinds, of coordinators, leases and what runs did not simulate, ran before the simulator had
stores, regular expressions, deletions and retention. The first check of leases lost no request on the way, and found
none of the five bugs; `loaded-members-have-no-session` was found once the members of the test were in the log.
"""


def try_bug(bug: Bug, outcome: Outcome, options: argparse.Namespace) -> None:
    """Plant a bug where the options say, and note who finds it."""
    if options.seeds is not None and bug.members:
        outcome.seed = in_fork(bug, partial(first_seed, bug.members, options.seeds))
        outcome.seeds = options.seeds
    if options.old:
        outcome.old = in_fork(bug, partial(first_failure, bug.tests))
    if options.new:
        before = outcomes(OUTCOMES).get(bug.name, Outcome()).new or ""
        outcome.new = in_fork(bug, partial(failure_of_check, bug, before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--list", action="store_true", help="list the bugs")
    parser.add_argument("--seeds", type=int, help="run so many seeds of the simulator, from 0 on")
    parser.add_argument("--old", action="store_true", help="run the tests that existed before")
    parser.add_argument("--new", action="store_true", help="run the check of the kind")
    parser.add_argument("--report", action="store_true", help="write the page")
    parser.add_argument("--check", action="store_true", help="check the bugs and the page")
    parser.add_argument("--state", type=Path, default=OUTCOMES, help="the file of the outcomes")
    options = parser.parse_args()
    known = bugs()
    names = options.names or list(known)
    missed = []
    if options.list:
        print("\n".join(f"{known[name].kind}: {name}: {known[name].what}" for name in names))
    if options.new:
        load_checks()
    if options.seeds is not None or options.old or options.new:
        for name in names:
            outcome = outcomes(options.state).get(name, Outcome())
            try_bug(known[name], outcome, options)
            save({**outcomes(options.state), name: outcome}, options.state)
            print(f"{name}: seed {outcome.seed!r}, old {outcome.old!r}, new {outcome.new!r}", flush=True)
            if options.new and not outcome.new:
                missed.append(name)
    if options.report:
        PAGE.write_text(page(), encoding="utf-8")
    if options.check:
        for bug in known.values():
            bug.changed()
        if PAGE.read_text(encoding="utf-8") != page():
            missed.append(PAGE.name)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
