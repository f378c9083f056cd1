"""Plants bugs that were chosen before any check was tried on them, five for each kind, and says who finds each.

    python bench/kinds.py --list
    python bench/kinds.py [NAME …] --seeds 20     the first seed of the simulator that fails
    python bench/kinds.py [NAME …] --old          the first test that fails, of the tests that existed before
    python bench/kinds.py [NAME …] --new          whether the check of the kind fails
    python bench/kinds.py --report                write docs/reference/bugs-by-kind.md

`bench/kinds.toml` has the bugs, `bench/kinds_outcomes.json` what was found. A bug is a piece of text in place of another
one in a module: the tool compiles the changed module, and gives the changed functions of this process their new code.
Each trial runs in a fork of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
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
CHECKS: Final[dict[str, str]] = {}
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

    def plant(self) -> None:
        """Give the changed functions of this process their new code."""
        sound = self.path.read_text(encoding="utf-8")
        assert sound.count(self.before) == 1, f"{self.name}: the text stands {sound.count(self.before)} times"
        old, new = (
            {(one.co_qualname, one.co_firstlineno): one for one in codes(compile(text, str(self.path), "exec"))}
            for text in (sound, sound.replace(self.before, self.after))
        )
        changed = [key for key, code in new.items() if "<locals>" not in key[0] and old.get(key) != code]
        # The body of a class is a code, too, which differs with its functions.
        inner = [key for key in changed if not any(other[0].startswith(f"{key[0]}.") for other in changed)]
        assert len(inner) == 1, f"{self.name} changes {inner}"
        function_of(self.module, *inner[0]).__code__ = new[inner[0]]


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


def outcomes() -> dict[str, Outcome]:
    """What was found so far."""
    if not OUTCOMES.exists():
        return {}
    return msgspec.json.decode(OUTCOMES.read_bytes(), type=dict[str, Outcome])


def save(found: dict[str, Outcome]) -> None:
    """Keep the outcomes, in the order of the bugs."""
    text = msgspec.json.encode({name: found[name] for name in bugs() if name in found})
    OUTCOMES.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


class _First:
    """A plugin of pytest that remembers the first failure."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def first_failure(tests: tuple[str, ...]) -> str:
    """The first of these tests that fails in this process; empty if all pass."""
    first = _First()
    code = pytest.main(
        ["-p", "no:cacheprovider", "-n", "0", "-q", "-x", "--tb=no", "--no-header", *tests], plugins=[first]
    )
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), (code, tests)
    return first.failed


def first_seed(members: str, seeds: int) -> str:
    """The first seed from 0 on that fails, and the failure; empty if none does."""
    search = SeedSearch(members=members)
    for seed in range(seeds):
        outcome = search.run(seed)
        if isinstance(outcome, Schedule):
            return f"seed {seed}: {outcome.violated}"
    return ""


def in_fork(bug: Bug, find: Callable[[], str]) -> str:
    """What is found with the bug planted, in a process of its own."""
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
    found = outcomes()
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
                seed = cell(outcome.seed, "out of reach" if not bug.members else "—")
                if bug.members and outcome.seed is not None:
                    seed += f" ({outcome.seeds} of `{bug.members}` tried)" if not outcome.seed else ""
                cells = f"`{bug.name}`", bug.what, seed, cell(outcome.old, "—"), cell(outcome.new, "—")
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


HEAD: Final = """\
# Bugs by kind

Bugs that no test had seen came in kinds. For each kind below five bugs were chosen, written down in `bench/kinds.toml` and committed
before any check was tried on them. Then each was planted alone: into the simulator from seed 0 on where a run reaches the code, into the tests of
the neighbourhood that existed before, and into the check that was written for the whole kind. `bench/kinds.py` does all three, and writes
this page from `bench/kinds_outcomes.json`.

The columns say what failed first. *Out of reach* means that no simulated run executes the code.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--list", action="store_true", help="list the bugs")
    parser.add_argument("--seeds", type=int, help="run so many seeds of the simulator, from 0 on")
    parser.add_argument("--old", action="store_true", help="run the tests that existed before")
    parser.add_argument("--new", action="store_true", help="run the check of the kind")
    parser.add_argument("--report", action="store_true", help="write the page")
    options = parser.parse_args()
    known = bugs()
    missed = []
    for name in options.names or known:
        bug = known[name]
        outcome = outcomes().get(name, Outcome())
        if options.list:
            print(f"{bug.kind}: {name}: {bug.what}")
        if options.seeds is not None and bug.members:
            outcome.seed = in_fork(bug, partial(first_seed, bug.members, options.seeds))
            outcome.seeds = options.seeds
        if options.old:
            outcome.old = in_fork(bug, partial(first_failure, bug.tests))
        if options.new:
            outcome.new = in_fork(bug, partial(first_failure, (CHECKS[bug.kind],)))
            missed += [] if outcome.new else [name]
        if options.seeds is not None or options.old or options.new:
            print(f"{name}: seed {outcome.seed!r}, old {outcome.old!r}, new {outcome.new!r}", flush=True)
            save({**outcomes(), name: outcome})
    if options.report:
        PAGE.write_text(page(), encoding="utf-8")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
