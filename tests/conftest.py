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
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from random import SystemRandom

import pytest
from hypothesis import settings
from trio._core import _run as trio_scheduler
from xdist.workermanage import WorkerController

# Assertions in what the tests share say what they have found, as those in tests do.
HERE = Path(__file__).parent
BESIDE = (path for path in HERE.rglob("*.py") if not path.name.startswith(("test_", "conftest")))
pytest.register_assert_rewrite("support", *(path.stem for path in BESIDE if not path.is_relative_to(HERE / "support")))

from support import ROOT, progress  # noqa: E402
from support.collecting import after_the_first, is_compiled, without_garbage_collection  # noqa: E402
from support.kafka_jars import KafkaUnavailable, fetch_ahead, newer_than_supported, newest_published  # noqa: E402
from support.longest_first import LongestFirst  # noqa: E402
from support.progress import Progress, repeat_command  # noqa: E402
from support.tiers import IS_SHORT, KEPT, LEFT_TO_FULL, first_line, left_files, left_to_full, read_kept  # noqa: E402

WORKERS = 3
"""Many tests wait, for elections and for Kafka: three processes need 23 minutes on two cores where two need 30. With
three, a worker of Spark once took longer to start than the ten seconds that Spark waits."""

EXAMPLES = 25
"""As many examples Hypothesis draws in the short run, where a test does not say: a quarter of the others."""

DEFAULT_MARKS = "not soak and not spark_cluster"
"""The marks of a run that does not say which."""

COMPILES = pytest.StashKey[bool]()
"""In the configuration of the run: whether its processes find no compiled tests."""

BYTECODE = Path(__file__).parent.parent / "out" / "bytecode"
"""Where compiled modules are, if the environment forbids them beside their sources, as images of Python often do."""

if sys.dont_write_bytecode:
    # Without compiled modules, each of the thousands of processes of the tests would first compile all that it imports.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))

# A node that a test starts ends at a bug in the handling of a request, so that the test sees the bug.
os.environ["KRAFT_FAILS_FAST"] = "1"

# What a command writes to stderr must not depend on how busy the machine is.
os.environ["KRAFT_PROGRESS"] = "no"

# A machine that is busy with other things must not fail a test: no property here is about speed.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.register_profile("short", parent=settings.get_profile("repository"), max_examples=EXAMPLES)
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="all tests but soak, not only those of the short run")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """The short run leaves tests to the full one; a run that names files, marks or a keyword takes what it names."""
    option = config.option
    if hasattr(config, "workerinput"):
        config.stash[IS_SHORT] = config.workerinput["is_short"]
    else:
        chooses = option.full or option.keyword or option.markexpr != DEFAULT_MARKS
        config.stash[IS_SHORT] = is_whole_suite(config) and not chooses
        terminal = config.pluginmanager.getplugin("terminalreporter")
        if is_whole_suite(config) and terminal is not None and option.verbose <= 0 and not option.collectonly:
            config.pluginmanager.register(Progress(terminal), "progress")
            config.pluginmanager.register(progress, "quiet progress")
    if config.stash[IS_SHORT]:
        settings.load_profile("short")
        config.stash[KEPT] = read_kept(LEFT_TO_FULL.read_text())

    config.stash[COMPILES] = not is_compiled()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput["is_short"] = node.config.stash[IS_SHORT]
    node.workerinput["compiles"] = node.config.stash[COMPILES]


def pytest_report_header(config: pytest.Config) -> str | None:
    """What this run is, and how to have the other."""
    return first_line(config.stash[IS_SHORT]) if is_whole_suite(config) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without a look at what lives until the end, and in a fresh clone after the process that compiles all."""
    with ExitStack() as stack:
        worker = getattr(session.config, "workerinput", None)
        if worker is not None and worker["compiles"]:
            stack.enter_context(after_the_first())
        stack.enter_context(without_garbage_collection())
        return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that the short run leaves out whole are not imported."""
    if not config.stash[IS_SHORT] or collection_path.suffix != ".py":
        return None
    return str(collection_path.relative_to(ROOT)) in left_files(config.stash[KEPT]) or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the short run leaves to the full one; the marks have chosen before."""
    if config.stash[IS_SHORT]:
        others = left_to_full((item.nodeid for item in items), config.stash[KEPT])
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
    """The summary says how to repeat what failed, and of the whole suite what it took. In continuous integration it
    says, too, what the machine left out, also if that is nothing.
    """
    failed = [one for kind in ("failed", "error") for one in terminalreporter.stats.get(kind, [])]
    if failed:
        terminalreporter.section("to repeat")
        for report in failed:
            terminalreporter.line(repeat_command(report.nodeid, report.sections))
    if is_whole_suite(terminalreporter.config):
        terminalreporter.section("time")
        reports = chain.from_iterable(terminalreporter.stats.values())
        seconds = sum(report.duration for report in reports if isinstance(report, pytest.TestReport))
        terminalreporter.line(f"{seconds:,.0f} s of tests, one after the other")
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
