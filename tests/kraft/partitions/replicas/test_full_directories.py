"""Three log directories, of which one is full from some write on, at any of its writes: the others serve on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import pytest

from kraft.partitions.log.outcomes import Appended
from kraft.partitions.replicas import DataDirectory, ReplicaManager
from kraft.partitions.replicas.checkpoint_writer import AtOnce, CheckpointWriter
from kraft.sim.nodes.late_writer import LateWriter
from metadata_log.disk import Disk
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.data_brokers import (
    NOW_MS,
    append_to,
    cluster,
    directory_id,
    load,
    publish,
    replayed,
    settings,
)

PATHS: Final = ("d", "e", "f")
IDS: Final = tuple(directory_id(1, number) for number in range(3))
DIRECTORIES: Final = tuple(DataDirectory(id, path, is_clean=False) for id, path in zip(IDS, PATHS, strict=True))
WRITERS: Final[dict[str, Callable[[Disk], CheckpointWriter]]] = {"at once": AtOnce, "late": LateWriter}
SMALL: Final = {"internal.segment.bytes": "300", "retention.ms": "60000", "flush.messages": "1"}
COMPACTED: Final = {"cleanup.policy": "compact", "internal.segment.bytes": "250", "min.cleanable.dirty.ratio": "0.01"}


def topic_id(number: int) -> Uuid:
    return Uuid(bytes([number] * 16))


def topic(name: str, number: int, directory: Uuid, configs: dict[str, str]) -> list[Message]:
    """The records of a topic with one partition, which broker 1 leads."""
    return [
        records.TopicRecord(name=name, topic_id=topic_id(number)),
        records.PartitionRecord(
            partition_id=0,
            topic_id=topic_id(number),
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=1000,
            partition_epoch=0,
            directories=(directory,),
        ),
        *(records.ConfigRecord(resource_type=2, resource_name=name, name=key, value=configs[key]) for key in configs),
    ]


def keyed(now_ms: int) -> bytes:
    """A batch of one record with a key, as a compacted topic needs it."""
    return write_batch([Record(0, now_ms, 0, b"k", b"v" * 40)], epoch=-1)


class Full:
    """A directory whose disk is full from its `at`-th write on; names can still be removed."""

    def __init__(self, path: str, at: int) -> None:
        self.path = path
        self.left = at
        self.writes = 0

    def __call__(self, operation: str, path: str) -> None:
        if operation.startswith("remove") or not f"{path}/".startswith(f"{self.path}/"):
            return
        self.writes += 1
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device", path)


class Life:
    """A broker with its metadata, over a minute of its time."""

    def __init__(self, disk: MemoryDisk, writer: Callable[[Disk], CheckpointWriter]) -> None:
        self.image = replayed(cluster(1), records.FeatureLevelRecord(name="metadata.version", feature_level=30))
        self.manager = ReplicaManager(disk, settings(1, directories=DIRECTORIES, move_bytes_per_second=None))
        self.manager.hosting.store.writer = writer(disk)
        self.now_ms = NOW_MS

    def change(self, *added: Message) -> None:
        self.image = replayed(self.image, *added)
        publish(self.manager, self.image, self.now_ms)

    def append(self, *numbers: int) -> None:
        for number in numbers:
            for _ in range(3):
                append_to(self.manager, (topic_id(number), 0), keyed(self.now_ms), acks=1, now_ms=self.now_ms)

    def wait(self, *steps_ms: int) -> None:
        for step_ms in steps_ms:
            self.now_ms += step_ms
            self.manager.shrink(self.now_ms)


def live(life: Life) -> None:
    """Whatever a broker writes by itself: logs, checkpoints, segments, deletions, moves, new topics of an old name."""
    load(life.manager, life.image, life.now_ms)
    life.change(
        *topic("a", 1, IDS[0], SMALL),
        *topic("b", 2, IDS[1], SMALL),
        *topic("c", 3, IDS[2], COMPACTED),
    )
    for _ in range(2):
        life.append(1, 2, 3)
        life.wait(5000, 1, 25_000, 5, 5, 5, 5)
    life.manager.moves.alter((topic_id(1), 0), "e", life.now_ms)
    life.wait(1, 1, 1)
    wanted = life.manager.moves.take_wanted()
    # Topics of the same names, in the directories of others; the move ends in the same step of the metadata.
    life.change(
        *(
            records.PartitionChangeRecord(partition_id=0, topic_id=key[0], directories=(to,))
            for key, to in wanted.items()
        ),
        records.RemoveTopicRecord(topic_id=topic_id(2)),
        records.RemoveTopicRecord(topic_id=topic_id(3)),
        *topic("b", 4, IDS[1], SMALL),
        *topic("c", 5, IDS[0], COMPACTED),
        *topic("g", 6, IDS[2], {}),
    )
    life.append(1, 4, 5, 6)
    life.wait(1, 200, 5000, 1, 25_000, 60_000, 5, 5)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("path", PATHS)
def test_a_directory_that_is_full_at_any_write_takes_no_other_with_it(path: str, writer: str, first: int) -> None:
    """Every second write, from the first or from the second one on."""
    whole = Full(path, 1 << 30)
    life = Life(MemoryDisk(on_operation=whole), WRITERS[writer])
    live(life)
    assert not life.manager.failed_directories
    assert whole.writes > 60
    failed_at = IDS[PATHS.index(path)]
    for at in range(first, whole.writes, 2):
        disk = MemoryDisk(on_operation=Full(path, at))
        life = Life(disk, WRITERS[writer])
        live(life)
        # A failure that nobody has looked for yet is known after the next checkpoints.
        life.append(1, 4, 5, 6)
        life.wait(5000, 60_000, 5000)
        assert list(life.manager.failed_directories) == [failed_at], at
        for key, part in life.manager.partitions.items():
            assert part.is_offline == (part.directory == failed_at), (at, key)
            if not part.is_offline:
                done = append_to(life.manager, key, keyed(life.now_ms), acks=1, now_ms=life.now_ms)
                assert isinstance(done, Appended), (at, key, done)
        life.manager.close(broker_epoch=1)


def test_a_directory_fails_at_the_old_log_of_a_name_before_the_new_one_is_made() -> None:
    disk = MemoryDisk()
    life = Life(disk, AtOnce)
    life.change(*topic("a", 1, IDS[0], {}), *topic("b", 2, IDS[1], {}))
    disk.on_operation = Full("d", 0)
    made = [records.RemoveTopicRecord(topic_id=topic_id(1)), *topic("a", 3, IDS[0], {})]
    manager, image = life.manager, replayed(life.image, *made)
    manager.on_image(image)
    # The news of the new topic come before those of the old one.
    manager.on_partition((topic_id(3), 0), image.topics.by_id[topic_id(3)].partitions[0], NOW_MS, IDS[0])
    assert list(manager.failed_directories) == [IDS[0]]
    assert manager.partitions[topic_id(3), 0].is_offline
    assert not manager.partitions[topic_id(2), 0].is_offline
    assert any("No space left" in each for each in manager.findings)


def test_an_unclaimed_log_that_cannot_go_fails_its_own_directory() -> None:
    """The load has found the log of a deleted topic in `d`; the new topic of its name comes to `e`."""
    disk = MemoryDisk()
    life = Life(disk, AtOnce)
    life.change(*topic("a", 1, IDS[0], {}))
    disk.kill()
    again = Life(disk, AtOnce)
    load(again.manager, life.image, NOW_MS)
    again.image = life.image
    disk.on_operation = Full("d", 0)
    again.change(records.RemoveTopicRecord(topic_id=topic_id(1)), *topic("a", 2, IDS[1], {}))
    assert list(again.manager.failed_directories) == [IDS[0]]
    assert not again.manager.partitions[topic_id(2), 0].is_offline
