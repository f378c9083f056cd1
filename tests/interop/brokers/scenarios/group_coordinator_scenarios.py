"""C01 to C18: classic groups and their offsets, at any make of coordinator, whose process dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import (
    OURS,
    PARTITIONS,
    TOPIC_OF,
    Member,
    commit,
    committed,
    coordinated,
    coordinator_of,
    fail_over,
    found_coordinator,
    fresh,
    partition_of,
    settle,
    stable_group,
    wait_for_rebalance,
)
from support.scenarios.scenario_cluster import SECONDS, Cluster
from transport.protocol.errors import Error
from transport.protocol.messages.join_group import JoinGroupResponse


@coordinated("C01", by_default=("ours", "mixed", "jvm"))
def a_coordinator_is_the_leader_of_the_partition_of_the_key(cluster: Cluster) -> None:
    for kind, topic in TOPIC_OF.items():
        for key in ("", "g", "ä-ß", "𝄞", "polygenelubricants"):
            coordinator = coordinator_of(cluster, key, kind)
            image = cluster.image().topics[topic]
            assert len(image.partitions) == PARTITIONS
            assert image.partitions[partition_of(key)].leader == coordinator
            configs = dict(cluster.image().configs.of((2, topic)))
            assert configs["cleanup.policy"] == "compact"
    assert found_coordinator(cluster, "g", 7).error_code == Error.INVALID_REQUEST


@coordinated("C05")
def a_member_that_waited_at_a_dead_coordinator_is_unknown(cluster: Cluster) -> None:
    [leader] = stable_group(cluster)
    waiting = Member(cluster, leader.group)
    waiting.id = waiting.join_once().member_id
    with ThreadPoolExecutor(1) as pool:
        broker = coordinator_of(cluster, leader.group)
        held = pool.submit(cluster.ask, broker, waiting.joining(), 9, JoinGroupResponse)
        wait_for_rebalance(leader)
        fail_over(cluster, leader.group)
        assert isinstance(held.exception(SECONDS), AssertionError | OSError)
    assert waiting.join_once().error_code == Error.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == Error.NONE, "the group is as it was written"


def two_joined(cluster: Cluster) -> tuple[Member, Member]:
    """The leader of a group and a new member, who know their generation and have no assignments in it yet."""
    [leader] = stable_group(cluster)
    joiner = Member(cluster, leader.group)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(joiner.join)
        wait_for_rebalance(leader)
        assert [leader.join().error_code, joining.result().error_code] == [Error.NONE, Error.NONE]
    assert leader.generation == joiner.generation
    return leader, joiner


@coordinated("C07")
def a_generation_without_assignments_is_not_known_to_the_next_coordinator(cluster: Cluster) -> None:
    leader, joiner = two_joined(cluster)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(joiner.sync)
        fail_over(cluster, leader.group)
        # Asked again at the new coordinator, as a client does.
        assert waiting.result().error_code == Error.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == Error.ILLEGAL_GENERATION
    leader.generation -= 1
    assert leader.heartbeat() == Error.NONE
    joiner.id = ""
    settle([leader, joiner], joiner)


@coordinated("C08", by_default=("ours", "mixed"))
def a_stable_group_goes_on_at_another_coordinator(cluster: Cluster) -> None:
    topic = cluster.create("c08")
    first, second = stable_group(cluster, members=2)
    assert first.commit(topic, 7) == Error.NONE
    fail_over(cluster, first.group)
    assert [one.heartbeat() for one in (first, second)] == [Error.NONE, Error.NONE]
    assert committed(cluster, first.group, topic) == (7, Error.NONE)
    assert second.commit(topic, 8) == Error.NONE
    assert committed(cluster, first.group, topic) == (8, Error.NONE)


@coordinated("C12")
def the_new_id_of_a_static_member_is_known_after_a_fail_over(cluster: Cluster) -> None:
    [member] = stable_group(cluster, instance="i")
    again = Member(cluster, member.group, instance=member.instance)
    assert again.join().error_code == Error.NONE
    fail_over(cluster, member.group)
    assert again.heartbeat() == Error.NONE
    assert member.heartbeat() == Error.FENCED_INSTANCE_ID


@coordinated("C18", by_default=OURS)
def an_acknowledged_commit_survives_its_coordinator(cluster: Cluster) -> None:
    topic = cluster.create("c18")
    group = fresh("simple")
    assert commit(cluster, group, topic, 41) == Error.NONE
    fail_over(cluster, group)
    assert committed(cluster, group, topic, stable=True) == (41, Error.NONE)
    # Without it, a read is of what is committed for the new leader, whose high watermark may still be behind.
    eventually(lambda: committed(cluster, group, topic) == (41, Error.NONE), "the offset is committed", SECONDS)
