"""A broker with two log directories, and a move of its replica from one to the other."""

from __future__ import annotations

from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.types import Uuid
from support.broker.data_brokers import KEY, NOW_MS, TOPIC, cluster, directory_id, new_topic, part_of, publish, replayed

FIRST, SECOND = directory_id(1), directory_id(1, 1)
CONFIGS = {"internal.segment.bytes": "2000"}


def two_directories(disk: MemoryDisk, *, is_clean: bool = False) -> ReplicaManager:
    """A broker with the log directories `d` and `e`, after a clean stop or after another end."""
    directories = (DataDirectory(FIRST, "d", is_clean=is_clean), DataDirectory(SECOND, "e", is_clean=is_clean))
    return ReplicaManager(disk, DataSettings(broker_id=1, directories=directories))


def image_of(configs: dict[str, str] | None = None) -> MetadataImage:
    """Metadata with one partition on broker 1."""
    return replayed(cluster(1), *new_topic((1,), configs={**CONFIGS, **(configs or {})}))


def assigned(image: MetadataImage, directory: Uuid) -> MetadataImage:
    """The metadata after the controller has taken an assignment."""
    return replayed(image, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, directories=(directory,)))


def started(disk: MemoryDisk, image: MetadataImage, *, is_clean: bool = False) -> ReplicaManager:
    """The same with its logs loaded, and this metadata."""
    manager = two_directories(disk, is_clean=is_clean)
    publish(manager, image)
    return manager


def moved(manager: ReplicaManager, image: MetadataImage, seen: list[MetadataImage] | None = None) -> MetadataImage:
    """Run the move up to its end; the metadata follows the wish of the broker, and goes into `seen`."""
    now_ms = NOW_MS
    for _ in range(1000):
        now_ms = max(now_ms, manager.deadline_ms())
        manager.shrink(now_ms)
        for key, directory in manager.moves.take_wanted().items():
            assert key == KEY
            image = assigned(image, directory)
            if seen is not None:
                seen.append(image)
            publish(manager, image, now_ms)
        if part_of(manager).copy is None:
            return image
    raise AssertionError("the move does not end")
