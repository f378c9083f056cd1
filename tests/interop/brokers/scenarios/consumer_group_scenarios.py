"""C26 to C32: groups of the consumer protocol (KIP-848), and groups that change from one protocol to the other."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer

from consumer_member import ConsumerMember, Place, converge, places_of
from metadata_log.serde import decode, encode
from support.interop.real_kafka import eventually
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.coordinator_client import (
    Member,
    commit,
    committed,
    coordinated,
    fail_over,
    fresh,
    listed,
    subscription,
    wait_for_rebalance,
    written,
)
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)

ASSIGNMENT_INTERVAL_SECONDS: Final = 1.1
"""A little more than `group.consumer.assignment.interval.ms` of the brokers."""


def let_the_interval_pass() -> None:
    """Wait until the coordinator computes an assignment again: there is nothing to be asked before."""
    threading.Event().wait(ASSIGNMENT_INTERVAL_SECONDS)


def begin(member: ConsumerMember, places: frozenset[Place]) -> None:
    """Let a first member join, and get all partitions: at once, but for a coordinator to which the topic is news."""
    assert member.join().error_code == Error.NONE
    converge([member], places)
    assert member.epoch == 2


def two_members(
    cluster: Cluster, topic: Topic, count: int, *, group: str | None = None, rebalance_timeout_ms: int = 60_000
) -> tuple[ConsumerMember, ConsumerMember]:
    """A member that has all partitions and has just been told to give up half, and one that waits for them."""
    first, second = (
        ConsumerMember(cluster, one, topic, rebalance_timeout_ms=rebalance_timeout_ms)
        for one in [group or fresh("g")] * 2
    )
    begin(first, places_of((topic, count)))
    let_the_interval_pass()
    assert second.join().error_code == Error.NONE
    assert second.held == frozenset()
    return first, second


@coordinated("C26")
def a_new_coordinator_goes_on_with_a_member_that_gives_up_partitions(cluster: Cluster) -> None:
    topic = cluster.create_wide("c26", 4)
    first, second = two_members(cluster, topic, 4)
    everything = first.held
    answer = first.beat()
    assert (answer.error_code, first.epoch, len(first.held)) == (Error.NONE, 2, 2)
    kept = first.held
    fail_over(cluster, first.group)
    answer = first.beat(held=everything)
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, 2), Error.of(answer.error_code)
    first.held = kept
    assert second.beat().error_code == Error.NONE
    assert second.held == frozenset(), "the first one has not given them up"
    converge([first, second], everything)
    assert (first.held, first.epoch, second.epoch) == (kept, 3, 3)


@coordinated("C31")
def a_group_changes_its_protocol_under_load_and_back(cluster: Cluster) -> None:
    topics = [cluster.create("c31") for _ in range(4)]
    group = fresh("g")
    seen: set[tuple[str, int]] = set()

    def consumer(protocol: str) -> Consumer:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = 10_000
            settings["partition.assignment.strategy"] = "roundrobin"
        made = Consumer(settings)
        made.subscribe([one.name for one in topics])
        return made

    def read(*consumers: Consumer) -> int:
        found = [each for one in consumers for each in one.consume(500, timeout=0.2) if each.error() is None]
        seen.update((each.topic() or "", each.offset() or 0) for each in found)
        return len(found)

    def wait_until_shared(kind: str, *consumers: Consumer) -> None:
        def is_shared() -> bool:
            read(*consumers)
            each = [{one.topic for one in one.assignment()} for one in consumers]
            whole = set().union(*each) == {one.name for one in topics}
            return whole and all(each) and listed(cluster, group).group_type == kind

        eventually(is_shared, f"{group} is a {kind} group of {len(consumers)} members", 2 * SECONDS)

    with closing(consumer("classic")) as old:
        loads = [ConfluentLoad(cluster, one, per_second=50) for one in topics]
        for load in loads:
            load.__enter__()
        wait_until_shared("classic", old)
        eventually(lambda: bool(read(old)), "there is something to commit", SECONDS)
        old.commit(asynchronous=False)
        kept = {one.name: committed(cluster, group, one)[0] for one in topics}
        with closing(consumer("consumer")) as new:
            wait_until_shared("consumer", old, new)
            assert all(committed(cluster, group, one)[0] >= kept[one.name] for one in topics)
        wait_until_shared("classic", old)
        assert all(committed(cluster, group, one)[0] >= kept[one.name] for one in topics)
        for load in loads:
            load.__exit__(None, None, None)
        wanted = {
            (one.name, offset) for one, load in zip(topics, loads, strict=True) for offset in load.acknowledged.values()
        }

        def is_whole() -> bool:
            read(old)
            return wanted <= seen

        eventually(is_whole, "every record is delivered", SECONDS)


@coordinated("C32")
def an_upgraded_group_is_loaded_with_its_classic_members(cluster: Cluster) -> None:
    topic = cluster.create_wide("c32", 4)
    group = fresh("g")
    classic = Member(cluster, group, protocols=[("range", subscription(topic.name))])
    assert classic.join().error_code == Error.NONE
    whole = ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition(topic.name, [0, 1, 2, 3])])
    given = b"\x00\x00" + encode(whole, 0)
    assert classic.sync({classic.id: given}).error_code == Error.NONE
    assert commit(cluster, group, topic, 7, member=classic) == Error.NONE
    new = ConsumerMember(cluster, group, topic)
    answer = new.join()
    assert (answer.error_code, new.held) == (Error.NONE, frozenset())
    assert [one.kind.type for one in written(cluster, group)][-3:] == [7, 6, 8]
    fail_over(cluster, group)
    assert listed(cluster, group).group_type == "consumer"
    wait_for_rebalance(classic)
    answered = classic.join_once()
    assert (answered.error_code, answered.leader, answered.members) == (Error.NONE, "", [])
    classic.generation = answered.generation_id
    share = decode(ConsumerProtocolAssignment, 0, classic.sync().assignment[2:])
    [mine] = share.assigned_partitions
    assert (mine.topic, len(mine.partitions)) == (topic.name, 2)
    theirs = places_of((topic, 4)) - {(topic.id, number) for number in mine.partitions}

    def is_shared() -> bool:
        if classic.heartbeat() == Error.REBALANCE_IN_PROGRESS:
            answered = classic.join_once()
            classic.generation = answered.generation_id
            classic.sync()
        assert new.beat().error_code == Error.NONE
        return new.held == theirs

    eventually(is_shared, "the new member has the other half", SECONDS)
    eventually(lambda: committed(cluster, group, topic) == (7, Error.NONE), "the offset is kept", SECONDS)
    assert new.leave().error_code == Error.NONE
    assert listed(cluster, group).group_type == "classic"
