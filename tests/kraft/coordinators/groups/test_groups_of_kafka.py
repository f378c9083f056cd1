"""Groups as brokers of Kafka left them in `__consumer_offsets`, and as they answered heartbeats."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.config.group_settings import ConsumerGroupConfig, GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.consumer.describe import described
from kraft.coordinators.groups.consumer.groups import check
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import NO_OFFSETS, GroupsState, consumer_group, replay_groups
from kraft.coordinators.runtime.loading import Lacking, loading
from kraft.coordinators.runtime.shard import Record
from kraft.handling.coordinators import Counted
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.settings import DataDirectory, DataSettings
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage, Partition, TopicImage, TopicsImage
from metadata_log.image.persistent_map import Map
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.consumer_offsets import GroupMetadataValue
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair
from metadata_log.records.record import records
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support import DATA
from support.broker.consumer_world import World
from support.real_data import archive
from transport.protocol.messages.consumer_group_describe import Assignment
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

NOW_MS: Final = 1_795_387_500_000
TOPIC: Final = "__consumer_offsets"
DIRECTORY: Final = Uuid(bytes(range(16)))
PARTITIONS: Final = range(5)
FILES: Final = archive("coordinators")
FINAL: Final[dict[str, Any]] = json.loads(FILES["final.json"])


def state_of(number: int) -> GroupsState:
    """The state of groups in the log of a partition."""
    disk, prefix = MemoryDisk(), f"logs/{TOPIC}-{number}/"
    disk.mkdir(f"{TOPIC}-{number}")
    for path, data in FILES.items():
        if path.startswith(prefix) and not path.endswith("/"):
            file = disk.open(f"{TOPIC}-{number}/{path.removeprefix(prefix)}", create=True)
            file.append(data)
            file.close()
    log = PartitionLog.open(disk, f"{TOPIC}-{number}", LogOptions(is_compacted=True), now_ms=NOW_MS)
    log.raise_high_watermark(log.end_offset)
    hosting = Hosting(disk, DataSettings(broker_id=1, directories=(DataDirectory(DIRECTORY, ".", is_clean=True),)))
    part = HostedPartition((DIRECTORY, number), TOPIC, DIRECTORY, log, 1)
    hosting.partitions[part.key] = part
    found = finished(loading(hosting, part, GroupShard(GroupConfig(), Counted()), Lacking()))
    assert [offset for offset, _ in found] == [log.end_offset]
    return found[0][1]


STATES: Final = [state_of(number) for number in PARTITIONS]


@pytest.mark.parametrize("theirs", FINAL["describe"], ids=lambda one: one["groupId"])
def test_classic_groups(theirs: dict[str, Any]) -> None:
    group_id = theirs["groupId"]
    found = [one for state in STATES if (one := ClassicGroups(GroupConfig(), Counted()).find(group_id, state))]
    assert len(found) == 1
    (group,) = found
    assert (group.state.value, group.protocol_type, group.protocol or "") == (
        theirs["groupState"],
        theirs["protocolType"],
        theirs["protocolData"],
    )
    assert {one.member_id: one.instance_id for one in group.members.values()} == {
        one["memberId"]: one["groupInstanceId"] for one in theirs["members"]
    }


def test_deleted_groups_are_gone() -> None:
    left = [one.groups.items() for one in STATES]
    ours = {name for each in left for name, one in each if isinstance(one, GroupMetadataValue) and one.protocol_type}
    assert ours == {one["groupId"] for one in FINAL["describe"] if one["protocolType"]}


@pytest.mark.parametrize("theirs", FINAL["offsets"], ids=lambda one: one["groupId"])
def test_offsets(theirs: dict[str, Any]) -> None:
    ours = {
        (topic, number): (one.offset, one.leader_epoch, one.metadata)
        for state in STATES
        for (topic, number), one in state.offsets.get(theirs["groupId"], NO_OFFSETS).items()
    }
    assert ours == {
        (topic["name"], one["partitionIndex"]): (one["committedOffset"], one["committedLeaderEpoch"], one["metadata"])
        for topic in theirs["topics"]
        for one in topic["partitions"]
    }


# Consumer groups as brokers of Kafka 4.3.1 left them in their logs, and as they answered heartbeats.


ONE = Partition((1,), (Uuid.ZERO,), (1,), (), (), (), (), 1, 0, 0, 0)


def image_of(topics: dict[str, tuple[str, int]]) -> MetadataImage:
    found = [TopicImage(name, Uuid.parse(text), (ONE,) * count) for name, (text, count) in topics.items()]
    image = MetadataImage()
    by_id, by_name = Map({one.id: one for one in found}), Map({one.name: one.id for one in found})
    return replace(image, topics=TopicsImage(by_id, by_name), end=replace(image.end, offset=10))


def log_records() -> Iterator[tuple[Record, int, int]]:
    for path, data in sorted(archive("coordinators").items()):
        if "__consumer_offsets" in path and path.endswith(".log"):
            for batch in scan(data, where=path):
                for one in () if batch.is_control else records(batch, where=path):
                    assert one.key is not None
                    pair = decode_pair(CONSUMER_OFFSETS, one.key, one.value)
                    if pair is not None:
                        yield Record(pair.key, pair.value, pair.version), one.offset, -1


def test_the_groups_in_kafkas_logs_are_those_that_it_described() -> None:
    """Every field of every group and member, in the order of its answer."""
    state = GroupsState()
    for record, offset, producer_id in log_records():
        state = replay_groups(state, record, offset, producer_id)
    final = json.loads(archive("coordinators")["final.json"])
    topics = {name: (topic["id"], topic["partitions"]) for name, topic in final["topics"].items()}
    image = image_of(topics)
    compared = 0
    for expected in final["consumer_describe"]:
        group = consumer_group(state, expected["groupId"])
        if group is None:
            assert expected["errorCode"] != 0
            continue
        compared += 1
        found = finished(described(group, ConsumerGroupConfig().assignors, image, -(2**31)))
        told = (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name)
        assert told == tuple(expected[key] for key in ("groupState", "groupEpoch", "assignmentEpoch", "assignorName"))
        members = {one["memberId"]: one for one in expected["members"]}
        assert [one.member_id for one in found.members] == list(members)
        for one in found.members:
            other = members[one.member_id]
            assert one.instance_id == other["instanceId"]
            assert one.rack_id == other["rackId"]
            assert one.member_epoch == other["memberEpoch"]
            assert (one.client_id, one.client_host) == (other["clientId"], other["clientHost"])
            assert one.subscribed_topic_names == other["subscribedTopicNames"]
            assert one.subscribed_topic_regex == other["subscribedTopicRegex"]
            assert one.member_type == other["memberType"]
            assert names_of(one.assignment) == recorded_names(other["assignment"])
            assert names_of(one.target_assignment) == recorded_names(other["targetAssignment"])
    assert compared >= 3


def names_of(assignment: Assignment) -> dict[tuple[str, str], list[int]]:
    return {(str(one.topic_id), one.topic_name): list(one.partitions) for one in assignment.topic_partitions}


def recorded_names(assignment: dict[str, Any]) -> dict[tuple[str, str], list[int]]:
    topics = assignment["topicPartitions"]
    return {(one["topicId"], one["topicName"]): sorted(one["partitions"]) for one in topics}


@cache
def heartbeats() -> list[dict[str, Any]]:
    """The recorded heartbeats, after the topics of each part."""
    data = lzma.decompress((DATA / "consumer_heartbeats.jsonl.xz").read_bytes())
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("part", ["probes", "interval_probes", "failover_probes", "final_probes"])
def test_heartbeats_are_answered_as_by_kafka(part: str) -> None:
    """Errors, epochs, intervals and how many partitions, at the times of the recording. Which topic of several a member
    gets follows from the order of Java's hash maps: a member says that it owns what it got here.
    """
    head, *rows = [one for one in heartbeats() if one["part"] == part]
    world = World({}, heartbeat_interval_ms=1000)
    world.image = image_of(head["topics"])
    start_ms, ids = world.now_ms, dict[str, str]()
    for number, row in enumerate(rows):
        if start_ms + row["t_ms"] > world.now_ms:
            world.wait(int(start_ms + row["t_ms"] - world.now_ms))
        asked, theirs = row["request"], row["response"]
        message = ConsumerGroupHeartbeatRequest(
            group_id=asked["groupId"],
            member_id=ids.get(asked["memberId"], asked["memberId"]),
            member_epoch=asked["memberEpoch"],
            instance_id=asked["instanceId"],
            rack_id=asked["rackId"],
            rebalance_timeout_ms=asked["rebalanceTimeoutMs"],
            subscribed_topic_names=asked["subscribedTopicNames"],
            subscribed_topic_regex=asked.get("subscribedTopicRegex"),
            server_assignor=asked["serverAssignor"],
            topic_partitions=_owned(world, asked),
        )
        request = WireRequest(
            request_id=1, api_key=68, version=row["version"], message=message, listener="L", peer="127.0.0.1:1"
        )
        ours: tuple[int, int, int | None, int]
        try:
            check(message, row["version"], world.settings.assignors)
            group = world.groups.get(message.group_id)
            operation = world.shard.heartbeat(group, request, lambda _: True, world.context())
            world.take(operation)
            answer = operation.result
            if not asked["memberId"]:
                ids[theirs["memberId"]] = answer.member_id
            given = None
            if answer.assignment is not None:
                given = sum(len(one.partitions) for one in answer.assignment.topic_partitions)
            ours = 0, answer.member_epoch, given, answer.heartbeat_interval_ms
        except ApiError as refused:
            ours = refused.error, 0, None, 0
        told = theirs["assignment"]
        count = None if told is None else sum(len(one["partitions"]) for one in told["topicPartitions"])
        expected = theirs["errorCode"], theirs["memberEpoch"], count, theirs["heartbeatIntervalMs"]
        assert ours == expected, (number, asked)


def _owned(world: World, asked: dict[str, Any]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions] | None:
    if asked["topicPartitions"] is None:
        return None
    wanted = [(Uuid.parse(one["topicId"]), one["partitions"]) for one in asked["topicPartitions"]]
    group = world.groups.get(asked["groupId"])
    member = None if group is None else group.members.get(asked["memberId"])
    if wanted and member is not None and member.regex:
        wanted = [(topic_id, sorted(epochs)) for topic_id, epochs in member.assigned.items()]
    return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, list(numbers)) for topic_id, numbers in wanted]
