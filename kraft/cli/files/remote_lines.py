"""Records of `__remote_log_metadata` as Kafka's dump tool shows them (Kafka: `RemoteMetadataLogMessageParser`)."""

from __future__ import annotations

from typing import Protocol

from metadata_log.errors import DecodeError
from metadata_log.records.record import Record
from metadata_log.records.remote_log_metadata import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from metadata_log.records.remote_storage import PartitionDeleteState, RemoteRecord, SegmentState, decode_remote
from metadata_log.serde import schema_of, to_json
from metadata_log.types import Uuid


class _Partition(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> Uuid: ...
    @property
    def partition(self) -> int: ...


class _SegmentId(Protocol):
    @property
    def topic_id_partition(self) -> _Partition: ...
    @property
    def id(self) -> Uuid: ...


def shown_pair(record: Record) -> tuple[str | None, str | None]:
    """Key and value of a record as text; of a value that cannot be decoded the reason."""
    try:
        return None, text_of(decode_remote(record.value or b""))
    except DecodeError as bad:
        return None, f"Error at offset {record.offset}, skipping. {bad}"


def record_object(record: Record) -> dict[str, object]:
    """The content of a record for JSON; raises `DecodeError`."""
    found = decode_remote(record.value or b"")
    name = schema_of(type(found)).name
    return {"type": schema_of(type(found)).api_key, "name": name, "value": to_json(found, 0)}


def text_of(record: RemoteRecord) -> str:
    """A record in the words of Kafka's classes (`toString`)."""
    match record:
        case RemoteLogSegmentMetadataRecord():
            about = (
                f"remoteLogSegmentId={_segment(record.remote_log_segment_id)}, startOffset={record.start_offset}, "
                f"endOffset={record.end_offset}, brokerId={record.broker_id}, "
                f"maxTimestampMs={record.max_timestamp_ms}, eventTimestampMs={record.event_timestamp_ms}, "
            )
            return f"RemoteLogSegmentMetadata{{{about}{_contents(record)}}}"
        case RemoteLogSegmentMetadataSnapshotRecord():
            about = (
                f"segmentId={record.segment_id}, startOffset={record.start_offset}, endOffset={record.end_offset}, "
                f"maxTimestampMs={record.max_timestamp_ms}, "
            )
            return f"RemoteLogSegmentMetadataSnapshot{{{about}{_contents(record)}}}"
        case RemoteLogSegmentMetadataUpdateRecord():
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment(record.remote_log_segment_id)}, "
                f"customMetadata={_custom(record.custom_metadata)}, "
                f"state={SegmentState(record.remote_log_segment_state).name}, "
                f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
            )
        case RemotePartitionDeleteMetadataRecord():
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={_partition(record.topic_id_partition)}, "
                f"state={PartitionDeleteState(record.remote_partition_delete_state).name}, "
                f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
            )


def _contents(record: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataSnapshotRecord) -> str:
    epochs = {entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs}
    shown = ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(epochs.items()))
    return (
        f"segmentLeaderEpochs={{{shown}}}, segmentSizeInBytes={record.segment_size_in_bytes}, "
        f"customMetadata={_custom(record.custom_metadata)}, "
        f"state={SegmentState(record.remote_log_segment_state).name}, "
        f"txnIdxEmpty={'true' if record.txn_index_empty else 'false'}"
    )


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment(segment: _SegmentId) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(segment.topic_id_partition)}, id={segment.id}}}"


def _partition(named: _Partition) -> str:
    return f"{named.id}:{named.name}-{named.partition}"
