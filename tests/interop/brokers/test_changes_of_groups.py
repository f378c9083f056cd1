"""What Kafka changed in its group coordinator from 4.3.1 to 4.4.0, at a broker of each make: answers and records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from metadata_log.records.batch import scan
from metadata_log.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair
from metadata_log.records.record import records
from metadata_log.serde import Message
from one_node import one_node
from support.eventually import eventually
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from transport.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

pytestmark = pytest.mark.kafka
SETTINGS = (
    "group.consumer.max.size=2",
    "group.consumer.min.assignment.interval.ms=0",
    "group.consumer.assignment.interval.ms=0",
)
LEAVING, AWAY = -1, -2
TARGET = 7
"""The type of the record of a member's target."""
WAIT = {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR}
Told = list[tuple[Any, ...]]


class Client:
    """Members of one group, and what they are told."""

    def __init__(self, port: int, group: str) -> None:
        self.port = port
        self.group = group
        self.told: Told = []

    def beat(self, member: str, epoch: int, instance: str | None = None, **fields: Any) -> int:
        """A heartbeat; its first one has everything. The epoch of the answer."""
        first = {"rebalance_timeout_ms": 9000, "subscribed_topic_names": ["a"], "topic_partitions": []}
        message = ConsumerGroupHeartbeatRequest(
            self.group, member, epoch, instance_id=instance, **{**(first if epoch == 0 else {}), **fields}
        )
        answer = ask(self.port, message, 1, ConsumerGroupHeartbeatResponse)
        count = None
        if answer.assignment is not None:
            count = sum(len(one.partitions) for one in answer.assignment.topic_partitions)
        self.told.append((member, epoch, Error(answer.error_code).name, answer.member_epoch, count))
        return answer.member_epoch

    def join(self, data: bytes, instance: str | None = None) -> None:
        """JoinGroup of a member of the classic protocol."""
        message = JoinGroupRequest(
            self.group, 30000, 30000, "", instance, "consumer", [JoinGroupRequestProtocol("range", data)]
        )
        version = 9 if instance else 3
        answer = ask(self.port, message, version, JoinGroupResponse)
        self.told.append(("classic", Error(answer.error_code).name, answer.generation_id))

    def describe(self) -> None:
        """The epochs of the group."""
        [found] = ask(self.port, ConsumerGroupDescribeRequest([self.group]), 1, ConsumerGroupDescribeResponse).groups
        self.told.append((found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name))


def emptied(client: Client) -> None:
    """The last member leaves, and another one comes."""
    epoch = client.beat("m", 0)
    client.beat("m", epoch, topic_partitions=None)
    client.beat("m", LEAVING)
    client.describe()
    client.beat("n", 0)
    client.describe()


def two_of_three_leave(client: Client) -> None:
    """A member leaves, and the group is not empty."""
    client.beat("m", 0)
    client.beat("n", 0)
    client.beat("m", LEAVING)
    client.describe()


def full(client: Client) -> None:
    """A static member comes back to a full group, under another id."""
    client.beat("s", 0, "i")
    client.beat("d", 0)
    client.beat("s", AWAY, "i")
    client.beat("x", 0)
    client.beat("y", 0, "other")
    client.beat("s2", 0, "i")
    client.join(b"\0\0", "third")
    client.describe()


def another_assignor(client: Client) -> None:
    """The members ask for another assignor."""
    epoch = client.beat("m", 0, server_assignor="uniform")
    epoch = client.beat("m", epoch, server_assignor="range")
    client.describe()
    epoch = client.beat("m", epoch, server_assignor="range")
    client.beat("m", epoch, server_assignor="uniform")
    client.describe()


def malformed(client: Client) -> None:
    """A member of the classic protocol sends a subscription that cannot be read."""
    client.beat("m", 0)
    client.join(b"\0")
    client.join(b"\0\1\0\0\0\7")
    client.describe()


def another_instance(client: Client) -> None:
    """A static member joins under another instance id: the former one is free."""
    client.beat("m", 0, "i")
    client.beat("m", 0, "j")
    client.beat("n", 0, "i")
    client.describe()


CONVERSATIONS = (emptied, two_of_three_leave, full, another_assignor, malformed, another_instance)


def shown(value: Message | None) -> tuple[Any, ...]:
    """What of a value is the same at each run."""
    match value:
        case None:
            return (None,)
        case ConsumerGroupMetadataValue():
            return (value.epoch,)
        case ConsumerGroupTargetAssignmentMetadataValue():
            return value.assignment_epoch, value.assignment_timestamp > 0
        case ConsumerGroupCurrentMemberAssignmentValue():
            return value.member_epoch, value.previous_member_epoch, value.state
    return ()


def written(root: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each record of a consumer group: the group, and the record."""
    for path in sorted(root.glob("node/__consumer_offsets-*/*.log")):
        for batch in scan(path.read_bytes(), where=str(path)):
            for one in () if batch.is_control else records(batch, where=str(path)):
                pair = decode_pair(CONSUMER_OFFSETS, one.key or b"", one.value)
                if pair is not None and hasattr(pair.key, "group_id"):
                    member = getattr(pair.key, "member_id", "")
                    named = member if len(member) < 3 else "classic"
                    yield pair.key.group_id, (pair.kind.type, named, *shown(pair.value))


def outcome(kafka: KafkaInstallation, root: Path, make: str) -> dict[str, tuple[Told, list[tuple[Any, ...]]]]:
    """What the members of each conversation are told, and what is written."""
    with one_node(kafka, root, make, *SETTINGS) as (_, port):
        topic = CreatableTopic("a", 3, 1)
        eventually(
            lambda: ask(port, CreateTopicsRequest([topic]), 7, CreateTopicsResponse).topics[0].error_code in (0, 36),
            "the topic",
        )
        found = {}
        for talk in CONVERSATIONS:
            client = Client(port, talk.__name__)
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[client.group])
            eventually(
                lambda one=asked: not ask(port, one, 4, FindCoordinatorResponse).coordinators[0].error_code,
                "a coordinator",
            )

            def is_ready(one: Client = client) -> bool:
                one.told.clear()
                one.beat("none", 5)
                return Error[one.told.pop()[2]] not in WAIT

            eventually(is_ready, "the coordinator has loaded")
            talk(client)
            found[talk.__name__] = client.told
    log: dict[str, list[tuple[Any, ...]]] = {name: [] for name in found}
    for group, record in written(root):
        log[group].append(record)
    return {name: (told, in_order(log[name])) for name, told in found.items()}


def in_order(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The records with those of targets sorted: they come in the order of a hash table."""
    runs = [list(run) for _, run in groupby(found, lambda one: one[0] == TARGET)]
    return [one for run in runs for one in (sorted(run) if run[0][0] == TARGET else run)]


def test_groups_change_as_at_the_newest_broker_of_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (outcome(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    for name, expected in theirs.items():
        assert ours[name] == expected, name


def test_records_are_those_of_the_older_release_at_its_level(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Where only an answer was wrong, ours is that of 4.4.0 at every level."""
    theirs, ours = (outcome(kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    assert {name for name, expected in theirs.items() if ours[name] != expected} == {
        "full",
        "malformed",
        "another_instance",
    }
    assert ("s2", 0, "GROUP_MAX_SIZE_REACHED", 0, None) in theirs["full"][0]
    assert ("classic", "UNKNOWN_SERVER_ERROR", -1) in theirs["malformed"][0]
    assert ("n", 0, "UNRELEASED_INSTANCE_ID", 0, None) in theirs["another_instance"][0]
