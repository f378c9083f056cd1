"""The soak tests in portions, each of which a person can start by its name: `uv run poe soak simulation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from support import TESTS
from support.tiers import without_parameters

LENGTHS = TESTS / "soak" / "lengths.txt"
UNKNOWN_SECONDS = 60.0
"""The length that is assumed of a case that has not been measured."""

PORTIONS = {
    "simulation": (
        "tests/kraft/sim/",
        "tests/lab/",
        "tests/kraft/store/",
        "tests/kraft/partitions/",
        "tests/kraft/controller/",
    ),
    "nodes": ("tests/kraft/", "tests/hostile/", "tests/transport/", "tests/docs/", "tests/test_"),
    "files": ("tests/metadata_log/",),
    "spark": ("tests/spark/",),
    "kafka-quorums": ("tests/interop/quorum/", "tests/interop/security/", "tests/interop/controller/"),
    "kafka-brokers": ("tests/interop/brokers/", "tests/interop/fixture/", "tests/interop/logs/"),
    "kafka-repairs": ("tests/interop/", "tests/judges/"),
}
"""The portions, with the beginnings of their files' names. The longest beginning that fits counts."""


def portion_of(nodeid: str) -> str:
    """The portion of a soak test.

    Raises:
        KeyError: the test is in no portion.
    """
    fitting = {start: name for name, starts in PORTIONS.items() for start in starts if nodeid.startswith(start)}
    if not fitting:
        raise KeyError(f"{nodeid} is in no portion of soak: add its folder to {__name__}.PORTIONS")
    return fitting[max(fitting, key=len)]


def whole_seconds(cases: Iterable[str], lengths: Mapping[str, float]) -> float:
    """The seconds of all cases, one after the other, as far as their lengths are known."""
    return sum(lengths.get(without_parameters(case), UNKNOWN_SECONDS) for case in cases)


def read_lengths(text: str) -> dict[str, float]:
    """The seconds of one case of each test, from lines like `12.5 tests/a.py::test_b`; an estimate begins with `~`."""
    rows = (line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(seconds.removeprefix("~")) for seconds, name in rows}


def with_measured(text: str, measured: Mapping[str, float]) -> str:
    """The text of the lengths with these in place of former ones, and of estimates."""
    lines = text.splitlines()
    heading = [line for line in lines if line.startswith("#")]
    rows = {line.split(maxsplit=1)[1]: line for line in lines if line not in heading}
    rows |= {name: f"{seconds:.2g} {name}" for name, seconds in measured.items()}
    return "".join(f"{line}\n" for line in [*heading, *(rows[name] for name in sorted(rows))])
