"""The checks of a mutant: tests and simulated runs, each with its time and with the lines that it reaches.

One process collects the tests of a package and stays warm. A fork of that process runs each test and each seed once, on
the sound code, and notes the lines. A mutant meets only the checks that reach its lines, the fastest first: no other
check can tell the mutant from the sound code.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import msgspec
import pytest
from hypothesis import Phase, settings
from msgspec import Struct
from source_mutants.changes import PACKAGES, ROOT

from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch

TESTS: Final = {
    "kraft.quorum": (
        *("tests/kraft/quorum", "tests/kraft/replica", "tests/kraft/process"),
        "tests/kraft/node/test_paused_node.py",
    ),
    "metadata_log.log": (
        "tests/metadata_log/log",
        "tests/kraft/partitions/log",
        "tests/kraft/replica/test_replica_crash.py",
    ),
    "kraft.replica": (
        *("tests/kraft/replica", "tests/kraft/process"),
        "tests/kraft/partitions/replicas/test_broker_services.py",
        "tests/kraft/controller/test_controller_authorizer.py",
        "tests/kraft/test_testing_brokers.py",
    ),
    "kraft.process": (
        *("tests/kraft/process", "tests/kraft/replica"),
        "tests/kraft/partitions/replicas/test_broker_services.py",
        "tests/kraft/controller/test_controller_authorizer.py",
        "tests/kraft/test_testing_brokers.py",
    ),
    "kraft.state_machine": ("tests/kraft/state_machine", "tests/kraft/process", "tests/kraft/replica"),
}
"""The tests nearest to a package."""
SEEDS: Final = {
    "kraft.quorum": {"core": 30, "replica": 10, "dynamic": 10},
    "metadata_log.log": {"replica": 12, "dynamic": 8},
    "kraft.replica": {"replica": 12, "dynamic": 8, "controller": 4, "state-machine": 8},
    "kraft.process": {"replica": 12, "controller": 4, "state-machine": 8, "combined-cluster": 4},
    "kraft.state_machine": {"state-machine": 8},
}
"""The simulated runs of a package: the number of seeds, from 0 on, by the members."""
MOST_SECONDS: Final = 15.0
"""A check that takes more processor time than this, with its lines noted, is left out."""


class Check(Struct, frozen=True):
    """One test or one seed: its processor time on the sound code, and the lines that it reaches, by module."""

    name: str
    digest: str
    """Of the file of the test."""
    seconds: float
    passed: bool
    """Whether the check passes on the sound code, within `MOST_SECONDS`."""
    lines: dict[str, list[int]]

    def reaches(self, module: str, first: int, last: int) -> bool:
        """Whether the check executes one of these lines of a module."""
        return any(first <= line <= last for line in self.lines.get(module, ()))


class Examination:
    """The checks of a package within one session of pytest, which has collected the tests."""

    def __init__(self, items: list[pytest.Item], seeds: dict[str, int]) -> None:
        self._items = {item.nodeid: item for item in items}
        self._seeds = {
            f"kraft sim run --members {members} --seeds {seed}": (members, seed)
            for members, count in seeds.items()
            for seed in range(count)
        }

    def names(self) -> list[str]:
        """All checks."""
        return [*self._items, *self._seeds]

    def digest(self, name: str) -> str:
        """A digest of the file of a test; of the number of seeds for a seed."""
        item = self._items.get(name)
        return _digest_of([item.path]) if item is not None else ""

    def run(self, names: list[str], begins: Callable[[str], None]) -> Iterator[tuple[str, str]]:
        """Run checks; yields the name of each and why it failed, or nothing.

        Args:
            names: The checks, in their order.
            begins: Called with the name before each check.
        """
        tests = [name for name in names if name in self._items]
        following = dict(pairwise(tests))
        for name in names:
            begins(name)
            item = self._items.get(name)
            if item is None:
                members, seed = self._seeds[name]
                outcome = SeedSearch(members=members).run(seed, [])
                yield name, outcome.violated if isinstance(outcome, Schedule) else ""
            else:
                after = following.get(name)
                yield name, _run_test(item, None if after is None else self._items[after])


class _Reports:
    """A plugin of pytest that remembers which test has failed."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        if report.failed and not self.failed:
            self.failed = f"failed in {report.when}"


