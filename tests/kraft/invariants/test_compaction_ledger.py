"""Losses that the ledger of compacted partitions forgives: by power failures and unclean elections; and others."""

from __future__ import annotations

import pytest

from compaction_cases import FULL, KEY, TwoReplicas, content, replica
from kraft.invariants.violation import InvariantViolated

SHORT = content((b"a", b"1"), (b"b", b"2"))


def test_a_loss_by_power_failures_of_the_whole_isr_is_forgiven() -> None:
    run = TwoReplicas()
    for one in (1, 2):
        run.restart(one, power=True)
    run.lead(2, 0)
    run.ledger.looked(replica(2, 2, epoch=2, leader=2), SHORT)
    run.ledger.looked(replica(1, 0, epoch=2, leader=2), b"")
    run.ledger.concluded(KEY, "compacted-0", [1, 2])


def test_a_follower_cuts_what_the_leader_of_an_unclean_election_lacks() -> None:
    run = TwoReplicas()
    run.ledger.elected_uncleanly(KEY, 2)
    run.lead(2, 3)
    run.ledger.looked(replica(1, 2, committed=2, epoch=2, leader=2), SHORT)


def test_a_follower_of_the_same_epoch_cuts_nothing_that_is_committed() -> None:
    run = TwoReplicas()
    with pytest.raises(InvariantViolated, match="has cut compacted-0 to offset 2"):
        run.ledger.looked(replica(2, 2, committed=2), SHORT)


def test_a_replica_that_has_fetched_all_again_lacks_nothing() -> None:
    """The other member of the ISR still lacks the records, and may not lead."""
    run = TwoReplicas()
    for one in (1, 2):
        run.restart(one, power=True)
    run.ledger.looked(replica(1, 3, committed=0), FULL)
    with pytest.raises(InvariantViolated, match=r"from \[2\] of \[1, 2\] only"):
        run.lead(2, 0)


def test_one_power_failure_excuses_no_difference_at_the_end() -> None:
    """The replica fetches from its end on, so that it has every last value again."""
    run = TwoReplicas()
    run.restart(2, power=True)
    run.ledger.looked(replica(2, 3), content((b"a", b"1"), (b"b", b"2"), (b"b", b"4")))
    with pytest.raises(InvariantViolated, match="differ on the brokers 1 and 2"):
        run.ledger.concluded(KEY, "compacted-0", [1, 2])


def test_later_leaders_may_lack_the_records_from_before_an_unclean_election() -> None:
    run = TwoReplicas()
    run.ledger.elected_uncleanly(KEY, 2)
    run.lead(2, 0)
    run.ledger.looked(replica(1, 0, epoch=2, leader=2), b"")
    run.ledger.looked(replica(1, 0, epoch=3), b"")
