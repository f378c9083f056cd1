"""The metadata that a screen needs, replayed from committed batches, with each unchanged topic counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.operate.top.samples import BrokerSample, Election, MetadataSample, PartitionSample, Trouble
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.brokers import Broker
from metadata_log.image.configs import ConfigsImage
from metadata_log.image.names import listener_text
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import NO_LEADER, TopicImage
from metadata_log.reading.replay_log import replay_batch
from metadata_log.records.batch import RecordBatch
from metadata_log.records.control import LeaderChangeMessage
from metadata_log.records.frame import decode_control
from metadata_log.records.metadata import BrokerEndpoint
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch, Uuid

MIN_ISR: Final = "min.insync.replicas"
MOST_TROUBLED: Final = 1_000
"""The partitions with a trouble that a sample names; the counts have all."""
WHERE: Final = "the metadata log"


class _Counted(Struct, frozen=True):
    """A topic as it was counted, with its min.insync.replicas of that time."""

    topic: TopicImage
    min_isr: int
    replicas: Counter[int]
    in_sync: Counter[int]
    leads: Counter[int]
    troubled: tuple[PartitionSample, ...]


class MetadataReplay:
    """Follows the log of a cluster, from its beginning or from a snapshot, and summarises what a screen shows."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.elections: list[Election] = []
        """The elections in the log, in its order."""
        self._counted: dict[Uuid, _Counted] = {}
        self._partitions = 0
        self._replicas, self._in_sync, self._leads = Counter[int](), Counter[int](), Counter[int]()

    def begin_with(self, snapshot: Iterable[RecordBatch], end: OffsetAndEpoch) -> None:
        """Replace the image by that of a snapshot, which ends at `end`."""
        delta = MetadataDelta(MetadataImage(), is_snapshot=True)
        for batch in snapshot:
            replay_batch(delta, batch, where=WHERE)
        self.image = delta.apply(end)

    def take(self, batches: Iterable[RecordBatch]) -> None:
        """Replay the next batches. Those before the end of a snapshot are in the image already.

        Raises `UnsupportedVersion` for a record of a newer release, and `MetadataLogError` for damage.
        """
        delta, end = MetadataDelta(self.image), self.image.end
        for batch in batches:
            if batch.is_control:
                self._note_election(batch)
            if batch.base_offset >= self.image.end.offset:
                replay_batch(delta, batch, where=WHERE)
                end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        self.image = delta.apply(end)

    def _note_election(self, batch: RecordBatch) -> None:
        for one in records(batch, where=WHERE):
            _, message = decode_control(one.key or b"", one.value or b"", where=WHERE)
            if isinstance(message, LeaderChangeMessage):
                election = Election(
                    epoch=batch.epoch, leader_id=message.leader_id, at_ms=batch.max_timestamp, offset=one.offset
                )
                self.elections.append(election)

    def summary(self) -> MetadataSample:
        """The counts and lists of this moment; during a metadata transaction, those from before it."""
        image = self.image.stable
        self._count(image)
        leaderless: list[PartitionSample] = []
        below: list[PartitionSample] = []
        for counted in sorted((one for one in self._counted.values() if one.troubled), key=lambda one: one.topic.name):
            for one in counted.troubled:
                (leaderless if one.trouble is Trouble.NO_LEADER else below).append(one)
        return MetadataSample(
            offset=self.image.end.offset,
            topics=len(image.topics),
            partitions=self._partitions,
            leaderless=len(leaderless),
            below_min_isr=len(below),
            brokers=tuple(self._brokers(image)),
            troubled=tuple((*leaderless, *below)[:MOST_TROUBLED]),
        )

    def _brokers(self, image: MetadataImage) -> Iterator[BrokerSample]:
        for broker_id, broker in in_key_order(image.brokers.by_id):
            yield BrokerSample(
                id=broker_id,
                state=broker_state(broker),
                rack=broker.rack,
                endpoint=next((_address(one) for one in broker.endpoints), ""),
                replicas=self._replicas[broker_id],
                in_sync=self._in_sync[broker_id],
                leads=self._leads[broker_id],
            )

    def _count(self, image: MetadataImage) -> None:
        by_id = image.topics.by_id
        for topic_id, topic in by_id.items():
            min_isr = _min_isr(image.configs, topic.name)
            known = self._counted.get(topic_id)
            if known is None or known.topic is not topic or known.min_isr != min_isr:
                self._forget(topic_id)
                counted = self._counted[topic_id] = _counted(topic, min_isr)
                self._partitions += len(topic.partitions)
                self._replicas.update(counted.replicas)
                self._in_sync.update(counted.in_sync)
                self._leads.update(counted.leads)
        if len(self._counted) > len(by_id):
            for topic_id in [one for one in self._counted if one not in by_id]:
                self._forget(topic_id)

    def _forget(self, topic_id: Uuid) -> None:
        known = self._counted.pop(topic_id, None)
        if known is not None:
            self._partitions -= len(known.topic.partitions)
            self._replicas.subtract(known.replicas)
            self._in_sync.subtract(known.in_sync)
            self._leads.subtract(known.leads)


def _counted(topic: TopicImage, min_isr: int) -> _Counted:
    replicas, in_sync, leads = Counter[int](), Counter[int](), Counter[int]()
    troubled = []
    for number, one in enumerate(topic.partitions):
        replicas.update(one.replicas)
        in_sync.update(one.isr)
        leads[one.leader] += 1
        if one.leader == NO_LEADER:
            trouble = Trouble.NO_LEADER
        elif len(one.isr) < min(min_isr, len(one.replicas)):
            trouble = Trouble.BELOW_MIN_ISR
        else:
            continue
        troubled.append(
            PartitionSample(
                topic=topic.name,
                partition=number,
                trouble=trouble,
                replicas=one.replicas,
                isr=one.isr,
                elr=one.elr or one.last_known_elr,
                min_isr=min_isr,
            )
        )
    return _Counted(topic, min_isr, replicas, in_sync, leads, tuple(troubled))


def _min_isr(configs: ConfigsImage, topic: str) -> int:
    """The setting of a topic, of all brokers, or Kafka's default."""
    number = configs.number_for_topic(topic, MIN_ISR)
    return 1 if number is None else number


def _address(endpoint: BrokerEndpoint) -> str:
    return listener_text(endpoint.name, endpoint.host, endpoint.port).partition("://")[2]


def broker_state(broker: Broker) -> str:
    """The state of a broker in one word."""
    if broker.in_controlled_shutdown:
        return "stopped" if broker.fenced else "stopping"
    return "fenced" if broker.fenced else "active"
