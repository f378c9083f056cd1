"""Settings and levels that change while no topic does: a running group follows with the next request."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord
from support.broker.group_clients import GroupBrokers
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

OF_GROUPS = 32
BEAT = 1


def beat(brokers: GroupBrokers, member_epoch: int) -> Any:
    """The answer to a heartbeat of a member, which says everything of itself when it joins."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=member_epoch)
    if member_epoch == 0:
        request = structs.replace(
            request, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], topic_partitions=[]
        )
    return brokers.ask(request, BEAT)


def set_of_group(brokers: GroupBrokers, key: str, value: str | None) -> None:
    before = brokers.brokers.image.topics
    brokers.brokers.change(ConfigRecord(resource_type=OF_GROUPS, resource_name="g", name=key, value=value))
    assert brokers.brokers.image.topics is before


def joined(level: int = 1) -> tuple[GroupBrokers, Any]:
    brokers = GroupBrokers()
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=level))
    return brokers, beat(brokers, 0)


def test_members_learn_a_new_heartbeat_interval() -> None:
    brokers, told = joined()
    assert (told.error_code, told.heartbeat_interval_ms) == (Error.NONE, 5000)
    set_of_group(brokers, "consumer.heartbeat.interval.ms", "7000")
    assert beat(brokers, told.member_epoch).heartbeat_interval_ms == 7000
    set_of_group(brokers, "consumer.heartbeat.interval.ms", None)
    assert beat(brokers, told.member_epoch).heartbeat_interval_ms == 5000


def test_a_new_session_time_out_counts_from_the_next_heartbeat() -> None:
    brokers, told = joined()
    set_of_group(brokers, "consumer.session.timeout.ms", "60000")
    brokers.wait(44_000)
    assert beat(brokers, told.member_epoch).error_code == Error.NONE
    brokers.wait(59_000)
    assert beat(brokers, told.member_epoch).error_code == Error.NONE
    brokers.wait(60_001)
    assert beat(brokers, told.member_epoch).error_code == Error.UNKNOWN_MEMBER_ID


def test_the_level_of_groups_turns_heartbeats_on_and_off() -> None:
    brokers, refused = joined(0)
    assert refused.error_code == Error.UNSUPPORTED_VERSION
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    told = beat(brokers, 0)
    assert told.error_code == Error.NONE
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=0))
    assert beat(brokers, told.member_epoch).error_code == Error.UNSUPPORTED_VERSION
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    assert beat(brokers, told.member_epoch).error_code == Error.NONE
