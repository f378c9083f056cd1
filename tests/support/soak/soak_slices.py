"""Which soak tests one run of continuous integration takes: a tenth of them, in turn, within a bound of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from msgspec import Struct

from support import TESTS
from support.soak.turns import without_parameters

TURNS = 10
"""After so many turns each soak test that is rotated has run."""
SLICE_SECONDS = 400
"""What the lengths of one slice add up to at most. Two processes need between the half and the whole of that."""
UNKNOWN_SECONDS = 60.0
"""The length that is assumed of a test that has not been measured."""
LENGTHS = TESTS / "soak" / "lengths.txt"


class Slice(Struct, frozen=True):
    """The cases that one turn runs, and those that no turn runs."""

    cases: tuple[str, ...]
    """Ids of test cases."""
    seconds: float
    """What their lengths add up to."""
    tests: tuple[str, ...]
    """The tests of these cases: functions, each with one case or more."""
    too_long: Mapping[str, float]
    """Tests that are not rotated, since one case of each takes longer than a slice, with the seconds of one case."""


def by_test(cases: Iterable[str]) -> dict[str, list[str]]:
    """The cases of each test, sorted by name."""
    found: dict[str, list[str]] = {}
    for case in sorted(cases):
        found.setdefault(without_parameters(case), []).append(case)
    return found


def whole_seconds(cases: Iterable[str], lengths: Mapping[str, float]) -> float:
    """The seconds of all cases, one after the other, as far as their lengths are known."""
    return sum(lengths.get(without_parameters(case), UNKNOWN_SECONDS) for case in cases)


def choose(cases: Sequence[str], lengths: Mapping[str, float], turn: int) -> Slice:
    """The slice of a turn: each test has a place among `TURNS`; with time left, the turn takes more cases of its tests.

    Which cases of a test run is drawn from the number of the turn.
    """
    tests = by_test(cases)
    length = {test: lengths.get(test, UNKNOWN_SECONDS) for test in tests}
    too_long = {test: length[test] for test in tests if length[test] > SLICE_SECONDS}
    places: list[list[str]] = [[] for _ in range(TURNS)]
    for test in sorted(set(tests) - set(too_long), key=lambda test: (-length[test], test)):
        min(places, key=lambda place: sum(length[one] for one in place)).append(test)
    mine = sorted(places[turn % TURNS])
    waiting = {test: _shuffled(tests[test], turn) for test in mine}
    chosen: list[str] = []
    seconds = 0.0
    while waiting:
        for test in list(waiting):
            is_first = len(waiting[test]) == len(tests[test])
            if waiting[test] and (is_first or seconds + length[test] <= SLICE_SECONDS):
                chosen.append(waiting[test].pop(0))
                seconds += length[test]
            else:
                del waiting[test]
    return Slice(tuple(sorted(chosen)), seconds, tuple(mine), too_long)


def _shuffled(cases: Sequence[str], turn: int) -> list[str]:
    """The cases of one test in an order that is drawn for this turn."""
    return Random(f"soak:{turn}:{without_parameters(cases[0])}").sample(cases, len(cases))
