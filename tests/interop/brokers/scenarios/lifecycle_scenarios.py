"""B28 to B33: controllers that are away, kills at full rate, damage, and controlled shutdowns."""

from __future__ import annotations

import json
import os
import time

from support.interop.real_kafka import eventually
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.scenario_client import batch, in_background
from support.scenarios.scenario_cluster import FETCH_WAIT_MS, LAG_MS, SECONDS, Cluster
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error

CLEAN = ".kafka_cleanshutdown"


@scenario("B30")
def records_go_on_without_a_controller_and_the_isr_waits(cluster: Cluster) -> None:
    records_go_on_without_a_controller(cluster)


def records_go_on_without_a_controller(cluster: Cluster) -> None:
    """Pause the controller, or a majority of a quorum: records go on, and the ISR stays as it is."""
    topic = cluster.create("b30")
    leader, _, follower = topic.replicas
    cluster.append(leader, topic, batch(b"0"))
    cluster.pause_controllers()
    try:
        assert cluster.append(leader, topic, batch(b"1")) == 1
        assert cluster.values(leader, topic) == [b"0", b"1"]
        cluster.pause(follower)
        cluster.let_fetches_end(leader, topic, 2, 2 * FETCH_WAIT_MS)
        answer = cluster.produce(leader, topic, batch(b"2"), timeout_ms=LAG_MS * 2)
        # The follower is slow, and no controller takes it out of the ISR.
        assert (Error.of(answer.error_code), answer.base_offset) == (Error.REQUEST_TIMED_OUT, 2)
        assert cluster.watermark(leader, topic) == 2
    finally:
        cluster.resume_controllers()
        cluster.resume(follower)
    for one in topic.replicas:
        cluster.wait_until_active(one)
    cluster.wait_for_isr(topic, *topic.replicas)
    assert cluster.send(lambda: cluster.leader(topic), topic, batch(b"3")) == 3
    cluster.wait_for_equal_logs(topic, 4)


@scenario("B31", by_default=False)
def kills_at_full_rate_lose_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    kill_at_full_rate(cluster, "b31", 6)


def kill_at_full_rate(cluster: Cluster, name: str, kills: int) -> None:
    """Kill the leader, and one of the replicas in turn, again and again; check every message."""
    topic = cluster.create(name, min_insync_replicas="2")
    with ConfluentLoad(cluster, topic, per_second=2000, size=500) as load:
        for number in range(kills):
            load.wait_for_more(500)
            victim = topic.replicas[number % 3] if number % 2 else cluster.leader(topic)
            cluster.kill(victim)
            load.wait_for_more(100)
            cluster.start(victim)
            cluster.wait_for_isr(topic, *topic.replicas)
    load.check()
    cluster.wait_for_equal_logs(topic)


@scenario("B32", by_default=False)
def a_damaged_end_of_a_log_is_cut_and_fetched_again(cluster: Cluster) -> None:
    topic = cluster.create("b32")
    other = cluster.create("b32-other")
    leader, _, follower = topic.replicas
    for one in (topic, other):
        for number in range(5):
            cluster.append(leader, one, batch(b"%d" % number))
    cluster.kill(follower)
    [log] = cluster.directory(follower, topic).glob("*.log")
    os.truncate(log, log.stat().st_size - 7)
    [log] = cluster.directory(follower, other).glob("*.log")
    with log.open("ab") as file:
        file.write(bytes(range(100)))
    cluster.start(follower)
    for one in (topic, other):
        cluster.wait_for_isr(one, *one.replicas)
        cluster.wait_for_equal_logs(one, 5)


@scenario("B33")
def a_controlled_shutdown_fails_no_producer(cluster: Cluster) -> None:
    topic = cluster.create("b33", min_insync_replicas="2")
    leader = cluster.leader(topic)
    with ConfluentLoad(cluster, topic, per_second=200) as load:
        cluster.stop(leader)
        assert cluster.partition(topic).leader not in (-1, leader)
        epoch = cluster.image().brokers.by_id[leader].epoch
        assert json.loads((cluster.log_dir(leader) / CLEAN).read_text()) == {"version": 0, "brokerEpoch": epoch}
        load.wait_for_more(50)
        cluster.start(leader)
        assert not (cluster.log_dir(leader) / CLEAN).exists()
        cluster.wait_for_isr(topic, *topic.replicas)
        load.wait_for_more(50)
    load.check()
    cluster.wait_for_equal_logs(topic)


@scenario("B28", by_default=False)
def an_isr_change_waits_for_the_controller(cluster: Cluster) -> None:
    topic = cluster.create("b28", 2)
    leader, follower = topic.replicas
    cluster.append(leader, topic, batch(b"0"))
    cluster.pause(follower)
    cluster.let_fetches_end(leader, topic, 1, 2 * FETCH_WAIT_MS)
    cluster.pause_controllers()
    try:
        with in_background(lambda: cluster.produce(leader, topic, batch(b"1"), timeout_ms=30_000)) as answer:
            # The proposal to remove the follower is under way after one and a half times the lag.
            until = time.monotonic() + LAG_MS * 1.5 / 1000
            eventually(lambda: time.monotonic() > until or answer.done(), "the leader has waited")
            assert not answer.done()
            cluster.resume_controllers()
            assert answer.result().error_code == Error.NONE
    finally:
        cluster.resume_controllers()
        cluster.resume(follower)
    eventually(lambda: cluster.partition(topic).leader >= 0, "the partition has a leader", SECONDS)
    cluster.wait_for_isr(topic, leader, follower)
    cluster.wait_for_equal_logs(topic, 2)
