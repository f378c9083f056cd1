"""B15 to B20: what waits for the ISR, what leaves the ISR, and how a follower returns."""

from __future__ import annotations

import time
from typing import Final

from support.interop.real_kafka import eventually
from support.scenarios.scenario_client import batch, in_background, values_in
from support.scenarios.scenario_cluster import FETCH_WAIT_MS, LAG_MS, Cluster
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error

BRIEF_MS: Final = 700
SOME_MS: Final = LAG_MS + 6000
"""Until an ISR has shrunk by lag, on a machine that does other things."""


@scenario("B15")
def a_producer_waits_for_a_paused_follower_until_it_leaves_the_isr(cluster: Cluster) -> None:
    topic = cluster.create("b15")
    leader, _, follower = topic.replicas
    cluster.append(leader, topic, batch(b"0"))
    cluster.pause(follower)
    cluster.let_fetches_end(leader, topic, 1, 2 * FETCH_WAIT_MS)
    started = time.monotonic()
    answer = cluster.produce(leader, topic, batch(b"1"), timeout_ms=60_000)
    waited_ms = (time.monotonic() - started) * 1000
    assert (answer.error_code, answer.base_offset) == (Error.NONE, 1)
    # The follower was caught up until its last fetch, at most that wait before the produce.
    assert LAG_MS - 4 * FETCH_WAIT_MS <= waited_ms <= SOME_MS
    assert follower not in cluster.partition(topic).isr
    cluster.resume(follower)
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, 2)


@scenario("B16")
def a_producer_times_out_when_the_isr_falls_below_its_minimum(cluster: Cluster) -> None:
    topic = cluster.create("b16", 2, min_insync_replicas="2")
    leader, follower = topic.replicas
    cluster.append(leader, topic, batch(b"0"))
    cluster.pause(follower)
    cluster.let_fetches_end(leader, topic, 1, 2 * FETCH_WAIT_MS)
    answer = cluster.produce(leader, topic, batch(b"1"), timeout_ms=LAG_MS * 2)
    assert (Error.of(answer.error_code), answer.base_offset) == (Error.REQUEST_TIMED_OUT, 1)
    cluster.wait_for_isr(topic, leader)
    # The record is in the log, and no consumer sees it.
    found = cluster.fetch(leader, topic, 1)
    assert (found.error_code, found.high_watermark, values_in(found.records)) == (Error.NONE, 1, [])
    assert cluster.produce(leader, topic, batch(b"2")).error_code == Error.NOT_ENOUGH_REPLICAS
    cluster.resume(follower)
    cluster.wait_for_isr(topic, leader, follower)
    eventually(lambda: cluster.values(leader, topic) == [b"0", b"1"], "the record is visible")
    cluster.wait_for_equal_logs(topic, 2)


@scenario("B17")
def a_batch_that_timed_out_is_found_by_its_retry(cluster: Cluster) -> None:
    topic = cluster.create("b17")
    leader, _, follower = topic.replicas
    producer = cluster.producer_id(leader)
    cluster.append(leader, topic, batch(b"0", producer=producer, sequence=0))
    cluster.pause(follower)
    cluster.let_fetches_end(leader, topic, 1, 2 * FETCH_WAIT_MS)
    data = batch(b"1", producer=producer, sequence=1)
    answer = cluster.produce(leader, topic, data, timeout_ms=BRIEF_MS)
    assert (Error.of(answer.error_code), answer.base_offset) == (Error.REQUEST_TIMED_OUT, 1)
    cluster.resume(follower)
    assert cluster.append(leader, topic, data) == 1
    cluster.wait_for_equal_logs(topic, 2)


@scenario("B18")
def a_slow_follower_leaves_the_isr_and_returns(cluster: Cluster) -> None:
    topic = cluster.create("b18")
    leader, _, follower = topic.replicas
    cluster.append(leader, topic, batch(b"0"))
    cluster.pause(follower)
    cluster.let_fetches_end(leader, topic, 1, 2 * FETCH_WAIT_MS)
    behind = time.monotonic()
    cluster.append(leader, topic, batch(b"1"), acks=1)
    cluster.wait_for_isr(topic, *topic.replicas[:2])
    assert (time.monotonic() - behind) * 1000 >= LAG_MS - 4 * FETCH_WAIT_MS
    assert cluster.append(leader, topic, batch(b"2")) == 2
    cluster.resume(follower)
    cluster.wait_for_isr(topic, *topic.replicas)
    assert cluster.append(leader, topic, batch(b"3")) == 3
    cluster.wait_for_equal_logs(topic, 4)


@scenario("B19")
def a_leader_alone_commits_only_if_one_replica_is_enough(cluster: Cluster) -> None:
    alone = cluster.create("b19-one", 2, min_insync_replicas="1")
    guarded = cluster.create("b19-two", 2, min_insync_replicas="2")
    leader, follower = alone.replicas
    for topic in (alone, guarded):
        cluster.append(leader, topic, batch(b"0"))
    cluster.stop(follower)
    for topic in (alone, guarded):
        cluster.wait_for_isr(topic, leader)
        assert cluster.append(leader, topic, batch(b"1"), acks=1) == 1
    eventually(lambda: cluster.watermark(leader, alone) == 2, "the leader alone commits")
    answer = cluster.produce(leader, guarded, batch(b"2"))
    assert answer.error_code == Error.NOT_ENOUGH_REPLICAS
    assert cluster.watermark(leader, guarded) == 1
    assert cluster.offset_for(leader, guarded, replica_id=-2).offset == 2
    cluster.start(follower)
    for topic in (alone, guarded):
        cluster.wait_for_isr(topic, leader, follower)
        cluster.wait_for_equal_logs(topic, 2)
    eventually(lambda: cluster.watermark(leader, guarded) == 2, "the watermark moves again")


@scenario("B20", by_default=False)
def a_killed_follower_returns_and_catches_up(cluster: Cluster) -> None:
    topic = cluster.create("b20")
    leader, _, follower = topic.replicas
    for number in range(10):
        cluster.append(leader, topic, batch(b"%d" % number))
    cluster.kill(follower)
    for number in range(10, 20):
        cluster.append(leader, topic, batch(b"%d" % number))
    cluster.start(follower)
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, 20)
    eventually(
        lambda: cluster.epochs(follower, topic) == cluster.epochs(leader, topic), "the replicas have the same epochs"
    )
    with in_background(lambda: cluster.produce(leader, topic, batch(b"20"))) as answer:
        assert answer.result().base_offset == 20
