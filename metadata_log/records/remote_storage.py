"""Records of `__remote_log_metadata`, by which brokers tell each other which segment of which partition is in tiered
storage (Kafka: `RemoteLogMetadataSerde`; KIP-405). They have the frame of metadata records, and no key.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from metadata_log.errors import DecodeError, UnsupportedVersion
from metadata_log.records.frame import framing, read_framing
from metadata_log.records.remote_log_metadata import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from metadata_log.serde.codec import decode, encode
from metadata_log.serde.fields import schema_of

RemoteRecord = (
    RemoteLogSegmentMetadataRecord
    | RemoteLogSegmentMetadataUpdateRecord
    | RemotePartitionDeleteMetadataRecord
    | RemoteLogSegmentMetadataSnapshotRecord
)
RECORD_TYPES: Final[dict[int, type[RemoteRecord]]] = {
    schema_of(cls).api_key or 0: cls
    for cls in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
    )
}
"""The records by type id."""


class SegmentState(IntEnum):
    """The life of a remote segment (Kafka: `RemoteLogSegmentState`)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """The progress of the deletion of a partition's remote segments (Kafka: `RemotePartitionDeleteState`)."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


def encode_remote(record: RemoteRecord) -> bytes:
    """The value of a record as a broker writes it; raises `EncodeError`."""
    schema = schema_of(type(record))
    version = schema.versions.highest
    return encode(record, version, framing(schema.api_key or 0, version))


def decode_remote(value: bytes, *, where: str | None = None) -> RemoteRecord:
    """The record in a value.

    Raises:
        UnsupportedVersion: The frame, the type or the version is not known.
        DecodeError: The bytes are damaged, or say what cannot be: a state that does not exist, a segment without leader
            epochs, or one that ends before it begins.
    """
    number, version, position = read_framing(value, where)
    cls = RECORD_TYPES.get(number)
    if cls is None:
        raise UnsupportedVersion(f"unknown record type {number}", where=where, position=1, field="type")
    record: RemoteRecord = decode(cls, version, value, position=position, where=where)
    why = _why_impossible(record)
    if why is not None:
        raise DecodeError(f"{cls.__name__}: {why}", where=where, position=position)
    return record


def _why_impossible(record: RemoteRecord) -> str | None:
    """The reason for which Kafka's own classes refuse a record; None if they take it."""
    match record:
        case RemotePartitionDeleteMetadataRecord(remote_partition_delete_state=state):
            return None if state in list(PartitionDeleteState) else f"the state {state} does not exist"
        case _ if record.remote_log_segment_state not in list(SegmentState):
            return f"the state {record.remote_log_segment_state} does not exist"
        case RemoteLogSegmentMetadataRecord(start_offset=start, end_offset=end) if not 0 <= start <= end:
            return f"a segment has no offsets from {start} to {end}"
        case RemoteLogSegmentMetadataRecord(segment_leader_epochs=()):
            return "the segment has no leader epochs"
        case RemoteLogSegmentMetadataSnapshotRecord(segment_leader_epochs=()):
            return "the segment has no leader epochs"
        case _:
            return None
