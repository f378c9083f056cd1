"""B31 and B39 at length: pauses of half a minute, thousands of parked writes."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final

from connection_scenarios import descriptors, rss
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import SECONDS, Cluster
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error
from transport.protocol.messages.produce import ProduceResponse

PAUSE_SECONDS: Final = 30
PARKED: Final = 3_000
PARKED_BYTES: Final = 40 << 10
"""The memory of one parked write with its connection, at most."""
OWN_FILES: Final = 2_000


@scenario("B31", by_default=False)
def pauses_of_half_a_minute_lose_nothing(cluster: Cluster) -> None:
    """Each role in turn is stopped (SIGSTOP) for longer than any session: the leader, a follower, the controller."""
    topic = cluster.create("b31-pauses", min_insync_replicas="2")
    with ConfluentLoad(cluster, topic, per_second=200, size=200) as load:
        for role in ("leader", "follower", "controller"):
            load.wait_for_more(100)
            leader = cluster.leader(topic)
            paused = leader if role == "leader" else next(one for one in topic.replicas if one != leader)
            if role == "controller":
                cluster.pause_controllers()
            else:
                cluster.pause(paused)
            threading.Event().wait(PAUSE_SECONDS)  # The length of the pause is what this tries.
            if role == "controller":
                cluster.resume_controllers()
            else:
                cluster.resume(paused)
            for one in topic.replicas:
                cluster.wait_until_active(one)
            cluster.wait_for_isr(topic, *topic.replicas)
        load.wait_for_more(100)
    load.check()
    cluster.wait_for_equal_logs(topic)


@scenario("B39", by_default=False)
def thousands_of_parked_writes_are_answered(cluster: Cluster) -> None:
    """Writes with acks=all wait for followers that are stopped; the ISR shrinks, and all of them are answered."""
    topic = cluster.create("b39-parked")
    leader, *followers = topic.replicas
    cluster.append(leader, topic, batch(b"first"))
    with descriptors(PARKED + OWN_FILES) as allowed, ExitStack() as open_connections:
        wanted = min(PARKED, allowed - OWN_FILES)
        before = rss(cluster, leader)
        many = [
            open_connections.enter_context(cluster.connected(leader, source=f"127.0.3.{at % 100 + 1}"))
            for at in range(wanted)
        ]
        for one in followers:
            cluster.pause(one)
        for at, connection in enumerate(many):
            connection.send(cluster.produce_request(topic, batch(b"%d" % at), timeout_ms=SECONDS * 1000), 13)
        offsets: list[int] = []
        for connection in many:
            answer = connection.answer(13, ProduceResponse)
            [part] = answer.responses[0].partition_responses
            assert part.error_code == Error.NONE, Error.of(part.error_code)
            offsets.append(part.base_offset)
        assert sorted(offsets) == list(range(1, wanted + 1))
        grown = rss(cluster, leader) - before
        print(f"{wanted} parked writes; {grown >> 20} MiB more memory, {grown // wanted} bytes for each")
        assert grown < wanted * PARKED_BYTES
        for one in followers:
            cluster.resume(one)
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, wanted + 1)
