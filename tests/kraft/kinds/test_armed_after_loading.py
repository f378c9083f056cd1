"""A new coordinator waits for what the one before it has waited for, and goes on when a write fails or is late."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.coordinators.groups.consumer.fencing import ConsumerTimer, Watch
from kraft.coordinators.groups.consumer.member import MemberState
from kraft.partitions.replicas.hosted_partition import Leading
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord
from support.broker.consumer_world import World, places
from support.broker.coordinated_brokers import OUT, STATE, Coordinated
from support.broker.group_clients import GROUPS, GROUPS_KEY, ORDERS, REPLICATED, SESSION_MS, GroupBrokers
from support.broker.transactional_producers import FIRST, NEXT, Producer, committed, fail_over, markers, state_of
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.describe_groups import DescribeGroupsRequest
from transport.protocol.messages.end_txn import EndTxnRequest


def test_a_loaded_member_has_its_time_to_give_up_partitions() -> None:
    world = World({"a": 4})
    world.join("one", "a", rebalance_timeout_ms=10_000)
    world.wait(1000)
    world.join("two", "a")
    kept = places(world.send("one", 2))
    assert world.member("one").state is MemberState.UNREVOKED_PARTITIONS
    world.wait(5000)
    world.restart()
    world.wait(9999)
    world.send("one", 2)
    assert "one" in world.groups["g"].members, kept
    world.wait(1)
    assert "one" not in world.groups["g"].members, "it beats, and gives nothing up"


def test_a_loaded_member_of_a_consumer_group_has_its_session() -> None:
    world = World({"a": 4})
    world.join("one", "a")
    world.wait(40_000)
    world.restart()
    world.wait(44_999)
    assert "one" in world.groups["g"].members
    world.wait(1)
    assert not world.groups["g"].members


def test_a_loaded_member_of_a_classic_group_has_its_session() -> None:
    brokers = GroupBrokers()
    brokers.stable(2)
    brokers.wait(SESSION_MS // 2)
    brokers.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=101))
    brokers.wait(SESSION_MS - 1)

    def state() -> str:
        (group,) = brokers.ask(DescribeGroupsRequest(groups=["g"])).groups
        found: str = group.group_state
        return found

    assert state() == "Stable"
    brokers.wait(100)
    assert state() == "Empty"


@pytest.mark.parametrize("is_known", [True, False], ids=["before it is over", "after it is over"])
def test_a_loaded_transaction_has_its_time(*, is_known: bool) -> None:
    cluster = Coordinated(abort_interval_ms=2000)
    producer = Producer(cluster, timeout_ms=5000)
    assert producer.produce(1, b"x") is Error.NONE
    if not is_known:
        cluster.brokers.now_ms += 9000
    fail_over(cluster)
    if is_known:
        assert state_of(cluster, NEXT).transaction_state == "Ongoing"
    for _ in range(5):
        cluster.settle(after_ms=2000)
    assert state_of(cluster, NEXT).transaction_state == "CompleteAbort"
    assert committed(cluster, 1) == []


@pytest.mark.parametrize("late_ms", [100, 100_000])
def test_a_loaded_outcome_is_told_however_late_it_is_committed(late_ms: int) -> None:
    """Also later than a write may take."""
    cluster = Coordinated(state=((101, 102, 103),))
    producer = Producer(cluster)
    assert producer.produce(1, b"x") is Error.NONE
    cluster.dead.add(103)
    cluster.brokers.send(FIRST, EndTxnRequest("mover", producer.id, producer.epoch, True), 5)
    cluster.settle()
    cluster.dead = {FIRST, 103}
    moved = PartitionChangeRecord(partition_id=0, topic_id=STATE, isr=(NEXT, 103), leader=NEXT)
    led = PartitionChangeRecord(partition_id=1, topic_id=OUT, isr=(NEXT, 103), leader=103)
    cluster.brokers.change(moved, led)
    cluster.settle()
    cluster.settle(after_ms=late_ms)
    assert markers(cluster, 1) == []
    cluster.dead = {FIRST}
    for _ in range(5):
        cluster.settle(after_ms=100)
    assert markers(cluster, 1) == [(1, 1, False)]
    assert state_of(cluster, NEXT).transaction_state == "CompleteCommit"


def test_a_member_that_could_not_be_removed_is_removed_later() -> None:
    """Its time was over while the log took no records."""
    brokers = GroupBrokers(REPLICATED, ORDERS)
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))

    def beat(epoch: int) -> Any:
        fields: dict[str, Any] = {"subscribed_topic_names": ["orders"], "topic_partitions": []} if epoch == 0 else {}
        number = brokers.send(ConsumerGroupHeartbeatRequest("g", "m", epoch, rebalance_timeout_ms=60_000, **fields), 1)
        brokers.brokers.replicate(GROUPS_KEY)
        brokers.wait(0)
        return brokers.answers.pop(number)

    assert beat(0).error_code == 0
    one = brokers.brokers.requests[101].groups.partitions[0]
    leading = brokers.brokers.part(101, GROUPS_KEY).leading
    assert isinstance(leading, Leading)
    leading.accept((101,), leading.partition_epoch)
    brokers.wait(46_000)
    assert one.state.groups["g"].members
    assert ConsumerTimer(Watch.SESSION, "g", "m") in one.timers
    leading.accept((101, 102, 103), leading.partition_epoch)
    brokers.wait(1000)
    assert not one.state.groups["g"].members
