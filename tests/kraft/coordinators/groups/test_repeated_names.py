"""Names in lists that are empty, stand there twice, or are strange; and the order of answers about many groups.

`tests/interop/brokers/test_strange_lists.py` asks Kafka the same of every API.
"""

from __future__ import annotations

import pytest

from kraft.handling.orders import by_coordinator, in_partition_order, timeline_order, with_repeats
from kraft.limits import REPEATED_GROUPS, REPEATED_OFFSETS
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.types import Uuid
from support.broker.group_clients import GroupBrokers
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.describe_groups import DescribeGroupsRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.list_groups import ListGroupsRequest
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.offset_delete import OffsetDeleteRequest
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

MEMBER = str(Uuid.ZERO)


def world() -> GroupBrokers:
    brokers = GroupBrokers()
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    return brokers


def committed(brokers: GroupBrokers, group_id: str = "g") -> None:
    topic = OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 5)])
    answer = brokers.ask(OffsetCommitRequest(group_id, topics=[topic]), 9)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_group_is_described_as_often_as_it_is_named_up_to_a_bound() -> None:
    brokers = world()
    committed(brokers)
    for request, version in ((DescribeGroupsRequest, 6), (ConsumerGroupDescribeRequest, 1)):
        for times, answered in ((2, 2), (500, 1 + REPEATED_GROUPS)):
            answer = brokers.ask(request(["g"] * times), version)
            assert [one.group_id for one in answer.groups] == ["g"] * answered


def test_offsets_are_answered_as_often_as_they_are_asked_for_up_to_a_bound() -> None:
    brokers = world()
    committed(brokers)
    group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("orders", partition_indexes=[0, 0])] * 2)
    answer = brokers.ask(OffsetFetchRequest(groups=[group, group]), 9)
    for each in answer.groups:
        assert [[one.committed_offset for one in topic.partitions] for topic in each.topics] == [[5, 5], [5, 5]]
    assert len(answer.groups) == 2
    many = OffsetFetchRequestTopic("orders", [0] * 5000)
    asked = (
        brokers.send(OffsetFetchRequest(groups=[group] * 30), 9),
        brokers.send(OffsetFetchRequest("g", [many]), 7),
    )
    brokers.wait(100)
    groups, offsets = (brokers.answers.pop(one) for one in asked)
    assert len(groups.groups) == 1 + REPEATED_GROUPS
    assert len(offsets.topics[0].partitions) == 1 + REPEATED_OFFSETS


def test_topics_without_partitions_are_left_out_of_the_answer() -> None:
    brokers = world()
    answer = brokers.ask(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("orders")]), 9)
    assert answer.topics == []


def test_refused_topics_come_first_and_are_merged() -> None:
    brokers = world()
    part = [OffsetCommitRequestPartition(0, 5)]
    topics = [OffsetCommitRequestTopic(one, partitions=part) for one in ("nope", "orders", "nope")]
    answer = brokers.ask(OffsetCommitRequest("g", topics=topics), 9)
    assert [(one.name, [each.error_code for each in one.partitions]) for one in answer.topics] == [
        ("nope", [3, 3]),
        ("orders", [0]),
    ]


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_group_without_a_name_has_no_offsets_of_transactions(producer_id: int) -> None:
    """It was stored, or its producer was refused first."""
    brokers = world()
    topic = TxnOffsetCommitRequestTopic("orders", partitions=[TxnOffsetCommitRequestPartition(0, 5)])
    answer = brokers.ask(TxnOffsetCommitRequest("t", "", producer_id, 0, topics=[topic]), 3)
    assert [one.error_code for one in answer.topics[0].partitions] == [Error.INVALID_GROUP_ID]


def test_a_group_without_a_name_has_no_offsets_to_delete() -> None:
    brokers = world()
    assert brokers.ask(OffsetDeleteRequest("")).error_code == Error.INVALID_GROUP_ID
    # Clients without a group commit under this name, so that an administrator may delete it as a whole.
    assert [one.error_code for one in brokers.ask(DeleteGroupsRequest([""]), 3).results] == [Error.GROUP_ID_NOT_FOUND]


