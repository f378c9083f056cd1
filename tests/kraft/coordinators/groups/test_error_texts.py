"""Where Kafka answers a text beside an error, a client is told why it was refused."""

from __future__ import annotations

from typing import Any

import pytest

from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.types import Uuid
from support.broker.group_clients import GroupBrokers
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER = str(Uuid.ZERO)


def beat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that joins, but for these fields."""
    joins: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 0, "rebalance_timeout_ms": 9000}
    joins |= {"subscribed_topic_names": ["orders"], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest("g", **(joins | fields))


def world(**settings: Any) -> GroupBrokers:
    brokers = GroupBrokers(**settings)
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    return brokers


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"member_id": "x", "member_epoch": 5}, Error.UNKNOWN_MEMBER_ID, "Member x"),
        ({"member_epoch": 7}, Error.FENCED_MEMBER_EPOCH, "rejoin"),
        ({"member_epoch": -1, "member_id": "x"}, Error.UNKNOWN_MEMBER_ID, "x"),
        ({"instance_id": "i", "member_epoch": 3, "member_id": "x"}, Error.UNKNOWN_MEMBER_ID, "i"),
        ({"member_epoch": -3}, Error.INVALID_REQUEST, "epoch"),
        ({"subscribed_topic_regex": "("}, Error.INVALID_REGULAR_EXPRESSION, "regular expression"),
    ],
)
def test_a_refused_heartbeat_says_why(fields: dict[str, Any], error: Error, words: str) -> None:
    brokers = world()
    assert brokers.ask(beat(), 1).error_code == 0
    answer = brokers.ask(beat(**fields), 1)
    assert answer.error_code == error
    assert words in (answer.error_message or ""), answer
