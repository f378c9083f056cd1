"""Every check of the invariants can fail, and has its own majority arithmetic and identity of voters."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import belief_cases
import compaction_cases
import consensus_cases
import coordinator_cases
import partition_cases
import record_cases
import share_cases
import simulator_cases
import store_cases
from check_sites import REACHED_BY_RUNS, Case, all_sites, played
from kraft.invariants.majorities import has_voter, is_majority, is_voter, reached_by_majority
from kraft.quorum import voters
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import majority
from planted_bugs import MUTANTS
from scripted_node import VOTERS, uuid
from support import ROOT

CASES: list[Case] = [
    *consensus_cases.CASES.all,
    *partition_cases.CASES.all,
    *record_cases.CASES.all,
    *compaction_cases.CASES.all,
    *coordinator_cases.CASES.all,
    *share_cases.CASES.all,
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


# The invariants have their own majority arithmetic and identity of voters.


OF_A_MAJORITY = (
    "a_leader_has_one_vote_of_three",
    "a_commit_has_no_majority",
    "a_committed_batch_is_on_one_disk_of_three",
    "an_acknowledged_value_is_on_one_disk_of_three",
)


def test_both_majorities_are_equal_for_each_number_of_voters() -> None:
    for total in range(1, 12):
        assert [is_majority(count, total) for count in range(total + 1)] == [
            count >= majority(total) for count in range(total + 1)
        ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=7))
def test_a_majority_has_reached_the_number_in_the_middle(numbers: list[int]) -> None:
    assert reached_by_majority(numbers) == sorted(numbers, reverse=True)[majority(len(numbers)) - 1]


KEYS = [ReplicaKey(node_id, uuid(disk)) for node_id in (1, 2) for disk in (1, 2)] + [ReplicaKey(1), ReplicaKey(2)]


@pytest.mark.parametrize("key", KEYS)
def test_both_identities_of_voters_are_equal(key: ReplicaKey) -> None:
    assert [is_voter(key, disk) for disk in KEYS] == [key.matches(disk) for disk in KEYS]
    assert has_voter(VOTERS, key) is VOTERS.contains(key)


@pytest.mark.parametrize(
    "case", [one for one in consensus_cases.CASES.all if one.name in OF_A_MAJORITY], ids=lambda one: one.name
)
def test_a_wrong_majority_of_the_core_does_not_hide_a_violation(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the voters as a majority in the product, the invariants still count more than a half."""
    monkeypatch.setattr(voters, "majority", lambda count: count // 2)
    assert VOTERS.majority == 1
    violation, _ = played(case)
    assert violation is not None
    assert re.search(case.message, str(violation)), str(violation)
