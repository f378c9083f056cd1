"""Levels and settings: what each API of groups does at every level, and how a running group follows a change."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec import structs

from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord
from metadata_log.releases import FEATURES
from support.broker.group_clients import GroupBrokers
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.list_groups import ListGroupsRequest
from transport.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)

GROUPS, STREAMS, SHARE = (range(FEATURES[f"{one}.version"].highest + 1) for one in ("group", "streams", "share"))
LEVELS = list(product(GROUPS, STREAMS, SHARE))


def at(brokers: GroupBrokers, groups: int, streams: int, share: int) -> None:
    for name, level in (("group", groups), ("streams", streams), ("share", share)):
        brokers.brokers.change(FeatureLevelRecord(name=f"{name}.version", feature_level=level))


def codes(brokers: GroupBrokers) -> dict[str, object]:
    """What each API answers, about groups that are new or there already."""
    joins: dict[str, Any] = {"rebalance_timeout_ms": 9000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    beat = ConsumerGroupHeartbeatRequest("new", member_id="m", member_epoch=0, **joins)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest("old", 9000, 9000, protocol_type="consumer", protocols=[protocol])
    topology = brokers.ask(StreamsGroupTopologyDescriptionUpdateRequest(group_id="streams"), 0)
    return {
        "join": Error.of(brokers.ask(join, 9).error_code),
        "beat": Error.of(brokers.ask(beat, 1).error_code),
        "describe": Error.of(brokers.ask(ConsumerGroupDescribeRequest(group_ids=["new"]), 1).groups[0].error_code),
        "list": Error.of(brokers.ask(ListGroupsRequest(), 5).error_code),
        "topology": Error.of(topology.error_code),
        "names what is missing": topology.error_message is not None,
    }


def expected(groups: int, streams: int) -> dict[str, object]:
    return {
        "join": Error.MEMBER_ID_REQUIRED,
        "beat": Error.NONE if groups else Error.UNSUPPORTED_VERSION,
        "describe": Error.NONE if groups else Error.UNSUPPORTED_VERSION,
        "list": Error.NONE,
        "topology": Error.UNSUPPORTED_VERSION,
        "names what is missing": streams > 0,
    }


@pytest.mark.parametrize(("groups", "streams", "share"), LEVELS)
def test_each_api_answers_by_the_levels_of_its_feature(groups: int, streams: int, share: int) -> None:
    brokers = GroupBrokers()
    at(brokers, groups, streams, share)
    assert codes(brokers) == expected(groups, streams)


def test_each_change_of_levels_counts_with_the_next_request() -> None:
    brokers = GroupBrokers()
    for before in LEVELS:
        for after in LEVELS:
            for groups, streams, share in (before, after):
                at(brokers, groups, streams, share)
                assert codes(brokers) == expected(groups, streams), (before, after)


# Settings and levels that change while no topic does: a running group follows with the next request.


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
