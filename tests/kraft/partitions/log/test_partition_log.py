"""A log that takes the batches of real brokers writes the files of real brokers, and refuses what Kafka refuses."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec import structs

from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.retention import delete_old_segments
from kraft.partitions.log.validation import place
from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch, OversizedRecord
from metadata_log.log.segment import Segment
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import with_checksum, write_batch
from metadata_log.records.record import Record, encode_record, records
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch
from support.broker.broker_logs import (
    NODES,
    NOW_MS,
    expected,
    files_below,
    options_of,
    partition_directories,
    topic_of,
)
from transport.protocol.errors import Error

STOPPED = [f"nodes/{node}/{name}" for node in NODES for name in partition_directories(f"nodes/{node}")]
CONFIGS = expected("final/state.json")["configs"]


def is_appended_only(path: str) -> bool:
    """Whether a partition has all of its records, as a leader appended them."""
    name = topic_of(path.rpartition("/")[2])
    configs = CONFIGS.get(f"TOPIC:{name.topic}", {})
    logs = [file for file in files_below(path) if file.endswith(".log")]
    return "compact" not in configs.get("cleanup.policy", "") and f"{0:020d}.log" in logs and not name.suffix


APPENDED = [path for path in STOPPED if is_appended_only(path)]
ROLLED_OTHERWISE = {"alerts-rollt-0"}
"""Rolled by the clock: the time of a roll is not in the log."""


def batches_below(path: str) -> list[RecordBatch]:
    logs = sorted(file for file in files_below(path) if file.endswith(".log"))
    return [batch for file in logs for batch in scan(files_below(path)[file])]


def new_log(options: LogOptions | None = None, disk: MemoryDisk | None = None) -> PartitionLog:
    return PartitionLog.open(disk or MemoryDisk(), "d/p", options or LogOptions(), now_ms=NOW_MS)


def content(log: PartitionLog) -> bytes:
    return b"".join(segment.batches.file.pread(1 << 30, 0) for segment in log.segments)


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    return {path.rpartition("/")[2]: disk.peek(path) for path in disk.files()}


@pytest.mark.parametrize("path", APPENDED)
def test_a_follower_that_appends_each_batch_writes_the_segments_of_the_brokers(path: str) -> None:
    """The log rolls where Kafka rolled, and its closed segments have the index files and snapshots of Kafka's."""
    name = path.rpartition("/")[2]
    disk = MemoryDisk()
    log = new_log(options_of(topic_of(name).topic), disk)
    for batch in batches_below(path):
        log.append_as_follower(batch.data, leader_epoch=batch.epoch, now_ms=NOW_MS)
    log.close()
    theirs, mine = files_below(path), files_of(disk)
    if name in ROLLED_OTHERWISE:
        assert b"".join(mine[file] for file in sorted(mine) if file.endswith(".log")) == b"".join(
            theirs[file] for file in sorted(theirs) if file.endswith(".log")
        )
        return
    assert {file: data for file, data in mine.items() if file.endswith(".log")} == {
        file: data for file, data in theirs.items() if file.endswith(".log")
    }
    bases = [f"{segment.base_offset:020d}" for segment in log.segments]
    for base in bases[1:]:
        assert mine[f"{base}.snapshot"] == theirs[f"{base}.snapshot"]
    for base in bases[:-1]:
        for suffix in ("index", "timeindex", "txnindex"):
            assert mine.get(f"{base}.{suffix}") == theirs.get(f"{base}.{suffix}"), (base, suffix)
    reopened = PartitionLog.open(disk, "d/p", log.options, now_ms=NOW_MS, is_clean=True)
    assert (reopened.end_offset, reopened.recovered) == (log.end_offset, ())
    assert reopened.producers.states.stored() == log.producers.states.stored()


