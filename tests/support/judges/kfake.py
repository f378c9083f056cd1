"""The tests that franz-go has for its fake broker, many of them ported from Kafka's, judge clusters of `kraft serve`.

    uv run poe judge kfake                          all tests
    uv run poe judge kfake ShareGroup               those whose names have this in them, a regular expression
    uv run poe judge kfake --jvm ShareGroup         the same at Kafka's own brokers
    uv run poe judge kfake --print --save           runs nothing: prints the last results, keeps them for the page

It needs a Go toolchain, which fetches the tests from the proxy of Go modules; `--jvm` needs a JDK and Maven, too. A
package of ours stands in for the fake's and starts nodes, each a process. Results are in out/judges/kfake.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from support import ROOT
from support.judges.junit import class_path, revision
from support.judges.table import HEADING, KINDS, Row, Sitting, keep, line

VERSION: Final = "v0.0.0-20260804154521-adb3a18abe14"
MODULE: Final = "github.com/twmb/franz-go/pkg/kfake"
STAND_IN: Final = Path(__file__).parent / "kfake_stand_in"
OUT: Final = ROOT / "out" / "judges" / "kfake"
_TAKEN: Final = ("go.mod", "go.sum", "helpers_test.go", "share_test.go", "share_churn_test.go", "kafka_tests")
_SECONDS: Final = 3000
_FORMAT: Final = [sys.executable, "-m", "kraft", "format", "-c"]
_SERVE: Final = [sys.executable, "-m", "kraft", "serve", "-c"]
_TEST: Final = re.compile(r"^func (Test\w+)\(", re.MULTILINE)


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """What the table says.

    Args:
        passed: How many tests pass, with those of `sometimes`.
        failed: The tests that do not, each with the reason.
        sometimes: Those that pass or fail, each with the reason.
        not_run: Those that are not run, each with the reason.
    """

    passed: int
    failed: Mapping[str, str] = {}
    sometimes: Mapping[str, str] = {}
    not_run: Mapping[str, str] = {}


class Found(Struct):
    """What a run came to.

    Args:
        commit: Of which commit the brokers were.
        date: When.
        is_jvm: Whether the brokers were Kafka's.
        files: The file of each test that has ended.
        failed: What each test said that failed.
    """

    commit: str = ""
    date: str = ""
    is_jvm: bool = False
    files: dict[str, str] = {}
    failed: dict[str, str] = {}


def table(path: Path = STAND_IN / "tests.toml") -> Expected:
    """What is expected."""
    return msgspec.convert(tomllib.loads(path.read_text()), Expected)


def faults_of(of: Expected) -> list[str]:
    """Reasons of the table that are of no kind."""
    every = (*of.failed.values(), *of.sometimes.values(), *of.not_run.values())
    return [why for why in every if why.partition(":")[0] not in KINDS]


def read(events: Iterable[str], files: Mapping[str, str]) -> Found:
    """What the events of `go test -json` say of the tests of these files."""
    found, said = Found(), dict[str, list[str]]()
    for text in events:
        event = json.loads(text) if text.startswith("{") else {}
        test = event.get("Test", "")
        if test not in files:
            continue
        if event["Action"] == "output" and not event["Output"].startswith(("===", "---")):
            said.setdefault(test, []).append(event["Output"].strip())
        elif event["Action"] in {"pass", "fail"}:
            found.files[test] = files[test]
            if event["Action"] == "fail":
                found.failed[test] = " ".join(said.get(test, []))
    return found


def reason(of: Expected, test: str, said: str) -> str:
    """Why a test fails: as the table says, or what the test said."""
    return of.failed.get(test) or of.sometimes.get(test) or f"unexplained: {said}"


def rows(of: Expected, found: Found) -> list[Row]:
    """A row for each file."""
    made = []
    for file in sorted(set(found.files.values())):
        tests = [test for test, where in found.files.items() if where == file]
        failed = {test: reason(of, test, found.failed[test]) for test in sorted(tests) if test in found.failed}
        made.append(Row(file, len(tests) - len(failed), failed))
    return made


def verdicts(of: Expected, found: Found, *, is_whole: bool) -> list[str]:
    """What is otherwise than the table says. Kafka's own brokers may pass where ours are known not to."""
    told = [
        f"{test}: {said}"
        for test, said in sorted(found.failed.items())
        if reason(of, test, "").startswith("unexplained")
    ]
    if found.is_jvm:
        return told
    passing = set(of.failed) & (found.files.keys() - found.failed.keys())
    told += [f"{test} passes: take it out of the table" for test in sorted(passing)]
    passed = len(found.files) - sum(test not in of.sometimes for test in found.failed)
    if is_whole and passed != of.passed:
        told.append(f"{passed} tests passed or may, where the table says {of.passed}")
    return told


