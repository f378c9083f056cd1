"""The metrics of the coordinators of groups and transactions, of brokers in memory."""

from __future__ import annotations

import math
from typing import Any

from kraft.broker.requests import Requests
from kraft.coordinators.groups.classic_group import GroupState
from kraft.coordinators.groups.consumer.group import GroupState as ConsumerState
from kraft.metrics import kafka
from kraft.metrics.coordinators import coordinator_readings, counting
from kraft.metrics.names import Mbean
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support.broker.coordinated_brokers import Coordinated
from support.broker.group_clients import GroupBrokers
from support.broker.request_brokers import NewTopic, batch, produce, topic_id
from support.broker.share_brokers import Caller, change, key, share_brokers
from support.broker.share_leaders import ShareBrokers, share_acknowledge, share_fetch
from transport.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

TO_DELETE = OffsetDeleteRequest("simple", [OffsetDeleteRequestTopic("orders", [OffsetDeleteRequestPartition(0)])])


def values(requests: Requests, now_ms: int) -> dict[tuple[Mbean, str], Any]:
    """Every value by its metric and the value of its tag."""
    counts = finished(counting(requests.groups))
    return {
        (one.metric, "".join(value for _, value in one.labels)): one.value
        for one in coordinator_readings(requests, counts, now_ms)
        if isinstance(one.metric, Mbean)
    }


def metrics(world: GroupBrokers) -> dict[tuple[Mbean, str], Any]:
    return values(world.brokers.requests[101], world.brokers.now_ms)


def test_groups_are_counted_by_protocol_and_state() -> None:
    world = GroupBrokers()
    world.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    before = metrics(world)
    assert before[kafka.GROUP_PARTITIONS, "active"] == 1
    assert before[kafka.GROUPS, "classic"] == before[kafka.GROUPS, "consumer"] == 0
    world.stable(2)
    world.member("waits")
    world.commit(7, "simple")
    beat = ConsumerGroupHeartbeatRequest(
        "new", str(Uuid.ZERO), 0, rebalance_timeout_ms=9000, subscribed_topic_names=["orders"], topic_partitions=[]
    )
    assert world.ask(beat, 1).error_code == 0
    found = metrics(world)
    assert found[kafka.GROUPS, "classic"] == found[kafka.CLASSIC_GROUPS, ""] == 3
    assert found[kafka.GROUPS, "consumer"] == 1
    assert found[kafka.STABLE_GROUPS, ""] == found[kafka.PREPARING_GROUPS, ""] == found[kafka.EMPTY_GROUPS, ""] == 1
    assert found[kafka.COMPLETING_GROUPS, ""] == found[kafka.DEAD_GROUPS, ""] == 0
    assert sum(found[kafka.CONSUMER_GROUPS, state.value] for state in ConsumerState) == 1
    assert found[kafka.OFFSETS, ""] == found[kafka.OFFSET_COMMITS, ""] == 1
    assert found[kafka.REBALANCES, ""] == 1
    assert found[kafka.CONSUMER_REBALANCES, ""] == 1


def test_deleted_and_expired_offsets_are_counted() -> None:
    world = GroupBrokers()
    world.commit(7, "simple")
    assert world.ask(TO_DELETE).error_code == 0
    found = metrics(world)
    assert (found[kafka.OFFSETS_DELETED, ""], found[kafka.OFFSETS, ""]) == (1, 0)
    world.commit(7, "simple")
    world.wait(8 * 24 * 3_600_000)
    found = metrics(world)
    assert (found[kafka.OFFSETS_EXPIRED, ""], found[kafka.OFFSET_COMMITS, ""]) == (1, 2)
    assert found[kafka.GROUPS, "classic"] == 0


def test_the_times_of_loads_are_those_of_the_last_minute() -> None:
    world = GroupBrokers()
    found = metrics(world)
    assert 0 <= found[kafka.GROUP_LOAD_AVG, ""] <= found[kafka.GROUP_LOAD_MAX, ""]
    world.wait(61_000)
    found = metrics(world)
    assert math.isnan(found[kafka.GROUP_LOAD_AVG, ""])
    assert math.isnan(found[kafka.GROUP_LOAD_MAX, ""])


