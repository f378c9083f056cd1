"""Kafka's own integration tests, compiled as Kafka publishes them, judge clusters of `kraft serve`.

    uv run poe judge junit                                   # all classes of the table
    uv run poe judge junit CordonedLogDirsIntegrationTest    # these
    uv run poe judge junit --jvm ConsoleConsumerTest         # the same at Kafka's own brokers

One class of ours stands before Kafka's on the class path, and starts our nodes in place of Kafka's. The table
`kafka_tests/classes.toml` says how many tests of each class pass, and why the others do not. The first run fetches the
jars by Maven.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import msgspec
from msgspec import Struct

from support import ROOT

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE / "kafka_tests"
TABLE: Final = SOURCES / "classes.toml"
OUT: Final = ROOT / "out" / "judges" / "junit"
_TEST_SECONDS: Final = 150
_CLASS_SECONDS: Final = 3600
_LISTENER: Final = "META-INF/services/org.junit.jupiter.api.extension.Extension"


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """A class of tests.

    Args:
        name: The class.
        passed: How many of its tests pass.
        failed: The tests that do not, each with the reason.
        sometimes: Those that pass or fail, each with the reason.
        cluster: Of which kind the clusters are: `isolated` or `combined`, or `both` one after the other.
    """

    name: str
    passed: int
    failed: Mapping[str, str] = {}
    sometimes: Mapping[str, str] = {}
    cluster: str = "isolated"

    @property
    def short(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why tests fail, by the name of the test."""
        return {**self.failed, **self.sometimes}


class Found(Struct):
    """What a run of a class came to: how many tests passed, and why each other one did not."""

    passed: int = 0
    failed: dict[str, str] = {}


def table(path: Path = TABLE) -> list[Expected]:
    """The classes that are run, in the order of their names."""
    return msgspec.convert(tomllib.loads(path.read_text())["classes"], list[Expected])


def read(report: Path) -> Found:
    """The results in a report of JUnit. A test's name has neither its parameters nor the number of the invocation."""
    found = Found()
    for one in ElementTree.parse(report).getroot().iter("testcase"):
        fault = next((each for each in one if each.tag in {"failure", "error"}), None)
        if fault is not None:
            name = one.attrib["name"].partition("(")[0]
            found.failed[name] = fault.attrib.get("message") or fault.attrib.get("type", "")
        elif one.find("skipped") is None:
            found.passed += 1
    return found


def verdicts(expected: Expected, found: Found, *, is_jvm: bool = False) -> list[str]:
    """What is otherwise than the table says. Kafka's own brokers may pass where ours are known not to."""
    told = [f"{name}: {why}" for name, why in sorted(found.failed.items()) if name not in expected.reasons]
    if found.passed < expected.passed:
        told.append(f"{found.passed} tests passed, and {expected.passed} should")
    if not is_jvm:
        gone = sorted(set(expected.failed) - set(found.failed))
        told += [f"{name} passes: take it out of the table" for name in gone]
    return told


def row(expected: Expected, found: Found) -> str:
    """A line of the table that a run prints."""
    why = "; ".join(f"{name}: {expected.reasons.get(name, 'unknown: ' + found.failed[name])}" for name in found.failed)
    return f"| {expected.short} | {found.passed} | {len(found.failed)} | {why} |"


def missing() -> str:
    """Which program is not there, if one is."""
    return ", ".join(f"{one} is not installed" for one in ("java", "javac", "mvn") if shutil.which(one) is None)


def class_path() -> str:
    """The jars of Kafka's tests, fetched once."""
    told = OUT / "class-path.txt"
    if not told.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={told}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *goal], check=True)
    return told.read_text().strip()


def compiled(jars: str, *, is_jvm: bool) -> Path:
    """The compiled classes of this judge; for Kafka's own brokers only the one that chooses kinds of clusters."""
    out = OUT / ("extension" if is_jvm else "classes")
    shutil.rmtree(out, ignore_errors=True)
    sources = SOURCES / "src"
    files = [sources / "judge" / "OneType.java"] if is_jvm else sorted(sources.rglob("*.java"))
    flags = ["-nowarn", "-proc:none", "-d", str(out), "-cp", jars]
    subprocess.run(["javac", *flags, *map(str, files)], check=True, stderr=subprocess.DEVNULL)
    (out / _LISTENER).parent.mkdir(parents=True)
    shutil.copy(sources / _LISTENER, out / _LISTENER)
    return out


def run(expected: Expected, jars: str, classes: Path) -> Found:
    """Run a class, with its reports and the logs of nodes that ended badly in a folder of its own."""
    reports = OUT / "reports" / expected.short
    shutil.rmtree(reports, ignore_errors=True)
    (reports / "nodes").mkdir(parents=True)
    properties = {
        "judge.python": sys.executable,
        "judge.zygote": HERE / "zygote.py",
        "judge.type": expected.cluster,
        "judge.keep": reports / "nodes",
        "judge.kill": "true",
        "log4j2.configurationFile": SOURCES / "log4j2.yaml",
    }
    settings = {
        "junit.jupiter.extensions.autodetection.enabled": "true",
        "junit.jupiter.execution.timeout.testtemplate.method.default": f"{_TEST_SECONDS} s",
        "junit.jupiter.execution.timeout.thread.mode.default": "SEPARATE_THREAD",
    }
    command = [
        *("java", "-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", os.pathsep.join((str(classes), jars)), "org.junit.platform.console.ConsoleLauncher", "execute"),
        *("--disable-banner", "--details=none", "--reports-dir", str(reports), "-c", expected.name),
        *(word for key, value in settings.items() for word in ("--config", f"{key}={value}")),
    ]
    with (reports / "log.txt").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=log, timeout=_CLASS_SECONDS, check=False)
    return read(reports / "TEST-junit-jupiter.xml")


def main(arguments: Sequence[str]) -> int:
    """Run the named classes, or all; returns 1 if something is otherwise than the table says."""
    parser = argparse.ArgumentParser(prog="judge junit", description="Kafka's own integration tests, at our brokers.")
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="the name of a class in the table")
    parser.add_argument("--jvm", action="store_true", help="run them at Kafka's own brokers")
    chosen = parser.parse_args(arguments)
    known = {one.short: one for one in table()}
    if unknown := [one for one in chosen.classes if one not in known]:
        parser.error(f"not in {TABLE.relative_to(ROOT)}: {', '.join(unknown)}")
    if without := missing():
        parser.error(without)
    jars = class_path()
    classes = compiled(jars, is_jvm=chosen.jvm)
    print("| class | passed | failed | why |\n| --- | --- | --- | --- |", flush=True)
    others, passed, failed = list[str](), 0, 0
    for name in chosen.classes or known:
        found = run(known[name], jars, classes)
        passed, failed = passed + found.passed, failed + len(found.failed)
        others += [f"{name}: {one}" for one in verdicts(known[name], found, is_jvm=chosen.jvm)]
        print(row(known[name], found), flush=True)
    print(f"\n{passed} passed, {failed} failed", *others, sep="\n")
    return bool(others)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
