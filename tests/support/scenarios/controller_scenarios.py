"""B28 to B30: ISR changes that are refused, controllers that end meanwhile, and a quorum without a majority."""

from __future__ import annotations

from typing import Any, Final

from support.interop.real_kafka import eventually
from support.scenarios.lifecycle_scenarios import records_go_on_without_a_controller
from support.scenarios.scenario_client import Connection, batch
from support.scenarios.scenario_cluster import PLAIN, QUORUM, SECONDS, Cluster
from support.scenarios.scenario_list import SCENARIOS, scenario
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)

VERSION: Final = 3
NO_TOPIC: Final = b"\x01" * 16


def proposed(cluster: Cluster, request: AlterPartitionRequest) -> tuple[Error, Error]:
    """The answer of the active controller to an ISR change: the error of the request, and that of the partition."""
    connection = Connection(cluster.layout.ports[cluster.active_controller()])
    try:
        answer = connection.ask(request, VERSION, AlterPartitionResponse)
    finally:
        connection.socket.close()
    part = answer.topics[0].partitions[0].error_code if answer.topics else Error.NONE
    return Error.of(answer.error_code), Error.of(part)


@scenario("B28")
def isr_changes_are_refused_with_kafkas_codes_and_the_isr_converges(cluster: Cluster) -> None:
    """The requests are sent by hand in the name of the leader. The leader's own proposals go on beside them."""
    topic = cluster.create("b28-refused", 2)
    leader, follower = topic.replicas
    stranger = next(one for one in cluster.makes if one not in topic.replicas)
    cluster.append(leader, topic, batch(b"0"))
    cluster.wait_for_isr(topic, leader, follower)

    def ask(*isr: int, **changed: object) -> tuple[Error, Error]:
        partition, brokers = cluster.partition(topic), cluster.image().brokers.by_id
        fields: dict[str, Any] = {
            "broker": leader,
            "broker_epoch": brokers[leader].epoch,
            "topic": topic.id,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "member_epochs": {one: brokers[one].epoch for one in isr},
            **{name: value(partition) if callable(value) else value for name, value in changed.items()},
        }
        part = AlterPartitionRequestPartitionData(
            0,
            leader_epoch=fields["leader_epoch"],
            new_isr_with_epochs=[BrokerState(one, fields["member_epochs"][one]) for one in isr],
            partition_epoch=fields["partition_epoch"],
        )
        named = [AlterPartitionRequestTopicData(fields["topic"], [part])]
        return proposed(cluster, AlterPartitionRequest(fields["broker"], fields["broker_epoch"], named))

    found = {
        "an old broker epoch": ask(leader, broker_epoch=0),
        "a topic that is not": ask(leader, topic=type(topic.id)(NO_TOPIC)),
        "not the leader": ask(leader, broker=follower, broker_epoch=cluster.image().brokers.by_id[follower].epoch),
        "an old leader epoch": ask(leader, leader_epoch=lambda one: one.leader_epoch - 1),
        "a later leader epoch": ask(leader, leader_epoch=lambda one: one.leader_epoch + 1),
        "an old partition epoch": ask(leader, partition_epoch=lambda one: one.partition_epoch - 1),
        "a later partition epoch": ask(leader, partition_epoch=lambda one: one.partition_epoch + 1),
        "a member that is no replica": ask(leader, stranger),
        "an ISR without the leader": ask(follower),
        "a member of an earlier run": ask(leader, follower, member_epochs={leader: -1, follower: 0}),
    }
    none = Error.NONE
    assert found == {
        "an old broker epoch": (Error.STALE_BROKER_EPOCH, none),
        "a topic that is not": (none, Error.UNKNOWN_TOPIC_ID),
        "not the leader": (none, Error.INVALID_REQUEST),
        "an old leader epoch": (none, Error.FENCED_LEADER_EPOCH),
        "a later leader epoch": (none, Error.NOT_CONTROLLER),
        "an old partition epoch": (none, Error.INVALID_UPDATE_VERSION),
        "a later partition epoch": (none, Error.NOT_CONTROLLER),
        "a member that is no replica": (none, Error.INVALID_REQUEST),
        "an ISR without the leader": (none, Error.INVALID_REQUEST),
        "a member of an earlier run": (none, Error.INELIGIBLE_REPLICA),
    }
    assert set(cluster.partition(topic).isr) == {leader, follower}
    for number in range(1, 4):
        # The controller takes the follower out behind the leader's back: the leader's next proposal has an old epoch.
        assert ask(leader) == (none, none)
        assert cluster.append(leader, topic, batch(b"%d" % number)) == number
        cluster.wait_for_isr(topic, leader, follower)
    eventually(lambda: cluster.watermark(leader, topic) == 4, "all is committed", SECONDS)
    cluster.wait_for_equal_logs(topic, 4)


def while_the_controller_dies(cluster: Cluster, *plan: str) -> None:
    """Run scenarios once more; the active controller is killed after the first event of each.

    An event is a pause, a kill, a stop, or a reassignment.
    """
    for one in [one for one in SCENARIOS if one.id in plan and one.kind is PLAIN]:
        cluster.restore()
        cluster.disturbance = cluster.kill_controller
        one.run(cluster)
        assert cluster.disturbance is None, f"nothing happened in {one.name}"


@scenario("B29", by_default=False, kind=QUORUM)
def followers_are_slow_and_fail_while_the_controller_dies(cluster: Cluster) -> None:
    while_the_controller_dies(cluster, "B15", "B16", "B17", "B18", "B19", "B20")


@scenario("B29", by_default=False, kind=QUORUM)
def leaders_fail_while_the_controller_dies(cluster: Cluster) -> None:
    while_the_controller_dies(cluster, "B21", "B22", "B23", "B24", "B25")


@scenario("B29", by_default=False, kind=QUORUM)
def replicas_move_while_the_controller_dies(cluster: Cluster) -> None:
    while_the_controller_dies(cluster, "B26")


@scenario("B30", by_default=False, kind=QUORUM)
def records_go_on_without_a_majority_of_controllers(cluster: Cluster) -> None:
    records_go_on_without_a_controller(cluster)