def test_a_count_of_very_many_groups_takes_steps() -> None:
    world = GroupBrokers()
    for number in range(1200):
        world.commit(1, f"group-{number}")
    steps = counting(world.brokers.requests[101].groups)
    count = sum(1 for _ in steps)
    assert count >= 3
    assert finished(counting(world.brokers.requests[101].groups)).classic[GroupState.EMPTY] == 1200


def test_requests_with_markers_are_counted() -> None:
    world = Coordinated()
    initialize = InitProducerIdRequest("t", 60_000)
    # A broker without ids asks for some first.
    world.ask(101, initialize, 4)
    told = world.ask(101, initialize, 4)
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=told.producer_id,
        v3_and_below_producer_epoch=told.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic("out", [0, 1])],
    )
    world.ask(101, adding, 3)
    world.ask(101, EndTxnRequest("t", told.producer_id, told.producer_epoch, True), 3, markers=False)
    found = values(world.brokers.requests[101], world.brokers.now_ms)
    assert (found[kafka.MARKER_REQUESTS, ""], found[kafka.MARKER_RESPONSES, ""]) == (2, 0)
    world.settle()
    found = values(world.brokers.requests[101], world.brokers.now_ms)
    assert (found[kafka.MARKER_RESPONSES, ""], found[kafka.MARKERS_HOMELESS, ""]) == (2, 0)


def test_the_share_coordinator_is_measured_where_there_is_one() -> None:
    world = share_brokers(((101,),), prune_interval_ms=10_000)
    caller = Caller(world)
    caller.initialize(key())
    for _ in range(3):
        caller.write(key(), change((0, 1, 2, 1)))
    caller.initialize(key(), 1)
    found = values(world.brokers.requests[101], world.brokers.now_ms)
    assert [found[kafka.SHARE_PARTITIONS, state] for state in ("loading", "active", "failed")] == [0, 1, 0]
    assert found[kafka.SHARE_WRITES, ""] == 3
    assert 0 <= found[kafka.SHARE_WRITE_AVG, ""] <= found[kafka.SHARE_WRITE_MAX, ""]
    assert 0 <= found[kafka.SHARE_LOAD_AVG, ""] <= found[kafka.SHARE_LOAD_MAX, ""]
    world.settle(after_ms=61_000)
    world.settle(after_ms=1)
    found = values(world.brokers.requests[101], world.brokers.now_ms)
    assert found[kafka.SHARE_PRUNED, "__share_group_state0"] == 4
    assert math.isnan(found[kafka.SHARE_WRITE_MAX, ""])
    without = Coordinated().brokers
    assert not [one for one, _ in values(without.requests[101], without.now_ms) if "share" in one.type]


def test_members_of_share_groups_are_measured_at_the_leader() -> None:
    topic = NewTopic("t", topic_id(1), ((101,), (101,)))
    world = ShareBrokers([topic])
    requests = world.brokers.requests[101]
    assert (kafka.SHARE_SESSIONS, "") not in values(requests, world.now_ms)
    world.configure("g", share_auto_offset_reset="earliest")
    world.begin("g", topic)
    world.ask(101, produce((topic.id, 0), batch(*[b""] * 10)), version=13)
    world.ask(101, share_fetch(topic, numbers=(0, 1)))
    world.ask(101, share_acknowledge(topic, 1, (0, 4, [1]), (5, 9, [2, 3, 3, 4, 0]), is_renew_ack=True))
    found = values(requests, world.now_ms)
    assert (found[kafka.SHARE_SESSIONS, ""], found[kafka.SESSION_PARTITIONS, ""]) == (1, 2)
    counts = {kind: found[kafka.SHARE_ACKNOWLEDGEMENTS, kind] for kind in ("Accept", "Release", "Reject", "Renew")}
    assert counts == {"Accept": 5, "Release": 1, "Reject": 2, "Renew": 1}
    assert (kafka.SHARE_ACKNOWLEDGEMENTS, "Gap") not in found
    world.close(101)
    found = values(requests, world.now_ms)
    assert (found[kafka.SHARE_SESSIONS, ""], found[kafka.SESSION_PARTITIONS, ""]) == (0, 0)
