"""An image as the values of a log, whole or in steps, and back."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.persistent_map import RUN
from metadata_log.image.record_values import alike, decode_records, encode_image, encode_image_by_steps
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from metadata_log.types import OffsetAndEpoch, Uuid

TOPIC = Uuid(b"t" * 16)


def test_an_image_has_the_same_values_at_once_and_in_steps() -> None:
    written = [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        *(TopicRecord(name=f"t{number}", topic_id=Uuid(number.to_bytes(16, "big"))) for number in range(1, RUN + 2)),
    ]
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(written):
        delta.replay(record, offset)
    image = delta.apply(OffsetAndEpoch(offset=len(written), epoch=1))
    values = list(encode_image(image))
    steps = list(encode_image_by_steps(image))
    assert [value for value in steps if value is not None] == values
    assert steps.count(None) > 0, "there are places to pause"
    assert len(values) == len(written)
    assert [type(one) for one in decode_records(values)] == [type(one) for one in written]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alike_changes_are_encoded_and_decoded_as_each_alone(version: int) -> None:
    change = PartitionChangeRecord(isr=(1, 2), leader=2, removing_replicas=(), leader_recovery_state=0)
    if version > 0:
        change = replace(change, directories=(TOPIC, Uuid.ZERO))
    if version > 1:
        change = replace(change, eligible_leader_replicas=(3,), last_known_elr=())
    make = alike(change, version)
    values = []
    for number in (0, 1, 300, 2**31 - 1, -1):
        made, value = make(TOPIC, number)
        assert made == replace(change, topic_id=TOPIC, partition_id=number)
        assert value == encode_record(made, version)
        values.append(value)
    assert list(decode_records(values)) == [decode_record(value).record for value in values]


def test_records_that_are_not_alike_are_decoded_each_for_itself() -> None:
    other = Uuid(b"o" * 16)
    records = [
        kind(partition_id=number, topic_id=topic, leader=leader, unknown_tagged=unknown)
        for number, (kind, topic, leader, unknown) in enumerate(
            product(
                (PartitionChangeRecord, PartitionRecord),
                (TOPIC, other),
                range(30),
                ((), ((90, b"x"),), ((90, b"y"),)),
            )
        )
    ]
    values = [encode_record(record, version) for record in [*records, *records] for version in (0, 2)]
    values.insert(5, encode_record(TopicRecord(name="t", topic_id=TOPIC), 0))
    assert list(decode_records(values)) == [decode_record(value).record for value in values]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_cut_change_among_alike_ones_is_damage(cut: int) -> None:
    value = encode_record(PartitionChangeRecord(partition_id=7, topic_id=TOPIC, isr=(1,)), 0)
    with pytest.raises(MetadataLogError):
        list(decode_records([value, value, value[:-cut]]))
