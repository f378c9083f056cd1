"""Brokers with data for tests: metadata images, and replica managers on disks in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.replicas import DataDirectory, DataSettings, HostedPartition, ReplicaManager
from kraft.partitions.replicas.key import PartitionKey
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message
from metadata_log.types import NO_EPOCH, OffsetAndEpoch, Uuid

NOW_MS = 1_795_390_000_000
TOPIC = Uuid(bytes([0, 7] * 8))
KEY = (TOPIC, 0)
LAG_MS = 30_000
ALL = -1
"""acks=all."""


def directory_id(broker_id: int, number: int = 0) -> Uuid:
    """The id of a log directory of a broker."""
    return Uuid(bytes([number, broker_id] * 8))


def replayed(image: MetadataImage, *added: Message) -> MetadataImage:
    """The image after more records."""
    delta = MetadataDelta(image)
    for at, record in enumerate(added):
        delta.replay(record, image.end.offset + at)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=image.end.offset + len(added)))


def registration(broker_id: int, epoch: int, *, fenced: bool = False) -> records.RegisterBrokerRecord:
    """A broker with one log directory."""
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=Uuid(bytes([broker_id] * 16)),
        fenced=fenced,
        log_dirs=(directory_id(broker_id),),
        end_points=(records.BrokerEndpoint(name="PLAINTEXT", host=f"h{broker_id}", port=9092),),
    )


def new_topic(
    replicas: tuple[int, ...],
    *,
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    configs: Mapping[str, str] = {},
) -> list[Message]:
    """The records of a topic `t` with one partition."""
    return [
        records.TopicRecord(name="t", topic_id=TOPIC),
        records.PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=replicas,
            isr=replicas if isr is None else isr,
            leader=replicas[0] if leader is None else leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(directory_id(one) for one in replicas),
        ),
        *(
            records.ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
            for name, value in configs.items()
        ),
    ]


def cluster(*brokers: int) -> MetadataImage:
    """Metadata with these brokers; the epoch of broker N is 1000 + N."""
    return replayed(
        MetadataImage(),
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        *(registration(one, 1000 + one) for one in brokers),
    )


def settings(broker_id: int, **changes: object) -> DataSettings:
    """The settings of a broker with the log directory `d`."""
    made = DataSettings(broker_id=broker_id, directories=(DataDirectory(directory_id(broker_id), "d", is_clean=False),))
    return structs.replace(made, **changes)


def load(manager: ReplicaManager, image: MetadataImage, now_ms: int) -> None:
    """Open all logs at once."""
    while not manager.load_more(image, now_ms):
        pass


def publish(manager: ReplicaManager, image: MetadataImage, now_ms: int = NOW_MS) -> None:
    """Apply an image to every partition, as the agent does for the changed ones."""
    load(manager, image, now_ms)
    manager.on_image(image)
    own = manager.settings.broker_id
    assigned = {
        (topic.id, number): partition
        for topic in image.topics.by_id.values()
        for number, partition in enumerate(topic.partitions)
        if own in partition.replicas
    }
    for key in [key for key in manager.partitions if key not in assigned]:
        manager.on_partition(key, None, now_ms)
    for key, partition in assigned.items():
        directory = partition.directories[partition.replicas.index(own)]
        manager.on_partition(key, partition, now_ms, directory)


def started(broker_id: int, image: MetadataImage, disk: MemoryDisk | None = None, **changes: object) -> ReplicaManager:
    """A manager that has loaded its logs and applied the image."""
    manager = ReplicaManager(disk or MemoryDisk(), settings(broker_id, **changes))
    publish(manager, image)
    return manager


def batch(*values: bytes, timestamp_ms: int = NOW_MS) -> bytes:
    """A batch as a producer sends it."""
    return build_batch(0, -1, timestamp_ms, values)


def append_to(
    manager: ReplicaManager, key: PartitionKey, records: bytes, *, acks: int, now_ms: int
) -> Appended | RefusedAppend:
    """Append the batches of a producer, or say why not."""
    part = manager.hosting.served(key, NO_EPOCH, needs_leader=True)
    if isinstance(part, RefusedAppend):
        return part
    few = manager.leaders.too_few_in_sync(part) if acks == ALL else None
    return manager.leaders.append(part, records, now_ms) if few is None else few


def read(
    manager: ReplicaManager, key: PartitionKey, offset: int, max_bytes: int, **bounds: Any
) -> bytes | RefusedAppend:
    """Read the batches of a replica, or say why not."""
    part = manager.hosting.served(key, NO_EPOCH, needs_leader=False)
    return part if isinstance(part, RefusedAppend) else manager.hosting.read(part, offset, max_bytes, **bounds)


def append(manager: ReplicaManager, *values: bytes, acks: int = -1, now_ms: int = NOW_MS) -> Appended:
    """Append one batch to the partition; the leader must accept."""
    appended = append_to(manager, KEY, batch(*values), acks=acks, now_ms=now_ms)
    assert isinstance(appended, Appended), appended
    return appended


def part_of(manager: ReplicaManager) -> HostedPartition:
    """The replica of the partition."""
    part = manager.partitions.get(KEY)
    assert part is not None
    return part


def values_of(manager: ReplicaManager) -> list[bytes | None]:
    """The values of all records of the replica."""
    log = part_of(manager).log
    data = b"".join(segment.batches.file.pread(1 << 30, 0) for segment in log.segments)
    return [record.value for batch in scan(data) for record in records_of(batch)]
