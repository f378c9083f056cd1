"""The data that consumers of the classic protocol put into JoinGroup and SyncGroup (Kafka: `ConsumerProtocol`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from kraft.limits import NAMED_TOPICS, SUBSCRIBED_TOPICS
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage
from metadata_log.serde import encode
from metadata_log.serde.codec import decode_within
from metadata_log.types import Uuid
from transport.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

_VERSION: Final = struct.Struct(">h")
_HIGHEST: Final = 3
_VALUES: Final = 4 * SUBSCRIBED_TOPICS
"""The most values in such data; one with more is not understood."""


class EmbeddedError(ValueError):
    """The bytes are not those of a consumer."""


class CustomAssignorError(EmbeddedError):
    """The bytes are those of a consumer, with data of an assignor of its own."""


def version_of(data: bytes) -> int:
    """The version of what a consumer says; a later one is read as the highest known. Raises `EmbeddedError`."""
    if len(data) < _VERSION.size:
        raise EmbeddedError("no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise EmbeddedError(f"version {version}")
    return min(version, _HIGHEST)


def subscription_of(data: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription of a consumer; raises `EmbeddedError`."""
    version = version_of(data)
    try:
        subscription = decode_within(ConsumerProtocolSubscription, version, data, _VERSION.size, _VALUES, whole=False)
    except MetadataLogError as bad:
        raise EmbeddedError(str(bad)) from bad
    if len(subscription.topics) > NAMED_TOPICS:
        raise EmbeddedError(f"{len(subscription.topics)} topics, and a member of a consumer group names {NAMED_TOPICS}")
    return subscription


def assignment_of(data: bytes, image: MetadataImage) -> dict[Uuid, tuple[int, ...]]:
    """Decode the partitions that a consumer was assigned, without those of topics that do not exist.

    Data that a custom assignor has added cannot be kept, and is refused.

    Raises:
        EmbeddedError: The bytes are not an assignment.
        CustomAssignorError: They have data of a custom assignor.
    """
    if not data:
        return {}
    version = version_of(data)
    try:
        assignment = decode_within(ConsumerProtocolAssignment, version, data, _VERSION.size, _VALUES, whole=False)
    except MetadataLogError as bad:
        raise EmbeddedError(str(bad)) from bad
    if assignment.user_data:
        raise CustomAssignorError("data of an assignor")
    return by_id(((one.topic, one.partitions) for one in assignment.assigned_partitions), image)


def by_id(topics: Iterable[tuple[str, Iterable[int]]], image: MetadataImage) -> dict[Uuid, tuple[int, ...]]:
    """Partitions of topics that exist, by the ids of these."""
    by_topic_id: dict[Uuid, tuple[int, ...]] = {}
    for name, partitions in topics:
        topic_id = image.topics.by_name.get(name)
        if topic_id is not None:
            by_topic_id[topic_id] = tuple(sorted({*by_topic_id.get(topic_id, ()), *partitions}))
    return by_topic_id


def assignment_bytes(assigned: Mapping[Uuid, Iterable[int]], subscription: bytes, image: MetadataImage) -> bytes:
    """An assignment in the version of the consumer's subscription; raises `EmbeddedError`."""
    version = version_of(subscription)
    topics = [
        ConsumerProtocolAssignmentTopicPartition(image.topics.by_id[topic_id].name, sorted(partitions))
        for topic_id, partitions in sorted(assigned.items())
        if topic_id in image.topics.by_id
    ]
    return encode(ConsumerProtocolAssignment(topics), version, _VERSION.pack(version))
