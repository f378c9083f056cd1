"""Kafka's own integration tests, compiled as Kafka publishes them, judge clusters of `kraft serve`.

One class of ours stands before Kafka's on the class path, and starts our nodes in place of Kafka's. The table
`kafka_tests/classes.toml` says how many tests of each class pass, and why the others do not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from support import ROOT
from support.judges.table import HEADING, KINDS, Row, Sitting, keep, kept, line

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE / "kafka_tests"
TABLE: Final = SOURCES / "classes.toml"
OUT: Final = ROOT / "out" / "judges" / "junit"
VERSION: Final = "4.3.1"
_TEST_SECONDS: Final = 150
_CLASS_SECONDS: Final = 2400
_SERVICES: Final = "META-INF/services"
EXAMPLES: Final = """
examples:
  uv run poe judge junit                                   all classes of the table; goes on where the last call ended
  uv run poe judge junit --afresh                          all of them from the beginning
  uv run poe judge junit ConsoleConsumerTest               this one
  uv run poe judge junit ConsoleConsumerTest --jvm         the same at Kafka's own brokers
  uv run poe judge junit kafka.server.FetchRequestTest     one that is not in the table, to see what it says
  uv run poe judge junit kafka.server.FetchRequestTest#testPartitionDataEquals    one test of it
  uv run poe judge junit --print --save                    runs nothing: prints the results that are there, keeps them
                                                           for the page

exit code: 0 if all is as the table says, 1 if not, 2 for a wrong call. Needs a JDK and Maven. Results are in
out/judges/junit, one line of JSON for each class as soon as it has ended; reports and the logs of nodes that ended
badly are beside them."""


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """A class of tests.

    Args:
        name: The class.
        passed: How many of its tests pass, with those of `sometimes`; None if nobody has counted.
        failed: The tests that do not, each with the reason. A name without `[NUMBER]` is each invocation of a test.
        sometimes: Those that pass or fail, each with the reason.
        cluster: Of which kind the clusters are: `isolated` or `combined`, or `both` one after the other.
        skip: A regular expression of the names of invocations that are not run.
    """

    name: str
    passed: int | None = None
    failed: Mapping[str, str] = {}
    sometimes: Mapping[str, str] = {}
    cluster: str = "isolated"
    skip: str = ""

    @property
    def short(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why tests fail, by the name of the test."""
        return {**self.failed, **self.sometimes}


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """What is run, and what is not.

    Args:
        classes: The classes, in the order in which they are run.
        not_run: Classes that are not, each with the reason.
    """

    classes: Sequence[Expected]
    not_run: Mapping[str, str] = {}


class Case(Struct, frozen=True):
    """A line that the JVM writes when a test has ended.

    Args:
        test: The method, with `[NUMBER]` where it is invoked several times.
        name: What JUnit displays.
        status: `successful`, `failed` or `aborted`.
        seconds: How long it took.
        why: The fault and its causes.
    """

    test: str
    name: str
    status: str
    seconds: float
    why: str


class Found(Struct):
    """What a run of a class came to.

    Args:
        name: The class.
        at: Whose brokers: `kraft` or `jvm`.
        passed: How many tests passed.
        failed: Why each other one did not.
        ended: `whole`, or what cut the run: `time` or `died`.
        seconds: How long it took.
        date: When.
        commit: Of which commit the brokers were.
    """

    name: str
    at: str = "kraft"
    passed: int = 0
    failed: dict[str, str] = {}
    ended: str = "whole"
    seconds: float = 0
    date: str = ""
    commit: str = ""


def table(path: Path = TABLE) -> Table:
    """What is run."""
    return msgspec.convert(tomllib.loads(path.read_text()), Table)


def read(lines: Path) -> tuple[int, dict[str, str]]:
    """How many tests passed, and why each other one did not. A line that a dying JVM left half is not read."""
    passed, failed = 0, dict[str, str]()
    for text in lines.read_text(errors="replace").splitlines() if lines.exists() else ():
        try:
            case = msgspec.json.decode(text, type=Case)
        except msgspec.MsgspecError:
            continue
        if case.status == "successful":
            passed += 1
        elif case.status == "failed":
            failed[case.test] = case.why
    return passed, failed


def method(test: str) -> str:
    """The name of a test without the number of its invocation."""
    return test.partition("[")[0]


def reason(expected: Expected, test: str, why: str) -> str:
    """Why a test fails: as the table says, or what the test said."""
    return expected.reasons.get(test) or expected.reasons.get(method(test)) or f"unexplained: {why}"


def verdicts(expected: Expected, found: Found) -> list[str]:
    """What is otherwise than the table says. Kafka's own brokers may pass where ours are known not to."""
    told = [] if found.ended == "whole" else [f"the run was cut: {found.ended}"]
    told += [
        f"{test}: {why}" for test, why in sorted(found.failed.items()) if reason(expected, test, "").startswith("unex")
    ]
    if found.at == "jvm":
        return told
    failing = {*found.failed, *map(method, found.failed)}
    told += [f"{name} passes: take it out of the table" for name in sorted(set(expected.failed) - failing)]
    maybe = sum(test in expected.sometimes or method(test) in expected.sometimes for test in found.failed)
    if expected.passed is None:
        told.append(f"nobody has counted before: {found.passed + maybe} passed")
    elif found.passed + maybe != expected.passed:
        told.append(
            f"{found.passed} tests passed and {maybe} of those that may, where the table says {expected.passed}"
        )
    return told


