"""The cleaner of a broker: compacted topics shrink in the background, a step in each turn, and a restart goes on."""

from __future__ import annotations

from kraft.partitions.log.checkpoints import CLEANED, RECOVERY_POINTS, read_offsets
from kraft.partitions.log.cleaning.choice import CleanerSettings
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.replicas import ReplicaManager
from kraft.partitions.replicas.topic_settings import topic_settings
from metadata_log.image import MetadataImage
from metadata_log.log.partition_names import PartitionName
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.records.record import records as records_of
from random_replicas import run_until
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append_to,
    cluster,
    new_topic,
    part_of,
    publish,
    replayed,
    started,
)

CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.1"}
NAME = PartitionName("t", 0)
KEYS = 5
HOUR_MS = 3_600_000


def compacted(configs: dict[str, str] | None = None) -> MetadataImage:
    return replayed(cluster(1), *new_topic((1,), configs={**CONFIGS, **(configs or {})}))


def fill(manager: ReplicaManager, batches: int, now_ms: int = NOW_MS) -> None:
    for _ in range(batches):
        at = part_of(manager).log.end_offset
        contents = [
            Record(index, now_ms, 0, b"key-%d" % ((at + index) % KEYS), b"%08d" % (at + index)) for index in range(4)
        ]
        done = append_to(manager, KEY, write_batch(contents, epoch=-1), acks=1, now_ms=now_ms)
        assert isinstance(done, Appended)


def state_of(manager: ReplicaManager) -> dict[bytes | None, bytes | None]:
    log = part_of(manager).log
    return {
        record.key: record.value
        for segment in log.segments
        for batch in scan(segment.batches.file.pread(1 << 30, 0))
        for record in records_of(batch)
    }


def test_a_compacted_topic_shrinks_and_keeps_the_last_value_of_each_key() -> None:
    disk = MemoryDisk()
    image = compacted()
    manager = started(1, image, disk)
    fill(manager, 60)
    part, before = part_of(manager), state_of(manager)
    size, end_offset = part.log.size_bytes, part.log.end_offset
    run_until(manager, NOW_MS + 40_000)
    assert part.log.size_bytes < size / 4
    assert (state_of(manager), part.log.end_offset) == (before, end_offset)
    assert part.log.cleaned_offset == part.log.segments[-1].base_offset
    assert read_offsets(disk, "d", CLEANED) == ({NAME: part.log.cleaned_offset}, None)
    assert manager.findings == []
    # The files of the old segments go after a minute.
    assert any(name.endswith(".deleted") for name in disk.list("d/t-0"))
    run_until(manager, NOW_MS + 120_000, NOW_MS + 40_000)
    assert not any(name.endswith((".deleted", ".cleaned", ".swap")) for name in disk.list("d/t-0"))
    manager.close(broker_epoch=1001)
    again = started(1, image, disk)
    assert (state_of(again), part_of(again).log.end_offset) == (before, end_offset)
    assert part_of(again).log.cleaned_offset == part.log.cleaned_offset
    fill(again, 30)
    run_until(again, NOW_MS + 40_000)
    assert part_of(again).log.cleaned_offset == part_of(again).log.segments[-1].base_offset


def test_topics_that_are_not_compacted_and_a_broker_without_a_cleaner_keep_every_record() -> None:
    for image, has_cleaner in ((compacted({"cleanup.policy": "delete"}), True), (compacted(), False)):
        manager = started(1, image, has_cleaner=has_cleaner)
        fill(manager, 60)
        size = part_of(manager).log.size_bytes
        run_until(manager, NOW_MS + 60_000)
        assert part_of(manager).log.size_bytes == size


