"""One partition of `__consumer_offsets` with streams groups, in virtual time and without a log: operations are replayed
at once, through their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from kraft.config.group_settings import GroupConfig, StreamsGroupConfig
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import GroupsState, replay_groups, streams_group
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.groups.streams.heartbeats import Told
from kraft.coordinators.groups.streams.wishes import check, check_size
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.coordinators import Counted
from kraft.wire import WireRequest
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records import metadata as records
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair, encode_key, encode_value
from metadata_log.types import OffsetAndEpoch, Uuid
from support.broker.share_world import GROUP, LEVELS, START_MS
from transport.protocol.errors import Error
from transport.protocol.messages import streams_group_heartbeat as messages
from transport.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

Owned = Mapping[str, Iterable[int]]
NO_DELAY: Final = {"initial_rebalance_delay_ms": 0, "assignment_interval_ms": 0}


def subtopology(
    name: str,
    *sources: str,
    changelogs: Iterable[str] = (),
    repartitions: Mapping[str, int] | None = None,
    sinks: Iterable[str] = (),
    together: bool = False,
) -> messages.Subtopology:
    """A subtopology; `together` makes one copartition group of all that it reads."""
    of = dict(repartitions or {})
    group = messages.CopartitionGroup(list(range(len(sources))), [], list(range(len(of))))
    return messages.Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        state_changelog_topics=[messages.TopicInfo(one) for one in changelogs],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[messages.TopicInfo(one, count) for one, count in of.items()],
        copartition_groups=[group] if together else [],
    )


def topology(*subtopologies: messages.Subtopology, epoch: int = 0) -> messages.Topology:
    """A topology."""
    return messages.Topology(epoch, list(subtopologies))


STATELESS: Final = topology(subtopology("0", "a"))
STATEFUL: Final = topology(subtopology("0", "a", changelogs=["store"]))


def tasks(owned: Owned) -> list[messages.StreamsGroupHeartbeatRequestTaskIds]:
    """Tasks as a member tells them."""
    return [messages.StreamsGroupHeartbeatRequestTaskIds(name, list(numbers)) for name, numbers in owned.items()]


class StreamsWorld:
    """The groups, a clock, and what members do."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupConfig(streams=StreamsGroupConfig(**{**NO_DELAY, **settings}))
        self.counted = Counted()
        self.state = GroupsState()
        self.timers = Timers()
        self.now_ms = START_MS
        self.shard = GroupShard(self.settings, self.counted)
        self.image = MetadataImage()
        self.change(records.FeatureLevelRecord(name="metadata.version", feature_level=LEVELS["4.4.0"]))
        self.log: list[Record] = []
        self.batches: list[list[Record]] = []
        """The records of each operation."""
        self.told: Told | None = None
        """The last result of a heartbeat."""

    def change(self, *added: Any) -> None:
        """New metadata."""
        delta = MetadataDelta(self.image)
        for record in added:
            delta.replay(record, self.image.end.offset + 1)
        self.image = delta.apply(OffsetAndEpoch(epoch=1, offset=self.image.end.offset + 1))

    def topic(self, name: str, count: int) -> None:
        """Create a topic, let it grow, or delete it with no partitions."""
        known = self.image.topics.get(name)
        topic_id = Uuid(name.encode().rjust(16, b"\x01")[:16]) if known is None else known.id
        if not count:
            self.change(records.RemoveTopicRecord(topic_id=topic_id))
            return
        if known is None:
            self.change(records.TopicRecord(name=name, topic_id=topic_id))
            known = self.image.topics.get(name)
        assert known is not None
        self.change(
            *(
                records.PartitionRecord(partition_id=one, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1)
                for one in range(len(known.partitions), count)
            )
        )

    def configure(self, group_id: str, **values: str | None) -> None:
        """Set values of a group's configuration, with `_` for each dot."""
        self.change(
            *(
                records.ConfigRecord(
                    resource_type=GROUP, resource_name=group_id, name=name.replace("_", "."), value=value
                )
                for name, value in values.items()
            )
        )

    def context(self) -> Context:
        """What an operation sees."""
        return Context(self.state, self.now_ms, self.image, self.timers, Random(7), lambda *_: None)

    def group(self, group_id: str = "g") -> StreamsGroup:
        """A group that exists."""
        group = streams_group(self.state, group_id)
        assert group is not None, group_id
        return group

    def take(self, operation: CoordinatorResult) -> None:
        """Replay the records of an operation, through their bytes."""
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
        log, self.log, self.state = self.log, [], GroupsState()
        self.shard, self.timers, self.batches = GroupShard(self.settings, self.counted), Timers(), []
        for record in log:
            plain = replace(record, found=None, encoded=None)
            assert self.shard.lacking(self.state, plain) == ""
            self.state = replay_groups(self.state, plain, len(self.log), -1)
            self.log.append(plain)
        for _ in self.shard.on_loaded(self.context()):
            pass
        self.wait(0)

    def wait(self, ms: int) -> None:
        """Let time pass, with all timers in it."""
        end_ms = self.now_ms + ms
        while self.timers.deadline_ms() <= end_ms:
            self.now_ms = max(self.now_ms, self.timers.deadline_ms())
            while (key := self.timers.take_due(self.now_ms)) is not None:
                self.take(self.shard.on_timer(key, self.context()))
        self.now_ms = end_ms

    def request(
        self, member_id: str, epoch: int, *, owned: tuple[Owned, Owned, Owned] | None = None, **fields: Any
    ) -> StreamsGroupHeartbeatRequest:
        """The request of a heartbeat."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topology": STATELESS, "process_id": f"p-{member_id}", **fields}
            owned = owned or ({}, {}, {})
        active, standby, warmup = (None, None, None) if owned is None else map(tasks, owned)
        given = {"group_id": "g", "active_tasks": active, "standby_tasks": standby, "warmup_tasks": warmup, **fields}
        return StreamsGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **given)

    def send(self, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        """A heartbeat; raises `ApiError`."""
        message = self.request(member_id, epoch, **fields)
        if message.topology is not None:
            check_size(message.topology)
        check(message)
        operation = self.shard.streams_heartbeat(self.wire(message, version), self.context())
        self.take(operation)
        assert isinstance(operation.result, Told)
        self.told = operation.result
        return self.told.answer

    @staticmethod
    def wire(message: StreamsGroupHeartbeatRequest, version: int = 1) -> WireRequest[StreamsGroupHeartbeatRequest]:
        """A request as a connection delivers it."""
        return WireRequest(
            request_id=1,
            api_key=88,
            version=version,
            message=message,
            listener="PLAINTEXT",
            client_id="test",
            peer="127.0.0.1:5000",
        )

    def settle(self, *members: str, rounds: int = 8) -> None:
        """Let members heartbeat, each owning what it was given, until nothing changes."""
        for _ in range(rounds):
            for one in members:
                held = self.group().members[one].assigned
                self.send(one, self.group().members[one].epoch, owned=(held.active, held.standby, held.warmup))

    def held(self, member_id: str, role: str = "active") -> dict[str, list[int]]:
        """The tasks that a member has."""
        found = getattr(self.group().members[member_id].assigned, role)
        return {name: sorted(numbers) for name, numbers in found.items()}
