"""B26: replicas are added, removed and swapped while producers write."""

from __future__ import annotations

from support.interop.real_kafka import eventually
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from transport.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

PREFERRED = 0


def reassign(cluster: Cluster, topic: Topic, replicas: tuple[int, ...], number: int = 0) -> Topic:
    """Move a partition, and wait for the end of the move; returns the topic with its new replicas."""
    named = ReassignableTopic(topic.name, [ReassignablePartition(number, list(replicas))])
    request = AlterPartitionReassignmentsRequest(topics=[named])
    answer = cluster.ask(cluster.alive[0], request, 1, AlterPartitionReassignmentsResponse)
    assert answer.error_code == Error.NONE, answer
    assert answer.responses[0].partitions[0].error_code == Error.NONE, answer
    cluster.disturb()

    def is_moved() -> bool:
        partition = cluster.partition(topic, number)
        return not partition.is_reassigning and partition.replicas == replicas

    eventually(is_moved, f"{topic.name} is at {replicas}", SECONDS)
    return Topic(topic.name, topic.id, replicas)


def elect(cluster: Cluster, topic: Topic, kind: int = PREFERRED, number: int = 0) -> None:
    """Elect a leader: the first replica, or with an unclean election one outside the ISR."""
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[TopicPartitions(topic.name, [number])])
    answer = cluster.ask(cluster.alive[0], request, 2, ElectLeadersResponse)
    assert answer.error_code == Error.NONE, answer
    errors = {one.error_code for each in answer.replica_election_results for one in each.partition_result}
    assert errors <= {Error.NONE, Error.ELECTION_NOT_NEEDED}, answer


def wait_until_gone(cluster: Cluster, topic: Topic, broker: int) -> None:
    """Wait until a broker has removed the directory of a replica, and what it was renamed to."""
    eventually(
        lambda: not list(cluster.log_dir(broker).glob(f"{topic.name}-0*")),
        f"{broker} has removed {topic.name}",
        SECONDS,
    )


@scenario("B26")
def replicas_are_added_removed_and_swapped_under_load(cluster: Cluster) -> None:
    first, second, third = cluster.order[:3]
    topic = cluster.create("b26", (first, second))
    with ConfluentLoad(cluster, topic, per_second=200) as load:
        topic = reassign(cluster, topic, (first, second, third))
        load.wait_for_more(50)
        topic = reassign(cluster, topic, (second, third))
        load.wait_for_more(50)
        topic = reassign(cluster, topic, (first,))
        load.wait_for_more(50)
        topic = reassign(cluster, topic, (third, second))
        load.wait_for_more(50)
    load.check()
    cluster.wait_for_isr(topic, second, third)
    cluster.wait_for_equal_logs(topic)
    wait_until_gone(cluster, topic, first)
