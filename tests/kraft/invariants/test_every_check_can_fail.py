"""Every check of the invariants fails in at least one case, and each case fails in its check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planted_bugs import MUTANTS
from support.invariants import (
    belief_cases,
    compaction_cases,
    consensus_cases,
    coordinator_cases,
    partition_cases,
    record_cases,
    simulator_cases,
    store_cases,
)
from support.invariants.check_sites import REACHED_BY_RUNS, Case, all_sites, played

ROOT = Path(__file__).parents[3]
CASES: list[Case] = [
    *consensus_cases.CASES.all,
    *partition_cases.CASES.all,
    *record_cases.CASES.all,
    *compaction_cases.CASES.all,
    *coordinator_cases.CASES.all,
    *belief_cases.CASES.all,
    *simulator_cases.CASES.all,
    *store_cases.CASES.all,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_case_violates_the_invariant(case: Case) -> None:
    violation, _ = played(case)
    assert violation is not None
    assert re.search(case.message, str(violation)), str(violation)


def test_every_place_that_raises_a_violation_is_reached_by_a_case() -> None:
    """The test plays all cases itself, so its result does not depend on the tests that a worker has run before. A new
    place needs a case, or an entry in `REACHED_BY_RUNS` with the mutant that reaches the place.
    """
    reached = {line for case in CASES for line in played(case)[1]}
    sites = all_sites()
    assert len(sites) > 100
    missed = {site.name for site in sites if not any(site.holds(*line) for line in reached)}
    assert sorted(missed.difference(REACHED_BY_RUNS)) == []
    assert sorted(REACHED_BY_RUNS.keys() - missed) == [], "these are reached by a case, or exist no more"
    assert [one for one in REACHED_BY_RUNS.values() if not _exists(one)] == []


def _exists(reached_by: str) -> bool:
    """Whether there is a mutant, or a test as `tests/…/test_….py::test_…`, of this name."""
    path, separator, test = reached_by.partition("::")
    return f"def {test}(" in (ROOT / path).read_text(encoding="utf-8") if separator else reached_by in MUTANTS
