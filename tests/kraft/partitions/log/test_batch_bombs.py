"""Lies of a client, or of a leader, in a batch: Kafka's codes, counted work, and a log that any tool can read."""

from __future__ import annotations

from typing import Any

import pytest

from cleaned_partitions import clean, survivors
from kraft.partitions.log import validation
from kraft.partitions.log.dump_lines import batch_line, record_lines
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.producers import ProducerStates
from kraft.partitions.log.validation import Checked, checking_all
from metadata_log.compression import Compression, deflate
from metadata_log.errors import CorruptBatch
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import record as record_module
from metadata_log.records.batch import RecordBatch, read_batch, scan
from metadata_log.records.record import records
from metadata_log.serde.codec import finished
from support.bombs import (
    CODES,
    EMPTY_GZIP,
    NOW_MS,
    batch,
    forbid_objects,
    headers,
    in_order,
    lies,
    record,
    steps_of,
    zstd,
)
from transport.protocol.errors import Error

ANY_TIME = 2**63 - 1
OPTIONS = LogOptions(timestamp_after_max_ms=ANY_TIME, max_message_bytes=10 << 20)
COMPACTED = LogOptions(is_compacted=True, max_message_bytes=10 << 20)
MANY = 20_000


def checked(data: bytes, options: LogOptions = OPTIONS) -> tuple[int, Checked | RefusedAppend]:
    return steps_of(checking_all(data, options=options, now_ms=NOW_MS, is_client=True))


def refusal(data: bytes, options: LogOptions = OPTIONS) -> tuple[int, RefusedAppend]:
    pauses, found = checked(data, options)
    assert isinstance(found, RefusedAppend)
    return pauses, found


def new_log(options: LogOptions = OPTIONS) -> tuple[PartitionLog, MemoryDisk]:
    disk = MemoryDisk()
    return PartitionLog.open(disk, "d/t-0", options, now_ms=NOW_MS), disk