def as_sent(batch: RecordBatch) -> bytes:
    """A batch as its producer sent it: without an offset, an epoch and the time of the broker."""
    data = bytearray(batch.data)
    data[:8] = bytes(8)
    data[12:16] = b"\xff" * 4
    if batch.is_log_append_time:
        data[22] &= ~0x08
        data[35:43] = batch.base_timestamp.to_bytes(8, "big")
        return with_checksum(bytes(data))
    return bytes(data)


@pytest.mark.parametrize("path", [path for path in APPENDED if path.startswith("nodes/b101")])
def test_a_leader_stores_the_bytes_that_kafkas_leader_stored(path: str) -> None:
    """Offset, epoch and append time go into the header; every other byte is the producer's."""
    configs = CONFIGS.get(f"TOPIC:{topic_of(path.rpartition('/')[2]).topic}", {})
    is_append_time = configs.get("message.timestamp.type") == "LogAppendTime"
    options = structs.replace(
        options_of(topic_of(path.rpartition("/")[2]).topic), is_log_append_time=is_append_time, segment_bytes=1 << 30
    )
    log = new_log(options)
    for batch in batches_below(path):
        now_ms = batch.max_timestamp if is_append_time else NOW_MS
        done = log.append_as_leader(as_sent(batch), epoch=batch.epoch, now_ms=now_ms, is_client=not batch.is_control)
        assert isinstance(done, Appended), done
        assert (done.first_offset, done.last_offset) == (batch.base_offset, batch.last_offset)
    assert content(log) == b"".join(batch.data for batch in batches_below(path))


def records_of(*values: bytes, key: bytes | None = b"k", time: int = NOW_MS) -> list[Record]:
    return [Record(at, time, 0, key, value) for at, value in enumerate(values)]