def laid_out() -> Path:
    """The folder in which Go finds the tests, with our package in place of the fake's."""
    asked = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    OUT.mkdir(parents=True, exist_ok=True)
    told = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=OUT).stdout
    source, folder = Path(json.loads(told)["Dir"]), OUT / "module"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in _TAKEN:
        (shutil.copytree if (source / name).is_dir() else shutil.copyfile)(source / name, folder / name)
    shutil.copyfile(STAND_IN / "kfake.go", folder / "kfake.go")
    return folder


def found_in(folder: Path) -> dict[str, str]:
    """The file of each test."""
    paths = sorted(folder.rglob("*_test.go"))
    return {test: str(path.relative_to(folder)) for path in paths for test in _TEST.findall(path.read_text())}


def run(folder: Path, tests: Sequence[str], jobs: int, *, is_jvm: bool) -> list[str]:
    """The events of a run of these tests. No node outlives it."""
    java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path()] if is_jvm else []
    environment = {
        **os.environ,
        "JUDGED_FORMAT": json.dumps([*java, "kafka.tools.StorageTool", "format", "-c"] if java else _FORMAT),
        "JUDGED_SERVE": json.dumps([*java, "kafka.Kafka"] if java else _SERVE),
    }
    command = ["go", "test", "-json", "-count=1", "-p=1", f"-parallel={jobs}", f"-timeout={_SECONDS}s"]
    with (OUT / "errors.log").open("wb") as errors, (OUT / "events.jsonl").open("wb") as events:
        process = subprocess.Popen(
            [*command, f"-run=^({'|'.join(tests)})$", "./..."],
            cwd=folder,
            env=environment,
            stdout=events,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return (OUT / "events.jsonl").read_text(errors="replace").splitlines()


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What the command line asks."""
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="judge kfake", description=about, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="?", default="", metavar="TESTS", help="a regular expression of names")
    parser.add_argument("--jvm", action="store_true", help="run them at Kafka's own brokers")
    parser.add_argument("--print", action="store_true", dest="prints", help="run nothing, print the results")
    parser.add_argument("--save", action="store_true", help="keep the results for the page")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many tests at once")
    parser.add_argument("--conditions", default="", help="on what kind of machine, for the page")
    chosen = parser.parse_args(arguments)
    if not chosen.prints and shutil.which("go") is None:
        parser.error("go is not installed")
    return chosen


def main(arguments: Sequence[str]) -> int:
    """Run the named tests, or all; returns 1 if something is otherwise than the table says."""
    chosen, of = parsed(arguments), table()
    written = OUT / f"results-{'jvm' if chosen.jvm else 'kraft'}.json"
    if chosen.prints:
        found = msgspec.json.decode(written.read_bytes(), type=Found)
    else:
        folder = laid_out()
        files = found_in(folder)
        wanted = [test for test in files if re.search(chosen.tests, test) and test not in of.not_run]
        found = read(run(folder, wanted, chosen.jobs, is_jvm=chosen.jvm), files)
        found.is_jvm = chosen.jvm
        found.commit, found.date = revision(), time.strftime("%Y-%m-%d", time.gmtime())
        written.write_bytes(msgspec.json.encode(found))
    made = rows(of, found)
    print(HEADING, *map(line, made), sep="\n")
    others = verdicts(of, found, is_whole=not chosen.tests)
    print(f"\n{sum(row.passed for row in made)} passed, {len(found.failed)} failed", *others, sep="\n")
    if chosen.save:
        suite = "franz-go's tests of its fake broker"
        kept = Sitting(
            "kfake-jvm" if chosen.jvm else "kfake",
            suite,
            VERSION,
            found.date,
            found.commit,
            chosen.conditions,
            made,
            of.not_run,
        )
        print(keep(kept).relative_to(ROOT))
    return bool(others)
