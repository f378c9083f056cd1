"""Reads a partition of `__remote_log_metadata`: which offsets of which partition are in tiered storage (KIP-405)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from kraft.operate.doctor.facts.node import RemoteSpan
from kraft.operate.doctor.read_records import records_of
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.records.remote_log_metadata import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from metadata_log.records.remote_storage import PartitionDeleteState, SegmentState, decode_remote
from metadata_log.types import Uuid


class _Segment(Struct):
    """A remote segment, and what became of it."""

    topic_id: Uuid
    partition: int
    first: int
    last: int
    size_bytes: int
    state: int = SegmentState.COPY_SEGMENT_STARTED


def remote_spans(disk: Disk, path: str, names: Iterable[str]) -> tuple[RemoteSpan, ...]:
    """The offsets that whole remote segments hold, by partition and offset, as far as the log says up to its first
    damaged byte.

    Args:
        disk: The disk.
        path: The directory of the partition.
        names: The names of its files.
    """
    found: dict[Uuid, _Segment] = {}
    try:
        for one in records_of(disk, path, names):
            _note(found, one.value or b"")
    except MetadataLogError:
        # Other checks tell of damaged files.
        pass
    whole = [one for one in found.values() if one.state == SegmentState.COPY_SEGMENT_FINISHED]
    return tuple(_spans(sorted(whole, key=lambda one: (one.topic_id, one.partition, one.first))))


def _note(found: dict[Uuid, _Segment], value: bytes) -> None:
    match decode_remote(value):
        case RemoteLogSegmentMetadataRecord() as made:
            of, own = made.remote_log_segment_id.topic_id_partition, made.remote_log_segment_id.id
            size = made.segment_size_in_bytes
            found[own] = _Segment(of.id, of.partition, made.start_offset, made.end_offset, size)
        case RemoteLogSegmentMetadataUpdateRecord() as update:
            segment = found.get(update.remote_log_segment_id.id)
            if update.remote_log_segment_state == SegmentState.DELETE_SEGMENT_FINISHED:
                found.pop(update.remote_log_segment_id.id, None)
            elif segment is not None:
                segment.state = update.remote_log_segment_state
        case RemotePartitionDeleteMetadataRecord() as gone:
            if gone.remote_partition_delete_state == PartitionDeleteState.DELETE_PARTITION_FINISHED:
                of_it = gone.topic_id_partition.id, gone.topic_id_partition.partition
                for own in [key for key, one in found.items() if (one.topic_id, one.partition) == of_it]:
                    del found[own]


def _spans(segments: Iterable[_Segment]) -> Iterator[RemoteSpan]:
    """Segments in order as spans without a gap; those of former leaders may hold the same offsets."""
    span: RemoteSpan | None = None
    for one in segments:
        is_next = span is not None and (span.topic_id, span.partition) == (one.topic_id, one.partition)
        if span is not None and is_next and one.first <= span.last + 1:
            span = RemoteSpan(
                topic_id=span.topic_id,
                partition=span.partition,
                first=span.first,
                last=max(span.last, one.last),
                segments=span.segments + 1,
                size_bytes=span.size_bytes + one.size_bytes,
            )
            continue
        if span is not None:
            yield span
        span = RemoteSpan(
            topic_id=one.topic_id,
            partition=one.partition,
            first=one.first,
            last=one.last,
            segments=1,
            size_bytes=one.size_bytes,
        )
    if span is not None:
        yield span
