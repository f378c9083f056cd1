"""What judges came to: the table that each prints, the results that are kept, and the page that is written of them.

A judge makes a `Sitting` of what it has run. `keep` writes it to `results/JUDGE.json`, and `page` is the text of
`docs/reference/judges.md` from all that are kept: no number is on the page that a command has not printed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from support import ROOT

RESULTS: Final = Path(__file__).parent / "results"
PAGE: Final = ROOT / "docs" / "reference" / "judges.md"
KINDS: Final = {
    "ours": "our broker is wrong",
    "unexplained": "nobody has found the cause yet: take it for ours",
    "feature": "the test wants a feature that we do not have",
    "differs": "our broker does otherwise on purpose, with a decision or a line in the page of differences",
    "inside": "the test needs the JVM of the broker: its objects, or a plug-in in Java",
    "release": "the suite is of another release than the one that our brokers follow",
    "jvm too": "the test fails at Kafka's own brokers as well, which `--jvm` has shown",
    "test": "the test is wrong or races with the broker, and may pass in another run",
    "harness": "our stand-in for Kafka's harness does not offer what the test asks",
}
"""Why a test does not pass. A reason is one of these words, a colon, and what is meant."""
_LONGEST: Final = 300


class Row(Struct, frozen=True, omit_defaults=True):
    """What one class, file or group of tests came to.

    Args:
        name: What it is called.
        passed: How many tests passed.
        failed: Those that did not, each with the reason, which begins with one of `KINDS`.
        seconds: How long it took.
        commit: Of which commit the broker was, where it is not the sitting's.
    """

    name: str
    passed: int
    failed: Mapping[str, str] = {}
    seconds: float = 0
    commit: str = ""


class Sitting(Struct, frozen=True, omit_defaults=True):
    """What a judge said.

    Args:
        judge: The word after `uv run poe judge`.
        suite: What the tests are, for a stranger.
        version: The release of the suite.
        date: When it was run, as `2026-11-29`.
        commit: Of which commit the broker was.
        conditions: On what kind of machine, and beside what.
        rows: The results.
        not_run: What of the suite was not run, each with the reason, which begins with one of `KINDS`.
    """

    judge: str
    suite: str
    version: str
    date: str
    commit: str
    conditions: str
    rows: Sequence[Row]
    not_run: Mapping[str, str] = {}

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(row.passed for row in self.rows)

    @property
    def failed(self) -> int:
        """How many did not."""
        return sum(len(row.failed) for row in self.rows)


def kind_of(why: str) -> str:
    """Which of `KINDS` a reason is."""
    kind = why.partition(":")[0]
    return kind if kind in KINDS else "unexplained"


def shown(text: str) -> str:
    """A text that stands in one cell of a table, in characters that no page shows otherwise."""
    plain = " ".join(text.replace("|", "/").split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def line(row: Row) -> str:
    """A row of the table that a run prints."""
    why = "; ".join(f"{name}: {shown(why)}" for name, why in row.failed.items())
    return f"| {row.name} | {row.passed} | {len(row.failed)} | {why} |"


HEADING: Final = "| tests | passed | failed | why |\n| --- | --- | --- | --- |"


def keep(sitting: Sitting, folder: Path = RESULTS) -> Path:
    """Write a sitting where the page is made from."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{sitting.judge}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(sitting), indent=1) + b"\n")
    return path


def kept(folder: Path = RESULTS) -> list[Sitting]:
    """All sittings that are kept, in the order of the judges' names."""
    return [msgspec.json.decode(path.read_bytes(), type=Sitting) for path in sorted(folder.glob("*.json"))]


def page(sittings: Iterable[Sitting]) -> str:
    """The page of all judges."""
    all_of = list(sittings)
    lines = [
        *_HEAD,
        *(
            f"| [{one.judge}](#{one.judge}) | {one.suite} | {one.version} | {one.date} | {one.commit} "
            f"| {one.passed} | {one.failed} |"
            for one in all_of
        ),
        "",
        "## Reasons",
        "",
        "| word | why a test fails or is not run |",
        "| --- | --- |",
        *(f"| {word} | {meaning} |" for word, meaning in KINDS.items()),
    ]
    for one in all_of:
        lines += _section(one)
    return "\n".join(lines) + "\n"


_HEAD: Final = (
    "# Judges",
    "",
    "What tests that others have written say of our brokers. Each judge is one command, `uv run poe judge NAME`, which",
    "prints these tables; `--save` keeps what it printed, and `uv run poe judge page` writes this page from that and",
    "from nothing else. A result is of its date and commit, on the machine that it names.",
    "[Contributing](../../CONTRIBUTING.md#judges) tells how to run them.",
    "",
    "| judge | suite | version | date | commit | passed | failed |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def _section(sitting: Sitting) -> list[str]:
    kinds = Counter(kind_of(why) for row in sitting.rows for why in row.failed.values())
    whole = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    counts = f"{sitting.passed} passed, {sitting.failed} failed{f' ({whole})' if whole else ''}"
    lines = [
        "",
        f"## {sitting.judge}",
        "",
        f"{sitting.suite} {sitting.version}: {counts}. {sitting.conditions}".rstrip(),
        "",
        "| tests | passed | failed | commit |",
        "| --- | --- | --- | --- |",
        *(
            f"| {row.name} | {row.passed} | {len(row.failed)} | {row.commit or sitting.commit} |"
            for row in sitting.rows
        ),
    ]
    if sitting.failed:
        lines += ["", "| failed | why |", "| --- | --- |"]
        lines += [f"| {row.name}: {name} | {shown(why)} |" for row in sitting.rows for name, why in row.failed.items()]
    if sitting.not_run:
        lines += ["", "| not run | why |", "| --- | --- |"]
        lines += [f"| {name} | {shown(why)} |" for name, why in sitting.not_run.items()]
    return lines


def main(arguments: Sequence[str]) -> int:
    """Write the page."""
    if arguments:
        print("usage: judge page", file=sys.stderr)
        return 2
    PAGE.write_text(page(kept()))
    print(PAGE.relative_to(ROOT))
    return 0
