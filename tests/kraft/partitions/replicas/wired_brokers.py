"""Brokers with data that are wired in memory, in virtual time, with one partition and a controller of a few lines."""

from __future__ import annotations

from fetch_answers import answer_fetch
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.replicas import ReplicaManager
from metadata_log.image import Partition
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append,
    append_to,
    cluster,
    new_topic,
    part_of,
    publish,
    registration,
    replayed,
    settings,
    values_of,
)
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from transport.protocol.messages.fetch import FetchRequest
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

STEP_MS = 100


class Wired:
    """Brokers that replicate the partition `t-0`.

    Args:
        brokers: How many brokers there are, from 1 on; broker 1 leads.
        configs: The configurations of the topic.
        changes: Changes of the settings of all brokers.
    """

    def __init__(self, brokers: int, configs: dict[str, str] | None = None, **changes: object) -> None:
        ids = tuple(range(1, brokers + 1))
        self.now_ms = NOW_MS
        self.image = replayed(cluster(*ids), *new_topic(ids, configs=configs or {}))
        self.epochs = {one: 1000 + one for one in ids}
        self.disks = {one: MemoryDisk() for one in ids}
        self.managers: dict[int, ReplicaManager] = {}
        self.silent: set[int] = set()
        """The brokers that neither ask nor answer."""
        self.is_controller_silent = False
        self._changes = changes
        for one in ids:
            self.start(one)

    # ------------------------------------------------------------------------------------------------------- brokers

    def start(self, broker_id: int, *, is_clean: bool = False) -> ReplicaManager:
        """Start a broker on its disk."""
        made = settings(broker_id, **self._changes)
        self.managers[broker_id] = manager = ReplicaManager(self.disks[broker_id], made)
        publish(manager, self.image, self.now_ms)
        return manager

    def cut_power(self, broker_id: int) -> None:
        """End a broker; only what its disk has made durable is left."""
        del self.managers[broker_id]
        self.disks[broker_id].crash()

    def kill(self, broker_id: int) -> None:
        """End a broker; what it has written stays."""
        del self.managers[broker_id]
        self.disks[broker_id].kill()

    def restart(self, broker_id: int) -> None:
        """Start a broker again: it registers with a new epoch."""
        self.epochs[broker_id] += 1000
        self.commit(registration(broker_id, self.epochs[broker_id]))
        self.start(broker_id)

    # -------------------------------------------------------------------------------------------------------- metadata

    @property
    def partition(self) -> Partition:
        """The metadata of the partition."""
        return self.image.topics.by_id[TOPIC].partitions[0]

    def commit(self, *added: Message) -> None:
        """Commit metadata records, and publish them to all brokers."""
        self.image = replayed(self.image, *added)
        for broker_id, manager in self.managers.items():
            if broker_id not in self.silent:
                publish(manager, self.image, self.now_ms)

    def isr(self) -> tuple[int, ...]:
        """The committed ISR."""
        return self.partition.isr

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        """Elect a leader; each election raises the leader epoch."""
        change = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=leader, isr=isr)
        self.commit(change)

    def answer_proposals(self) -> None:
        """Answer every ISR proposal as the controller does."""
        for broker_id, manager in self.managers.items():
            if broker_id in self.silent or self.is_controller_silent:
                continue
            asked = manager.isr.request_due(self.image, self.epochs[broker_id], self.now_ms)
            if asked is None:
                continue
            [part] = asked.topics[0].partitions
            current, isr = self.partition, [one.broker_id for one in part.new_isr_with_epochs]
            answer = AlterPartitionResponsePartitionData(partition_index=0, error_code=Error.INVALID_UPDATE_VERSION)
            if (part.leader_epoch, part.partition_epoch) == (current.leader_epoch, current.partition_epoch):
                self.commit(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=tuple(isr)))
                answer = AlterPartitionResponsePartitionData(
                    partition_index=0,
                    leader_epoch=part.leader_epoch,
                    isr=isr,
                    partition_epoch=self.partition.partition_epoch,
                )
            topic = AlterPartitionResponseTopicData(topic_id=TOPIC, partitions=[answer])
            manager.isr.on_answer(AlterPartitionResponse(topics=[topic]), self.now_ms)

    # ------------------------------------------------------------------------------------------------------------ time

    def fetch(self, follower: int) -> None:
        """One request of a follower to its leader, with the answer."""
        manager = self.managers[follower]
        for leader in manager.followers.leaders():
            request = manager.followers.request(leader, self.epochs[follower], self.now_ms)
            if request is not None:
                answer = self._answer(leader, request) if {leader, follower}.isdisjoint(self.silent) else None
                manager.followers.on_answer(leader, answer, self.now_ms)

    def _answer(self, leader: int, request: Message) -> Message | None:
        manager = self.managers.get(leader)
        if manager is None:
            return None
        if isinstance(request, ListOffsetsRequest):
            return _offsets(manager, request)
        assert isinstance(request, FetchRequest)
        return answer_fetch(manager, request, self.now_ms)

    def run(self, for_ms: int) -> None:
        """Let time pass: every broker fetches in each step of 100 ms; of a second, for a long time."""
        step_ms = STEP_MS if for_ms < 10_000 else 1000
        for _ in range(max(1, for_ms // step_ms)):
            self.now_ms += step_ms
            for broker_id in list(self.managers):
                if broker_id not in self.silent:
                    self.fetch(broker_id)
                    self.managers[broker_id].shrink(self.now_ms)
            self.answer_proposals()

    # ------------------------------------------------------------------------------------------------- what is there

    def append(self, leader: int, *values: bytes, acks: int = -1) -> Appended:
        """Append one batch at a leader."""
        return append(self.managers[leader], *values, acks=acks, now_ms=self.now_ms)

    def refused(self, leader: int, data: bytes, acks: int = -1) -> Error | None:
        """The error of an append."""
        found = append_to(self.managers[leader], KEY, data, acks=acks, now_ms=self.now_ms)
        return found.error if isinstance(found, RefusedAppend) else None

    def watermarks(self) -> dict[int, int]:
        """The high watermark of each broker."""
        return {one: part_of(manager).log.high_watermark for one, manager in self.managers.items()}

    def ends(self) -> dict[int, int]:
        """The end of the log of each broker."""
        return {one: part_of(manager).log.end_offset for one, manager in self.managers.items()}

    def epochs_of(self, broker_id: int) -> list[tuple[int, int]]:
        """The epoch cache of a broker."""
        entries: tuple[OffsetAndEpoch, ...] = part_of(self.managers[broker_id]).log.epochs.entries
        return [(each.epoch, each.offset) for each in entries]

    def bytes_of(self, broker_id: int) -> bytes:
        """The batches of a broker."""
        log = part_of(self.managers[broker_id]).log
        return b"".join(segment.batches.file.pread(1 << 30, 0) for segment in log.segments)

    def values(self, broker_id: int) -> list[bytes | None]:
        """The values of the records of a broker."""
        return values_of(self.managers[broker_id])

    def assert_equal(self) -> None:
        """All logs are equal byte for byte, with their epochs."""
        first, *others = self.managers
        for other in others:
            assert self.bytes_of(other) == self.bytes_of(first), (self.values(first), self.values(other))
            assert self.epochs_of(other) == self.epochs_of(first)


def _offsets(manager: ReplicaManager, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer ListOffsets of a follower: the end or the start of the log."""
    part = part_of(manager)
    [topic] = request.topics
    answers = []
    for wanted in topic.partitions:
        served = manager.hosting.served(KEY, wanted.current_leader_epoch, needs_leader=True)
        offset = part.log.end_offset if wanted.timestamp == -1 else part.log.start_offset
        answers.append(
            ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index,
                error_code=served.error if isinstance(served, RefusedAppend) else Error.NONE,
                offset=-1 if isinstance(served, RefusedAppend) else offset,
            )
        )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=answers)])
