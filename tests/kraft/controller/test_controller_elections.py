"""Elections from time to time: leaders go back to preferred replicas, and the lost ones are replaced where allowed."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from kraft.controller.decision.request_context import DecisionSettings
from kraft.limits import ELECTIONS_PER_RUN
from support.differential.controller_cluster import Cluster
from support.differential.controller_stories import (
    LAST_KNOWN_LEADER_IS_GONE,
    A,
    B,
    C,
    create,
    elections,
    heartbeat,
    isr,
    reassign,
    topic,
)

MINUTES_MS = 60_000
PATIENT = DecisionSettings(broker_session_timeout_ms=10**9)
"""Sessions that do not expire in these tests."""


def test_balancing_begins_above_the_allowed_imbalance_percentage() -> None:
    """`leader.imbalance.per.broker.percentage`: 1 of 4 is 25 %, which is not more than that; 2 of 4 are."""
    cluster = Cluster(A, B, decisions=structs.replace(PATIENT, leader_imbalance_percentage=25))
    cluster.do(create(topic("t", [A, B], [A, B]), topic("alone", [A], [A])))
    cluster.do(heartbeat(A, want_fence=True), heartbeat(A))

    def comes_back_in(number: int) -> None:
        now = cluster.partition("t", number)
        epochs = {"leader_epoch": now.leader_epoch, "partition_epoch": now.partition_epoch}
        cluster.do(isr("t", [A, B], by=now.leader, partition=number, **epochs))

    comes_back_in(0)
    comes_back_in(1)
    before = len(cluster.controller.batches)
    cluster.controller.advance(5 * MINUTES_MS)
    assert cluster.since(before) == [cluster.moved("t", leader=A), cluster.moved("t", 1, leader=A)]
    cluster.do(reassign("t", (1, [B, A])), elections(0, ("t", [1])))
    cluster.do(reassign("t", (1, [A, B])))
    assert [cluster.partition("t", number).leader for number in (0, 1)] == [A, B]
    before = len(cluster.controller.batches)
    cluster.controller.advance(60 * MINUTES_MS)
    assert cluster.since(before) == []


def test_a_balancing_run_elects_1000_leaders_and_the_next_run_follows_at_once() -> None:
    count = ELECTIONS_PER_RUN + 5
    cluster = Cluster(A, B, decisions=PATIENT)
    cluster.do(create(topic("t", *([A, B] for _ in range(count)))), heartbeat(A, want_fence=True), heartbeat(A))
    cluster.do(create(topic("other", [B])))
    for number in range(count):
        cluster.do(isr("t", [A, B], by=B, partition=number, leader_epoch=1, partition_epoch=1))
    before = len(cluster.controller.batches)
    cluster.controller.advance(5 * MINUTES_MS + 10)
    assert [len(batch) for batch in cluster.controller.batches[before:]] == [ELECTIONS_PER_RUN, 5]
    assert {cluster.partition("t", number).leader for number in range(count)} == {A}


def test_an_unclean_election_is_immediate_where_the_topic_allows_one() -> None:
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B], unclean_leader_election_enable="true")), heartbeat(B, want_fence=True))
    cluster.do(heartbeat(B))
    assert cluster.partition("t").isr == (A,)
    gone = cluster.records(heartbeat(A, want_fence=True))
    assert gone == [cluster.moved("t", isr=(B,), leader=B, leader_recovery_state=1), cluster.change(A, fenced=1)]


def test_an_unclean_election_by_request_ignores_what_the_topic_allows() -> None:
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B])), heartbeat(B, want_fence=True), heartbeat(A, want_fence=True), heartbeat(B))
    written = cluster.records(elections(1, ("t", [0])))
    gained: dict[str, Any] = {"isr": (B,), "leader": B, "leader_recovery_state": 1}
    assert written == [cluster.moved("t", **gained, eligible_leader_replicas=(), last_known_elr=())]


def test_a_last_known_leader_without_a_replica_is_not_elected() -> None:
    """Kafka's controller looks for the directory of its replica, which there is no more; it fails, and resigns."""
    cluster = Cluster(A, B, C)
    *steps, last = LAST_KNOWN_LEADER_IS_GONE
    cluster.do(*steps)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.last_known_elr) == ((B,), (), (A,))
    assert cluster.moved("t", eligible_leader_replicas=()) in cluster.records(last)
    assert cluster.partition("t").leader == -1


def test_a_replica_that_was_eligible_is_elected_cleanly() -> None:
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B], min_insync_replicas="2")))
    cluster.do(heartbeat(B, want_fence=True), heartbeat(A, want_fence=True))
    assert set(cluster.partition("t").elr) == {A, B}
    written = cluster.records(heartbeat(B))
    assert written == [
        cluster.change(B, fenced=-1),
        cluster.moved("t", isr=(B,), leader=B, eligible_leader_replicas=(A,), last_known_elr=()),
    ]
