"""Contradictions between the brokers' files and an image: strays, missing replicas, partition epochs, producer ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kraft.operate.recover.inventory import Inventory, LogDir, PartitionFiles
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import Partition
from metadata_log.types import Uuid


class Stray(Struct, frozen=True, kw_only=True):
    """A partition directory that its broker would rename to `-stray` at its start.

    `why` is "unknown topic", "other topic id", "unknown partition", "no topic id" or "not assigned to this broker".
    """

    broker: int
    log_dir: LogDir
    files: PartitionFiles
    why: str


class MissingReplica(Struct, frozen=True, kw_only=True):
    """A replica that the image assigns to a given log directory, and that is not there."""

    broker: int
    name: str
    directory: str
    is_only_isr: bool


class PartitionEpoch(Struct, frozen=True, kw_only=True):
    """A partition with data of a leader epoch as high as the image's, or higher."""

    broker: int
    name: str
    topic_id: Uuid
    number: int
    last_epoch: int
    image_epoch: int


class ProducerIds(Struct, frozen=True, kw_only=True):
    """The next producer id of the image, and the highest one in the brokers' logs; -1 for none."""

    next_id: int
    highest_seen: int

    @property
    def must_be_raised(self) -> bool:
        """Whether the controller would hand out an id that a log holds already."""
        return self.highest_seen >= 0 and self.highest_seen >= self.next_id


class GoneBroker(Struct, frozen=True, kw_only=True):
    """A partition that brokers which will not come back leave without a leader, or with another one."""

    topic: str
    number: int
    topic_id: Uuid
    isr: tuple[int, ...]
    """The remaining in-sync replicas; empty if there are none."""
    leader: int
    """The next leader; -1 if no in-sync replica remains."""
    has_leader_changed: bool


class Hazards(Struct, frozen=True, kw_only=True):
    """Everything that the brokers' files say against an image."""

    strays: tuple[Stray, ...]
    missing: tuple[MissingReplica, ...]
    epochs: tuple[PartitionEpoch, ...]
    producer_ids: ProducerIds
    damages: tuple[str, ...]

    @property
    def epochs_behind(self) -> tuple[PartitionEpoch, ...]:
        """The partitions with data of a higher leader epoch than the image's."""
        return tuple(one for one in self.epochs if one.last_epoch > one.image_epoch)


def find_hazards(inventory: Inventory, image: MetadataImage) -> Hazards:
    """Hold the partitions of all given log directories against an image."""
    strays: list[Stray] = []
    epochs: list[PartitionEpoch] = []
    missing: list[MissingReplica] = []
    damages: list[str] = []
    highest = -1
    for one in inventory.dirs:
        broker = one.meta.node_id
        for files in one.partitions:
            highest = max(highest, files.max_producer_id)
            if files.damage is not None:
                damages.append(f"{one.name}/{files.name}: {files.damage}")
            why = _stray(image, broker, files)
            if why is not None:
                strays.append(Stray(broker=broker, log_dir=one, files=files, why=why))
                continue
            partition = _partition(image, files)
            assert partition is not None, files
            assert files.topic_id is not None, files
            if files.last_epoch >= partition.leader_epoch:
                epochs.append(
                    PartitionEpoch(
                        broker=broker,
                        name=files.name,
                        topic_id=files.topic_id,
                        number=files.number,
                        last_epoch=files.last_epoch,
                        image_epoch=partition.leader_epoch,
                    )
                )
        missing += _missing(image, one)
    return Hazards(
        strays=tuple(sorted(strays, key=lambda stray: (stray.broker, stray.files.name))),
        missing=tuple(missing),
        epochs=tuple(epochs),
        producer_ids=ProducerIds(next_id=image.producer_ids.next_producer_id, highest_seen=highest),
        damages=tuple(damages),
    )


def _partition(image: MetadataImage, files: PartitionFiles) -> Partition | None:
    topic = None if files.topic_id is None else image.topics.by_id.get(files.topic_id)
    if topic is None or files.number >= len(topic.partitions):
        return None
    return topic.partitions[files.number]


def _stray(image: MetadataImage, broker: int, files: PartitionFiles) -> str | None:
    """The reason why a broker would take the partition for a stray (Kafka: `LogManager.isStrayReplica`)."""
    partition = _partition(image, files)
    if partition is not None:
        return None if broker in partition.replicas else "not assigned to this broker"
    if files.topic_id is None:
        return "no topic id"
    if files.topic_id in image.topics.by_id:
        return "unknown partition"
    return "other topic id" if files.topic in image.topics else "unknown topic"


def _missing(image: MetadataImage, log_dir: LogDir) -> Iterator[MissingReplica]:
    """The replicas that the image assigns to this log directory and that have no directory there."""
    broker, directory_id = log_dir.meta.node_id, log_dir.meta.directory_id
    registered = image.brokers.by_id.get(broker)
    if registered is None or directory_id is None:
        return
    is_only = registered.directories in ((), (directory_id,))
    there = {(files.topic_id, files.number) for files in log_dir.partitions}
    for topic_id, topic in in_key_order(image.topics.by_id):
        for number, partition in enumerate(topic.partitions):
            if broker not in partition.replicas or (topic_id, number) in there:
                continue
            assigned = partition.directories[partition.replicas.index(broker)]
            if assigned == directory_id or (assigned.is_reserved and is_only):
                yield MissingReplica(
                    broker=broker,
                    name=f"{topic.name}-{number}",
                    directory=log_dir.name,
                    is_only_isr=partition.isr == (broker,),
                )


def partitions_without(image: MetadataImage, gone: Sequence[int]) -> tuple[GoneBroker, ...]:
    """The partitions that change when brokers never come back: those with one of them in their ISR. The next leader is
    the first replica that stays in sync.
    """
    lost = []
    for topic_id, topic in in_key_order(image.topics.by_id):
        for number, partition in enumerate(topic.partitions):
            if not any(broker in gone for broker in (*partition.isr, partition.leader)):
                continue
            stay = tuple(broker for broker in partition.isr if broker not in gone)
            in_order = [broker for broker in partition.replicas if broker in stay]
            leader = partition.leader
            if leader not in stay:
                leader = in_order[0] if in_order else -1
            lost.append(
                GoneBroker(
                    topic=topic.name,
                    number=number,
                    topic_id=topic_id,
                    isr=stay,
                    leader=leader,
                    has_leader_changed=leader != partition.leader,
                )
            )
    return tuple(lost)
