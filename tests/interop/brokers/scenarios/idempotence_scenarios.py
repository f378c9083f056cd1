"""B05 and B06: an idempotent producer's batch is in the log once, whatever ends between two attempts."""

from __future__ import annotations

from collections.abc import Callable

from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error


def offer(
    cluster: Cluster, topic: Topic, producer: tuple[int, int], sequence: int, *values: bytes
) -> tuple[Error, int]:
    """Produce a batch to the leader; returns the error and the offset."""
    data = batch(*(values or (b"v",)), producer=producer, sequence=sequence)
    answer = cluster.produce(cluster.leader(topic), topic, data)
    return Error.of(answer.error_code), answer.base_offset


@scenario("B05")
def the_next_leader_knows_the_batches_of_the_killed_one(cluster: Cluster) -> None:
    topic = cluster.create("b05")
    first = cluster.leader(topic)
    producer = cluster.producer_id(topic.replicas[1])
    for sequence in range(6):
        assert offer(cluster, topic, producer, sequence) == (Error.NONE, sequence)
    cluster.kill(first)
    cluster.wait_for_leader(topic, *topic.replicas[1:])
    again = batch(b"v", producer=producer, sequence=5)
    assert cluster.send(lambda: cluster.leader(topic), topic, again) == 5
    for sequence in (1, 3):
        assert offer(cluster, topic, producer, sequence) == (Error.NONE, sequence)
    assert offer(cluster, topic, producer, 0) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert offer(cluster, topic, producer, 6) == (Error.NONE, 6)
    cluster.start(first)
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, 7)


@scenario("B06", by_default=False)
def a_leader_that_was_stopped_knows_the_last_batch_only(cluster: Cluster) -> None:
    ends_between_retries(cluster, cluster.stop)


@scenario("B06", by_default=False)
def a_leader_that_was_killed_knows_the_last_batch_only(cluster: Cluster) -> None:
    ends_between_retries(cluster, cluster.kill)


def ends_between_retries(cluster: Cluster, end: Callable[[int], None]) -> None:
    """End a leader between two attempts of its producer. A snapshot has one batch of each producer; so has recovery."""
    topic = cluster.create("b06", 1)
    [leader] = topic.replicas
    producer = cluster.producer_id(leader)
    for sequence in range(4):
        assert offer(cluster, topic, producer, sequence) == (Error.NONE, sequence)
    end(leader)
    cluster.start(leader)
    cluster.wait_for_leader(topic, leader)
    assert cluster.send(lambda: leader, topic, batch(b"v", producer=producer, sequence=3)) == 3
    assert offer(cluster, topic, producer, 2) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert offer(cluster, topic, producer, 9) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert offer(cluster, topic, producer, 4) == (Error.NONE, 4)
