"""One partition's consumer groups in virtual time, without a log: operations are replayed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from kraft.config.group_settings import ConsumerGroupConfig
from kraft.coordinators.groups.consumer.fencing import ConsumerTimer
from kraft.coordinators.groups.consumer.group import ConsumerGroup, GroupState
from kraft.coordinators.groups.consumer.groups import ConsumerGroups, check
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.groups.consumer.replaying import GroupKey, replay
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.coordinators import Counted
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage, Partition, TopicImage, TopicsImage
from metadata_log.image.persistent_map import Map
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair, encode_key, encode_value
from metadata_log.types import Uuid
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

START_MS = 1_700_000_000_000
TYPES = {kind.key: kind.type for kind in CONSUMER_OFFSETS.values()}
Places = Mapping[str, Sequence[int]]


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"\x01"))


def image_of(counts: Mapping[str, int], offset: int = 10) -> MetadataImage:
    partition = Partition((1,), (Uuid.ZERO,), (1,), (), (), (), (), 1, 0, 0, 0)
    topics = [TopicImage(name, topic_id(name), (partition,) * count) for name, count in counts.items()]
    by_id, by_name = Map({one.id: one for one in topics}), Map({one.name: one.id for one in topics})
    image = MetadataImage()
    return replace(image, topics=TopicsImage(by_id, by_name), end=replace(image.end, offset=offset))


class World:
    """The groups, a clock, and what clients do."""

    def __init__(self, topics: Mapping[str, int], **settings: Any) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.settings = ConsumerGroupConfig(**settings)
        self.shard = ConsumerGroups(self.settings, lambda *_: None, Counted())
        self.timers = Timers()
        self.rng = Random(7)
        self.now_ms = START_MS
        self.image = image_of(topics)
        self.log: list[Record] = []
        self.batches: list[str] = []
        """The types of the records of each operation, a tombstone with a `-` after it."""
        self.denied: set[str] = set()

    def context(self) -> Context:
        return Context(self.groups, self.now_ms, self.image, self.timers, self.rng, lambda *_: None)

    def take(self, operation: CoordinatorResult) -> None:
        """Replay the records of an operation, through their bytes."""
        for record in operation.records:
            data = encode_key(record.key), None if record.value is None else encode_value(record.value)
            read = decode_pair(CONSUMER_OFFSETS, *data)
            assert read is not None
            assert (read.key, read.value) == (record.key, record.value)
            assert isinstance(read.key, GroupKey)
            group_id = read.key.group_id
            group = replay(self.groups.get(group_id), read.key, read.value)
            if group is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = group
        self.log += operation.records
        if operation.records:
            self.batches.append(
                " ".join(f"{TYPES[type(one.key)]}{'-' if one.value is None else ''}" for one in operation.records)
            )

    def restart(self) -> None:
        """Another broker takes over: only the records are left."""
        log, self.log, self.groups = self.log, [], {}
        self.shard, self.timers, self.batches = ConsumerGroups(self.settings, lambda *_: None, Counted()), Timers(), []
        self.take(CoordinatorResult(log))
        for group in self.groups.values():
            self.shard.start(group, self.context())

    def wait(self, ms: int) -> None:
        """Let time pass, with all timers in it."""
        end_ms = self.now_ms + ms
        while self.timers.deadline_ms() <= end_ms:
            self.now_ms = max(self.now_ms, self.timers.deadline_ms())
            while (key := self.timers.take_due(self.now_ms)) is not None:
                assert isinstance(key, ConsumerTimer)
                self.take(self.shard.on_timer(self.groups.get(key.group_id), key, self.context()))
        self.now_ms = end_ms

    def send(
        self, member_id: str, epoch: int, owned: Places | None = None, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat; raises `ApiError`."""
        message = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group_id", "g"),
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id(name), list(of)) for name, of in owned.items()],
            **fields,
        )
        check(message, version, self.settings.assignors)
        request = WireRequest(
            request_id=1,
            api_key=68,
            version=version,
            message=message,
            listener="L",
            client_id="client",
            peer="127.0.0.1:99",
        )
        group = self.groups.get(message.group_id)
        operation = self.shard.heartbeat(group, request, lambda name: name not in self.denied, self.context())
        self.take(operation)
        answer = operation.result
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def join(self, member_id: str, *names: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat of a member."""
        wish: dict[str, Any] = {"subscribed_topic_names": list(names)} if "subscribed_topic_regex" not in fields else {}
        return self.send(member_id, 0, {}, **{"rebalance_timeout_ms": 30_000, **wish, **fields})

    def state(self) -> GroupState:
        return self.groups["g"].state

    def member(self, member_id: str, group_id: str = "g") -> Member:
        return self.groups[group_id].members[member_id]


def places(answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The assignment of an answer, by names."""
    if answer.assignment is None:
        return None
    return {one.topic_id.lstrip(b"\x01").decode(): list(one.partitions) for one in answer.assignment.topic_partitions}


def count(answer: ConsumerGroupHeartbeatResponse) -> int | None:
    found = places(answer)
    return None if found is None else sum(map(len, found.values()))
