"""The numbers of `kraft.limits` relate to each other and to the turn: each relation is broken once, and named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraft import limits
from kraft.limits import COST_US, PORTION_MS, RELATIONS, broken
from metadata_log.log.snapshot_writer import MAX_BATCH_BYTES

TOO_LONG = {
    f"{portion} fits into a portion": {portion: int(PORTION_MS * 1000 / COST_US[portion]) + 1} for portion in COST_US
}
TOO_LARGE = {
    f"{size} is copied in a portion": {size: (PORTION_MS + 1) * limits.COPIED_BYTES_PER_MS} for size in limits.COPIED
}
BREAKING: dict[str, dict[str, int]] = {
    **TOO_LONG,
    **TOO_LARGE,
    "a portion and the room before it are one turn": {"TURN_MS": 49},
    "a start leaves as much as a turn": {"START_ROOM_MS": 21},
    "the early requests of a turn are decided in a turn": {"EARLY_PER_TURN": 101},
    "a single answer fits into a turn of answers": {"MOST_TOLD": 1025},
    "a transaction of a store fits into a request": {"TRANSACTION_BYTES": (4 << 20) + 1},
    "a store remembers its last transaction": {"TRANSACTION_BYTES": 2 << 20},
    "a lease ends as a whole": {"LEASE_KEYS": 2000},
    "a step of a lease's clock is no lease": {"LEASE_STEP_MS": 3000},
    "what may be atomic fits into a batch": {"RECORDS_PER_OPERATION": 10_001},
    "a batch of a controller is decoded in a turn": {"RECORDS_PER_BATCH": 10_001},
    "a request for partitions is one operation": {"PARTITIONS_PER_REQUEST": 10_001},
    "a run of elections is one operation": {"ELECTIONS_PER_RUN": 10_001},
    "a run of removals is one operation": {"TOKENS_PER_RUN": 10_001},
    "a leader takes a batch of records": {"UNCOMMITTED_RECORDS": 9_999},
    "a record more than a decision's batch still fits": {"DECISION_BATCH_BYTES": (4 << 20) + 1},
    "a batch of a snapshot is one of a log": {"SNAPSHOT_BATCH_BYTES": (8 << 20) + 1},
    "a piece of a state machine's snapshot fits": {"MACHINE_PIECE_BYTES": (4 << 20) + 1},
    "forwarded commands fit into a batch": {"FORWARD_BYTES": (4 << 20) + 1},
    "an observer is sent no more than a voter": {"OBSERVER_ANSWER_BYTES": (8 << 20) + 1},
    "a batch fits into a frame": {"FRAME_BYTES": (16 << 20) - 1},
    "a leader takes more than its program appends": {"OUTSTANDING_APPEND_BYTES": 128 << 20},
    "a leader takes many batches": {"OUTSTANDING_APPEND_BYTES": (32 << 20) - 1},
    "a turn of appends is encoded in a portion": {"APPENDED_BYTES_PER_TURN": 1_051_425},
    "what waits for a controller is counted as unanswered": {"DECISIONS_WAITING": 45_537},
    "what waits at a broker is counted as unanswered": {"REQUESTS_WAITING": 65_537},
    "all that waits at a broker may be verified": {"VERIFICATIONS": 19_999},
    "forwarded entries come in whole requests": {"FORWARDED_ENTRIES": 499},
    "the entries of a request fit into a session": {"SESSION_WINDOW": 499},
    "requests without a connection are few": {"ORPHANED_PRODUCES": 20_000},
    "what unpacks is looked at in every turn": {"UNPACKED_AT_ONCE": 201},
    "the session of a consumer fits into the half of consumers": {"SESSION_PARTITION_BYTES": 6711},
    "a session is told of fewer strangers than it holds": {"SESSION_UNKNOWN_PARTITIONS": 10_001},
    "remembered verdicts take some megabytes": {"VERDICTS": 16_845},
}
"""For each relation, the first number that breaks it."""


def test_the_numbers_relate() -> None:
    assert broken(limits) == []


def test_the_largest_batch_is_that_of_the_files() -> None:
    """What writes and receives snapshots lies below these numbers."""
    assert limits.BATCH_BYTES == MAX_BATCH_BYTES


def test_each_relation_can_be_broken() -> None:
    assert sorted(BREAKING) == sorted(RELATIONS)


@pytest.mark.parametrize("relation", BREAKING)
def test_a_number_that_breaks_a_relation_is_named(relation: str) -> None:
    """Others that depend on the same number may break with it."""
    assert relation in broken(SimpleNamespace(**{**vars(limits), **BREAKING[relation]}))


@pytest.mark.parametrize("relation", [one for one in BREAKING if one not in TOO_LARGE])
def test_one_less_holds(relation: str) -> None:
    """The number stands at the edge of its relation."""
    ((name, value),) = BREAKING[relation].items()
    step = 1 if value < getattr(limits, name) else -1
    assert relation not in broken(SimpleNamespace(**{**vars(limits), name: value + step}))
