"""Metadata records as the values of a log, and the features that a node publishes; for controllers and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.errors import UnsupportedVersion
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.image.records import records as image_records
from metadata_log.image.records import records_by_steps
from metadata_log.records.frame import encode_record, read_record
from metadata_log.serde import Message

_NO_LEVELS: Final = ((METADATA_VERSION, 7),)


def published_features(image: MetadataImage) -> tuple[tuple[tuple[str, int], ...], int]:
    """The feature levels in an image, and their offset; the oldest metadata.version if there are none."""
    return image.features.all_levels() or _NO_LEVELS, image.features_offset


def encode_image_by_steps(image: MetadataImage) -> Iterator[bytes | None]:
    """As `encode_image`, with a None at each place where work may pause."""
    for entry in records_by_steps(image):
        yield None if entry is None else encode_record(*entry)


def encode_image(image: MetadataImage) -> Iterator[bytes]:
    """The record values of an image."""
    return (encode_record(record, version) for record, version in image_records(image))


def decode_records(values: Iterable[bytes], where: str | None = None) -> Iterable[Message]:
    """Decode values. An unknown type is an error, as a replay without the record would give another state (KIP-631)."""
    for value in values:
        _, version, name, record = read_record(value, where=where)
        if record is None:
            raise UnsupportedVersion(f"{name} version {version} cannot be read", where=where)
        yield record
