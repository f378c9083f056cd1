"""The parametrizations of Kafka's ducktape tests that are run, what they came to, and the table of both."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from support.judges.table import Row, Sitting

MANIFEST: Final = Path(__file__).parent / "kafkatest_lab" / "parametrizations.toml"
_LONGEST_WHY: Final = 240

Side = Literal["ours", "jvm", "mixed"]
"""Whose brokers are judged: ours, Kafka's, or ours with node 2 being Kafka's."""
_JUDGES: Final[Mapping[Side, str]] = {"ours": "ducktape", "jvm": "ducktape-jvm", "mixed": "ducktape-mixed"}
_SUITES: Final[Mapping[Side, str]] = {
    "ours": "Apache Kafka's system tests",
    "jvm": "Apache Kafka's system tests at Kafka's own brokers (`--jvm`)",
    "mixed": "Apache Kafka's system tests with node 2 being Kafka's (`--mixed`)",
}


class Parametrization(Struct, frozen=True, forbid_unknown_fields=True):
    """A test with its parameters.

    Args:
        test: `folder/file.py::Class.method`, below `kafkatest`.
        nodes: How many nodes the test asks for.
        parameters: What the test is given.
        failed: Why it fails, if it does: a word of `table.KINDS`, a colon, and what is meant.
        sometimes: Why it sometimes fails, if it does, likewise.
    """

    test: str
    nodes: int
    parameters: Mapping[str, Any] = {}
    failed: str = ""
    sometimes: str = ""

    @property
    def label(self) -> str:
        """What ducktape is given, below the folder of the tests. It is the name of the parametrization."""
        return f"{self.test}@{json.dumps(self.parameters)}" if self.parameters else self.test

    @property
    def short(self) -> str:
        """The file and the method, as in the table."""
        path, _, method = self.test.partition("::")
        return f"{path.rpartition('/')[2].removesuffix('.py')} {method.rpartition('.')[2]}"

    @property
    def words(self) -> str:
        """The parameters, as in the table."""
        return ", ".join(f"{name}={_word(value)}" for name, value in self.parameters.items())


class Result(Struct, frozen=True):
    """What a run of a parametrization came to.

    Args:
        label: The name of the parametrization.
        side: Whose brokers were judged.
        commit: Of which commit ours were.
        began: When, as UTC in ISO 8601.
        passed: Whether the test passed.
        seconds: How long it took.
        why: The first line of what the test said when it failed.
    """

    label: str
    side: Side
    commit: str
    began: str
    passed: bool
    seconds: float
    why: str = ""


def manifest(path: Path = MANIFEST) -> list[Parametrization]:
    """All parametrizations, the quick ones first."""
    return msgspec.convert(tomllib.loads(path.read_text())["parametrizations"], list[Parametrization])


def not_run(path: Path = MANIFEST) -> dict[str, str]:
    """What the manifest leaves out, and why."""
    return msgspec.convert(tomllib.loads(path.read_text())["not_run"], dict[str, str])


def chosen(known: Sequence[Parametrization], parts: Sequence[str]) -> list[Parametrization]:
    """Those whose label has one of these parts in it; all without parts.

    Raises:
        KeyError: a part is in no label.
    """
    if unknown := [part for part in parts if not any(part in one.label for one in known)]:
        raise KeyError(", ".join(unknown))
    return [one for one in known if not parts or any(part in one.label for part in parts)]


def read_report(report: Path) -> tuple[bool, str]:
    """Whether the one test of a report of ducktape passed, and the first line of what it said."""
    if not report.exists():
        return False, "ducktape wrote no report"
    results = json.loads(report.read_text())["results"]
    if not results:
        return False, "ducktape found no such test"
    said = str(results[0]["summary"]).strip()
    return results[0]["test_status"] == "PASS", _first_line(said)


def _first_line(said: str) -> str:
    line = said.partition("\n")[0]
    if line.startswith("RemoteCommandError(") and (begin := line.rfind("}, ")) > 0:
        line = f"command failed: {line[begin + 3 :].rstrip(')')}"
    return line if len(line) <= _LONGEST_WHY else line[:_LONGEST_WHY] + "…"


def _word(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.rpartition(".")[2] if text.startswith("org.apache.") else text


def read_results(path: Path) -> list[Result]:
    """The results that were kept, in their order; a line that was cut off by a crash is left out."""
    found = list[Result]()
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found.append(msgspec.json.decode(line, type=Result))
        except msgspec.DecodeError:
            continue
    return found


def keep(path: Path, result: Result) -> None:
    """Add a result to those that are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def newest(results: Iterable[Result], side: Side, commit: str | None = None) -> dict[str, Result]:
    """The last result of each parametrization on this side, of this commit or of any."""
    return {one.label: one for one in results if one.side == side and commit in (None, one.commit)}


def sitting(
    known: Sequence[Parametrization], results: Sequence[Result], side: Side, version: str, conditions: str
) -> Sitting:
    """The last result of each parametrization, as it is kept for the page: a row for each test.

    Args:
        known: The manifest.
        results: All results.
        side: Whose brokers were judged.
        version: The version of the tests.
        conditions: On what kind of machine. How many passed only in a later run is added.
    """
    found = newest(results, side)
    commits = [result.commit for result in found.values()]
    commit = max(commits, key=commits.count, default="")
    rows = []
    for name, group in groupby((one for one in known if one.label in found), key=lambda one: one.short):
        made = [(one, found[one.label]) for one in group]
        others = {result.commit for _, result in made} - {commit}
        rows.append(
            Row(
                name,
                sum(result.passed for _, result in made),
                {one.words: reason(one, result) for one, result in made if not result.passed},
                round(sum(result.seconds for _, result in made)),
                ", ".join(sorted(others)),
            )
        )
    failed_once = {one.label for one in results if one.side == side and not one.passed}
    late = sum(result.passed and label in failed_once for label, result in found.items())
    notes = [conditions, f"{late} passed only in a later run." if late else ""]
    date = max((result.began[:10] for result in found.values()), default="")
    said = " ".join(filter(None, notes))
    rows.sort(key=lambda each: each.name)
    left = {f"{missed} more of the manifest": "no result yet"} if (missed := len(known) - len(found)) else {}
    return Sitting(_JUDGES[side], _SUITES[side], version, date, commit, said, rows, {**left, **not_run()})


def reason(one: Parametrization, result: Result) -> str:
    """Why a test did not pass."""
    return one.failed or one.sometimes or f"unexplained: {result.why}"


def row(one: Parametrization, result: Result) -> str:
    """A line of the table."""
    why = "" if result.passed else reason(one, result)
    verdict = "passed" if result.passed else "failed"
    cells = (one.short, one.words, verdict, f"{result.seconds:.0f} s", why.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"


def verdict(one: Parametrization, result: Result) -> str:
    """What is otherwise than the manifest says; empty if nothing is. Kafka's brokers may pass where ours do not."""
    if not result.passed and not (one.failed or one.sometimes):
        return f"{one.label}: {result.why}"
    if result.passed and one.failed and result.side == "ours":
        return f"{one.label} passes: take the reason out of the manifest"
    return ""