def test_a_missing_group_is_not_said_to_be_of_another_kind() -> None:
    brokers = world()
    committed(brokers)
    found = brokers.ask(ConsumerGroupDescribeRequest(["nope", "g"]), 1).groups
    assert [one.error_message for one in found] == ["Group nope not found.", "Group g is not a consumer group."]


def test_an_instance_that_a_member_has_given_up_is_free() -> None:
    """A member that changed its instance kept the one before, so that nobody else could have it."""
    brokers = world()

    def beat(instance_id: str, member_id: str = MEMBER) -> int:
        request = ConsumerGroupHeartbeatRequest(
            "g", member_id, 0, instance_id, None, 9000, ["orders"], topic_partitions=[]
        )
        code: int = brokers.ask(request, 1).error_code
        return code

    assert [beat("a"), beat("b"), beat("a", "other"), beat("b", "third")] == [0, 0, 0, Error.UNRELEASED_INSTANCE_ID]


def test_a_subscription_that_cannot_be_read_joins_no_consumer_group() -> None:
    """Kafka 4.4.0 says so; UNKNOWN_SERVER_ERROR would be the broker's fault."""
    brokers = world()
    request = ConsumerGroupHeartbeatRequest("g", MEMBER, 0, None, None, 9000, ["orders"], topic_partitions=[])
    assert brokers.ask(request, 1).error_code == 0
    joins = JoinGroupRequest("g", 10_000, 10_000, "", "i", "consumer", [JoinGroupRequestProtocol("range", b"")])
    assert brokers.ask(joins, 9).error_code == Error.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_whose_id_no_answer_could_carry_does_not_join() -> None:
    """The answer could not be encoded, and the connection was closed."""
    longest = "i" * 32_767
    joins = JoinGroupRequest("g", 10_000, 10_000, "", longest, "consumer", [JoinGroupRequestProtocol("range", b"")])
    assert world().ask(joins, 9).error_code == Error.UNKNOWN_SERVER_ERROR


def test_groups_are_listed_in_the_order_of_kafkas_hash_table() -> None:
    """As Kafka 4.4.0 listed these; those that share a slot of its table are left out."""
    listed = ["group-28", "group-25", "group-22", "group-5", "group-37", "group-34", "group-13", "group-31", "group-10"]
    brokers = world()
    for name in sorted(listed):
        committed(brokers, name)
    assert [one.group_id for one in brokers.ask(ListGroupsRequest(), 5).groups] == sorted(listed, key=timeline_order)
    assert sorted(listed, key=timeline_order) == listed


@pytest.mark.parametrize("names", [("member-1", "member-2"), ("member-2", "member-1")])
def test_members_are_described_in_the_order_of_kafkas_hash_table(names: tuple[str, str]) -> None:
    """These two share a slot: the last one comes first (Kafka: `SnapshottableHashTable.HistoricalIterator`)."""
    brokers = world()
    for member_id in names:
        beat = ConsumerGroupHeartbeatRequest("g", member_id, 0, None, None, 9000, ["orders"], topic_partitions=[])
        assert brokers.ask(beat, 1).error_code == 0
    (found,) = brokers.ask(ConsumerGroupDescribeRequest(["g"]), 1).groups
    assert [one.member_id for one in found.members] == list(reversed(names))


def test_coordinators_are_asked_in_the_order_of_kafkas_hash_map() -> None:
    numbers = {"a": 0, "b": 1, "c": 2, "d": 1}
    topic = "__consumer_offsets"
    found = by_coordinator(["c", "d", "a", "b"], numbers.__getitem__, topic)
    assert [numbers[one] for one in found] == [0, 1, 1, 2]
    assert (found[1:3], in_partition_order([2, 0, 1], topic)) == (["d", "b"], [0, 1, 2])


def test_names_that_are_there_again_are_few() -> None:
    assert with_repeats("abab", 9) == list("abab")
    assert with_repeats("aabba", 1) == list("aab")
