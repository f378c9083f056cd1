"""`max.decompressed.message.bytes` refuses the batches that Kafka 4.4.0 refuses, for each codec, around each size."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest
from kafka_or_skip import oracle
from real_kafka import KafkaInstallation

from kraft.broker.log.options import LogOptions
from kraft.broker.log.outcomes import Refused
from kraft.broker.log.validation import prepare_all
from metadata_log.compression import Compression
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

ORACLE: Final = Path(__file__).parents[1] / "DecompressedOracle.java"
NOW_MS: Final = 1_700_000_000_000
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
        refused = ours.error if isinstance(ours, Refused) else None
        assert refused is (None if answer == "read" else Error.INVALID_RECORD), (most, packed)