def sent(
    count: int = 1,
    *,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    key: bytes | None = b"k",
    time: int = NOW_MS,
    compression: Compression = Compression.NONE,
    transactional: bool = False,
) -> bytes:
    return write_batch(
        records_of(*(b"v%d" % at for at in range(count)), key=key, time=time),
        epoch=-1,
        compression=compression,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(log: PartitionLog, data: bytes) -> Appended | RefusedAppend:
    return log.append_as_leader(data, epoch=1, now_ms=NOW_MS)


def error_of(done: Appended | RefusedAppend) -> Error:
    return done.error if isinstance(done, RefusedAppend) else Error.NONE


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


LATE = NOW_MS + 3_600_001
REFUSALS: list[tuple[str, bytes, LogOptions, Error]] = [
    ("base offset", changed(sent(), 7, b"\x01"), LogOptions(), Error.INVALID_RECORD),
    ("checksum", changed(sent(), 70, b"\xee"), LogOptions(), Error.CORRUPT_MESSAGE),
    ("count", with_checksum(changed(sent(2), 57, b"\0\0\0\x01")), LogOptions(), Error.INVALID_RECORD),
    ("control", with_checksum(changed(sent(), 22, b"\x20")), LogOptions(), Error.INVALID_RECORD),
    ("no sequence", sent(1, producer=7), LogOptions(), Error.INVALID_RECORD),
    ("too large", sent(20), LogOptions(max_message_bytes=100), Error.MESSAGE_TOO_LARGE),
    ("above segment", sent(20), LogOptions(segment_bytes=100), Error.RECORD_LIST_TOO_LARGE),
    ("late", sent(1, time=LATE), LogOptions(), Error.INVALID_TIMESTAMP),
    ("early", sent(1, time=5), LogOptions(timestamp_before_max_ms=1000), Error.INVALID_TIMESTAMP),
    ("no key", sent(1, key=None), LogOptions(is_compacted=True), Error.INVALID_RECORD),
    (
        "append time of a producer",
        with_checksum(changed(sent(), 22, b"\x08")),
        LogOptions(is_log_append_time=True),
        Error.INVALID_TIMESTAMP,
    ),
    (
        "codec data",
        with_checksum(changed(sent(9, compression=Compression.LZ4), 62, b"\xff\xff")),
        LogOptions(),
        Error.UNKNOWN_SERVER_ERROR,
    ),
]


@pytest.mark.parametrize(
    ("data", "options", "error"), [each[1:] for each in REFUSALS], ids=[each[0] for each in REFUSALS]
)
def test_a_wrong_batch_is_refused_with_kafkas_error_and_not_written(
    data: bytes, options: LogOptions, error: Error
) -> None:
    log = new_log(options)
    assert error_of(append(log, data)) is error
    assert content(log) == b""
    assert log.end_offset == 0


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("stored_as", [None, Compression.NONE])
def test_a_record_may_have_so_many_bytes_without_its_compression(
    codec: Compression, stored_as: Compression | None
) -> None:
    """`max.decompressed.message.bytes` counts what stands after a record's size; the largest one decides."""
    contents = [*records_of(b"a", bytes(990), b"c")]
    packed = write_batch(contents, epoch=-1, compression=codec)
    body = len(encode_record(0, 1, contents[1].key, contents[1].value, ())) - 2
    for most, error in ((body, None), (body - 1, Error.INVALID_RECORD), (1, Error.INVALID_RECORD)):
        done = append(new_log(LogOptions(max_decompressed_bytes=most, compression=stored_as)), packed)
        assert (error_of(done) if isinstance(done, RefusedAppend) else None) is error
    plain = write_batch(contents, epoch=-1)
    assert isinstance(append(new_log(LogOptions(max_decompressed_bytes=1, compression=codec)), plain), Appended)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_search_by_time_ends_at_a_stored_record_that_is_larger_than_the_topic_allows(codec: Compression) -> None:
    """`max.decompressed.message.bytes` was lowered after the append; the records before the larger one are found."""
    contents = [Record(at, NOW_MS + at, 0, b"k", bytes(size)) for at, size in enumerate((5, 5, 990, 5))]
    log = new_log()
    for packed in (write_batch(contents, epoch=-1, compression=codec), write_batch(contents[:3], epoch=-1)):
        append(log, packed)
    log.options = LogOptions(max_decompressed_bytes=900)
    found = [finished(log.finding_time(NOW_MS + at)) for at in (0, 1)]
    assert [one and one.offset for one in found] == [0, 1]
    for at in (2, 3):
        with pytest.raises(OversizedRecord, match=r"a record has 99\d bytes without .* allows 900"):
            finished(log.finding_time(NOW_MS + at))
    log.raise_high_watermark(log.end_offset)
    log.raise_start(4)
    uncompressed = finished(log.finding_time(NOW_MS + 2))
    assert uncompressed is not None
    assert uncompressed.offset == 6, "what is not compressed is not measured"


def test_the_refused_records_are_named_by_their_index() -> None:
    contents = [*records_of(b"a", b"b"), Record(2, LATE, 0, b"k", b"c")]
    done = append(new_log(), write_batch(contents, epoch=-1))
    assert isinstance(done, RefusedAppend)
    assert [each.index for each in done.records] == [2]


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    log = new_log()
    assert append(log, sent(2) + sent(2)[:-3]) == Appended(0, 1)
    assert append(log, sent(2)[:-3]) == Appended(-1, -1)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
def test_a_topic_with_a_codec_stores_the_records_in_that_codec(codec: Compression) -> None:
    log = new_log(LogOptions(compression=codec))
    append(log, sent(1))
    append(log, sent(5, producer=3, sequence=0, compression=Compression.SNAPPY))
    stored = list(scan(content(log)))
    assert [(batch.compression, batch.base_offset, batch.record_count) for batch in stored] == [
        (codec, 0, 1),
        (codec, 1, 5),
    ]
    assert [record.value for record in records(stored[1])] == [b"v%d" % at for at in range(5)]
    assert (stored[1].producer_id, stored[1].base_sequence) == (3, 0)


def test_a_batch_that_keeps_its_times_keeps_its_checksum() -> None:
    batch = next(scan(sent(3)))
    placed = place(batch, offset=90, epoch=5, max_timestamp=batch.max_timestamp)
    assert placed.crc == batch.crc
    assert next(scan(placed.data)).base_offset == 90
    later = place(batch, offset=90, epoch=5, append_time_ms=NOW_MS + 5)
    assert next(scan(later.data)).max_timestamp == NOW_MS + 5


def test_a_follower_takes_offsets_with_holes_and_refuses_those_behind_its_end() -> None:
    log = new_log()
    with_hole = b"".join(place(next(scan(sent(2))), offset=at, epoch=3).data for at in (4, 10))
    assert log.append_as_follower(with_hole, leader_epoch=3, now_ms=NOW_MS) == Appended(4, 11)
    assert log.epochs.entries == (OffsetAndEpoch(epoch=3, offset=4),)
    with pytest.raises(CorruptBatch, match="begins at offset 11, where the log ends at 12"):
        log.append_as_follower(place(next(scan(sent())), offset=11, epoch=3).data, leader_epoch=3, now_ms=NOW_MS)
    newer = place(next(scan(sent())), offset=12, epoch=4).data
    assert log.append_as_follower(newer, leader_epoch=3, now_ms=NOW_MS).last_offset == -1


def test_every_follower_reads_the_newest_small_batch_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read once by each follower and each consumer, mostly at once after its append."""
    log = new_log()
    read: Any = Segment.read
    reads: list[Any] = []

    def counted(*asked: Any) -> bytes:
        reads.append(asked)
        found: bytes = read(*asked)
        return found

    monkeypatch.setattr(Segment, "read", counted)

    def append(offset: int, value: bytes) -> bytes:
        data = write_batch([Record(offset, NOW_MS, 0, None, value)], epoch=1)
        log.append_as_follower(data, leader_epoch=1, now_ms=NOW_MS)
        return data

    first, second = append(0, b"one"), append(1, b"two")
    assert log.read(1, 1 << 20) == log.read(1, len(second), end_offset=2) == second
    assert not reads
    assert log.read(0, 1 << 20) == first + second
    assert log.read(1, 1 << 20, end_offset=1) == b""
    assert len(reads) == 1
    log.truncate(1, now_ms=NOW_MS)
    large = append(1, bytes(5000))
    assert log.read(1, 1 << 20) == large
    third = append(2, b"three")
    log.roll(NOW_MS)
    assert log.read(2, 1 << 20) == third
    assert len(reads) == 3, "what may have been cleaned is read from the file"


@pytest.mark.parametrize("seed", range(8))
def test_memory_answers_as_the_file_does(seed: int) -> None:
    """An append of several small batches is in memory too, of which a reader may want some only."""
    rng = Random(seed)
    log = new_log(LogOptions(segment_bytes=rng.choice([300, 2000, 20_000]), retention_bytes=rng.choice([-1, 600])))

    def append() -> None:
        batches, offset = [], log.end_offset
        for _ in range(rng.choice([1, 1, 2, 3])):
            batches.append(write_batch([Record(offset, NOW_MS, 0, None, bytes(rng.choice([3, 50, 5000])))], epoch=1))
            offset += 1
        log.append_as_follower(b"".join(batches), leader_epoch=1, now_ms=NOW_MS)

    def delete() -> None:
        log.raise_high_watermark(rng.randint(log.high_watermark, log.end_offset))
        log.raise_start(rng.randint(log.start_offset, log.high_watermark))
        delete_old_segments(log, now_ms=NOW_MS)

    def truncate() -> None:
        log.truncate(rng.randint(log.high_watermark, log.end_offset), now_ms=NOW_MS)

    def roll() -> None:
        log.roll(NOW_MS)

    for _ in range(40):
        rng.choice([append, append, append, truncate, delete, roll])()
        for offset in range(max(log.start_offset, log.end_offset - 3), log.end_offset):
            for most, first in [(1, True), (100, True), (100, False), (200, False), (1 << 20, True)]:
                found = log.read(offset, most, at_least_one=first)
                newest, log._newest = log._newest, (-1, -1, b"")
                assert found == log.read(offset, most, at_least_one=first), (offset, most, first)
                log._newest = newest
