"""A leader without followers: what is appended is committed at once, read back, kept over a restart, and deleted."""

from __future__ import annotations

import pytest

from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager
from kraft.partitions.replicas.epoch_ends import end_of_epoch
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.types import OffsetAndEpoch, Uuid
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append,
    append_to,
    batch,
    cluster,
    directory_id,
    new_topic,
    part_of,
    publish,
    read,
    replayed,
    started,
    values_of,
)
from transport.protocol.errors import Error


def one_broker(configs: dict[str, str] | None = None) -> MetadataImage:
    return replayed(cluster(1), *new_topic((1,), configs=configs or {}))


def test_an_append_is_committed_at_once_and_can_be_read() -> None:
    manager = started(1, one_broker())
    assert list(manager.hosting.take_changes()) == [], "nobody watches the partition"
    manager.hosting.watched = ((KEY,),)
    appended = append(manager, b"a", b"b")
    assert (appended.first_offset, appended.last_offset) == (0, 1)
    part = part_of(manager)
    assert (part.log.end_offset, part.log.high_watermark, part.log.last_stable_offset, part.log.start_offset) == (
        2,
        2,
        2,
        0,
    )
    assert (part.topic, part.is_leader, part.leader_id, part.leader_epoch) == ("t", True, 1, 0)
    assert (part.replicas, part.isr, part.maximal_isr, part.min_isr) == ((1,), (1,), (1,), 1)
    found = read(manager, KEY, 0, 1 << 20, end_offset=part.log.high_watermark)
    assert isinstance(found, bytes)
    assert [(each.base_offset, each.epoch) for each in scan(found)] == [(0, 0)]
    assert list(manager.hosting.take_changes()) == [KEY]
    assert list(manager.hosting.take_changes()) == []


def test_a_broker_that_does_not_lead_refuses_appends_and_reads_of_leaders() -> None:
    image = replayed(cluster(1, 2), *new_topic((1, 2), leader=2))
    manager = started(1, image)
    refused = append_to(manager, KEY, batch(b"a"), acks=1, now_ms=NOW_MS)
    assert isinstance(refused, RefusedAppend)
    assert refused.error is Error.NOT_LEADER_OR_FOLLOWER
    unknown = append_to(manager, (Uuid(b"u" * 16), 3), batch(b"a"), acks=1, now_ms=NOW_MS)
    assert isinstance(unknown, RefusedAppend)
    assert unknown.error is Error.NOT_LEADER_OR_FOLLOWER
    assert manager.hosting.served(KEY, -1, needs_leader=False) is part_of(manager)


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, None), (3, None), (2, Error.FENCED_LEADER_EPOCH), (4, Error.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_of_a_request_is_checked(epoch: int, error: Error | None) -> None:
    image = one_broker()
    for _ in range(3):
        image = replayed(image, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1))
    served = started(1, image).hosting.served(KEY, epoch, needs_leader=True)
    assert (served.error if isinstance(served, RefusedAppend) else None) == error


def test_records_and_watermark_survive_a_clean_stop_and_the_next_start_is_clean() -> None:
    disk = MemoryDisk()
    image = one_broker()
    manager = started(1, image, disk)
    append(manager, b"a", b"b")
    manager.close(broker_epoch=1001)
    disk.crash()
    assert disk.exists("d/.kafka_cleanshutdown")
    again = started(1, image, disk)
    assert (values_of(again), part_of(again).log.high_watermark) == ([b"a", b"b"], 2)
    assert again.findings == []
    assert not disk.exists("d/.kafka_cleanshutdown")


def test_a_new_leader_epoch_begins_at_the_end_of_the_log() -> None:
    image = one_broker()
    manager = started(1, image)
    append(manager, b"a", b"b")
    image = replayed(image, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1))
    manager.on_image(image)
    manager.on_partition(KEY, image.topics.by_id[TOPIC].partitions[0], NOW_MS)
    log = part_of(manager).log
    assert end_of_epoch(log.epochs, 0, log.end_offset) == OffsetAndEpoch(epoch=0, offset=2)
    assert end_of_epoch(log.epochs, 1, log.end_offset) == OffsetAndEpoch(epoch=1, offset=2)
    assert end_of_epoch(log.epochs, 2, log.end_offset) is None
    append(manager, b"c")
    assert [(each.epoch, each.offset) for each in part_of(manager).log.epochs.entries] == [(0, 0), (1, 2)]


def test_deleted_records_raise_the_log_start() -> None:
    manager = started(1, one_broker())
    append(manager, b"a", b"b")
    append(manager, b"c")
    assert manager.leaders.delete_records(manager.partitions[KEY], 1) == 1
    assert (part_of(manager).log.start_offset, manager.leaders.low_watermark(manager.partitions[KEY])) == (1, 1)
    assert manager.leaders.delete_records(manager.partitions[KEY], -1) == 3
    assert manager.leaders.delete_records(manager.partitions[KEY], 2) == 3
    for offset in (4, -2):
        refused = manager.leaders.delete_records(manager.partitions[KEY], offset)
        assert isinstance(refused, RefusedAppend)
        assert refused.error is Error.OFFSET_OUT_OF_RANGE


def test_records_of_a_compacted_topic_are_not_deleted_by_offset() -> None:
    manager = started(1, one_broker({"cleanup.policy": "compact"}))
    refused = manager.leaders.delete_records(part_of(manager), 0)
    assert isinstance(refused, RefusedAppend)
    assert refused.error is Error.POLICY_VIOLATION


def test_settings_of_the_topic_apply_to_its_log_at_once() -> None:
    image = one_broker({"max.message.bytes": "100"})
    manager = started(1, image)
    refused = append_to(manager, KEY, batch(b"x" * 200), acks=1, now_ms=NOW_MS)
    assert isinstance(refused, RefusedAppend)
    assert refused.error is Error.MESSAGE_TOO_LARGE
    change = records.ConfigRecord(resource_type=2, resource_name="t", name="max.message.bytes", value="1000")
    manager.on_image(replayed(image, change))
    assert append(manager, b"x" * 200).first_offset == 0


@pytest.mark.parametrize("disk", ["memory", "files"])
def test_the_files_of_a_deleted_topic_go_after_the_delay(disk: str, tmp_path: object) -> None:
    files = MemoryDisk() if disk == "memory" else OsDisk()
    path = "d" if disk == "memory" else f"{tmp_path}/d"
    image = one_broker()
    directories = (DataDirectory(directory_id(1), path, is_clean=False),)
    manager = ReplicaManager(files, DataSettings(broker_id=1, directories=directories))
    publish(manager, image)
    append(manager, b"a")
    publish(manager, replayed(image, records.RemoveTopicRecord(topic_id=TOPIC)))
    assert manager.partitions.get(KEY) is None
    [marked] = [name for name in files.list(path) if name.startswith("t-0")]
    assert marked.endswith("-delete")
    manager.shrink(NOW_MS + 59_999)
    assert files.exists(f"{path}/{marked}")
    assert manager.deadline_ms() <= NOW_MS + 60_000
    manager.shrink(NOW_MS + 60_000)
    assert not files.exists(f"{path}/{marked}")
