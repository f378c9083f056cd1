"""The log directories of a broker: those of real brokers, stray and deleted partitions, damage and failing disks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft.partitions.log.checkpoints import CLEANED, HIGH_WATERMARKS, read_offsets
from kraft.partitions.log.log_directory import LogDirectory
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager
from kraft.partitions.replicas.key import PartitionKey
from metadata_log.image import MetadataImage
from metadata_log.log.log_dir import PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import PartitionName
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.broker_logs import NODES, files_below, partition_directories, put, topic_of
from support.broker.data_brokers import (
    NOW_MS,
    TOPIC,
    append,
    append_to,
    batch,
    cluster,
    directory_id,
    load,
    new_topic,
    part_of,
    publish,
    replayed,
    settings,
    started,
)
from transport.protocol.errors import Error


def topics(assigned: dict[PartitionName, Uuid], directory: Uuid) -> list[Message]:
    """The records of topics with these partitions, each with one replica on broker 1."""
    made: list[Message] = []
    for topic, topic_id in {(name.topic, topic_id): None for name, topic_id in assigned.items()}:
        made.append(records.TopicRecord(name=topic, topic_id=topic_id))
        made += [
            records.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=1000,
                partition_epoch=0,
                directories=(directory,),
            )
            for number in range(1 + max(name.number for name in assigned if name.topic == topic))
        ]
    return made


@pytest.mark.parametrize("node", NODES)
def test_the_directory_of_a_real_broker_is_served_from_its_watermarks(node: str) -> None:
    """Every partition is there with end and watermark, and a leader of one replica commits what the log holds."""
    disk = MemoryDisk()
    put(disk, "d", files_below(f"nodes/{node}"))
    assigned = {}
    for directory in partition_directories(f"nodes/{node}"):
        files = files_below(f"nodes/{node}/{directory}")
        put(disk, f"d/{directory}", files)
        name = topic_of(directory)
        if not name.suffix and PARTITION_METADATA in files:
            assigned[name] = parse_partition_metadata(files[PARTITION_METADATA])
    watermarks, _ = read_offsets(disk, "d", HIGH_WATERMARKS)
    image = replayed(cluster(1), *topics(assigned, directory_id(1)))
    manager = ReplicaManager(disk, settings(1))
    load(manager, image, NOW_MS)
    assert manager.findings == [] or all("removed" in each or "stray" in each for each in manager.findings)
    publish(manager, image)
    assert assigned
    for name, topic_id in assigned.items():
        part = manager.partitions.get((topic_id, name.number))
        assert part is not None
        assert not part.is_offline
        assert part.topic == name.topic
        assert part.log.high_watermark == part.log.end_offset >= watermarks.get(name, 0)


def other_id(number: int) -> Uuid:
    return Uuid(bytes([number] * 16))


def test_a_partition_whose_files_are_stray_begins_with_an_empty_log() -> None:
    disk = MemoryDisk()
    image = replayed(cluster(1), *new_topic((1,)))
    manager = started(1, image, disk)
    append(manager, b"a")
    manager.close(broker_epoch=1001)
    disk.remove(f"d/t-0/{PARTITION_METADATA}")
    again = started(1, image, disk)
    assert part_of(again).log.end_offset == 0
    assert append(again, b"b").first_offset == 0


def test_a_damaged_partition_is_offline_alone() -> None:
    disk = MemoryDisk()
    made = {PartitionName("a", 0): other_id(1), PartitionName("b", 0): other_id(2)}
    image = replayed(cluster(1), *topics(made, directory_id(1)))
    manager = started(1, image, disk)
    keys: list[PartitionKey] = [(topic_id, 0) for topic_id in made.values()]
    for key in keys:
        assert isinstance(append_to(manager, key, batch(b"x"), acks=1, now_ms=NOW_MS), Appended)
    manager.close(broker_epoch=1001)
    disk.remove("d/a-0/leader-epoch-checkpoint")
    put(disk, "d/a-0", {"leader-epoch-checkpoint": b"0\n1\n0 zero\n"})
    again = started(1, image, disk)
    assert [again.partitions[key].is_offline for key in keys] == [True, False]
    refused = append_to(again, keys[0], batch(b"y"), acks=1, now_ms=NOW_MS)
    assert isinstance(refused, RefusedAppend)
    assert refused.error is Error.KAFKA_STORAGE_ERROR
    assert isinstance(append_to(again, keys[1], batch(b"y"), acks=1, now_ms=NOW_MS), Appended)
    assert again.take_failed_directories() == []
    assert any("d/a-0/leader-epoch-checkpoint" in finding for finding in again.findings)
    known = read_offsets(disk, "d", HIGH_WATERMARKS)[0][PartitionName("a", 0)]
    again.shrink(NOW_MS + 300_000)
    assert read_offsets(disk, "d", HIGH_WATERMARKS)[0] == {PartitionName("a", 0): known, PartitionName("b", 0): 2}
    again.close(broker_epoch=1001)
    assert again.failed_directories == {}
    assert not disk.exists("d/.kafka_cleanshutdown"), "the next start recovers"


IN_D: PartitionKey = (other_id(1), 0)
IN_E: PartitionKey = (other_id(2), 0)


def two_directories(disk: MemoryDisk) -> tuple[ReplicaManager, MetadataImage]:
    """A broker with the directories `d` and `e`; topic `a` is in the first one, `b` in the second one."""
    directories = (
        DataDirectory(directory_id(1), "d", is_clean=False),
        DataDirectory(directory_id(1, 1), "e", is_clean=False),
    )
    image = replayed(
        cluster(1),
        *topics({PartitionName("a", 0): other_id(1)}, directory_id(1)),
        *topics({PartitionName("b", 0): other_id(2)}, directory_id(1, 1)),
    )
    return ReplicaManager(disk, DataSettings(broker_id=1, directories=directories)), image


def failing(disk: MemoryDisk, directory: str) -> None:
    """Every change of a directory fails from now on."""

    def fail(operation: str, path: str) -> None:
        if path.startswith(f"{directory}/") or path == directory:
            raise OSError(5, "Input/output error", path)

    disk.on_operation = fail


def test_a_log_directory_that_fails_while_its_logs_are_opened_stops_no_other() -> None:
    disk = MemoryDisk()
    manager, image = two_directories(disk)
    publish(manager, image)
    for key in (IN_D, IN_E):
        assert isinstance(append_to(manager, key, batch(b"x"), acks=1, now_ms=NOW_MS), Appended)
    disk.kill()
    failing(disk, "e")
    again, _ = two_directories(disk)
    load(again, image, NOW_MS)
    assert again.take_failed_directories() == [directory_id(1, 1)]
    publish(again, image)
    assert part_end(again, IN_D) == 1
    assert part_end(again, IN_E) is None


def part_end(manager: ReplicaManager, key: PartitionKey) -> int | None:
    part = manager.partitions.get(key)
    assert part is not None
    return None if part.is_offline else part.log.end_offset


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline() -> None:
    disk = MemoryDisk()
    manager, image = two_directories(disk)
    publish(manager, image)
    for key in (IN_D, IN_E):
        assert isinstance(append_to(manager, key, batch(b"x"), acks=1, now_ms=NOW_MS), Appended)
    failing(disk, "d")
    manager.shrink(NOW_MS + 5000)
    assert manager.take_failed_directories() == [directory_id(1)]
    assert (part_end(manager, IN_D), part_end(manager, IN_E)) == (None, 1)
    assert [finding for finding in manager.findings if "a log directory has failed" in finding]


def test_a_topic_that_is_made_again_right_after_the_load_begins_with_an_empty_log() -> None:
    """The load has found the log of the deleted topic, which no partition claims any more. Found by the simulator: the
    new replica was offline for ever, as the place of its log was taken.
    """
    disk = MemoryDisk()
    first = replayed(cluster(1), *topics({PartitionName("a", 0): other_id(1)}, directory_id(1)))
    former = started(1, first, disk)
    assert isinstance(append_to(former, (other_id(1), 0), batch(b"x"), acks=1, now_ms=NOW_MS), Appended)
    disk.kill()
    manager = ReplicaManager(disk, settings(1))
    load(manager, first, NOW_MS)
    removal = records.RemoveTopicRecord(topic_id=other_id(1))
    publish(manager, replayed(first, removal, *topics({PartitionName("a", 0): other_id(2)}, directory_id(1))))
    assert part_end(manager, (other_id(2), 0)) == 0
    assert len([name for name in disk.list("d") if name.endswith("-delete")]) == 1


def test_the_files_of_a_deleted_topic_go_after_a_restart_too() -> None:
    disk = MemoryDisk()
    image = replayed(cluster(1), *new_topic((1,)))
    manager = started(1, image, disk)
    image = replayed(image, records.RemoveTopicRecord(topic_id=TOPIC))
    publish(manager, image)
    disk.kill()
    again = started(1, image, disk)
    assert [name.endswith("-delete") for name in disk.list("d") if name.startswith("t-")] == [True]
    again.shrink(NOW_MS + 60_000)
    assert [name for name in disk.list("d") if name.startswith("t-")] == []


def two_topics(disk: MemoryDisk) -> tuple[MetadataImage, list[PartitionKey]]:
    """The topics `a` and `b` with one record each, after a clean stop; the log of `a` starts at offset 1."""
    made = {PartitionName("a", 0): other_id(1), PartitionName("b", 0): other_id(2)}
    image = replayed(cluster(1), *topics(made, directory_id(1)))
    manager = started(1, image, disk)
    keys: list[PartitionKey] = [(topic_id, 0) for topic_id in made.values()]
    for key in keys:
        for value in (b"x", b"y"):
            assert isinstance(append_to(manager, key, batch(value), acks=1, now_ms=NOW_MS), Appended)
    assert manager.leaders.delete_records(manager.partitions[keys[0]], 1) == 1
    manager.close(broker_epoch=1001)
    return image, keys


def metadata_of(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


def replaced(disk: MemoryDisk, path: str, content: bytes) -> None:
    disk.remove(path)
    put(disk, path.rpartition("/")[0], {path.rpartition("/")[2]: content})


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\x80", b"version: 0\n", b"version: x\ntopic_id: y", b"version: 0\ntopic_id: "]
)
def test_an_unreadable_partition_metadata_takes_its_partition_offline_and_its_repair_brings_it_back(
    content: bytes,
) -> None:
    disk = MemoryDisk()
    image, (a, b) = two_topics(disk)
    replaced(disk, f"d/a-0/{PARTITION_METADATA}", content)
    again = started(1, image, disk)
    assert (part_end(again, a), part_end(again, b)) == (None, 2)
    assert again.take_failed_directories() == []
    refused = append_to(again, a, batch(b"y"), acks=1, now_ms=NOW_MS)
    assert isinstance(refused, RefusedAppend)
    assert refused.error is Error.KAFKA_STORAGE_ERROR
    assert any("d/a-0/partition.metadata" in each and "Write the file anew" in each for each in again.findings)
    again.close(broker_epoch=1001)
    assert [name for name in disk.list("d") if "-0" in name] == ["a-0", "b-0"]
    assert not disk.exists("d/.kafka_cleanshutdown"), "the next start recovers"
    replaced(disk, f"d/a-0/{PARTITION_METADATA}", metadata_of(other_id(1)))
    repaired = started(1, image, disk)
    part = repaired.partitions.get(a)
    assert part is not None
    assert (part.log.start_offset, part.log.end_offset) == (1, 2)


def test_a_later_version_of_partition_metadata_is_read_as_kafka_reads_it() -> None:
    disk = MemoryDisk()
    image, (a, _) = two_topics(disk)
    replaced(disk, f"d/a-0/{PARTITION_METADATA}", metadata_of(other_id(1)).replace(b"0", b"1", 1))
    assert part_end(started(1, image, disk), a) == 2


def test_directories_that_were_swapped_or_renamed_serve_no_other_topic() -> None:
    disk = MemoryDisk()
    image, (a, b) = two_topics(disk)
    disk.rename_directory("d/a-0", "d/c-0")
    disk.rename_directory("d/b-0", "d/a-0")
    disk.rename_directory("d/c-0", "d/b-0")
    swapped = started(1, image, disk)
    assert (part_end(swapped, a), part_end(swapped, b)) == (None, None)
    assert any("is that of topic b, not of a" in each for each in swapped.findings)
    swapped.close(broker_epoch=1001)
    disk.rename_directory("d/b-0", "d/c-0")
    disk.rename_directory("d/a-0", "d/b-0")
    renamed = started(1, image, disk)
    assert (part_end(renamed, a), part_end(renamed, b)) == (None, 2), "the log of `a` is in c-0"
    renamed.close(broker_epoch=1001)
    disk.rename_directory("d/c-0", "d/a-0")
    assert [part_end(started(1, image, disk), key) for key in (a, b)] == [2, 2]


def test_a_new_topic_gets_no_log_of_another() -> None:
    """An unreadable directory of no assigned partition stays as it is, and nothing is made in its place."""
    disk = MemoryDisk()
    image, (a, b) = two_topics(disk)
    replaced(disk, f"d/a-0/{PARTITION_METADATA}", b"")
    image = replayed(image, records.RemoveTopicRecord(topic_id=other_id(1)))
    manager = started(1, image, disk)
    assert list(manager.partitions) == [b]
    image = replayed(image, *topics({PartitionName("a", 0): other_id(3)}, directory_id(1)))
    publish(manager, image)
    assert part_end(manager, (other_id(3), 0)) is None
    assert any("the place of a new log is taken" in each for each in manager.findings)
    assert disk.read(f"d/a-0/{PARTITION_METADATA}") == b""
    assert a not in list(manager.partitions)


def test_plain_files_with_names_of_partitions_stay() -> None:
    disk = MemoryDisk()
    image, keys = two_topics(disk)
    names = ["heap-1234", "b-1", "x-0.0123456789abcdef0123456789abcdef-delete", "a-0.abc-future", "core-7.abc-stray"]
    put(disk, "d", dict.fromkeys(names, b"mine"))
    manager = started(1, image, disk)
    assert [part_end(manager, key) for key in keys] == [2, 2]
    manager.shrink(NOW_MS + 300_000)
    manager.close(broker_epoch=1001)
    assert manager.failed_directories == {}
    assert [disk.read(f"d/{name}") for name in names] == [b"mine"] * len(names)


def test_what_is_in_a_deleted_directory_goes_with_it() -> None:
    disk = MemoryDisk()
    image, keys = two_topics(disk)
    doomed = "d/gone-0.0123456789abcdef0123456789abcdef-delete"
    put(disk, doomed, {"00000000000000000000.log": b""})
    put(disk, f"{doomed}/sub/sub", {"x": b"1"})
    disk.mkdir(f"{doomed}/empty")
    manager = started(1, image, disk)
    manager.shrink(NOW_MS + 300_000)
    assert not disk.exists(doomed)
    assert manager.take_failed_directories() == []
    assert [part_end(manager, key) for key in keys] == [2, 2]


@pytest.mark.parametrize("operation", ["remove", "rename_directory"])
def test_what_cannot_be_removed_or_renamed_concerns_no_other_partition(operation: str) -> None:
    """A file that is immutable, a directory that is a mount point: it stays, is reported, and the broker goes on."""
    disk = MemoryDisk()
    image, keys = two_topics(disk)
    doomed = "d/gone-0.0123456789abcdef0123456789abcdef-delete"
    put(disk, doomed, {"x": b"1"})
    put(disk, "d/stray-0", {"x": b"1"})

    def fail(done: str, path: str) -> None:
        names = ("gone-0",) if operation == "remove" else ("stray-0", "a-0")
        if done == operation and any(name in path for name in names):
            raise PermissionError(1, "Operation not permitted", path)

    disk.on_operation = fail
    manager = started(1, image, disk)
    publish(manager, replayed(image, records.RemoveTopicRecord(topic_id=other_id(1))))
    manager.shrink(NOW_MS + 300_000)
    assert manager.take_failed_directories() == []
    assert part_end(manager, keys[1]) == 2
    assert any("Operation not permitted" in each for each in manager.findings)
    assert disk.exists(doomed if operation == "remove" else "d/stray-0")
    manager.close(broker_epoch=1001)
    assert manager.failed_directories == {}


def test_a_partition_metadata_that_nobody_may_read_takes_its_partition_offline() -> None:
    """Access rights, a directory in its place: no new log begins instead."""
    disk = MemoryDisk()
    image, (a, b) = two_topics(disk)
    disk.remove(f"d/a-0/{PARTITION_METADATA}")
    disk.mkdir(f"d/a-0/{PARTITION_METADATA}")
    again = started(1, image, disk)
    assert (part_end(again, a), part_end(again, b)) == (None, 2)
    assert again.take_failed_directories() == []
    assert any("left d/a-0 as it is" in each for each in again.findings)


def test_a_copy_takes_no_place_of_a_log_that_is_left_alone() -> None:
    """A copy in the directory of its original, whose partition.metadata is unreadable."""
    disk = MemoryDisk()
    image, (a, b) = two_topics(disk)
    put(disk, f"d/a-0.{'0' * 32}-future", {PARTITION_METADATA: metadata_of(other_id(1))})
    replaced(disk, f"d/a-0/{PARTITION_METADATA}", b"")
    again = started(1, image, disk)
    assert (part_end(again, a), part_end(again, b)) == (None, 2)
    assert disk.exists("d/a-0")
    assert again.take_failed_directories() == []


def test_a_copy_that_nobody_may_read_takes_no_partition_offline() -> None:
    """Its log begins anew where the original is lost."""
    disk = MemoryDisk()
    image, (a, _) = two_topics(disk)
    disk.rename_directory("d/a-0", f"d/a-0.{'0' * 32}-future")
    replaced(disk, f"d/a-0.{'0' * 32}-future/{PARTITION_METADATA}", b"")
    assert part_end(started(1, image, disk), a) == 0


def test_a_periodic_checkpoint_looks_at_each_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    topic_id = Uuid((1).to_bytes(16, "big"))
    manager = started(1, replayed(cluster(1), *topics({PartitionName("a", 0): topic_id}, directory_id(1))), disk)
    append_to(manager, (topic_id, 0), batch(b"x"), acks=1, now_ms=NOW_MS)
    looks: list[str] = []
    for name in ("high_watermarks", "cleaned_offsets"):
        monkeypatch.setattr(LogDirectory, name, _noting(getattr(LogDirectory, name), looks))
    store = manager.hosting.store
    store.write_watermarks()
    assert looks == ["high_watermarks"]
    assert read_offsets(disk, "d", HIGH_WATERMARKS)[0] == {PartitionName("a", 0): 1}
    manager.partitions[topic_id, 0].log.cleaned_offset = 1
    store.write_cleaned()
    assert looks == ["high_watermarks", "cleaned_offsets"]
    assert read_offsets(disk, "d", CLEANED)[0] == {PartitionName("a", 0): 1}
    store.write_watermarks()
    store.write_cleaned()
    assert looks == ["high_watermarks", "cleaned_offsets"] * 2
    assert read_offsets(disk, "d", HIGH_WATERMARKS)[0] == {PartitionName("a", 0): 1}


def _noting(right: Callable[[LogDirectory], dict[PartitionName, int]], looks: list[str]) -> object:
    def call(logs: LogDirectory) -> dict[PartitionName, int]:
        looks.append(right.__name__)
        return right(logs)

    return call
