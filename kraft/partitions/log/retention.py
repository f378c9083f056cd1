"""The segments of a partition that are old enough to go (Kafka: `UnifiedLog.deleteOldSegments`)."""

from __future__ import annotations

from kraft.partitions.log.partition_log import PartitionLog


def expired_segments(log: PartitionLog, *, now_ms: int, leads: bool = True) -> int:
    """How many of the oldest segments go by size, time or log start; none that ends above the high watermark.

    A log without `delete` in its cleanup policy loses only what is below the log start. A record with a time in the
    future keeps its segment and every later one. A segment without any time counts from the moment of its load.

    With tiered storage a follower loses only what is below the log start: its leader decides what goes. A leader here
    deletes as one of Kafka with `remote.log.copy.disable`, by the retention of the whole log (decision 0129).

    Args:
        log: The log.
        now_ms: The time in ms since 1970.
        leads: Whether this replica leads.
    """
    options, segments = log.options, log.segments
    ends = [*(segment.base_offset for segment in segments[1:]), log.end_offset]
    too_much = log.size_bytes - options.retention_bytes
    is_deleted = options.is_deleted and (leads or options.is_copy_disabled or not options.is_tiered)

    def is_old(at: int) -> bool:
        newest = segments[at].batches.max_timestamp
        age = now_ms - (newest if newest >= 0 else segments[at].created_ms)
        return is_deleted and 0 <= options.retention_ms < age

    def is_too_much(at: int) -> bool:
        before = sum(segment.batches.size_bytes for segment in segments[: at + 1])
        return is_deleted and options.retention_bytes >= 0 and too_much >= before

    def is_below_start(at: int) -> bool:
        return at < len(segments) - 1 and ends[at] <= log.start_offset

    count = 0
    for applies in (is_old, is_too_much, is_below_start):
        while count < len(segments) and ends[count] <= log.high_watermark and applies(count):
            if count == len(segments) - 1 and segments[count].batches.size_bytes == 0:
                break
            count += 1
    return count


def delete_old_segments(log: PartitionLog, *, now_ms: int, leads: bool = True) -> int:
    """Delete the segments that are old enough; returns how many; raises `OSError`.

    The log then begins with its first segment, and what is before that in tiered storage is no part of it any more.
    A log that has lost its tiered storage begins with its first segment.
    """
    base_offset = log.segments[0].base_offset
    if log.start_offset < base_offset <= log.high_watermark and not log.options.is_tiered:
        log.raise_start(base_offset)
    count = expired_segments(log, now_ms=now_ms, leads=leads)
    if count:
        log.delete_segments(count, now_ms=now_ms)
    return count
