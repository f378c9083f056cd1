"""One partition of `__consumer_offsets` with share groups, in virtual time and without a log: operations are replayed
at once, and the test says when the share coordinators answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.group_settings import GroupConfig, ShareGroupConfig
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.shares.heartbeats import check
from kraft.coordinators.groups.shares.states import Beginning, Partitions
from kraft.coordinators.groups.state import GroupsState, replay_groups, share_group
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.coordinators import Counted
from kraft.wire import WireRequest
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records import metadata as records
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair, encode_key, encode_value
from metadata_log.serde import Message, to_json
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

START_MS: Final = 1_795_880_000_000
TYPES: Final = {kind.key: kind.type for kind in CONSUMER_OFFSETS.values()}
LEVELS: Final = {"4.4.0": 33, "4.3.1": 30}
"""The metadata.version of each release."""
GROUP: Final = 32
"""The resource type of the configuration of a group."""


class Asked(Struct):
    """States that a group has asked for."""

    group_id: str
    epoch: int
    beginnings: list[Beginning]
    partitions: Partitions


class ShareWorld:
    """The groups, a clock, and what clients do."""

    def __init__(self, *, level: int = LEVELS["4.4.0"], **settings: Any) -> None:
        self.settings = GroupConfig(share=ShareGroupConfig(**settings))
        self.counted = Counted()
        self.asked: list[Asked] = []
        self.state = GroupsState()
        self.timers = Timers()
        self.rng = Random(7)
        self.now_ms = START_MS
        self.shard = self._new_shard()
        self.image = MetadataImage()
        self.change(records.FeatureLevelRecord(name="metadata.version", feature_level=level))
        self.log: list[Record] = []
        self.batches: list[list[Record]] = []
        """The records of each operation."""

    def _new_shard(self) -> GroupShard:
        def begin(group_id: str, epoch: int, asked: list[Beginning], partitions: Partitions, _: int) -> None:
            self.asked.append(Asked(group_id, epoch, asked, partitions))

        return GroupShard(self.settings, self.counted, lambda: False, begin)

    def change(self, *added: Message) -> None:
        """New metadata."""
        before = self.image.topics.by_name
        delta = MetadataDelta(self.image)
        for record in added:
            delta.replay(record, self.image.end.offset + 1)
        self.image = delta.apply(OffsetAndEpoch(epoch=1, offset=self.image.end.offset + 1))
        gone = {name: topic for name, topic in before.items() if self.image.topics.by_name.get(name) != topic}
        if gone:
            self.shard.on_deleted_topics(gone, self.context())
            self.wait(0)

    def topic(self, name: str, count: int, topic_id: Uuid | None = None) -> Uuid:
        """Create a topic, let it grow, or delete it with no partitions; returns its id."""
        known = self.image.topics.get(name)
        topic_id = topic_id or (Uuid(name.encode().rjust(16, b"\x01")) if known is None else known.id)
        if not count:
            self.change(records.RemoveTopicRecord(topic_id=topic_id))
            return topic_id
        if known is None or known.id != topic_id:
            self.change(records.TopicRecord(name=name, topic_id=topic_id))
        known = self.image.topics.get(name)
        assert known is not None
        self.change(
            *(
                records.PartitionRecord(partition_id=one, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1)
                for one in range(len(known.partitions), count)
            )
        )
        return topic_id

    def configure(self, group_id: str, **values: str | None) -> None:
        """Set values of a group's configuration, with `_` for each dot."""
        self.configs(group_id, {name.replace("_", "."): value for name, value in values.items()})

    def configs(self, group_id: str, values: Mapping[str, str | None]) -> None:
        """Set values of a group's configuration."""
        self.change(
            *(
                records.ConfigRecord(resource_type=GROUP, resource_name=group_id, name=name, value=value)
                for name, value in values.items()
            )
        )

    def context(self) -> Context:
        return Context(self.state, self.now_ms, self.image, self.timers, self.rng, lambda *_: None)

    def group(self, group_id: str = "g") -> ShareGroup:
        """A group that exists."""
        group = share_group(self.state, group_id)
        assert group is not None, group_id
        return group

    def take(self, operation: CoordinatorResult) -> None:
        """Replay the records of an operation, through their bytes, and go on as the runtime does once they are
        committed.
        """
        for record in operation.records:
            data = encode_key(record.key), None if record.value is None else encode_value(record.value)
            assert record.encoded in (None, data), record
            read = decode_pair(CONSUMER_OFFSETS, *data)
            assert read is not None
            assert (read.key, read.value) == (record.key, record.value)
            self.state = replay_groups(self.state, record, len(self.log), -1)
            self.log.append(record)
        if operation.records:
            self.batches.append(list(operation.records))
        if operation.on_end is not None:
            following = operation.on_end(Error.NONE, self.context())
            if following is not None:
                self.take(following)

    def restart(self) -> None:
        """Another broker takes over: only the records are left."""
        log, self.log, self.state, self.asked = self.log, [], GroupsState(), []
        self.shard, self.timers, self.batches = self._new_shard(), Timers(), []
        for record in log:
            plain = replace(record, found=None, encoded=None)
            assert self.shard.lacking(self.state, plain) == ""
            self.state = replay_groups(self.state, plain, len(self.log), -1)
            self.log.append(plain)
        for _ in self.shard.on_loaded(self.context()):
            pass
        self.wait(0)

    def wait(self, ms: int) -> None:
        """Let time pass, with all timers in it but those that look at offsets."""
        end_ms = self.now_ms + ms
        while self.timers.deadline_ms() <= end_ms:
            self.now_ms = max(self.now_ms, self.timers.deadline_ms())
            while (key := self.timers.take_due(self.now_ms)) is not None:
                self.take(self.shard.on_timer(key, self.context()))
        self.now_ms = end_ms

    def answer(self, *, is_done: bool = True) -> None:
        """Let the share coordinators answer what the groups have asked."""
        asked, self.asked = self.asked, []
        for one in asked:
            group = share_group(self.state, one.group_id)
            self.take(self.shard.shares.begun(group, one.partitions, self.context(), is_done=is_done))

    def send(
        self, member_id: str, epoch: int, names: list[str] | None = None, *, client_id: str = "test", **fields: Any
    ) -> ShareGroupHeartbeatResponse:
        """A heartbeat; raises `ApiError`."""
        message = ShareGroupHeartbeatRequest(
            fields.pop("group_id", "g"), member_id, epoch, fields.pop("rack_id", None), names
        )
        check(message)
        operation = self.shard.share_heartbeat(self.wire(message, client_id), self.context())
        self.take(operation)
        result = operation.result
        assert isinstance(result, ShareGroupHeartbeatResponse)
        return result

    @staticmethod
    def wire(message: ShareGroupHeartbeatRequest, client_id: str = "test") -> WireRequest[ShareGroupHeartbeatRequest]:
        """A request as a connection delivers it."""
        return WireRequest(
            request_id=1,
            api_key=76,
            version=1,
            message=message,
            listener="PLAINTEXT",
            client_id=client_id,
            peer="127.0.0.1:5000",
        )


def plain(batch: list[Record]) -> list[tuple[int, Any, Any]]:
    """Records as type, key and value."""
    return [
        (TYPES[type(one.key)], to_json(one.key, 0), None if one.value is None else to_json(one.value, 0))
        for one in batch
    ]
