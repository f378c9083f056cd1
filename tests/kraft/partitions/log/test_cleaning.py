"""The cleaner keeps the last record of each key, as Kafka's does; offsets, producers and transactions stay right."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from cleaned_partitions import batches_in, clean, committed, latest, sequences, survivors
from kraft.partitions.log.cleaning.choice import CleanerSettings, cleanable
from kraft.partitions.log.cleaning.cleaner import cleaning
from kraft.partitions.log.cleaning.offset_map import ENTRY_BYTES, NOT_FOUND, OffsetMap
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch, OversizedRecord
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record, records
from metadata_log.serde.codec import finished
from support.broker.broker_logs import NOW_MS, files_below
from support.broker.cleaned_logs import SEEDS, recorded, rounds_of
from support.broker.dirty_logs import OPTIONS, Producers, dirty_log

COMPACTED = Path(__file__).parents[3] / "data" / "compacted_topic.json.gz"


@pytest.mark.parametrize("seed", SEEDS)
def test_three_cleanings_write_the_files_that_kafkas_cleaner_wrote(seed: int) -> None:
    """Batches, indexes, transaction indexes and snapshots; `kafkas_cleaner` has recorded them."""
    for number, (mine, theirs) in enumerate(zip(rounds_of(seed), recorded()[str(seed)], strict=True)):
        assert mine.outcome == tuple(theirs), f"round {number}"


@pytest.mark.parametrize("seed", range(12))
def test_a_cleaned_log_of_any_codec_has_the_last_value_of_each_key(seed: int) -> None:
    """Against a dictionary: values, tombstones before and after their horizon, offsets, producers, transactions."""
    rng = Random(seed)
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "p-0", OPTIONS, now_ms=NOW_MS)
    producers = Producers(log, rng, tuple(Compression))
    producers.write(80)
    producers.end_all()
    before, states = committed(log), sequences(log)
    active = log.segments[-1].batches.file.pread(1 << 30, 0)
    done = clean(log, disk, producers.time_ms)
    after = committed(log)
    assert latest(after) == latest(before)
    # Tombstones stay for a while: a reader that is behind gets them, too.
    last = {key: (offset, key, value) for offset, key, value in before if offset < done.end_offset}
    assert [each for each in after if each[0] < done.end_offset] == sorted(last.values())
    assert [each for each in after if each[0] >= done.end_offset] == [
        each for each in before if each[0] >= done.end_offset
    ]
    assert log.segments[-1].batches.file.pread(1 << 30, 0) == active
    log.cleaned_offset = 0
    clean(log, disk, producers.time_ms + OPTIONS.delete_retention_ms + 1)
    gone = committed(log)
    assert latest(gone) == latest(before)
    assert all(value is not None for offset, _, value in gone if offset < done.end_offset)
    for is_clean in (True, False):
        log.close()
        log = PartitionLog.open(disk, "p-0", OPTIONS, now_ms=producers.time_ms, is_clean=is_clean)
        log.raise_high_watermark(log.end_offset)
        assert sequences(log) == states
        assert committed(log) == gone
    for offset in range(log.start_offset, log.end_offset):
        read = log.read(offset, 1)
        assert isinstance(read, bytes)
        first = next(scan(read))
        assert first.next_offset > offset


def test_the_recorded_topic_keeps_what_kafkas_cleaner_kept() -> None:
    """Six producers wrote to alerts-compact, and the brokers cleaned it meanwhile: the same records, and the same empty
    batches that keep sequence numbers.
    """
    with gzip.open(COMPACTED) as file:
        written = json.load(file)
    disk = MemoryDisk()
    # The brokers rolled by size; some batches were compressed, with fewer bytes than here.
    rolled = (62, 126, 198)
    options = LogOptions(index_interval_bytes=256, is_compacted=True, delete_retention_ms=600_000)
    log = PartitionLog.open(disk, "p-0", options, now_ms=NOW_MS)
    for producer_id, batches in zip(written["producers"], written["batches"], strict=True):
        sequence = 0
        for batch in batches:
            contents = [
                Record(index, NOW_MS, 0, key.encode(), None if value is None else value.encode())
                for index, (key, value) in enumerate(batch)
            ]
            data = write_batch(contents, epoch=-1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            sequence += len(batch)
            if log.end_offset in rolled:
                log.roll(NOW_MS)
            log.append_as_leader(data, epoch=0, now_ms=NOW_MS)
    log.options = structs.replace(options, segment_bytes=4096)
    log.raise_high_watermark(log.end_offset)
    done = clean(log, disk, NOW_MS)
    files = files_below("nodes/b101/alerts-compact-0")
    theirs = [each for name in sorted(files) if name.endswith(".log") for each in scan(files[name])]
    assert files_below("nodes/b101")["cleaner-offset-checkpoint"].decode() == (
        f"0\n1\nalerts-compact 0 {done.end_offset}\n"
    )
    assert survivors(log) == [
        (record.offset, record.key, record.value) for batch in theirs for record in records(batch)
    ]

    def shapes(batches: list[RecordBatch]) -> list[tuple[int, int, int, int, int]]:
        return [(b.base_offset, b.last_offset, b.record_count, b.producer_id, b.base_sequence) for b in batches]

    assert shapes(batches_in(log)) == shapes(theirs)
    assert [segment.base_offset for segment in log.segments] == [0, *rolled]


# ------------------------------------------------------------------------------------------------- what may be cleaned


def test_records_from_the_last_stable_offset_on_stay() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(5))
    producers.end_all()
    wanted = log.segments[2].base_offset + 1
    log.high_watermark = wanted
    assert cleanable(log, now_ms=producers.time_ms).end_offset == log.segments[2].base_offset
    kept = [each for each in batches_in(log) if each.base_offset >= log.segments[2].base_offset]
    clean(log, disk, producers.time_ms)
    assert batches_in(log)[-len(kept) :] == kept


def test_min_compaction_lag_keeps_young_segments_and_max_compaction_lag_cleans_old_ones() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(6))
    producers.end_all()
    second, active = log.segments[1], log.segments[-1].base_offset
    now_ms = producers.time_ms
    age_ms = now_ms - second.batches.max_timestamp
    assert cleanable(log, now_ms=now_ms).end_offset == active
    log.options = structs.replace(OPTIONS, min_compaction_lag_ms=age_ms + 1)
    assert cleanable(log, now_ms=now_ms).end_offset == second.base_offset
    log.options = structs.replace(OPTIONS, min_compaction_lag_ms=age_ms - 1)
    assert cleanable(log, now_ms=now_ms).end_offset > second.base_offset
    log.cleaned_offset = second.base_offset
    oldest_ms = now_ms - min(each.batches.first_timestamp for each in log.segments[1:-1])
    log.options = structs.replace(OPTIONS, max_compaction_lag_ms=oldest_ms - 1)
    assert cleanable(log, now_ms=now_ms).is_overdue
    log.options = structs.replace(OPTIONS, max_compaction_lag_ms=oldest_ms)
    assert not cleanable(log, now_ms=now_ms).is_overdue


def test_a_log_is_due_by_its_share_of_dirty_bytes() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(7))
    producers.end_all()
    whole = cleanable(log, now_ms=producers.time_ms)
    assert (whole.dirty_ratio, whole.clean_bytes) == (1.0, 0)
    clean(log, disk, producers.time_ms)
    nothing = cleanable(log, now_ms=producers.time_ms)
    assert (nothing.dirty_bytes, nothing.is_due(0.0)) == (0, False)
    producers.write(30)
    producers.end_all()
    some = cleanable(log, now_ms=producers.time_ms)
    assert some.dirty_ratio == some.dirty_bytes / (some.dirty_bytes + some.clean_bytes)
    assert some.is_due(some.dirty_ratio - 0.01)
    assert not some.is_due(some.dirty_ratio)


def test_a_truncation_makes_later_records_dirty_again() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(8))
    producers.end_all()
    done = clean(log, disk, producers.time_ms)
    log.truncate(done.end_offset - 20, now_ms=producers.time_ms)
    assert log.cleaned_offset == done.end_offset - 20
    producers = Producers(log, Random(9))
    producers.write(60)
    producers.end_all()
    assert cleanable(log, now_ms=producers.time_ms).first_dirty_offset == done.end_offset - 20
    state = latest(committed(log))
    clean(log, disk, producers.time_ms)
    assert latest(committed(log)) == state


# ------------------------------------------------------------------------------------------------------- while it runs


def test_a_log_may_grow_while_it_is_cleaned() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(11), batches=150)
    producers.end_all()
    found = cleanable(log, now_ms=producers.time_ms)
    steps = cleaning(log, disk, found, CleanerSettings(), now_ms=producers.time_ms)
    before = log.end_offset
    count = 0
    for _ in steps:
        count += 1
        producers.write(2)
    assert count > 5
    assert log.segments[0].batches.size_bytes < found.dirty_bytes
    assert len(log.segments) < 60
    producers.end_all()
    assert log.end_offset > before
    reopened = PartitionLog.open(disk, "p-0", OPTIONS, now_ms=producers.time_ms)
    assert [each.data for each in batches_in(reopened)] == [each.data for each in batches_in(log)]


@pytest.mark.parametrize("change", ["truncate", "reset", "delete"])
def test_a_log_that_loses_records_meanwhile_ends_its_cleaning(change: str) -> None:
    for stop_at in range(1, 12, 3):
        disk = MemoryDisk()
        log, producers = dirty_log(disk, "p-0", Random(12), batches=150)
        producers.end_all()
        now_ms = producers.time_ms
        found = cleanable(log, now_ms=now_ms)
        steps = cleaning(log, disk, found, CleanerSettings(), now_ms=now_ms)
        for _ in range(stop_at):
            next(steps)
        match change:
            case "truncate":
                log.truncate(log.segments[1].base_offset, now_ms=now_ms)
            case "reset":
                log.reset(log.end_offset, now_ms=now_ms)
            case _:
                log.delete_segments(1, now_ms=now_ms)
        assert finished(steps) is None
        assert not any(".cleaned" in name for name in disk.list("p-0"))
        kept = [each.data for each in batches_in(log)]
        reopened = PartitionLog.open(disk, "p-0", OPTIONS, now_ms=now_ms)
        assert [each.data for each in batches_in(reopened)] == kept


def test_a_cleaning_that_is_closed_leaves_no_file() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(13), batches=150)
    producers.end_all()
    found = cleanable(log, now_ms=producers.time_ms)
    steps = cleaning(log, disk, found, CleanerSettings(), now_ms=producers.time_ms)
    while not any(".cleaned" in name for name in disk.list("p-0")):
        next(steps)
    steps.close()
    assert not any(".cleaned" in name for name in disk.list("p-0"))


def test_a_damaged_batch_ends_a_cleaning_and_stays_as_it_is() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(14), batches=150)
    producers.end_all()
    path = log.segments[1].batches.file.path
    disk.overwrite(path, 100, b"\xff\xfe\xfd")
    before = {name: disk.peek(f"p-0/{name}") for name in disk.list("p-0")}
    found = cleanable(log, now_ms=producers.time_ms)
    with pytest.raises(CorruptBatch, match="CRC"):
        finished(cleaning(log, disk, found, CleanerSettings(), now_ms=producers.time_ms))
    assert {name: disk.peek(f"p-0/{name}") for name in disk.list("p-0")} == before


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stored_record_above_a_lowered_limit_ends_a_cleaning_that_changes_nothing(*, is_clean: bool) -> None:
    """`max.decompressed.message.bytes`, in the first pass, and in the second over what is clean already."""
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "p-0", OPTIONS, now_ms=NOW_MS)
    for at in range(8):
        contents = [Record(at, NOW_MS, 0, b"key-%d" % at, bytes(990 if at == 0 else 5))]
        codec = Compression.NONE if at % 2 else Compression.ZSTD
        log.append_as_follower(write_batch(contents, epoch=3, compression=codec), leader_epoch=3, now_ms=NOW_MS)
        log.roll(NOW_MS)
    log.raise_high_watermark(log.end_offset)
    log.cleaned_offset = 4 if is_clean else None
    before = {name: disk.peek(f"p-0/{name}") for name in disk.list("p-0")}
    for most in (900, 2000):
        log.options = structs.replace(OPTIONS, max_decompressed_bytes=most)
        found = cleanable(log, now_ms=NOW_MS)
        steps = cleaning(log, disk, found, CleanerSettings(), now_ms=NOW_MS)
        if most == 900:
            with pytest.raises(OversizedRecord):
                finished(steps)
            assert {name: disk.peek(f"p-0/{name}") for name in disk.list("p-0")} == before
        else:
            assert finished(steps) is not None


# --------------------------------------------------------------------------------------------------------- the memory


@pytest.mark.parametrize("seed", range(3))
def test_an_offset_map_agrees_with_a_dictionary_within_its_memory(seed: int) -> None:
    rng = Random(seed)
    memory = ENTRY_BYTES * 500
    offsets, expected = OffsetMap(memory, 0.9, 10_000), dict[bytes, int]()
    for offset in range(2000):
        if offsets.is_full:
            break
        key = b"%d" % rng.randrange(600)
        offsets.put(key, offset)
        expected[key] = offset
    assert offsets.entries == len(expected) == 450
    assert offsets.size_bytes <= memory
    for number in range(700):
        assert offsets.get(b"%d" % number) == expected.get(b"%d" % number, NOT_FOUND)


def test_an_offset_map_of_a_short_log_is_small() -> None:
    assert OffsetMap(128 << 20, 0.9, 100).size_bytes < 3000


def test_a_small_buffer_cleans_a_log_in_several_rounds() -> None:
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(15), batches=150)
    producers.end_all()
    state, rounds = latest(committed(log)), 0
    small = CleanerSettings(buffer_bytes=ENTRY_BYTES * 8)
    while (found := cleanable(log, now_ms=producers.time_ms)).dirty_bytes:
        done = clean(log, disk, producers.time_ms, small)
        assert found.first_dirty_offset < done.end_offset <= found.end_offset
        assert latest(committed(log)) == state
        rounds += 1
    assert rounds > 3


# ----------------------------------------------------------------------------------------- what else the log forgets


def test_a_truncation_forgets_the_transactions_that_the_watermark_has_passed() -> None:
    """The last stable offset is the high watermark again at once."""
    disk = MemoryDisk()
    log, producers = dirty_log(disk, "p-0", Random(16))
    producers.end_all()
    watermark = log.end_offset
    data = [Record(watermark, producers.time_ms, 0, b"k", b"v")]
    log.append_as_follower(write_batch(data, epoch=3), leader_epoch=3, now_ms=producers.time_ms)
    assert log.last_stable_offset == log.high_watermark == watermark
    log.truncate(watermark, now_ms=producers.time_ms)
    assert log.last_stable_offset == log.high_watermark == watermark


def test_producers_expire_while_the_log_is_open_but_for_those_in_a_transaction() -> None:
    disk = MemoryDisk()
    log, _ = dirty_log(disk, "p-0", Random(17))
    in_transaction = set(log.producers.states.open_transactions.values())
    assert in_transaction
    known = log.producers.states.producers.values()
    newest = max(each.timestamp for each in known if each.producer_id not in in_transaction)
    log.producers.expire(newest + OPTIONS.producer_expiration_ms - 1)
    assert set(log.producers.states.producers) > in_transaction
    log.producers.expire(newest + OPTIONS.producer_expiration_ms)
    assert set(log.producers.states.producers) == in_transaction
