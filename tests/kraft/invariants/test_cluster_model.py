"""The model of the partition ledger says of real logs what the images say, and sees what a wrong image would hide."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kraft.invariants import InvariantViolated, PartitionLedger
from kraft.invariants.cluster_model import ClusterModel
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import TimelineBatch, read_timeline
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from planted_bugs import planted
from support.real_data import unpack

LOGS = [
    ("static3", "nodes/c1"),
    ("clusters", "failover/nodes/c1"),
    ("clusters", "old39/nodes/c1"),
    ("clusters", "dynamic3/nodes/b101"),
]
TOPIC = Uuid(b"\x01" * 16)
DIRECTORIES = (Uuid(b"\x11" * 16), Uuid(b"\x12" * 16))
NEW = (
    RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False),
    RegisterBrokerRecord(broker_id=2, broker_epoch=2, fenced=False),
    TopicRecord(name="t", topic_id=TOPIC),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=DIRECTORIES,
    ),
)
"""Two brokers and a partition."""


def _image_and_model(*records: Message) -> tuple[MetadataImage, ClusterModel]:
    delta, model = MetadataDelta(MetadataImage()), ClusterModel()
    for offset, record in enumerate(records):
        delta.replay(record, offset)
        model.replay(record)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=len(records))), model


@pytest.mark.parametrize(("archive", "node"), LOGS)
def test_a_model_of_a_real_log_equals_the_image_after_each_record(archive: str, node: str, tmp_path: Path) -> None:
    image, model, changes = MetadataImage(), ClusterModel(), 0
    for item in read_timeline(OsDisk(), str(unpack(archive, node, tmp_path)), from_base="earliest"):
        assert not isinstance(item, Damage), item
        for entry in item.entries() if isinstance(item, TimelineBatch) else item.entries:
            if not isinstance(entry, Entry) or entry.is_control:
                continue
            assert entry.record is not None
            delta = MetadataDelta(image)
            delta.replay(entry.record, entry.offset)
            image = delta.apply(OffsetAndEpoch(epoch=entry.epoch, offset=entry.offset + 1))
            model.replay(entry.record)
            changes += isinstance(entry.record, PartitionRecord | PartitionChangeRecord)
            assert not model.difference(image), f"offset {entry.offset}: {entry.record}"
    assert changes > 10


def test_a_model_that_begins_with_an_image_equals_the_image() -> None:
    image, _ = _image_and_model(*NEW, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,)))
    model = ClusterModel()
    model.begin(image)
    assert not model.difference(image)


@pytest.mark.parametrize(
    "records",
    [
        (BeginTransactionRecord(), UnregisterBrokerRecord(broker_id=2, broker_epoch=2), AbortTransactionRecord()),
        (FenceBrokerRecord(id=2, epoch=2), UnfenceBrokerRecord(id=2, epoch=2), FenceBrokerRecord(id=1, epoch=1)),
        (
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,), eligible_leader_replicas=(2,)),
            ClearElrRecord(topic_name="t"),
            ClearElrRecord(),
        ),
    ],
    ids=["aborted transaction", "former records of fencing", "cleared eligible leaders"],
)
def test_a_model_equals_the_image_after_rare_records(records: tuple[Message, ...]) -> None:
    image, model = _image_and_model(*NEW, *records)
    assert not model.difference(image)


def test_a_difference_of_each_family_is_named() -> None:
    image, model = _image_and_model(*NEW)
    broker = image.brokers.by_id[1]
    other, _ = _image_and_model(*NEW, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,)))
    assert "t-0 is" in model.difference(other)
    fenced, _ = _image_and_model(*NEW, FenceBrokerRecord(id=1, epoch=broker.epoch))
    assert "the brokers are" in model.difference(fenced)
    renamed, _ = _image_and_model(*NEW, TopicRecord(name="u", topic_id=Uuid(b"\x02" * 16)))
    assert "the topics are" in model.difference(renamed)
    unnamed = replace(image, topics=replace(image.topics, by_name=MetadataImage().topics.by_name))
    assert "and by name" in model.difference(unnamed)
    grown, _ = _image_and_model(*NEW, PartitionRecord(partition_id=1, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2)))
    assert "t has 1 partitions" in model.difference(grown)
    assert "is missing" in model.partition_difference(MetadataImage(), (TOPIC, 0))
    setting = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    configured, _ = _image_and_model(*NEW, setting)
    assert "the configurations are" in model.difference(configured)
    levelled, _ = _image_and_model(*NEW, FeatureLevelRecord(name="group.version", feature_level=1))
    assert "the feature levels are" in model.difference(levelled)
    without_index = replace(image, topics=replace(image.topics, members=MetadataImage().topics.members))
    assert "the index of ISRs" in model.difference(without_index)


def test_a_delta_that_loses_a_part_of_a_change_is_a_violation() -> None:
    """Replayed by the code of the images alone, the wrong partition would look right."""
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(), leader=-1, last_known_elr=(1,))
    values = [
        encode_record(record, 2 if isinstance(record, PartitionRecord | PartitionChangeRecord) else 0)
        for record in (*NEW, change)
    ]
    end = OffsetAndEpoch(epoch=1, offset=len(values))
    PartitionLedger().committed(values, 0, end)
    with planted("last-known-leaders-stay"), pytest.raises(InvariantViolated, match="the records say: t-0 is"):
        PartitionLedger().committed(values, 0, end)