def labelled(classes: Iterable[Expected]) -> dict[str, Expected]:
    """The classes by their names, with the package only where two have one name."""
    every = list(classes)
    counted = Counter(one.short for one in every)
    return {one.short if counted[one.short] == 1 else one.name: one for one in every}


def as_row(label: str, expected: Expected, found: Found, commit: str = "") -> Row:
    """The row of a class, in the table that is printed and on the page."""
    failed = {test: reason(expected, test, why) for test, why in sorted(found.failed.items())}
    if found.ended != "whole":
        failed["(the rest)"] = f"unexplained: the run was cut: {found.ended}"
    return Row(label, found.passed, failed, found.seconds, "" if found.commit == commit else found.commit)


def missing() -> str:
    """Which program is not there, if one is."""
    return ", ".join(f"{one} is not installed" for one in ("java", "javac", "mvn") if shutil.which(one) is None)


def class_path() -> str:
    """The jars of Kafka's tests, fetched once for each set of versions."""
    told, of = OUT / "class-path.txt", OUT / "class-path.pom"
    pom = SOURCES / "pom.xml"
    if not told.exists() or not of.exists() or of.read_text() != pom.read_text():
        OUT.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={told}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True)
        shutil.copy(pom, of)
    return told.read_text().strip()


def compiled(jars: str, *, is_jvm: bool) -> Path:
    """The compiled classes of this judge; for Kafka's own brokers only those that choose and write down.

    Each state of the sources has a folder of its own: no JVM that runs loses its classes.
    """
    sources = SOURCES / "src"
    every = [sources / "judge" / f"{one}.java" for one in ("OneType", "Results")]
    files = every if is_jvm else sorted(sources.rglob("*.java"))
    state = hashlib.sha256(b"".join(one.read_bytes() for one in files) + jars.encode()).hexdigest()[:12]
    out = OUT / f"classes-{state}"
    if out.exists():
        return out
    making = Path(tempfile.mkdtemp(dir=OUT))
    flags = ["-nowarn", "-proc:none", "-d", str(making), "-cp", jars]
    ran = subprocess.run(["javac", *flags, *map(str, files)], check=False, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    shutil.copytree(sources / _SERVICES, making / _SERVICES)
    making.rename(out)
    return out


def command(expected: Expected, jars: str, classes: Path, reports: Path) -> list[str]:
    """What runs a class."""
    properties = {
        "judge.python": sys.executable,
        "judge.zygote": HERE / "zygote.py",
        "judge.type": expected.cluster,
        "judge.keep": reports / "nodes",
        "judge.kill": "true",
        "judge.results": reports / "tests.jsonl",
        "log4j2.configurationFile": SOURCES / "log4j2.yaml",
        **({"judge.skip": expected.skip} if expected.skip else {}),
    }
    settings = {
        "junit.jupiter.extensions.autodetection.enabled": "true",
        "junit.jupiter.execution.timeout.testable.method.default": f"{_TEST_SECONDS} s",
        "junit.jupiter.execution.timeout.lifecycle.method.default": f"{_TEST_SECONDS} s",
        "junit.jupiter.execution.timeout.thread.mode.default": "SEPARATE_THREAD",
    }
    asked = ("-m" if "#" in expected.name else "-c", expected.name)
    return [
        *("java", "-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", os.pathsep.join((str(classes), jars)), "org.junit.platform.console.ConsoleLauncher", "execute"),
        *("--disable-banner", "--details=none", *asked),
        *(word for key, value in settings.items() for word in ("--config", f"{key}={value}")),
    ]


def run(expected: Expected, jars: str, classes: Path, found: Found, *, seconds: float = _CLASS_SECONDS) -> Found:
    """Run a class, with its reports and the logs of nodes that ended badly in a folder of its own.

    A JVM that dies or takes too long leaves the results of the tests that had ended.
    """
    reports = OUT / f"reports-{found.at}" / expected.name
    shutil.rmtree(reports, ignore_errors=True)
    (reports / "nodes").mkdir(parents=True)
    began = time.monotonic()
    with (reports / "log.txt").open("wb") as log:
        try:
            status = subprocess.run(
                command(expected, jars, classes, reports), stdout=log, stderr=log, timeout=seconds, check=False
            ).returncode
            found.ended = "whole" if status in {0, 1} else "died"  # 1: some tests failed
        except subprocess.TimeoutExpired:
            found.ended = "time"
    found.passed, found.failed = read(reports / "tests.jsonl")
    found.seconds = round(time.monotonic() - began)
    return found


def revision() -> str:
    """The commit of the brokers, with a plus if something is changed."""
    git = ["git", "-C", str(ROOT)]
    told = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], check=False, capture_output=True, text=True)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "kraft"], check=False, capture_output=True, text=True
    )
    return (told.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")


def former(path: Path) -> dict[str, Found]:
    """The last result of each class, by its name."""
    texts = path.read_text().splitlines() if path.exists() else []
    return {one.name: one for one in (msgspec.json.decode(text, type=Found) for text in texts)}


def add(path: Path, found: Found) -> None:
    """Write down what a class came to."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(found) + b"\n")


def sitting(of: Table, results: Mapping[str, Found], conditions: str, before: Sitting | None = None) -> Sitting:
    """The results of the table's classes, as they are kept for the page, and beside them those of a sitting before of
    the classes that have none.
    """
    chosen = [(label, one, results[one.name]) for label, one in labelled(of.classes).items() if one.name in results]
    commits = [found.commit for _, _, found in chosen]
    commit = max(commits, key=commits.count, default="")
    date = max((found.date for _, _, found in chosen), default="")
    rows = {label: as_row(label, one, found, commit) for label, one, found in chosen}
    if before is not None:
        known = labelled(of.classes)
        of_before = (replace(row, commit=row.commit or before.commit) for row in before.rows if row.name in known)
        rows = {row.name: row if row.commit != commit else replace(row, commit="") for row in of_before} | rows
    not_run = {
        one.name: "unexplained: not run in this sitting"
        for label, one in labelled(of.classes).items()
        if label not in rows
    }
    suite = "Apache Kafka's compiled integration tests"
    told = [rows[label] for label in sorted(rows)]
    return Sitting("junit", suite, VERSION, date, commit, conditions, told, {**of.not_run, **not_run})


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What the command line asks."""
    parser = argparse.ArgumentParser(
        prog="judge junit",
        description="Kafka's own integration tests, at our brokers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="a class of the table, or any by its whole name")
    parser.add_argument("--jvm", action="store_true", help="run them at Kafka's own brokers")
    parser.add_argument("--afresh", action="store_true", help="run what has a result already, too")
    parser.add_argument("--print", action="store_true", dest="prints", help="run nothing, print the results")
    parser.add_argument("--save", action="store_true", help="keep the results for the page")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many classes at once: most tests wait")
    parser.add_argument("--conditions", default="", help="on what kind of machine, for the page")
    chosen = parser.parse_args(arguments)
    known = {one.short for one in table().classes}
    if unknown := [one for one in chosen.classes if one not in known and "." not in one]:
        parser.error(f"not in {TABLE.relative_to(ROOT)}: {', '.join(unknown)}")
    if (without := missing()) and not chosen.prints:
        parser.error(without)
    return chosen


def main(arguments: Sequence[str]) -> int:
    """Run the named classes, or all; returns 1 if something is otherwise than the table says."""
    chosen = parsed(arguments)
    known = labelled(table().classes)
    known |= {one: _by_name(one) for one in chosen.classes if one not in known}
    labels = {one.name: label for label, one in known.items()}
    written = OUT / f"results-{'jvm' if chosen.jvm else 'kraft'}.jsonl"
    if chosen.afresh and not chosen.classes:
        written.unlink(missing_ok=True)
    results = former(written)
    wanted = [known[one] for one in chosen.classes] or list(known.values())
    due = [] if chosen.prints else [one for one in wanted if chosen.classes or one.name not in results]
    others, passed, failed = list[str](), 0, 0
    print(HEADING, flush=True)
    there = [(one, results[one.name]) for one in wanted if one not in due and one.name in results]
    for expected, found in chain(there, _fresh(due, written, is_jvm=chosen.jvm, jobs=chosen.jobs)):
        results[expected.name] = found
        passed, failed = passed + found.passed, failed + len(found.failed)
        label = labels[expected.name]
        others += [f"{label}: {one}" for one in verdicts(expected, found)]
        print(line(as_row(label, expected, found)), flush=True)
    print(f"\n{passed} passed, {failed} failed", *others, sep="\n")
    if chosen.save:
        before = next((one for one in kept() if one.judge == "junit"), None)
        print(keep(sitting(table(), results, chosen.conditions, before)).relative_to(ROOT))
    return bool(others)


def _by_name(name: str) -> Expected:
    return next((one for one in table().classes if one.name == name), Expected(name))


def _fresh(due: Sequence[Expected], written: Path, *, is_jvm: bool, jobs: int) -> Iterator[tuple[Expected, Found]]:
    """Run classes, some at once, and write down what each came to as soon as it has ended."""
    if not due:
        return
    jars = class_path()
    classes = compiled(jars, is_jvm=is_jvm)
    at, commit, lock = "jvm" if is_jvm else "kraft", revision(), Lock()

    def one_of(expected: Expected) -> tuple[Expected, Found]:
        date = time.strftime("%Y-%m-%d", time.gmtime())
        found = run(expected, jars, classes, Found(expected.name, at, date=date, commit=commit))
        with lock:
            add(written, found)
        return expected, found

    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(one_of, one) for one in due]):
            yield done.result()


def faults_of(of: Table) -> list[str]:
    """Reasons of the table that are of no kind."""
    whole = [why for one in of.classes for why in one.reasons.values()] + list(of.not_run.values())
    return [why for why in whole if why.partition(":")[0] not in KINDS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