def _run_test(item: pytest.Item, following: pytest.Item | None) -> str:
    reports = _Reports()
    item.config.pluginmanager.register(reports)
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    item.config.pluginmanager.unregister(reports)
    return reports.failed


class _Lines:
    """Notes the lines of the packages that run."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}
        self._modules: dict[str, str | None] = {}
        self._left: dict[CodeType, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Follow the frames of the packages until each of their lines was seen."""
        code = frame.f_code
        module = self._module_of(code.co_filename)
        if module is None:
            return None
        left = self._left.get(code)
        if left is None:
            left = self._left[code] = {line for _, _, line in code.co_lines() if line is not None}
        if not left:
            return None
        seen = self.seen.setdefault(module, set())

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                seen.add(frame.f_lineno)
                left.discard(frame.f_lineno)
            return trace

        return trace

    def _module_of(self, file: str) -> str | None:
        if file not in self._modules:
            path = Path(file)
            is_ours = any(path.is_relative_to(folder) for folder in PACKAGES.values())
            self._modules[file] = ".".join(path.relative_to(ROOT).with_suffix("").parts) if is_ours else None
        return self._modules[file]


def profile(examination: Examination, path: Path) -> list[Check]:
    """The checks of a package with their lines, those that a file does not have yet measured in a fork.

    Args:
        examination: The checks.
        path: The file of what was measured. It begins anew when a source has changed.
    """
    sound = _digest_of(file for folder in PACKAGES.values() for file in sorted(folder.rglob("*.py")))
    lines = path.read_bytes().splitlines() if path.exists() else []
    if not lines or lines[0].decode() != sound:
        lines = []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{sound}\n".encode())
    known = {one.name: one for one in (msgspec.json.decode(line, type=Check) for line in lines[1:])}
    wanted = {name: examination.digest(name) for name in examination.names()}
    while missing := [name for name, digest in wanted.items() if name not in known or known[name].digest != digest]:
        child = os.fork()
        if child == 0:
            try:
                silence()
                _measure(examination, missing, wanted, path)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        measured = [msgspec.json.decode(line, type=Check) for line in path.read_bytes().splitlines()[1:]]
        known |= {one.name: one for one in measured}
        ended = next((name for name in missing if name not in known or known[name].digest != wanted[name]), None)
        if ended is not None:
            known[ended] = Check(ended, wanted[ended], MOST_SECONDS, passed=False, lines={})
            with path.open("ab") as file:
                file.write(msgspec.json.encode(known[ended]) + b"\n")
    return [known[name] for name in wanted if name in known]


def _measure(examination: Examination, names: list[str], digests: dict[str, str], path: Path) -> None:
    start = 0.0
    lines = _Lines()

    def begins(name: str) -> None:
        nonlocal start, lines
        lines = _Lines()
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        sys.settrace(lines)

    with path.open("ab") as file:
        for name, failure in examination.run(names, begins):
            sys.settrace(None)
            seen = {module: sorted(numbers) for module, numbers in lines.seen.items()}
            check = Check(name, digests[name], time.process_time() - start, not failure, seen)
            file.write(msgspec.json.encode(check) + b"\n")
            file.flush()


def silence() -> None:
    """Send what this process prints to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _digest_of(files: Iterator[Path] | list[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class _Session:
    """A plugin of pytest: collects the tests, and then calls a function instead of running them."""

    def __init__(self, seeds: dict[str, int], use: Callable[[Examination], None]) -> None:
        self._seeds = seeds
        self._use = use

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let Hypothesis neither shrink nor remember an example: a failure is enough."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.get_profile("repository"), database=None, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Hand the collected tests over."""
        self._use(Examination(session.items, self._seeds))
        return True


def examine(package: str, use: Callable[[Examination], None], tests: list[str] | None = None) -> None:
    """Collect the tests of a package, and hand the checks to a function.

    Args:
        package: The name of the package.
        use: The function.
        tests: Only these tests, and no seed.

    Raises:
        SystemExit: A test module cannot be imported.
    """
    arguments = ["-p", "no:cacheprovider", "-n", "0", "-q", "-s", "--hypothesis-seed=0", "--no-header", "--no-summary"]
    session = _Session({} if tests else SEEDS[package], use)
    code = pytest.main([*arguments, *(tests or TESTS[package])], plugins=[session])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        sys.exit(f"pytest ended with exit code {code}")
