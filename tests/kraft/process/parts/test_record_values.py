"""An image as the values of a log, whole or in steps, and back."""

from __future__ import annotations

from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.persistent_map import RUN
from metadata_log.image.record_values import decode_records, encode_image, encode_image_by_steps
from metadata_log.records.metadata import FeatureLevelRecord, TopicRecord
from metadata_log.types import OffsetAndEpoch, Uuid


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
