"""Random histories, replayed by Kafka's own image and by ours: both write the same snapshot."""

from __future__ import annotations

from pathlib import Path
from random import Random, SystemRandom

import pytest
from msgspec.structs import replace

from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.records import partition_version, records, register_broker_version
from metadata_log.records import metadata
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.serde import Message
from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation
from support.random_metadata import RandomCluster

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).parent.parent / "ImageOracle.java"
HISTORIES = 60
STEPS = 150
LEVELS = (7, 8, 10, 11, 13, 14, 15, 17, 21, 23, 25, 29, 30)
IN_TRANSACTIONS = (metadata.BeginTransactionRecord, metadata.EndTransactionRecord, metadata.AbortTransactionRecord)


def history(rng: Random) -> list[Message]:
    """A log without transactions, which Kafka handles before its image sees them."""
    level = rng.choice(LEVELS)
    cluster = RandomCluster(rng, level, elr=level >= 23)
    while len(cluster.log) < STEPS:
        kept = cluster.image, list(cluster.log)
        cluster.step()
        if isinstance(cluster.log[-1], IN_TRANSACTIONS):
            cluster.image, cluster.log = kept
    return cluster.log


def image_of(log: list[Message]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(log):
        delta.replay(record, offset)
    return delta.apply(MetadataImage().end)


def value(record: Message, level: int) -> bytes:
    """A record as a controller writes it."""
    match record:
        case metadata.PartitionRecord() | metadata.PartitionChangeRecord():
            version = partition_version(level)
        case metadata.RegisterBrokerRecord():
            version = register_broker_version(level)
        case metadata.BrokerRegistrationChangeRecord():
            version = 3
        case _:
            version = 0
    return encode_record(record, version)


def in_order(values: list[bytes]) -> list[bytes]:
    """Sorted, as Kafka's order follows its hash maps, listeners, features and the parts of quota entities included."""
    return sorted(
        encode_record(_sorted(framed.record), framed.version) for framed in map(decode_record, values) if framed.record
    )


def _sorted(record: Message) -> Message:
    match record:
        case metadata.RegisterBrokerRecord() | metadata.RegisterControllerRecord():
            return replace(
                record,
                end_points=tuple(sorted(record.end_points, key=lambda one: one.name)),
                features=tuple(sorted(record.features, key=lambda one: one.name)),
            )
        case metadata.ClientQuotaRecord():
            return replace(record, entity=tuple(sorted(record.entity, key=lambda one: one.entity_type)))
    return record


def test_image_equals_the_image_of_kafka(kafka: KafkaInstallation) -> None:
    """One published image for each record, so that no two records meet within one delta."""
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = Random(seed)
    logs = [history(rng) for _ in range(HISTORIES)]
    images = [image_of(log) for log in logs]
    lines = []
    for log, image in zip(logs, images, strict=True):
        for record in log:
            lines += [value(record, image.features.metadata_version or 0).hex(), "apply"]
        lines.append("write")
    printed = oracle(kafka, ORACLE, lines)
    assert "fault" not in printed
    theirs = [written.split() for written in printed.split("\n\n")[:-1]]
    assert len(theirs) == len(images)
    assert sum(map(len, theirs)) > 10 * HISTORIES
    for image, written in zip(images, theirs, strict=True):
        ours = [encode_record(record, version) for record, version in records(image)]
        assert in_order(ours) == in_order([bytes.fromhex(one) for one in written])
