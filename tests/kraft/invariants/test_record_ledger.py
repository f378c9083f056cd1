"""Losses that the ledger of records forgives: by power failures, unclean elections and deletions; and others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.invariants.violation import InvariantViolated
from support.invariants.record_cases import FIRST, KEY, SECOND, ThreeReplicas, in_transaction, marker, sent, stored

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


def test_a_record_that_a_broker_has_fetched_again_is_no_loss() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.load(2, power=True)
    run.move(2, FIRST)
    run.lead(2, 2)
    run.move(2, epoch=2, leads=True)
    assert run.ledger.excused == 0


def test_only_the_last_records_may_be_lost_with_a_flush_of_every_second_one() -> None:
    run = ThreeReplicas(flush_messages=2)
    run.commit(FIRST, SECOND)
    run.load(2, FIRST, power=True)
    with pytest.raises(InvariantViolated, match=r"flush\.messages=2 puts all records below offset 1 on disk"):
        run.load(3, power=True)


def test_an_unclean_election_allows_a_loss_and_a_fall_of_the_watermark() -> None:
    run = ThreeReplicas()
    run.partition = replace(run.partition, isr=(1, 2))
    for one in (2, 1):
        run.move(one, FIRST)
    for one in (1, 2):
        run.move(one, watermark=1)
    run.ledger.elected_uncleanly(KEY, 2)
    run.lead(3, 3)
    run.move(3, stored(0, b"other", epoch=2), epoch=2, leads=True)
    run.move(3, watermark=1)
    run.move(2, stored(0, b"other", epoch=2), kept=0, watermark=0, epoch=2)
    run.move(2, watermark=1)
    run.ledger.consumed_by_client(run.replicas[2], 0, stored(0, b"other", epoch=2).content)
    run.move(1, watermark=0, epoch=2, leads=False)
    with pytest.raises(InvariantViolated, match="differ below the high watermark 1"):
        run.move(1, watermark=1)


def test_a_watermark_of_a_former_life_proves_nothing_after_an_unclean_election() -> None:
    """The broker has read the election before it opens its logs, and truncates them next."""
    run = ThreeReplicas()
    run.commit(FIRST)
    run.ledger.elected_uncleanly(KEY, 2)
    run.replicas[2] = replace(run.replicas[2], high_watermark=1, end_offset=1, leader_epoch=2)
    run.ledger.loaded(run.replicas[2], [FIRST], lost_power=False, was_clean=False, was_failing=False)
    run.move(2, kept=0, watermark=0)
    assert list(run.ledger.held_by(2, KEY)) == []


def test_a_replica_that_missed_an_unclean_election_opens_its_old_log() -> None:
    """Seed 2020: the new leader has committed other records at the offsets of the former ones meanwhile."""
    run = ThreeReplicas()
    run.commit(FIRST)
    run.ledger.elected_uncleanly(KEY, 2)
    run.lead(3, 3)
    run.move(3, kept=0, watermark=0, epoch=2, leads=True)
    run.move(3, stored(0, b"other", epoch=2))
    run.move(3, watermark=1)
    run.replicas[2] = replace(run.replicas[2], high_watermark=1, end_offset=1, leader_epoch=2)
    run.ledger.loaded(run.replicas[2], [FIRST], lost_power=True, was_clean=False, was_failing=False)
    run.move(2, kept=0, watermark=0)
    run.move(2, stored(0, b"other", epoch=2), watermark=1)
    assert run.ledger.held_by(2, KEY) == run.ledger.held_by(3, KEY)


def test_answers_of_a_former_leader_after_an_unclean_election_promise_nothing() -> None:
    """Kafka loses such records: the leader and its ISR of one do not know of the election yet."""
    run = ThreeReplicas()
    run.partition = replace(run.partition, isr=(1,))
    run.ledger.elected_uncleanly(KEY, 2)
    run.move(1, FIRST, watermark=1)
    run.ledger.answered(run.replicas[1], 0, sent(b"first"), is_for_all=True)
    run.lead(3, 3)
    run.move(3, epoch=2, leads=True)


def test_deleted_records_need_not_be_anywhere() -> None:
    run = ThreeReplicas()
    run.commit(FIRST, SECOND)
    run.move(1, start=1)
    run.load(3, SECOND, start=1)
    run.lead(3, 3)
    run.move(3, watermark=1, epoch=2, leads=True)


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


def test_a_transaction_is_stable_once_its_marker_is_below_the_watermark() -> None:
    run = ThreeReplicas()
    run.commit(in_transaction(0, b"first"))
    for one in (2, 3, 1):
        run.move(one, marker(1, is_commit=True))
    assert run.ledger.stable_end(1, KEY) == 0
    run.move(1, watermark=2)
    assert run.ledger.stable_end(1, KEY) == 2


def test_a_marker_that_comes_twice_ends_one_transaction() -> None:
    run = ThreeReplicas()
    run.commit(in_transaction(0, b"first"), marker(1, is_commit=True))
    run.move(1, marker(2, is_commit=True))
    run.ledger.marked(run.replicas[1], 5, 1, is_committed=True)
    assert run.ledger.stable_end(1, KEY) == 2


def test_a_start_takes_a_marker_above_the_watermark_for_the_end_of_its_transaction() -> None:
    """Seed 45: Kafka forgets at a start which markers are not replicated yet (`truncateAndReload`)."""
    run = ThreeReplicas()
    batches = in_transaction(0, b"first"), marker(1, is_commit=True)
    run.commit(batches[0])
    run.move(2, batches[1])
    assert run.ledger.stable_end(2, KEY) == 0
    run.load(2, *batches)
    run.move(2, watermark=1)
    assert run.ledger.stable_end(2, KEY) == 1


def test_records_that_an_interrupted_step_has_deleted_are_no_loss() -> None:
    run = ThreeReplicas()
    run.commit(FIRST, SECOND)
    run.ledger.deleted(KEY, 1)
    run.load(2, SECOND, power=False, start=1)
    run.load(3, FIRST, SECOND)


def test_nothing_above_the_watermark_counts_as_deleted() -> None:
    run = ThreeReplicas()
    run.commit(FIRST)
    run.ledger.deleted(KEY, 2)
    run.commit(SECOND)
    with pytest.raises(InvariantViolated, match=r"has lost the committed batch of offsets 1 to 1"):
        run.load(2, FIRST)
