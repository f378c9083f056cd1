"""Cases that the ledgers of coordinators must allow, though they look wrong."""

from __future__ import annotations

from coordinator_cases import (
    KEY,
    PLACE,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    commit,
    group_of,
    state,
    transactions_of,
)
from record_cases import marker

COMPLETE_COMMIT = 4


def test_an_older_producer_has_many_outcomes_in_one_epoch() -> None:
    """Before KIP-890 an epoch goes on after the end of a transaction."""
    first = state(PREPARE_COMMIT, 1, version=0), state(COMPLETE_COMMIT, 1, version=0)
    ledger = transactions_of(*first, state(PREPARE_ABORT, 1, version=0))
    for commits in (True, False):
        ledger.ended_by(5, 1, commits=commits)
        ledger.appended("output-0", marker(1, is_commit=commits))


def test_the_offset_of_a_transaction_is_acknowledged_after_its_end() -> None:
    """The watermark has passed the record and the marker at once, which has aborted the transaction."""
    ledger = group_of(commit(7, "a", producer_id=5))
    ledger.committed(KEY, marker(1, is_commit=False))
    ledger.pended(KEY, 5, PLACE, "a")