def stored_in(log: PartitionLog) -> list[RecordBatch]:
    data = log.read(0, 1 << 20)
    assert isinstance(data, bytes)
    return list(scan(data))


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record and no header may become an object."""
    forbid_objects(monkeypatch)


# Produce


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("what", CODES)
def test_a_lie_gets_the_code_of_kafka(what: str) -> None:
    log, _ = new_log()
    done = log.append_as_leader(lies(NOW_MS)[what], epoch=1, now_ms=NOW_MS)
    assert (done.error if isinstance(done, RefusedAppend) else Error.NONE).name == CODES[what]


def test_a_count_beyond_the_limit_is_refused_before_anything_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """9.5 million records in six kilobytes took 203 seconds and 2.9 GB, in one turn."""
    monkeypatch.setattr(validation, "unpacking", None)
    pauses, found = refusal(batch(zstd(record()), 9_500_000, codec=Compression.ZSTD))
    assert (pauses, found.error) == (0, Error.MESSAGE_TOO_LARGE)
    assert "9500000 records, where 1048576 are the most" in found.text


@pytest.mark.usefixtures("objects")
def test_equal_offsets_end_the_check_at_the_second_record() -> None:
    pauses, found = refusal(batch(zstd(record() * 100_000 + b"damage"), 100_000, codec=Compression.ZSTD))
    assert (found.error, pauses < 10) == (Error.UNKNOWN_SERVER_ERROR, True)
    assert "not consecutive" in found.text


@pytest.mark.usefixtures("objects")
def test_many_headers_are_refused_without_an_object_for_each() -> None:
    _, found = refusal(batch(zstd(record(headers=headers(200_000))), codec=Compression.ZSTD))
    assert found.error is Error.INVALID_RECORD
    assert "200000 headers, where 65536 are the most" in found.text


@pytest.mark.usefixtures("objects")
def test_a_hundred_records_without_a_key_are_named_of_149_000() -> None:
    """Kafka names them all, and their texts had megabytes."""
    pauses, found = refusal(batch(record(key=None, value=None) * 149_000, 149_000), COMPACTED)
    assert (pauses, found.error) == (0, Error.INVALID_RECORD)
    assert [each.index for each in found.records] == list(range(100))


def test_what_unpacks_to_too_much_is_split_by_its_producer() -> None:
    pauses, found = refusal(batch(zstd(bytes(65 << 20)), codec=Compression.ZSTD))
    assert (found.error, pauses > 16) == (Error.MESSAGE_TOO_LARGE, True)


@pytest.mark.usefixtures("objects")
def test_empty_gzip_members_are_unpacked_in_steps() -> None:
    pauses, found = refusal(batch(EMPTY_GZIP * 20_000, codec=Compression.GZIP))
    assert (found.error, pauses >= 4) == (Error.INVALID_RECORD, True)


@pytest.mark.usefixtures("objects")
def test_sound_records_are_checked_in_steps_without_objects() -> None:
    pauses, found = checked(batch(zstd(in_order(MANY)), MANY, codec=Compression.ZSTD), COMPACTED)
    assert isinstance(found, Checked)
    assert pauses >= MANY // 4096


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("target", Compression)
def test_another_codec_is_written_in_steps_without_objects(target: Compression) -> None:
    options = LogOptions(compression=target, max_message_bytes=10 << 20)
    source = Compression.LZ4 if target is Compression.ZSTD else Compression.ZSTD
    sent = batch(deflate(source, in_order(MANY)), MANY, codec=source)
    pauses, found = checked(sent, options)
    assert isinstance(found, Checked)
    assert pauses >= MANY // 2048
    [placed] = found.placed(100, 3)
    assert (placed.compression, placed.record_count, placed.base_offset) == (target, MANY, 100)
    assert read_batch(placed.data).max_timestamp == NOW_MS


def test_another_codec_that_grows_ends_at_the_limit() -> None:
    """A topic without compression would have stored 60 MB for two kilobytes."""
    options = LogOptions(compression=Compression.NONE)
    _, found = refusal(batch(zstd(record(value=bytes(8 << 20))), codec=Compression.ZSTD), options)
    assert found.error is Error.MESSAGE_TOO_LARGE


# Sums of a client's numbers


def test_a_time_beyond_javas_long_wraps_everywhere() -> None:
    """One batch of 70 bytes ended the broker: `int too large to convert`."""
    end = 2**63 - 1
    log, disk = new_log()
    sent = batch(record(time=1) + record(1, time=0), 2, base_time=end)
    assert log.append_as_leader(sent, epoch=1, now_ms=NOW_MS) == Appended(0, 1)
    [stored] = stored_in(log)
    assert stored.max_timestamp == log.max_timestamp == end
    found = finished(log.finding_time(end))
    assert found is not None
    assert (found.offset, found.timestamp) == (1, end)
    assert f"CreateTime: {-end - 1} " in next(record_lines(stored))
    assert f"CreateTime: {end} " in batch_line(stored)
    log.roll(NOW_MS)
    log.close()
    again = PartitionLog.open(disk, "d/t-0", OPTIONS, now_ms=NOW_MS, is_clean=True, recovery_point=2)
    assert (again.end_offset, again.max_timestamp) == (2, end)
    follower, _ = new_log()
    assert follower.append_as_follower(stored.data, leader_epoch=1, now_ms=NOW_MS) == Appended(0, 1)
    assert [each.timestamp for each in records(stored)] == [-end - 1, end]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.NONE])
def test_a_time_that_wraps_is_encoded_again(codec: Compression) -> None:
    options = LogOptions(compression=codec, timestamp_after_max_ms=ANY_TIME)
    end = 2**63 - 1
    sent = batch(zstd(record(time=0) + record(1, time=1)), 2, codec=Compression.ZSTD, base_time=end)
    _, found = checked(sent, options)
    assert isinstance(found, Checked)
    [placed] = found.placed(0, 1)
    assert [each.timestamp for each in records(placed)] == [end, -end - 1]


def test_a_leader_cannot_give_offsets_beyond_javas_long() -> None:
    log, _ = new_log()
    sound = read_batch(batch(in_order(3), 3)).data
    beyond = (2**63 - 2).to_bytes(8, "big") + sound[8:12] + (1).to_bytes(4, "big") + sound[16:]
    with pytest.raises(CorruptBatch, match="begins at offset 9223372036854775806"):
        log.append_as_follower(beyond, leader_epoch=1, now_ms=NOW_MS)
    assert log.end_offset == 0


def test_a_negative_producer_id_is_no_producer() -> None:
    states = ProducerStates()
    states.note(read_batch(batch(record(), producer=(-2, 0, -5))), None)
    assert not states.producers


# What reads the log again


def stored_bomb(options: LogOptions = OPTIONS) -> tuple[PartitionLog, MemoryDisk]:
    """A log with a batch of many records with headers, as it may be there from Kafka."""
    log, disk = new_log(options)
    body = b"".join(record(at, time=at, key=b"%d" % (at % 50), headers=headers(3)) for at in range(MANY))
    done = log.append_as_leader(
        batch(zstd(body), MANY, codec=Compression.ZSTD, base_time=NOW_MS), epoch=1, now_ms=NOW_MS + MANY
    )
    assert isinstance(done, Appended)
    log.raise_high_watermark(log.end_offset)
    return log, disk


@pytest.mark.usefixtures("objects")
def test_a_search_by_time_pauses_and_makes_no_objects() -> None:
    log, _ = stored_bomb()
    pauses, found = steps_of(log.finding_time(NOW_MS + MANY - 1))
    assert found is not None
    assert (found.offset, found.timestamp) == (MANY - 1, NOW_MS + MANY - 1)
    assert pauses >= MANY // 2048 - 1


def test_a_cleaning_makes_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    log, disk = stored_bomb(COMPACTED)
    log.roll(NOW_MS)
    with monkeypatch.context() as patched:
        patched.setattr(record_module, "Record", None)
        patched.setattr(record_module, "Header", None)
        clean(log, disk, NOW_MS)
    left = survivors(log)
    assert [offset for offset, _, _ in left] == list(range(MANY - 50, MANY))


def test_the_lines_of_a_batch_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = stored_bomb()
    [stored] = stored_in(log)
    made = 0
    real = record_module.Record

    def counted(*given: Any) -> object:
        nonlocal made
        made += 1
        return real(*given)

    monkeypatch.setattr(record_module, "Record", counted)
    lines = record_lines(stored)
    next(lines)
    assert made == 1


def test_a_batch_that_a_leader_checks_is_placed_where_the_log_ends_by_then() -> None:
    log, _ = new_log()
    steps = checking_all(batch(in_order(MANY), MANY), options=OPTIONS, now_ms=NOW_MS, is_client=True)
    next(steps)
    log.append_as_leader(batch(record()), epoch=1, now_ms=NOW_MS)
    found = finished(steps)
    assert isinstance(found, Checked)
    assert log.append_as_leader(found, epoch=2, now_ms=NOW_MS) == Appended(1, MANY)