def test_a_topic_that_is_compacted_and_deleted_loses_old_segments_too() -> None:
    manager = started(1, compacted({"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}))
    fill(manager, 60)
    part = part_of(manager)
    run_until(manager, NOW_MS + 40_000)
    assert part.log.start_offset == 0
    assert part.log.cleaned_offset
    fill(manager, 30, NOW_MS + 2 * HOUR_MS)
    run_until(manager, NOW_MS + 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS - 1)
    assert part.log.start_offset > 200
    assert set(state_of(manager)) == {b"key-%d" % number for number in range(KEYS)}


def test_a_step_of_a_cleaning_is_one_turn_and_the_log_takes_records_between_them() -> None:
    manager = started(1, compacted({"internal.segment.bytes": "200000"}))
    fill(manager, 4000)
    part = part_of(manager)
    times = []
    while part.log.cleaned_offset is None:
        now_ms = manager.deadline_ms()
        manager.shrink(now_ms)
        times.append(now_ms)
        if part.log.size_bytes > 400_000:
            fill(manager, 1, NOW_MS)
    steps = [now_ms for now_ms in times if now_ms >= NOW_MS + 30_000]
    assert len(steps) > 5
    state = state_of(manager)
    assert len(state) == KEYS
    assert state[b"key-0"] == b"%08d" % ((part.log.end_offset - 1) // KEYS * KEYS)


def test_a_topic_that_is_deleted_meanwhile_leaves_nothing_behind() -> None:
    disk = MemoryDisk()
    image = compacted({"internal.segment.bytes": "200000"})
    manager = started(1, image, disk)
    fill(manager, 4000)
    while not any(name.endswith(".cleaned") for name in disk.list("d/t-0")):
        manager.shrink(manager.deadline_ms())
    now_ms = manager.deadline_ms()
    publish(manager, replayed(image, records.RemoveTopicRecord(topic_id=TOPIC)), now_ms)
    run_until(manager, now_ms + 120_000, now_ms)
    assert [name for name in disk.list("d") if name.startswith("t-")] == []
    assert manager.failed_directories == {}


def test_a_damaged_batch_is_reported_and_the_partition_serves_on() -> None:
    disk = MemoryDisk()
    manager = started(1, compacted(), disk)
    fill(manager, 60)
    part = part_of(manager)
    disk.overwrite(part.log.segments[1].batches.file.path, 80, b"\xff\xff\xff")
    run_until(manager, NOW_MS + 100_000)
    (finding,) = manager.findings
    assert "t-0 is not cleaned until the next start" in finding
    assert not part.is_offline
    fill(manager, 1)


def test_a_full_disk_takes_the_directory_offline_and_the_next_start_has_every_record() -> None:
    disk = MemoryDisk()
    image = compacted()
    manager = started(1, image, disk)
    fill(manager, 60)
    before = state_of(manager)
    disk.free_bytes = 120
    run_until(manager, NOW_MS + 40_000)
    assert part_of(manager).is_offline
    assert len(manager.failed_directories) == 1
    disk.free_bytes = None
    again = started(1, image, disk)
    assert state_of(again) == before


def test_the_settings_of_compaction_come_from_the_topic_and_from_the_broker() -> None:
    static = {
        "log.cleaner.min.cleanable.ratio": "0.7",
        "log.cleaner.min.compaction.lag.ms": "11",
        "log.cleaner.max.compaction.lag.ms": "5000",
        "log.cleaner.delete.retention.ms": "13",
        "log.cleanup.policy": "compact",
    }
    found = topic_settings("t", replayed(cluster(1), *new_topic((1,))).configs, 1, static).log
    assert (found.min_dirty_ratio, found.min_compaction_lag_ms, found.max_compaction_lag_ms) == (0.7, 11, 5000)
    assert (found.delete_retention_ms, found.is_compacted, found.is_deleted) == (13, True, False)
    # The active segment is never cleaned: it rolls in time.
    assert found.segment_ms == 5000
    own = topic_settings("t", compacted({"delete.retention.ms": "17"}).configs, 1, static).log
    assert (own.min_dirty_ratio, own.delete_retention_ms) == (0.1, 17)
    cleaner = CleanerSettings(buffer_bytes=2400)
    assert (cleaner.buffer_bytes, cleaner.load_factor) == (2400, 0.9)


def test_the_broker_checks_the_expiry_of_producers_while_logs_are_open() -> None:
    manager = started(1, replayed(cluster(1), *new_topic((1,))))
    contents = [Record(0, NOW_MS, 0, b"k", b"v")]
    data = write_batch(contents, epoch=-1, producer_id=7, producer_epoch=0, base_sequence=0)
    assert isinstance(append_to(manager, KEY, data, acks=1, now_ms=NOW_MS), Appended)
    producers = part_of(manager).log.producers.states
    day_ms = 24 * HOUR_MS
    run_until(manager, NOW_MS + day_ms - 600_000, NOW_MS + day_ms - 1_200_000)
    assert list(producers.producers) == [7]
    run_until(manager, NOW_MS + day_ms + 600_000, NOW_MS + day_ms - 600_000)
    assert list(producers.producers) == []


def test_a_checkpoint_file_of_the_cleaner_that_is_damaged_counts_as_none() -> None:
    disk = MemoryDisk()
    image = compacted()
    manager = started(1, image, disk)
    fill(manager, 60)
    run_until(manager, NOW_MS + 40_000)
    manager.close(broker_epoch=1001)
    disk.overwrite(f"d/{CLEANED}", 0, b"7")
    again = started(1, image, disk)
    assert part_of(again).log.cleaned_offset is None
    assert any(CLEANED in finding for finding in again.findings)
    assert read_offsets(disk, "d", RECOVERY_POINTS)[1] is None


def test_records_that_have_waited_for_flush_ms_are_flushed() -> None:
    """`log.flush.scheduler.interval.ms` and `flush.ms`, which a topic may set (Kafka: `LogManager.flushDirtyLogs`)."""
    for configs, static, flushed in (
        ({"flush.ms": "3000"}, {}, 4),
        ({}, {"log.flush.interval.ms": "1000"}, 4),
        ({"flush.ms": "8000"}, {"log.flush.interval.ms": "1000"}, 0),
        ({}, {}, 0),
    ):
        image = replayed(cluster(1), *new_topic((1,), configs=configs))
        manager = started(1, image, static=static, flush_check_ms=2000, offset_checkpoint_ms=HOUR_MS)
        fill(manager, 1)
        run_until(manager, NOW_MS + 2000)
        assert part_of(manager).log.recovery_point == (4 if static and not configs else 0), "at the first look"
        run_until(manager, NOW_MS + 7000, NOW_MS + 2000)
        assert part_of(manager).log.recovery_point == flushed
    manager = started(1, replayed(cluster(1), *new_topic((1,), configs={"flush.ms": "1"})))
    assert manager.deadline_ms() < 2**62
    fill(manager, 1)
    run_until(manager, NOW_MS + 7000)
    assert part_of(manager).log.recovery_point == 0, "as in Kafka, nothing looks at it by default"
