"""Each API of groups at every level of the features that we format: what depends on a level, and what on none."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from metadata_log.records.metadata import FeatureLevelRecord
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
