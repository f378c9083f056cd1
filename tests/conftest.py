"""Settles how the tests of every package run.

The whole suite runs in `WORKERS` processes; files and folders that the command line names run in one, where a debugger
and `-s` work. `-n` decides in either case: `pytest -n 4`, `pytest -n 0`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import SystemRandom

import pytest
from hypothesis import settings
from trio._core import _run as trio_scheduler
from xdist.workermanage import WorkerController

# Assertions in what the tests share say what they have found, as those in tests do.
pytest.register_assert_rewrite("support")

from support.kafka_jars import KafkaUnavailable, fetch_ahead, newer_than_supported, newest_published  # noqa: E402
from support.longest_first import LongestFirst  # noqa: E402
from support.soak.turns import (  # noqa: E402
    LONG_TESTS,
    NUMBER,
    PARTS,
    read_lengths,
    turn,
    waiting,
    without_parameters,
)

WORKERS = 3
"""Many tests wait, for elections and for Kafka: three processes need 23 minutes on two cores where two need 30. With
three, a worker of Spark once took longer to start than the ten seconds that Spark waits."""

IN_TURN = ("not soak and not spark_cluster", "spark_cluster")
"""The marks of the runs that take a part of the long tests: of one without arguments, and of `poe test-spark`."""

LONGEST_SECONDS = 10
"""The summary of continuous integration names what took longer, and is in every turn."""

BYTECODE = Path(__file__).parent.parent / "out" / "bytecode"
"""Where compiled modules are, if the environment forbids them beside their sources, as images of Python often do."""

if sys.dont_write_bytecode:
    # Without compiled modules, each of the thousands of processes of the tests would first compile all that it imports.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))

# A node that a test starts ends at a bug in the handling of a request, so that the test sees the bug.
os.environ["KRAFT_FAILS_FAST"] = "1"

# A machine that is busy with other things must not fail a test: no property here is about speed.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background processes with SIGINT ignored, which every process of a test would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether the command line names no files or folders."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    options = config.option
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    if is_whole_suite(config) and options.numprocesses is None and options.dist == "no" and not options.usepdb:
        options.numprocesses = WORKERS
    if is_whole_suite(config) and options.durations is None:
        options.durations = 10


def pytest_configure(config: pytest.Config) -> None:
    """The whole suite takes a part of the long tests, and a run that names files or a keyword takes what it names."""
    if hasattr(config, "workerinput"):
        config.stash[NUMBER] = config.workerinput["turn"]
    else:
        in_turn = is_whole_suite(config) and config.option.markexpr in IN_TURN and not config.option.keyword
        config.stash[NUMBER] = turn() if in_turn else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput["turn"] = node.config.stash[NUMBER]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests whose turn it is not; the marks have chosen before."""
    if (number := config.stash[NUMBER]) is not None:
        others = waiting((item.nodeid for item in items), number)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
        items[:] = [item for item in items if item.nodeid not in others]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where several processes run the suite, the tests of Apache Kafka need not wait long for its jars."""
    config = session.config
    if is_whole_suite(config) and config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.add_cleanup(fetch_ahead())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Trio shuffles the tasks that could run; pytest-trio takes away what else is left to chance there.

    `TRIO_SEED=…` lets a test that failed have its order again, which in virtual time is the whole run.
    """
    if item.get_closest_marker("trio"):
        seed = os.environ.get("TRIO_SEED") or str(SystemRandom().getrandbits(32))
        trio_scheduler._r.seed(int(seed))
        item.add_report_section("setup", "order of tasks", f"TRIO_SEED={seed}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The summary of the whole suite says what it took, and whose turn it was. In continuous integration it says, too,
    what the machine left out, also if that is nothing.
    """
    if is_whole_suite(terminalreporter.config):
        terminalreporter.section("time")
        for line in about_time(terminalreporter):
            terminalreporter.line(line)
    if os.environ.get("CI") == "true":
        skipped = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
        terminalreporter.section("left out on this machine")
        for reason, count in sorted(skipped.items()):
            terminalreporter.line(f"{count} tests: {reason}")
        if not skipped:
            terminalreporter.line("nothing: it has network namespaces, addresses, IPv6 and all else that tests ask for")
        if is_whole_suite(terminalreporter.config):
            terminalreporter.section("releases of Apache Kafka")
            terminalreporter.line(about_releases())


def about_time(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    """Report the time of all tests, whose turn it was, and under CI=true what is long in every turn. This is for a
    reader: a busy machine must fail nothing.
    """
    seconds: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
    yield f"{seconds.total():,.0f} s of tests, one after the other"
    if (number := terminalreporter.config.stash[NUMBER]) is not None:
        which = f"part {number % PARTS + 1} of {PARTS} of the long tests"
        yield f"turn {number} of this commit: {which}; SOAK_TURN={number} repeats it, `pytest tests` runs all"
    if os.environ.get("CI") == "true":
        listed = read_lengths(LONG_TESTS.read_text())
        long = {nodeid for nodeid, took in seconds.items() if took > LONGEST_SECONDS}
        for nodeid in sorted(long, key=lambda nodeid: -seconds[nodeid]):
            if not {nodeid.partition("::")[0], without_parameters(nodeid)} & listed.keys():
                yield f"{seconds[nodeid]:.0f} s, and in every turn: {nodeid}"


def about_releases() -> str:
    """Whether the package registry has a release that is not supported yet: a warning, which fails nothing."""
    try:
        return newer_than_supported(published := newest_published()) or f"the newest one is {published}, and supported"
    except KafkaUnavailable as unavailable:
        return f"not known: {unavailable}"


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped."""
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LongestFirst | None:
    return LongestFirst(config, log) if config.option.dist == "load" else None
