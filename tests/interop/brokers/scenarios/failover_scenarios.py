"""B21 to B25: leaders fail, with records on no follower or on some; unclean elections; the last replicas of an ISR."""

from __future__ import annotations

from support.interop.real_kafka import eventually
from support.scenarios.reassignment_scenarios import elect
from support.scenarios.scenario_client import LATEST, batch
from support.scenarios.scenario_cluster import FETCH_WAIT_MS, SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error

UNCLEAN = 1


def wait_for_equal_epochs(cluster: Cluster, topic: Topic) -> None:
    """Wait until all replicas have the same leader epochs with the same start offsets."""
    eventually(
        lambda: len({cluster.epochs(one, topic) for one in topic.replicas}) == 1,
        f"the replicas of {topic.name} have the same epochs",
        SECONDS,
    )


def written(cluster: Cluster, topic: Topic) -> list[bytes | None]:
    """The values that a consumer sees at the leader, once the watermark is at the end of the log."""
    leader = cluster.leader(topic)
    eventually(
        lambda: cluster.watermark(leader, topic) == cluster.offset_for(leader, topic, LATEST, replica_id=-2).offset,
        "all is committed",
        SECONDS,
    )
    return cluster.values(leader, topic)


@scenario("B21")
def a_tail_on_no_follower_is_truncated_when_its_leader_returns(cluster: Cluster) -> None:
    topic = cluster.create("b21")
    leader, *followers = topic.replicas
    for number in range(3):
        cluster.append(leader, topic, batch(b"kept %d" % number))
    for one in followers:
        cluster.pause(one)
    cluster.let_fetches_end(leader, topic, 3, 2 * FETCH_WAIT_MS)
    for _ in range(2):
        cluster.append(leader, topic, batch(b"lost"), acks=1)
    cluster.kill(leader)
    for one in followers:
        cluster.resume(one)
    cluster.wait_for_leader(topic, *followers)
    assert cluster.send(lambda: cluster.leader(topic), topic, batch(b"next")) == 3
    assert len(cluster.batches(leader, topic)) == 5
    cluster.start(leader)
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, 4)
    wait_for_equal_epochs(cluster, topic)
    assert written(cluster, topic) == [b"kept 0", b"kept 1", b"kept 2", b"next"]


@scenario("B22", by_default=False)
def a_follower_that_is_longer_than_the_new_leader_truncates(cluster: Cluster) -> None:
    topic = cluster.create("b22")
    leader, shorter, longer = topic.replicas
    cluster.append(leader, topic, batch(b"kept"))
    cluster.pause(shorter)
    cluster.let_fetches_end(leader, topic, 1, 2 * FETCH_WAIT_MS)
    cluster.append(leader, topic, batch(b"lost"), acks=1)
    eventually(lambda: len(cluster.batches(longer, topic)) == 2, "one follower has the record")
    cluster.kill(leader)
    cluster.resume(shorter)
    assert cluster.wait_for_leader(topic, shorter, longer) == shorter
    assert cluster.send(lambda: cluster.leader(topic), topic, batch(b"next")) == 1
    cluster.start(leader)
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, 2)
    wait_for_equal_epochs(cluster, topic)
    assert written(cluster, topic) == [b"kept", b"next"]


@scenario("B23", by_default=False)
def a_leader_that_missed_two_elections_ends_with_the_same_epochs(cluster: Cluster) -> None:
    topic = cluster.create("b23")
    first, second, third = topic.replicas
    cluster.append(first, topic, batch(b"0"))
    for one in (second, third):
        cluster.pause(one)
    cluster.let_fetches_end(first, topic, 1, 2 * FETCH_WAIT_MS)
    cluster.append(first, topic, batch(b"lost"), acks=1)
    cluster.kill(first)
    for one in (second, third):
        cluster.resume(one)
    cluster.wait_for_leader(topic, second)
    # The second leader gets no record: its epoch is empty.
    cluster.stop(second)
    cluster.wait_for_leader(topic, third)
    assert cluster.send(lambda: third, topic, batch(b"1")) == 1
    cluster.start(first, second)
    cluster.wait_for_isr(topic, *topic.replicas)
    assert cluster.append(third, topic, batch(b"2")) == 2
    cluster.wait_for_equal_logs(topic, 3)
    wait_for_equal_epochs(cluster, topic)
    assert written(cluster, topic) == [b"0", b"1", b"2"]


