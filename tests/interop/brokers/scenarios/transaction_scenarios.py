"""B07 and B08: transactions of both versions, and their coordinator.

A broker of Kafka coordinates where there is one, a broker of ours elsewhere.
"""

from __future__ import annotations

from typing import Final

from failover_scenarios import wait_for_equal_epochs
from support.scenarios.scenario_client import batch, in_background, values_in
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario
from transactions_by_hand import TV1, TV2, Producer, committed, read, wait_until_stable
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STATE: Final = "__transaction_state"


def coordinator(cluster: Cluster) -> int:
    """The broker that coordinates transactions, one of Kafka where there is one; makes the topic of their states."""
    able = [broker for broker, make in cluster.makes.items() if make == "kafka"] or list(cluster.makes)
    if STATE not in cluster.image().topics:
        creatable = CreatableTopic(
            name=STATE,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(0, able[:1])],
            configs=[CreatableTopicConfig("cleanup.policy", "compact")],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=SECONDS * 1000)
        [made] = cluster.ask(cluster.alive[0], request, 7, CreateTopicsResponse).topics
        assert made.error_code == Error.NONE, made
    return able[0]


def aborted_after_a_stop(cluster: Cluster, topic: Topic) -> bytes:
    """Stop all replicas, so that each writes its index files; returns the aborted transactions, equal on all."""
    for one in topic.replicas:
        cluster.stop(one)
    found = [
        b"".join(path.read_bytes() for path in sorted(cluster.directory(one, topic).glob("*.txnindex")))
        for one in topic.replicas
    ]
    assert found[0] == found[1] == found[2]
    cluster.start(*topic.replicas)
    return found[0]


INDEX_ENTRY: Final = 34
"""The bytes of an entry of an aborted transaction."""


@scenario("B07", by_default=False)
def transactions_of_both_versions_end_between_one_another(cluster: Cluster) -> None:
    coordinator(cluster)
    topic = cluster.create("b07")
    first, second, forever = (
        Producer(cluster, f"{topic.name}-{name}", version) for name, version in (("a", TV1), ("b", TV2), ("c", TV1))
    )
    assert [first.send(topic, b"a0"), second.send(topic, b"b0"), forever.send(topic, b"c0")] == [0, 1, 2]
    assert cluster.append(cluster.leader(topic), topic, batch(b"plain")) == 3
    assert read(cluster, topic).last_stable_offset == 0
    first.end(commits=True)
    wait_until_stable(cluster, topic, 1)
    second.end(commits=False)
    wait_until_stable(cluster, topic, 2)
    found = read(cluster, topic)
    assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []] == [
        (second.identity[0], 1)
    ]
    assert [offset for offset, _ in values_in(found.records)] == [0, 1]
    second.send(topic, b"b1")
    second.end(commits=True)
    # One transaction stays open, and the stable offset with it, whatever ends after it and whatever leads.
    leader = cluster.leader(topic)
    cluster.stop(leader)
    cluster.wait_for_leader(topic, *topic.replicas[1:])
    wait_until_stable(cluster, topic, 2)
    cluster.start(leader)
    cluster.wait_for_isr(topic, *topic.replicas)
    forever.end(commits=False)
    wait_until_stable(cluster, topic, 9)
    cluster.wait_for_equal_logs(topic, 9)
    assert committed(cluster, topic) == [b"a0", b"plain", b"b1"]
    wait_for_equal_epochs(cluster, topic)
    assert len(aborted_after_a_stop(cluster, topic)) == 2 * INDEX_ENTRY


@scenario("B07", by_default=False)
def a_transaction_that_its_producer_left_is_aborted(cluster: Cluster) -> None:
    coordinator(cluster)
    topic = cluster.create("b07-left")
    for version in (TV1, TV2):
        producer = Producer(cluster, f"{topic.name}-{version}", version, timeout_ms=1500)
        offset = producer.send(topic, b"left")
        assert read(cluster, topic).last_stable_offset == offset
        wait_until_stable(cluster, topic, offset + 2)
        assert producer.offer(topic, b"late").error_code == Error.INVALID_PRODUCER_EPOCH
    assert committed(cluster, topic) == []
    cluster.wait_for_equal_logs(topic, 4)


@scenario("B08", by_default=False)
def a_leader_asks_the_coordinator_before_it_appends(cluster: Cluster) -> None:
    state = coordinator(cluster)
    topic = cluster.create("b08", tuple(one for one in cluster.order if one != state))
    producer = Producer(cluster, topic.name, TV1)
    unverified = {10: Error.INVALID_TXN_STATE, 11: Error.TRANSACTION_ABORTABLE}
    for version, error in unverified.items():
        assert Error.of(producer.offer(topic, b"not added", version).error_code) == error, version
    producer.add(topic)
    stranger = Producer(cluster, f"{topic.name}-other", TV1)
    stranger.name = producer.name
    assert stranger.offer(topic, b"other id").error_code == Error.INVALID_PRODUCER_ID_MAPPING
    # A later producer with the same transactional id fences the earlier one.
    later = Producer(cluster, topic.name, TV1)
    assert later.identity[0] == producer.identity[0]
    assert later.identity[1] > producer.identity[1]
    assert producer.offer(topic, b"fenced").error_code == Error.INVALID_PRODUCER_EPOCH
    # The transaction of the earlier one is aborted: its marker is all that the log has.
    wait_until_stable(cluster, topic, 1)
    assert [one.is_control for one in cluster.wait_for_equal_logs(topic, 1)] == [True]
    later.add(topic)
    cluster.pause(state)
    try:
        with in_background(lambda: later.offer(topic, b"kept")) as waiting:
            # A slow coordinator holds up the requests of its producers, and of no others.
            assert cluster.append(cluster.leader(topic), topic, batch(b"plain")) == 1
            assert not waiting.done()
            cluster.resume(state)
            answer = waiting.result()
    finally:
        cluster.resume(state)
    assert (Error.of(answer.error_code), answer.base_offset) == (Error.NONE, 2)
    later.sequences[topic.name] = 1
    # While the coordinator is away, a partition that is in the transaction goes on, and another one waits.
    other = cluster.create("b08-other", topic.replicas)
    later.add(other)
    cluster.kill(state)
    assert later.offer(topic, b"open").base_offset == 3
    assert Error.of(later.offer(other, b"unverified").error_code) == Error.NOT_ENOUGH_REPLICAS
    cluster.start(state)
    later.sequences[topic.name] = 2
    later.send(other, b"verified")
    later.end(commits=True)
    wait_until_stable(cluster, topic, 5)
    assert committed(cluster, topic) == [b"plain", b"kept", b"open"]
    assert committed(cluster, other) == [b"verified"]
    cluster.wait_for_equal_logs(topic, 5)
