"""What each test file costs, and how many planted bugs it was the first to find.

    uv run pytest --junitxml=out/tests.xml
    uv run python bench/worth.py out/tests.xml

The bugs are those of `bench/mutate_source.py`, from `source_mutants/outcomes.jsonl`. They stand in a few packages, so
only folders of which some test found one are judged. A bug counts for the first test that failed: another one might
find it, too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import msgspec

OUTCOMES = Path(__file__).parent / "source_mutants" / "outcomes.jsonl"


class Outcome(msgspec.Struct):
    """Of one planted bug, the test that found it; empty where none did."""

    by: str = ""


class Worth(msgspec.Struct, frozen=True):
    """One test file."""

    file: str
    seconds: float
    bugs: int

    @property
    def seconds_a_bug(self) -> float:
        """Infinite where the file was the first to find none."""
        return self.seconds / self.bugs if self.bugs else float("inf")


def seconds_of(results: Path) -> dict[str, float]:
    """The seconds of each test file in a file that pytest wrote for `--junitxml`."""
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        words = case.get("classname", "").split(".")
        name = next((word for word in words if word.startswith("test_")), words[-1])
        file = "/".join(words[: words.index(name) + 1]) + ".py"
        seconds[file] = seconds.get(file, 0.0) + float(case.get("time", "0"))
    return seconds


def judged(seconds: Mapping[str, float], found_by: Iterable[str]) -> list[Worth]:
    """The files in the folders of which some test found a bug; those first that cost most for each bug."""
    bugs = Counter(test.partition("::")[0] for test in found_by if test)
    folders = {file.rpartition("/")[0] for file in bugs}
    rows = [Worth(file, cost, bugs[file]) for file, cost in seconds.items() if file.rpartition("/")[0] in folders]
    return sorted(rows, key=lambda row: (-row.seconds_a_bug, -row.seconds, row.file))


def table(rows: Iterable[Worth]) -> Iterator[str]:
    """The rows as a table of a page."""
    yield "| seconds | bugs | seconds a bug | |\n| --- | --- | --- | --- |"
    for row in rows:
        each = f"{row.seconds_a_bug:.2f}" if row.bugs else "—"
        yield f"| {row.seconds:.1f} | {row.bugs} | {each} | `{row.file}` |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what pytest wrote for --junitxml")
    parser.add_argument("--least", type=float, default=1.0, metavar="SECONDS", help="leave out what costs less")
    arguments = parser.parse_args()
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in OUTCOMES.read_text().splitlines()]
    rows = judged(seconds_of(arguments.results), (outcome.by for outcome in outcomes))
    cost, bugs = sum(row.seconds for row in rows), sum(row.bugs for row in rows)
    print(f"{len(rows)} test files of {cost:.0f} s were the first to find {bugs} of {len(outcomes)} bugs")
    print(*table(row for row in rows if row.seconds >= arguments.least), sep="\n")


if __name__ == "__main__":
    main()
