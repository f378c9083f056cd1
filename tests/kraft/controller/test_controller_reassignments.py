"""Reassignments from their request to their end: what each step writes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.differential.controller_cluster import Cluster
from support.differential.controller_coverage import error_codes
from support.differential.controller_stories import A, B, C, D, create, isr, reassign, reassignments, topic
from transport.protocol.errors import Error

BEGUN: dict[str, tuple[list[int], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "a newcomer": ([A, C], (A, C, B), (C,), (B,)),
    "two newcomers": ([C, D], (C, D, A, B), (C, D), (A, B)),
    "one more": ([A, B, C], (A, B, C), (C,), ()),
    "another order": ([B, A], (B, A), (), ()),
    "one less": ([B], (B,), (), ()),
}
"""What is asked of [A, B], and then replicas, those being added, those being removed."""
REFUSED: dict[str, tuple[list[int] | None, Error]] = {
    "no replica": ([], Error.INVALID_REPLICA_ASSIGNMENT),
    "a replica twice": ([A, A], Error.INVALID_REPLICA_ASSIGNMENT),
    "an unknown broker": ([A, 99], Error.INVALID_REPLICA_ASSIGNMENT),
    "an end to what has not begun": (None, Error.NO_REASSIGNMENT_IN_PROGRESS),
}


def cluster() -> Cluster:
    made = Cluster(A, B, C, D)
    made.do(create(topic("t", [A, B])))
    return made


@pytest.mark.parametrize("what", BEGUN)
def test_a_reassignment_begins_with_added_and_removed_replicas(what: str) -> None:
    target, replicas, adding, removing = BEGUN[what]
    on = cluster()
    assert set(error_codes(on.do(reassign("t", (0, target))))) == {Error.NONE}
    partition = on.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (replicas, adding, removing)
    assert bool(on.do(reassignments())["topics"]) == bool(adding or removing)


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_reassignments_are_refused_and_write_nothing(what: str) -> None:
    target, error = REFUSED[what]
    on = cluster()
    before = len(on.controller.batches)
    assert error in set(error_codes(on.do(reassign("t", (0, target)))))
    assert on.since(before) == []


def test_a_reassignment_completes_when_the_last_new_replica_is_in_sync() -> None:
    on = cluster()
    on.do(reassign("t", (0, [C, B])))
    answer = on.do(isr("t", [A, B, C], by=A, partition_epoch=1))
    assert Error.NEW_LEADER_ELECTED in set(error_codes(answer))
    partition = on.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((C, B), (B, C), C)
    assert not partition.is_reassigning


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from([A, B, C, D]), min_size=1, max_size=3, unique=True) | st.none(), max_size=5))
def test_a_reassignment_keeps_the_isr_and_can_be_cancelled(targets: list[list[int] | None]) -> None:
    on = cluster()
    for target in targets:
        on.do(reassign("t", (0, target)))
        now = on.partition("t")
        assert now.leader in now.isr
        assert set(now.isr) <= set(now.replicas)
        assert set(now.adding_replicas) | set(now.removing_replicas) <= set(now.replicas)
        assert not set(now.adding_replicas) & set(now.removing_replicas)
    on.do(reassign("t", (0, None)))
    assert not on.partition("t").is_reassigning