@scenario("B24", by_default=False)
def an_unclean_election_loses_the_same_records_everywhere(cluster: Cluster) -> None:
    topic = cluster.create("b24", 2)
    leader, outside = topic.replicas
    cluster.append(leader, topic, batch(b"kept"))
    cluster.wait_for_equal_logs(topic, 1)
    cluster.stop(outside)
    cluster.wait_for_isr(topic, leader)
    for _ in range(2):
        assert cluster.produce(leader, topic, batch(b"lost")).error_code == Error.NONE
    assert cluster.watermark(leader, topic) == 3
    cluster.kill(leader)
    cluster.start(outside)
    eventually(lambda: not cluster.is_active(leader), "the killed leader is fenced", SECONDS)
    assert cluster.partition(topic).leader == -1
    elect(cluster, topic, UNCLEAN)
    assert cluster.wait_for_leader(topic, outside)
    assert cluster.send(lambda: outside, topic, batch(b"next")) == 1
    assert cluster.fetch(outside, topic, 3).error_code == Error.OFFSET_OUT_OF_RANGE
    cluster.start(leader)
    cluster.wait_for_isr(topic, leader, outside)
    cluster.wait_for_equal_logs(topic, 2)
    wait_for_equal_epochs(cluster, topic)
    assert written(cluster, topic) == [b"kept", b"next"]


@scenario("B25", by_default=False)
def a_replica_that_was_killed_is_not_eligible(cluster: Cluster) -> None:
    topic = cluster.create("b25", 2, min_insync_replicas="2")
    leader, follower = topic.replicas
    cluster.append(leader, topic, batch(b"0"))
    cluster.kill(follower)
    cluster.wait_for_isr(topic, leader)
    eventually(lambda: follower in cluster.partition(topic).elr, "the follower is eligible", SECONDS)
    cluster.kill(leader)
    cluster.wait_for_isr(topic)
    assert set(cluster.partition(topic).elr) == {leader, follower}
    cluster.start(follower)
    cluster.wait_until_active(follower)
    partition = cluster.partition(topic)
    assert (partition.leader, partition.elr) == (-1, (leader,))
    cluster.start(leader)
    # No replica is eligible any more; the last leader that is known leads again.
    assert cluster.wait_for_leader(topic, leader)
    cluster.wait_for_isr(topic, leader, follower)
    cluster.wait_for_equal_logs(topic, 1)
    assert written(cluster, topic) == [b"0"]


@scenario("B29", by_default=False)
def a_controller_that_ends_during_an_election_changes_nothing(cluster: Cluster) -> None:
    topic = cluster.create("b29")
    leader, *followers = topic.replicas
    for number in range(3):
        cluster.append(leader, topic, batch(b"%d" % number))
    eventually(lambda: cluster.values(followers[0], topic) == [b"0", b"1", b"2"], "the followers know the watermark")
    cluster.kill(leader)
    cluster.kill_controller()
    assert cluster.values(followers[0], topic) == [b"0", b"1", b"2"]
    cluster.start_controllers()
    cluster.wait_for_leader(topic, *followers)
    assert cluster.send(lambda: cluster.leader(topic), topic, batch(b"3")) == 3
    cluster.kill_controller()
    cluster.launch(leader)
    cluster.start_controllers()
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic, 4)
    wait_for_equal_epochs(cluster, topic)
    assert written(cluster, topic) == [b"0", b"1", b"2", b"3"]
