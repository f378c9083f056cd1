"""Losses that the ledger of records forgives: by power failures, unclean elections and deletions; and others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.invariants.violation import InvariantViolated
from record_cases import FIRST, KEY, ThreeReplicas, in_transaction, marker, sent, stored

FIRST_OF_ALL = stored(4, b"outside of any transaction")


def test_a_loss_by_power_failures_of_the_whole_isr_is_forgiven() -> None:
    """Without flush.messages, acks=all means the page caches of the ISR, as in Kafka."""
    run = ThreeReplicas()
    run.commit(FIRST)
    for one in (1, 2, 3):
        run.load(one, power=True)
    run.lead(2, 2)
    run.move(2, epoch=2, leads=True)
    assert run.ledger.excused == 1


def test_a_loss_by_power_failure_is_no_excuse_while_a_member_of_the_isr_has_the_record() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.load(2, power=True)
    run.lead(2, 2, 3)
    with pytest.raises(InvariantViolated, match=r"a power failure took it from \[2\]"):
        run.move(2, epoch=2, leads=True)


def test_answers_of_a_former_leader_after_an_unclean_election_promise_nothing() -> None:
    """Kafka loses such records: the leader and its ISR of one do not know of the election yet."""
    run = ThreeReplicas()
    run.partition = replace(run.partition, isr=(1,))
    run.ledger.elected_uncleanly(KEY, 2)
    run.move(1, FIRST, watermark=1)
    run.ledger.answered(run.replicas[1], 0, sent(b"first"), is_for_all=True)
    run.lead(3, 3)
    run.move(3, epoch=2, leads=True)


def test_acks_of_the_leader_alone_promise_nothing() -> None:
    run = ThreeReplicas()
    run.move(1, FIRST)
    run.ledger.answered(run.replicas[1], 0, sent(b"first"), is_for_all=False)
    run.lead(2, 2)
    run.move(2, epoch=2, leads=True)
    assert run.ledger.acknowledgements == 0


def test_a_reader_of_committed_records_that_drops_what_was_aborted_is_sound() -> None:
    run = ThreeReplicas()
    batches = (
        in_transaction(0, b"aborted"),
        marker(1, is_commit=False),
        in_transaction(2, b"committed", sequence=1),
        marker(3, is_commit=True),
        FIRST_OF_ALL,
    )
    run.commit(*batches)
    run.ledger.consumed_by_client(run.replicas[1], 0, b"".join(one.content for one in batches), [(5, 0)])
    assert run.ledger.stable_end(1, KEY) == 5


def test_a_marker_that_comes_twice_ends_one_transaction() -> None:
    run = ThreeReplicas()
    run.commit(in_transaction(0, b"first"), marker(1, is_commit=True))
    run.move(1, marker(2, is_commit=True))
    run.ledger.marked(run.replicas[1], 5, 1, is_committed=True)
    assert run.ledger.stable_end(1, KEY) == 2
