"""The three tiers of tests: the short run, the full run, and soak.

`uv run pytest` is the short run, the same for everybody. `uv run pytest --full` takes all tests that are not marked
`soak`. `uv run poe soak PORTION` takes those. `tests/full.txt` lists what the short run leaves to the full one: how
many cases it keeps, and of which case, test or file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pytest
from msgspec import Struct

from support import TESTS

LEFT_TO_FULL = TESTS / "full.txt"
IS_SHORT = pytest.StashKey[bool]()
"""In the configuration of pytest: whether this run is the short one."""
KEPT = pytest.StashKey[dict[str, int]]()
"""There, too: the table, in a short run."""


class Size(Struct, frozen=True):
    """About how large a tier is, for its first line."""

    tests: int
    minutes: float
    """On two quick cores with nothing else to do."""


SHORT = Size(tests=10_700, minutes=5)
FULL = Size(tests=20_200, minutes=32)

KINDS = {
    "transcripts": ("transcripts",),
    "vectors": (
        "tests/metadata_log/serde/",
        "tests/metadata_log/records/",
        "tests/transport/protocol/",
        "tests/kraft/kinds/",
    ),
    "simulation": ("tests/kraft/sim/", "tests/kraft/invariants/", "test_random_", "_simulated"),
    "processes": (
        "tests/kraft/node/",
        "tests/kraft/cli/",
        "tests/hostile/",
        "tests/kraft/test_testing_",
        "tests/test_processes",
        "tests/test_quickstart",
        "tests/docs/",
        "tests/test_docs",
        "tests/spark/",
    ),
    "beside Kafka": ("tests/interop/",),
}
"""What kinds of proof there are, by parts of the names of their files. The last kind that fits counts."""
REST = "rules"
"""The kind of all others: one rule each, in one process."""


def without_parameters(case: str) -> str:
    """The function of a case."""
    return case.partition("[")[0]


def kind_of(nodeid: str) -> str:
    """The kind of proof of a test."""
    file = nodeid.partition("::")[0]
    fitting = [kind for kind, parts in KINDS.items() if any(part in file for part in parts)]
    return fitting[-1] if fitting else REST


def read_kept(text: str) -> dict[str, int]:
    """How many cases of a test or a file the short run keeps, from lines like `12 tests/a.py::test_b`."""
    rows = (line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: int(kept) for kept, name in rows}


def sample(cases: Sequence[str], count: int) -> list[str]:
    """So many of the cases, from the first on, at equal distances."""
    count = min(count, len(cases))
    return [cases[place * len(cases) // count] for place in range(count)]


def left_files(kept: Mapping[str, int]) -> set[str]:
    """The files of which the short run keeps nothing."""
    files = {name for name, count in kept.items() if "::" not in name and not count}
    return files - {name.partition("::")[0] for name, count in kept.items() if count}


def left_to_full(cases: Iterable[str], kept: Mapping[str, int]) -> set[str]:
    """The cases that the short run leaves out."""
    listed: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        file, test = case.partition("::")[0], without_parameters(case)
        name = next((one for one in (case, test, file) if one in kept), None)
        if name is not None:
            listed[name].append(case)
    return {case for name, some in listed.items() for case in set(some) - set(sample(some, kept[name]))}


def first_line(is_short: bool) -> str:
    """What a run of the suite is, and how to have the other."""
    if not is_short:
        return (
            f"the full run: about {FULL.tests:,} tests, {FULL.minutes:g} minutes; soak is apart: uv run poe soak --list"
        )
    return (
        f"about {SHORT.tests:,} tests, {SHORT.minutes:g} minutes;"
        f" everything: uv run pytest --full, about {FULL.minutes:g} minutes"
    )
