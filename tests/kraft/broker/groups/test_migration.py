"""Groups that change between the protocols while they have members, with the records of brokers of Kafka 4.3.1."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from consumer_world import START_MS, TYPES, image_of, topic_id

from kraft.access.errors import ApiError
from kraft.broker.coordinator.shard import HELD, Context, Operation, Record
from kraft.broker.coordinator.timers import Timers
from kraft.broker.groups.consumer.embedded import assignment_of
from kraft.broker.groups.consumer.group import ConsumerGroup
from kraft.broker.groups.shard import GroupShard
from kraft.broker.groups.state import GroupsState
from kraft.config.group_settings import ConsumerGroupConfig, GroupConfig
from kraft.wire import WireRequest
from metadata_log.records.consumer_offsets import GroupMetadataValue
from metadata_log.serde import Message, encode
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from transport.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

V1 = struct.pack(">h", 1)


class Shard:
    """A partition with both kinds of groups, in virtual time."""

    def __init__(self, policy: str = "bidirectional") -> None:
        self.settings = GroupConfig(initial_rebalance_delay_ms=0, consumer=ConsumerGroupConfig(migration_policy=policy))
        self.state = GroupsState()
        self.shard = GroupShard(self.settings)
        self.timers = Timers()
        self.rng = Random(3)
        self.now_ms = START_MS
        self.image = image_of({"a": 4})
        self.log: list[Record] = []
        self.batches: list[str] = []
        self.answers: list[Message] = []

    def context(self) -> Context:
        def answer(_: WireRequest, message: Message) -> None:
            self.answers.append(message)

        return Context(self.state, self.now_ms, self.image, self.timers, self.rng, answer)

    def take(self, operation: Operation, error: Error = Error.NONE) -> Any:
        if error is Error.NONE:
            for record in operation.records:
                self.state = self.shard.replay(self.state, record, len(self.log), -1)
                self.log.append(record)
            if operation.records:
                marks = (f"{TYPES[type(one.key)]}{'-' if one.value is None else ''}" for one in operation.records)
                self.batches.append(" ".join(marks))
        if operation.on_end is not None:
            following = operation.on_end(error, self.context())
            if following is not None:
                self.take(following)
        return operation.result

    def ask(self, message: Message, version: int, error: Error = Error.NONE) -> Any:
        request = WireRequest(
            request_id=1, api_key=0, version=version, message=message, listener="L", client_id="c", peer="127.0.0.1:9"
        )
        match message:
            case JoinGroupRequest():
                operation = self.shard.join(request, self.context())
            case SyncGroupRequest():
                operation = self.shard.sync(request, self.context())
            case HeartbeatRequest():
                operation = self.shard.heartbeat(request, self.context())
            case LeaveGroupRequest():
                operation = self.shard.leave(request, self.context())
            case _:
                operation = self.shard.consumer_heartbeat(request, lambda _: True, self.context())
        found = self.take(operation, error)
        return self.answers.pop() if found is HELD else found

    def wait(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.timers.deadline_ms() <= end_ms:
            self.now_ms = max(self.now_ms, self.timers.deadline_ms())
            while (key := self.timers.take_due(self.now_ms)) is not None:
                self.take(self.shard.on_timer(key, self.context()))
        self.now_ms = end_ms

    def restart(self) -> None:
        self.shard, self.timers = GroupShard(self.settings), Timers()
        log, self.log, self.state = self.log, [], GroupsState()
        self.take(Operation(log))
        for _ in self.shard.on_loaded(self.context()):
            pass
        self.wait(0)

    def join_classic(self, member_id: str = "", owned: list[int] | None = None, **fields: Any) -> Any:
        has = [ConsumerProtocolSubscriptionTopicPartition("a", owned)] if owned else []
        data = encode(ConsumerProtocolSubscription(["a"], None, has), 1, V1)
        return self.ask(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=20_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", data)],
                **fields,
            ),
            9,
        )

    def sync_classic(self, member_id: str, generation: int, numbers: list[int] | None = None) -> list[int]:
        data = encode(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("a", numbers or [])]), 1, V1)
        answer = self.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[] if numbers is None else [SyncGroupRequestAssignment(member_id, data)],
            ),
            5,
        )
        if not self.log or answer.assignment == b"":
            return []
        return list(assignment_of(answer.assignment, self.image).get(topic_id("a"), ()))

    def beat(self, member_id: str, generation: int) -> Error:
        return Error(self.ask(HeartbeatRequest("g", generation, member_id), 4).error_code)

    def consumer(self, member_id: str, epoch: int, owned: list[int] | None = None, error: Error = Error.NONE) -> Any:
        topics = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id("a"), owned)] if owned else []
        return self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=30_000 if epoch == 0 else -1,
                subscribed_topic_names=["a"] if epoch == 0 else None,
                topic_partitions=None if owned is None else topics,
            ),
            1,
            error,
        )

    def stable_classic(self) -> str:
        """A classic group with one member, which has everything."""
        first = self.join_classic(self.join_classic().member_id)
        assert (first.error_code, first.generation_id) == (0, 1)
        assert self.sync_classic(first.member_id, 1, [0, 1, 2, 3]) == [0, 1, 2, 3]
        member_id: str = first.member_id
        return member_id


def refused(call: Any, *args: Any) -> Error:
    with pytest.raises(ApiError) as caught:
        call(*args)
    return caught.value.error


def group_of(shard: Shard) -> ConsumerGroup:
    group = shard.state.groups["g"]
    assert isinstance(group, ConsumerGroup), group
    return group


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_consumer_joins_a_classic_group_and_leaves(fails_over: bool) -> None:
    """The scene of the corpus: one batch, the classic member joins again for half, and gets all back in the end."""
    shard = Shard()
    one = shard.stable_classic()
    shard.batches.clear()
    joined = shard.consumer("new", 0, [])
    assert shard.batches == ["2- 5 3 7 6 8 5 3 7 7 6 8"]
    assert (joined.member_epoch, joined.assignment.topic_partitions) == (2, [])
    if fails_over:
        shard.restart()
    assert shard.beat(one, 1) is Error.REBALANCE_IN_PROGRESS
    again = shard.join_classic(one, [0, 1, 2, 3])
    assert (again.error_code, again.generation_id, again.leader, again.members) == (0, 1, "", [])
    half = shard.sync_classic(one, 1)
    assert half == [0, 1]
    assert shard.beat(one, 1) is Error.REBALANCE_IN_PROGRESS
    again = shard.join_classic(one, half)
    assert again.generation_id == 2
    assert shard.sync_classic(one, 2) == half
    assert shard.beat(one, 2) is Error.NONE
    assert [list(of.partitions) for of in shard.consumer("new", 2).assignment.topic_partitions] == [[2, 3]]
    shard.batches.clear()
    assert shard.consumer("new", -1).error_code == 0
    assert shard.batches == ["8- 8- 7- 7- 6- 5- 5- 4- 3- 2"]
    recorded = shard.state.groups["g"]
    assert isinstance(recorded, GroupMetadataValue)
    assert (recorded.generation, [member.member_id for member in recorded.members]) == (2, [one])
    if fails_over:
        shard.restart()
        assert shard.beat(one, 2) is Error.NONE
    else:
        assert shard.beat(one, 2) is Error.REBALANCE_IN_PROGRESS
        last = shard.join_classic(one, half)
        assert (last.generation_id, last.leader) == (3, one)


def test_an_upgrade_that_is_not_written_leaves_the_classic_group() -> None:
    shard = Shard()
    one = shard.stable_classic()
    shard.consumer("new", 0, [], Error.NOT_ENOUGH_REPLICAS)
    assert shard.beat(one, 1) is Error.NONE
    shard.wait(10_001)
    recorded = shard.state.groups["g"]
    assert isinstance(recorded, GroupMetadataValue)
    assert not recorded.members, "its session is watched again"


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_the_settings_may_forbid_an_upgrade(policy: str) -> None:
    shard = Shard(policy)
    shard.stable_classic()
    assert refused(shard.consumer, "new", 0, []) is Error.GROUP_ID_NOT_FOUND


def test_a_classic_member_joins_a_consumer_group() -> None:
    shard = Shard()
    assert shard.consumer("new", 0, []).member_epoch == 2
    shard.wait(1000)
    named = shard.join_classic()
    assert (named.error_code, len(named.member_id)) == (Error.MEMBER_ID_REQUIRED, 22)
    joined = shard.join_classic(named.member_id)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (3, "range", "")
    assert shard.sync_classic(named.member_id, 3) == []
    assert refused(shard.beat, named.member_id, 2) is Error.ILLEGAL_GENERATION
    assert refused(shard.beat, "new", 2) is Error.UNKNOWN_MEMBER_ID
    assert shard.beat(named.member_id, 3) is Error.NONE, "its partitions are not free yet"
    shard.consumer("new", 2)
    shard.consumer("new", 2, [0, 1])
    assert shard.beat(named.member_id, 3) is Error.REBALANCE_IN_PROGRESS
    shard.join_classic(named.member_id)
    assert shard.sync_classic(named.member_id, 3) == [2, 3]
    left = shard.ask(LeaveGroupRequest("g", members=[MemberIdentity(named.member_id), MemberIdentity("x")]), 5)
    assert [one.error_code for one in left.members] == [0, Error.UNKNOWN_MEMBER_ID]
    assert list(group_of(shard).members) == ["new"]


def test_a_classic_member_that_does_not_join_again_is_fenced() -> None:
    shard = Shard()
    one = shard.stable_classic()
    shard.consumer("new", 0, [])
    for _ in range(5):
        assert shard.beat(one, 1) is Error.REBALANCE_IN_PROGRESS
        shard.wait(3999)
        shard.consumer("new", 2)
    shard.wait(10)
    assert list(group_of(shard).members) == ["new"]


def test_the_protocol_is_disabled_for_classic_members() -> None:
    shard = Shard("disabled")
    shard.consumer("new", 0, [])
    assert refused(shard.join_classic) is Error.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_changes_in_both_directions() -> None:
    shard = Shard("disabled")
    one = shard.stable_classic()
    shard.ask(LeaveGroupRequest("g", members=[MemberIdentity(one)]), 5)
    shard.batches.clear()
    assert shard.consumer("new", 0, []).member_epoch == 2
    shard.consumer("new", -1)
    shard.join_classic(group_instance_id="i1")
    assert shard.batches[0].startswith("2- 5 3 7 6 8")
    assert shard.batches[2].startswith("6- 4- 3- ")


def test_the_last_consumer_is_replaced_by_a_classic_member() -> None:
    shard = Shard()
    shard.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="new",
            instance_id="i1",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        ),
        1,
    )
    shard.batches.clear()
    joined = shard.join_classic(group_instance_id="i1")
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, "")
    assert shard.batches == ["8- 7- 5- 5 7 8 5 8 8- 7- 6- 5- 4- 3- 2"]
    recorded = shard.state.groups["g"]
    assert isinstance(recorded, GroupMetadataValue)
    assert (recorded.generation, recorded.members[0].member_id) == (2, joined.member_id)
    assert shard.beat(joined.member_id, 2) is Error.NONE
    assert shard.sync_classic(joined.member_id, 2) == [0, 1, 2, 3]
