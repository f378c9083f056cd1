"""`max.decompressed.message.bytes` as Kafka 4.4.0 has it, for each codec: what a producer sends around each size, and
what is stored, for the cleaner and for searches by time.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from kraft.partitions.log.cleaning.choice import CleanerSettings, cleanable
from kraft.partitions.log.cleaning.cleaner import cleaning
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.validation import prepare_all
from metadata_log.compression import Compression
from metadata_log.errors import OversizedRecord
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record, records
from metadata_log.serde.codec import finished
from support.broker.broker_logs import NOW_MS
from support.broker.cleaned_logs import files_in, opened
from support.broker.dirty_logs import HOUR_MS, OPTIONS, TOPIC_CONFIGS, Producers
from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

ORACLE: Final = Path(__file__).parents[1] / "DecompressedOracle.java"
CLEANER: Final = Path(__file__).parents[1] / "CleanerOracle.java"
TOO_LARGE: Final = -2
LARGEST_TIME: Final = -3
SIZES: Final = (0, 1, 50, 60, 120, 8180, 8190, 20_000)
"""Around the sizes at which the lengths in a record take a byte more."""


def cases(rng: Random) -> list[tuple[int, bytes]]:
    found = []
    for codec in Compression:
        for _ in range(30):
            sizes = [rng.choice(SIZES) + rng.randint(0, 9) for _ in range(rng.randint(1, 4))]
            contents = [Record(at, NOW_MS, 0, b"k", bytes(size)) for at, size in enumerate(sizes)]
            packed = write_batch(contents, epoch=-1, compression=codec)
            found += [(max(1, size + more), packed) for size in sizes for more in range(4, 16)]
    return found


def test_each_batch_has_kafkas_verdict(newer_kafka: KafkaInstallation) -> None:
    asked = cases(Random(1))
    theirs = oracle(newer_kafka, ORACLE, [f"{most} {packed.hex()}" for most, packed in asked]).splitlines()
    assert len(theirs) == len(asked)
    assert theirs.count("InvalidRecordException") > 1000 < theirs.count("read")
    for (most, packed), answer in zip(asked, theirs, strict=True):
        options = LogOptions(max_decompressed_bytes=most)
        ours = prepare_all(packed, offset=0, epoch=1, options=options, now_ms=NOW_MS, is_client=True)
        refused = ours.error if isinstance(ours, RefusedAppend) else None
        assert refused is (None if answer == "read" else Error.INVALID_RECORD), (most, packed)


def outcome(find: partial[int]) -> int:
    """An offset, or that a record was too large."""
    try:
        return find()
    except OversizedRecord:
        return TOO_LARGE


def searched(log: PartitionLog, time_ms: int) -> int:
    found = finished(log.finding_time(log.max_timestamp if time_ms == LARGEST_TIME else time_ms))
    return -1 if found is None else found.offset


def cleaned(log: PartitionLog, disk: MemoryDisk, now_ms: int) -> int:
    done = finished(cleaning(log, disk, cleanable(log, now_ms=now_ms), CleanerSettings(), now_ms=now_ms))
    assert done is not None
    return done.end_offset


def contents(files: dict[str, bytes]) -> list[Record]:
    logs = [data for name, data in sorted(files.items()) if name.endswith(".log")]
    return [record for data in logs for batch in scan(data) for record in records(batch)]


def test_stored_records_stop_searches_and_cleanings_where_they_stop_kafkas(
    newer_kafka: KafkaInstallation, tmp_path: Path
) -> None:
    """Logs with batches of each codec that were written before the limit was lowered."""
    lines, expected, places = [], [], []
    for seed in range(60):
        rng = Random(seed)
        disk = MemoryDisk()
        log = opened(disk, NOW_MS)
        producers = Producers(log, rng, tuple(Compression))
        producers.write(60)
        producers.end_all()
        log.close()
        place = tmp_path / str(seed) / "p-0"
        place.mkdir(parents=True)
        for name, data in files_in(disk, "p-0").items():
            (place / name).write_bytes(data)
        most, now_ms = rng.randint(15, 60), producers.time_ms + HOUR_MS
        times = [LARGEST_TIME, *(rng.randrange(NOW_MS, producers.time_ms) for _ in range(20))]
        limit = f"max.decompressed.message.bytes={most}"
        lines.append("\t".join(map(str, (place, now_ms, -1, 1 << 20, *TOPIC_CONFIGS, limit, *times))))
        log = opened(disk, now_ms)
        log.options = replace(OPTIONS, max_decompressed_bytes=most)
        offsets = [outcome(partial(searched, log, time)) for time in times]
        end = outcome(partial(cleaned, log, disk, now_ms))
        log.close()
        expected.append((end, offsets))
        places.append((place, files_in(disk, "p-0")))
    answers = [[int(word) for word in line.split()] for line in oracle(newer_kafka, CLEANER, lines).splitlines()]
    assert [(end, offsets) for _, _, end, _, *offsets in answers] == expected
    for place, files in places:
        assert contents({path.name: path.read_bytes() for path in place.iterdir()}) == contents(files)
    assert 10 < sum(end == TOO_LARGE for end, _ in expected) < 50
    assert 200 < sum(offset == TOO_LARGE for _, offsets in expected for offset in offsets) < 1000
