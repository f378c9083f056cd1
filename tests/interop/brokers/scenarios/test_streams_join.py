"""A program of Kafka Streams joins exactly once in a streams group, while its instances and brokers are killed and the
group moves between coordinators of both makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from joined_orders import GROUP_ID, SECONDS, STREAMS, JoinedOrders
from support.interop.kafka_or_skip import with_programs_or_skipped
from support.interop.real_kafka import KafkaInstallation, eventually
from support.scenarios.coordinator_client import GROUP, coordinator_of, internal, partition_of
from support.scenarios.reassignment_scenarios import elect, reassign
from support.scenarios.scenario_cluster import MAKES, BrokerMake, scenario_cluster
from transport.protocol.messages.streams_group_describe import DescribedGroup

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
ONE_OF_OURS: Final[tuple[BrokerMake, ...]] = ("ours", "kafka", "kafka")


@pytest.mark.parametrize("make", MAKES)
def test_each_order_is_joined_once_whoever_is_killed(make: str, tmp_path: Path, newer_kafka: KafkaInstallation) -> None:
    program = with_programs_or_skipped(newer_kafka)
    with (
        scenario_cluster(tmp_path, MAKES[make], newer_kafka, STREAMS, release=newer_kafka.release) as cluster,
        JoinedOrders(cluster, program, tmp_path) as joined,
    ):
        first = joined.start()
        joined.start()
        joined.say()
        joined.wait_until_joined("by two instances")
        joined.wait_until_stable(4)
        joined.say()
        joined.kill(first)
        joined.wait_until_joined("by the other instance")
        joined.start()
        for victim in (lambda: coordinator_of(cluster, GROUP_ID, GROUP), lambda: cluster.leader(joined.paid)):
            joined.say()
            broker = victim()
            cluster.kill(broker)
            joined.say()
            joined.wait_until_joined(f"without broker {broker}")
            cluster.start(broker)
            cluster.wait_until_active(broker)
            for topic in (joined.orders, joined.paid):
                cluster.wait_for_isr(topic, *topic.replicas)
        joined.check()


def tasks(group: DescribedGroup) -> dict[str, tuple[object, object]]:
    """What each member has and should have."""
    return {one.member_id: (one.assignment, one.target_assignment) for one in group.members}


def test_the_group_goes_on_at_coordinators_of_both_makes(tmp_path: Path, newer_kafka: KafkaInstallation) -> None:
    """What one make has written the other reads: with each move nothing changes, and then an instance is replaced."""
    program = with_programs_or_skipped(newer_kafka)
    with (
        scenario_cluster(tmp_path, ONE_OF_OURS, newer_kafka, STREAMS, release=newer_kafka.release) as cluster,
        JoinedOrders(cluster, program, tmp_path) as joined,
    ):
        former = joined.start()
        other = joined.start()
        joined.say()
        joined.wait_until_joined("by two instances")
        of_groups, number = internal(cluster, GROUP), partition_of(GROUP_ID)
        for broker in (101, 102, 101, 103, 101):
            before = joined.wait_until_stable(4)
            others = tuple(one for one in cluster.order if one != broker)
            of_groups = reassign(cluster, of_groups, (broker, *others), number)
            elect(cluster, of_groups, number=number)
            eventually(lambda to=broker: coordinator_of(cluster, GROUP_ID) == to, f"{broker} coordinates", SECONDS)
            joined.say()
            joined.wait_until_joined(f"at {cluster.makes[broker]} {broker}")
            after = joined.wait_until_stable(4)
            assert (after.group_epoch, tasks(after)) == (before.group_epoch, tasks(before))
            joined.kill(former)
            former, other = other, joined.start()
            joined.say()
            joined.wait_until_joined(f"by another instance at {broker}")
            assert joined.wait_until_stable(4).group_epoch > before.group_epoch
        joined.check()
