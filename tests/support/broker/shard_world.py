"""One partition with groups of both protocols in virtual time, and what clients ask of it."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from kraft.config.group_settings import ConsumerGroupConfig, GroupConfig
from kraft.coordinators.groups.consumer.embedded import assignment_of
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.shard import HELD, Context, CoordinatorResult, Record
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.coordinators import Counted
from kraft.wire import WireRequest
from metadata_log.serde import Message, encode
from support.broker.consumer_world import START_MS, TYPES, image_of, topic_id
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
from transport.protocol.messages.leave_group import LeaveGroupRequest
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

V1 = struct.pack(">h", 1)


class Shard:
    """A partition with both kinds of groups, in virtual time."""

    def __init__(self, policy: str = "bidirectional") -> None:
        self.settings = GroupConfig(initial_rebalance_delay_ms=0, consumer=ConsumerGroupConfig(migration_policy=policy))
        self.state = GroupsState()
        self.shard = GroupShard(self.settings, Counted())
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

    def take(self, operation: CoordinatorResult, error: Error = Error.NONE) -> Any:
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
        request: Any = WireRequest(
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
        self.shard, self.timers = GroupShard(self.settings, Counted()), Timers()
        log, self.log, self.state = self.log, [], GroupsState()
        self.take(CoordinatorResult(log))
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
