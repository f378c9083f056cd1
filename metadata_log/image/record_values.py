"""Metadata records as the values of a log, and the features that a node publishes; for controllers and brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct as Layout
from typing import Any, Final

from msgspec.structs import astuple

from metadata_log.errors import UnsupportedVersion
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.image.records import records as image_records
from metadata_log.image.records import records_by_steps
from metadata_log.records.frame import FRAME_VERSION, FRAMING_BYTES, encode_record, read_record
from metadata_log.records.metadata import PartitionChangeRecord, PartitionRecord
from metadata_log.serde import Message
from metadata_log.types import Uuid

_NO_LEVELS: Final = ((METADATA_VERSION, 7),)
_OF_PARTITIONS: Final[dict[bytes, type[PartitionRecord | PartitionChangeRecord]]] = {
    bytes((FRAME_VERSION, kind.__schema__.api_key or 0, version)): kind
    for kind in (PartitionRecord, PartitionChangeRecord)
    for version in range(kind.__schema__.versions.highest + 1)
}
"""The records about one partition, by their framing. In all versions its number and the id of the topic follow."""
_NUMBER: Final = Layout(">i")
_TOPIC_AT: Final = FRAMING_BYTES + _NUMBER.size
_REST_AT: Final = _TOPIC_AT + 16
_MOST_KNOWN: Final = 4096
_CREDIT: Final = 64
"""So many more records may be new than alike; beyond that, to look for alike ones costs more than it saves."""

MakeChange = Callable[[Uuid, int], tuple[PartitionChangeRecord, bytes]]
"""Makes the change of a partition and its value, by the topic's id and the partition's number."""


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


def alike(change: PartitionChangeRecord, version: int) -> MakeChange:
    """Makes changes like this one of other partitions. They are encoded from its value, in a tenth of the time.

    Raises `EncodeError`.
    """
    value = encode_record(change, version)
    framing, rest = value[:FRAMING_BYTES], value[_REST_AT:]
    pack = Layout(f">{FRAMING_BYTES}si16s{len(rest)}s").pack
    _, _, *fields, unknown = astuple(change)
    assert not unknown, change

    def make(topic_id: Uuid, number: int) -> tuple[PartitionChangeRecord, bytes]:
        return PartitionChangeRecord(number, topic_id, *fields), pack(framing, number, topic_id, rest)

    return make


def decode_records(values: Iterable[bytes], where: str | None = None) -> Iterator[Message]:
    """Decode values. An unknown type is an error, as a replay without the record would give another state (KIP-631).

    Thousands of partitions are made, and changed by a fencing, mostly alike: such a record is decoded once.
    """
    if type(values) is list and (not values or values[len(values) >> 1][:FRAMING_BYTES] not in _OF_PARTITIONS):
        return _one_by_one(values, where)
    return _alike_once(values, where)


def _one_by_one(values: Iterable[bytes], where: str | None) -> Iterator[Message]:
    for value in values:
        _, version, name, record = read_record(value, where=where)
        if record is None:
            raise UnsupportedVersion(f"{name} version {version} cannot be read", where=where)
        yield record


def _alike_once(values: Iterable[bytes], where: str | None) -> Iterator[Message]:
    known: dict[bytes, tuple[Any, ...]] = {}
    credit = _CREDIT
    left = iter(values)
    for value in left:
        framing = value[:FRAMING_BYTES]
        kind = _OF_PARTITIONS.get(framing)
        if kind is None:
            yield from _one_by_one((value,), where)
            continue
        key = framing + value[_TOPIC_AT:]
        fields = known.get(key)
        if fields is not None:
            credit += 1
            yield kind(_NUMBER.unpack_from(value, FRAMING_BYTES)[0], *fields)
            continue
        for record in _one_by_one((value,), where):
            _, *rest, unknown = astuple(record)
            if not unknown:
                known[key] = tuple(rest)
            yield record
        credit -= 1
        if not credit:
            break
        if len(known) >= _MOST_KNOWN:
            known.clear()
    yield from _one_by_one(left, where)
