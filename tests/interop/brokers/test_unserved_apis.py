"""A broker of Kafka without share and streams groups, and without two-phase commit, answers as ours does."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_log.serde import Message
from metadata_log.types import Uuid
from one_node import one_node
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask, reaction, request_bytes
from transport.protocol.apis import ApiKey
from transport.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from transport.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from transport.protocol.messages.share_fetch import ShareFetchRequest
from transport.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from transport.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from transport.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

pytestmark = pytest.mark.kafka

INIT_PRODUCER_ID = ApiKey.INIT_PRODUCER_ID
OFF = ("share.version=0", "streams.version=0")
MEMBER = str(Uuid(b"\1" * 16))
REQUESTS: tuple[tuple[Message, int], ...] = (
    (ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, subscribed_topic_names=["a"]), 1),
    (ShareGroupDescribeRequest(group_ids=["g", "h"]), 1),
    (ShareFetchRequest(group_id="g", member_id=MEMBER), 1),
    (ShareAcknowledgeRequest(group_id="g", member_id=MEMBER), 1),
    (StreamsGroupHeartbeatRequest(group_id="g", member_id=MEMBER), 0),
    (StreamsGroupDescribeRequest(group_ids=["g", "h"]), 0),
    (DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g")]), 0),
)
TWO_PHASES: tuple[InitProducerIdRequest, ...] = (
    InitProducerIdRequest("t", 60_000, enable2_pc=True),
    InitProducerIdRequest("t", 60_000, keep_prepared_txn=True),
    InitProducerIdRequest("t", 60_000),
    InitProducerIdRequest(None, 60_000, enable2_pc=True),
)


def reactions(kafka: KafkaInstallation, root: Path, make: str) -> list[tuple[list[bytes], bool]]:
    """What a node does with InitProducerId 6, and which versions it advertises of the API."""
    with one_node(kafka, root, make) as (_, port):
        apis = ask(port, ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
        assert [(one.min_version, one.max_version) for one in apis if one.api_key == INIT_PRODUCER_ID] == [(0, 5)]
        return [reaction(port, request_bytes(request, 6)) for request in TWO_PHASES]


def test_two_phase_commit_is_refused_as_by_a_broker_with_default_settings(
    newer_kafka: KafkaInstallation, tmp_path: Path
) -> None:
    ours, theirs = (reactions(newer_kafka, tmp_path / make, make) for make in ("ours", "kafka"))
    assert ours == theirs == [([], False)] * len(TWO_PHASES)


def answers(kafka: KafkaInstallation, root: Path, make: str) -> dict[str, tuple[list[str], bool]]:
    """What a node answers to each, and whether it goes on with the connection."""
    with one_node(kafka, root, make, features=OFF) as (_, port):
        found = {}
        for request, version in REQUESTS:
            told, goes_on = reaction(port, request_bytes(request, version))
            found[type(request).__name__] = [one.hex() for one in told], goes_on
        return found


def test_the_answers_are_those_of_a_broker_without_these_groups(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (answers(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    assert ours == theirs
