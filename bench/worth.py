"""What each test file costs, and which bugs it was the first to find.

    uv run pytest --full --junitxml=out/tests.xml
    uv run python bench/worth.py out/tests.xml [--rooms tests/kraft/quorum …] [--idle]

Costs are lines and seconds, in the tier of the file: `short`, `sample` if the short run takes some of its cases, `full`
or `soak`. Four kinds of bugs count for a file:

- *mutants* of the source that a test of it was the first to find (`source_mutants/outcomes.jsonl`);
- *planted* bugs that no simulated run sees, and a test of it does (`planted_bugs`);
- *kinds*: bugs that were chosen by kind before any check was tried on them (`kinds_outcomes.json`);
- *mended* faults: commits that brought both a line of the changelog about a fault and a change of the file.

A bug counts for the first test that failed: another one might find it, too. The mutants stand in a few packages, so
that a file with no bug is only a candidate for a look: `--idle` lists these, the dearest first. `.ci/run` writes all
into `out/worth.md`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import msgspec

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from planted_bugs import MUTANTS  # noqa: E402
from support.tiers import LEFT_TO_FULL, read_kept  # noqa: E402

OUTCOMES: Final = ROOT / "bench" / "source_mutants" / "outcomes.jsonl"
KINDS: Final = ROOT / "bench" / "kinds_outcomes.json"
MOST_FILES: Final = 8
"""A commit that changes more test files than these mends more than one fault, and says little about each file."""
COLUMNS: Final = ("mutants", "planted", "kinds", "mended")


class Outcome(msgspec.Struct):
    """Of one mutant, the test that found it; empty where none did."""

    by: str = ""


class Kind(msgspec.Struct):
    """Of one bug that was chosen by its kind, the older test and the check that found it."""

    old: str | None = ""
    new: str | None = ""


class Worth(msgspec.Struct, frozen=True):
    """One test file."""

    file: str
    lines: int
    seconds: float
    tier: str
    bugs: tuple[int, ...]
    """For each of `COLUMNS`."""

    @property
    def is_idle(self) -> bool:
        """Whether the file was the first to find no bug."""
        return not any(self.bugs)


def seconds_of(results: Path) -> dict[str, float]:
    """The seconds of each test file in a file that pytest wrote for `--junitxml`."""
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        words = case.get("classname", "").split(".")
        name = next((word for word in words if word.startswith("test_")), words[-1])
        file = "/".join(words[: words.index(name) + 1]) + ".py"
        seconds[file] = seconds.get(file, 0.0) + float(case.get("time", "0"))
    return seconds


def present(tests: Iterable[str], files: Iterable[str]) -> Counter[str]:
    """How many of the tests are in each file, where a file has moved since in its new place: no two have one name."""
    places = {Path(file).name: file for file in files}
    found = (places.get(Path(test.partition("::")[0]).name) for test in tests)
    return Counter(file for file in found if file is not None)


def tier_of(file: str, kept: Mapping[str, int], text: str) -> str:
    """Which runs take a file: `short` takes it whole, `sample` in part."""
    if "mark.soak" in text and text.count("mark.soak") >= text.count("def test_"):
        return "soak"
    of_file = [count for name, count in kept.items() if name.partition("::")[0] == file]
    return "full" if kept.get(file) == 0 and not any(of_file) else "sample" if of_file else "short"


def mended() -> Iterator[str]:
    """The test files of each commit that adds a line of the changelog about a fault, once for each commit."""
    command = ("git", "log", "--diff-filter=A", "--format=%h", "--", "changelog.d/*fixed*")
    for commit in subprocess.check_output(command, cwd=ROOT, text=True).split():
        show = ("git", "show", "--format=", "--name-only", commit, "--", "tests/test_*", "tests/**/test_*")
        files = subprocess.check_output(show, cwd=ROOT, text=True).split()
        yield from files if len(files) <= MOST_FILES else ()


def found() -> tuple[list[str], ...]:
    """The tests that found bugs first, for each of `COLUMNS`; those of `mended` are files."""
    mutants = [msgspec.json.decode(line, type=Outcome).by for line in OUTCOMES.read_bytes().splitlines()]
    planted = [one.survival.killed_by or "" for one in MUTANTS.values() if one.survival]
    kinds = msgspec.json.decode(KINDS.read_bytes(), type=dict[str, Kind]).values()
    return mutants, planted, [test for one in kinds for test in (one.old, one.new) if test], list(mended())


def judged(
    texts: Mapping[str, str], seconds: Mapping[str, float], kept: Mapping[str, int], tests: Iterable[Iterable[str]]
) -> list[Worth]:
    """All test files, by name and text; those first that found nothing, the dearest ones before the others."""
    bugs = [present(column, texts) for column in tests]
    rows = [
        Worth(file, text.count("\n"), seconds.get(file, 0.0), tier_of(file, kept, text), tuple(c[file] for c in bugs))
        for file, text in texts.items()
    ]
    return sorted(rows, key=lambda row: (sum(row.bugs), -row.seconds, -row.lines, row.file))


def table(rows: Iterable[Worth]) -> Iterator[str]:
    """The rows as a table of a page."""
    yield f"| lines | seconds | tier | {' | '.join(COLUMNS)} | |"
    yield "| --- " * (4 + len(COLUMNS)) + "|"
    for row in rows:
        bugs = " | ".join(str(count or "—") for count in row.bugs)
        yield f"| {row.lines} | {row.seconds:.1f} | {row.tier} | {bugs} | `{row.file}` |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="*", help="what pytest wrote for --junitxml")
    parser.add_argument("--rooms", nargs="+", default=["tests"], metavar="FOLDER", help="only files of these folders")
    parser.add_argument("--idle", action="store_true", help="only files that were the first to find no bug")
    arguments = parser.parse_args()
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    seconds = {file: cost for results in arguments.results for file, cost in seconds_of(results).items()}
    rows = [
        row
        for row in judged(texts, seconds, read_kept(LEFT_TO_FULL.read_text()), found())
        if row.file.startswith(tuple(arguments.rooms)) and (row.is_idle or not arguments.idle)
    ]
    print(*table(rows), sep="\n")
    for name, some in (("all", rows), ("those that found no bug first", [row for row in rows if row.is_idle])):
        lines, cost = sum(row.lines for row in some), sum(row.seconds for row in some)
        print(f"\n{name}: {len(some)} files, {lines:,} lines, {cost:,.0f} s")


if __name__ == "__main__":
    main()
