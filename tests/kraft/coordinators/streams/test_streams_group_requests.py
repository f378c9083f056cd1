"""Requests about streams groups at brokers in virtual time."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.config.group_settings import StreamsGroupConfig
from metadata_log.records.metadata import FeatureLevelRecord
from support.broker.request_brokers import NewTopic, topic_id
from support.broker.share_groups import ShareBrokers
from support.broker.streams_world import STATEFUL, STATELESS, subtopology, topology
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request
from transport.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from transport.protocol.messages.create_topics import CreatableTopicResult
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.describe_groups import DescribeGroupsRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.list_groups import ListGroupsRequest
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from transport.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from transport.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

SOURCE: Final = NewTopic("a", topic_id(50), ((101,), (102,)))
AT_ONCE: Final = StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0)


def brokers(*topics: NewTopic, level: int = 1) -> ShareBrokers:
    world = ShareBrokers(SOURCE, *topics, streams=AT_ONCE)
    world.brokers.change(FeatureLevelRecord(name="streams.version", feature_level=level))
    return world


def joins(member_id: str = "m", **fields: Any) -> StreamsGroupHeartbeatRequest:
    usual = {"rebalance_timeout_ms": 60_000, "topology": STATELESS, "process_id": "p", "group_id": "g"}
    empty: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    return StreamsGroupHeartbeatRequest(member_id=member_id, **{**usual, **empty, **fields})


def committed(world: ShareBrokers, epoch: int, member_id: str = "m", version: int = 9) -> Error:
    part = OffsetCommitRequestPartition(0, 7, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="a", partitions=[part])]
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics)
    answer = world.ask(101, request, version)
    return Error(answer.topics[0].partitions[0].error_code)


def fetched(world: ShareBrokers, epoch: int, member_id: str | None) -> tuple[Error, int | None]:
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", member_id, epoch, topics)])
    (group,) = world.ask(101, request, 9).groups
    found = [part.committed_offset for topic in group.topics for part in topic.partitions]
    return Error(group.error_code), found[0] if found else None


def test_a_group_is_listed_described_and_deleted() -> None:
    world = brokers()
    assert world.ask(101, joins()).member_epoch == 2
    (listed,) = world.ask(101, ListGroupsRequest(types_filter=["streams"])).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        *("g", "streams"),
        *("Stable", "streams"),
    )
    (group,) = world.ask(101, StreamsGroupDescribeRequest(["g"], include_authorized_operations=True)).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignor_name) == (0, "Stable", 2, "sticky")
    (member,) = group.members
    assert (member.member_id, member.process_id, [one.partitions for one in member.assignment.active_tasks]) == (
        *("m", "p"),
        [[0, 1]],
    )
    assert [(one.subtopology_id, one.source_topics) for one in group.topology.subtopologies] == [("0", ["a"])]
    assert world.ask(101, DeleteGroupsRequest(["g"])).results[0].error_code == Error.NON_EMPTY_GROUP
    world.ask(101, StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1))
    assert world.ask(101, DeleteGroupsRequest(["g"])).results[0].error_code == Error.NONE
    (group,) = world.ask(101, StreamsGroupDescribeRequest(["g"])).groups
    assert (group.error_code, group.error_message) == (Error.GROUP_ID_NOT_FOUND, "Group g not found.")


def test_a_group_that_does_not_run_is_found_by_the_word_of_kafka() -> None:
    world = brokers()
    world.ask(101, joins(topology=topology(subtopology("0", "none"))))
    for word, count in (("not_ready", 1), ("NotReady", 0), ("Stable", 0)):
        assert len(world.ask(101, ListGroupsRequest(states_filter=[word])).groups) == count, word


def test_internal_topics_are_asked_for_once_as_the_principal_of_the_member() -> None:
    world = brokers()
    answer = world.ask(101, joins(topology=STATEFUL))
    assert [(one.status_code, one.status_detail) for one in answer.status] == [
        (3, "Internal topics are missing: store")
    ]
    (sent,) = world.for_controller
    envelope: Any = sent.message
    header, asked = decode_request(envelope.request_data, apis=ALL_APIS)
    assert header.request_api_key == ApiKey.CREATE_TOPICS
    assert isinstance(asked, CreateTopicsRequest)
    assert [(one.name, one.num_partitions, one.replication_factor) for one in asked.topics] == [("store", 2, -1)]
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=answer.member_epoch)
    world.ask(101, beat)
    assert len(world.for_controller) == 1, "it is on its way"
    refused = CreateTopicsResponse(topics=[CreatableTopicResult("store", error_code=42, error_message="no")])
    world.brokers.requests[101].on_reply(sent.reply_to.key, refused, world.now_ms)
    told = world.ask(101, beat)
    assert [one.status_detail for one in told.status] == [
        "Internal topics are missing: store; Creation failed: store (no)."
    ]
    assert len(world.for_controller) == 1, "not while the error is new"
    world.wait(2 * told.heartbeat_interval_ms)
    world.ask(101, beat)
    assert len(world.for_controller) == 2


def test_offsets_are_those_of_members_by_their_epochs() -> None:
    world = brokers()
    world.ask(101, joins())
    assert committed(world, 2) is Error.NONE
    assert committed(world, 3) is Error.STALE_MEMBER_EPOCH
    assert committed(world, 2, "n") is Error.UNKNOWN_MEMBER_ID
    assert committed(world, 2, version=8) is Error.UNSUPPORTED_VERSION
    assert fetched(world, 2, "m") == (Error.NONE, 7)
    assert fetched(world, -1, None) == (Error.NONE, 7)
    assert fetched(world, 1, "m")[0] is Error.STALE_MEMBER_EPOCH
    assert fetched(world, 2, "n")[0] is Error.UNKNOWN_MEMBER_ID
    world.ask(101, joins("n", process_id="q"))
    world.ask(101, StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2))
    assert committed(world, 2) is Error.NONE, "it has had the task since then"


def test_groups_of_other_types_are_no_streams_groups_and_the_other_way_round() -> None:
    world = brokers()
    world.ask(101, joins())
    classic = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    assert world.ask(101, classic).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    share = ShareGroupHeartbeatRequest("g", "m", 0, None, ["a"])
    assert world.ask(101, share).error_code == Error.GROUP_ID_NOT_FOUND
    (described,) = world.ask(101, DescribeGroupsRequest(["g"])).groups
    assert (described.error_code, described.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
    world.ask(101, ShareGroupHeartbeatRequest("s", "m", 0, None, ["a"]))
    answer = world.ask(101, joins(group_id="s"))
    assert (answer.error_code, answer.error_message) == (
        *(Error.GROUP_ID_NOT_FOUND, "Group s is not a streams group."),
    )
    world.ask(101, StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1))
    assert world.ask(101, classic).error_code == Error.MEMBER_ID_REQUIRED, "an empty group makes room"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("__consumer_offsets",), "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is"),
        (("a b", ".."), "Topic names a b,.. are not valid topic names."),
    ],
)
def test_names_that_no_topology_may_have_are_refused(names: tuple[str, ...], text: str) -> None:
    answer = brokers().ask(101, joins(topology=topology(subtopology("0", *names))))
    assert answer.error_code == Error.STREAMS_INVALID_TOPOLOGY
    assert answer.error_message.startswith(text)


def test_a_cluster_without_the_feature_has_no_streams_groups() -> None:
    world = brokers(level=0)
    assert world.ask(101, joins()).error_code == Error.UNSUPPORTED_VERSION
    (group,) = world.ask(101, StreamsGroupDescribeRequest(["g"])).groups
    assert group.error_code == Error.UNSUPPORTED_VERSION


def test_an_empty_group_with_offsets_becomes_a_streams_group_and_keeps_them() -> None:
    world = brokers()
    assert committed(world, -1, "") is Error.NONE
    assert world.ask(101, joins()).member_epoch == 2
    (listed,) = world.ask(101, ListGroupsRequest()).groups
    assert listed.group_type == "streams"
    assert fetched(world, 2, "m") == (Error.NONE, 7)
