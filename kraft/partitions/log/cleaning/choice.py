"""How much of a log is dirty, and may be cleaned now (Kafka: `LogCleanerManager.cleanableOffsets`, `LogToClean`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

from msgspec import Struct

from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader
from kraft.partitions.log.data_segment import DataSegment
from kraft.partitions.log.partition_log import PartitionLog

_MEMORY: Final = "log.cleaner.dedupe.buffer.size"
_THREADS: Final = "log.cleaner.threads"
_LARGEST_BUFFER: Final = 2**31 - 1


def _buffer_bytes(reader: SettingsReader) -> int:
    memory: Any = reader.value(_MEMORY) if _MEMORY in reader.settings else CleanerSettings().buffer_bytes
    threads: Any = reader.value(_THREADS) if _THREADS in reader.settings else 1
    return min(int(memory) // int(threads), _LARGEST_BUFFER)


class CleanerSettings(Struct, frozen=True, kw_only=True):
    """The settings of the cleaner. Sizes are bytes; the defaults are those of Kafka 4.3."""

    buffer_bytes: Annotated[int, Key(_MEMORY, _THREADS, read=_buffer_bytes)] = 128 << 20
    """The memory for the offsets of keys: the cleaner has one thread, and takes what Kafka gives to one."""
    load_factor: Annotated[float, Key("log.cleaner.io.buffer.load.factor")] = 0.9
    """How full that memory may become."""


class Cleanable(Struct, frozen=True):
    """The part of a log that a cleaning would look at.

    Args:
        first_dirty_offset: Records before this offset were cleaned before.
        end_offset: The first segment that stays as it is begins here.
        clean_bytes: The size of the segments with cleaned records.
        dirty_bytes: The size of the segments that the cleaning would clean for the first time.
        is_overdue: Whether a dirty record is older than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of the dirty bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether the log is to be cleaned, with the setting `min.cleanable.dirty.ratio`."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > min_dirty_ratio)


def cleanable(log: PartitionLog, *, now_ms: int) -> Cleanable:
    """The part of a log that a cleaning would look at.

    The active segment, records from the last stable offset on, and segments with a record younger than
    `min.compaction.lag.ms` are never cleaned.

    Args:
        log: The log.
        now_ms: The time in ms since 1970.
    """
    options, active = log.options, log.segments[-1].base_offset
    first_dirty = log.cleaned_offset
    if first_dirty is None or not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    dirty = segments_between(log, first_dirty, active)
    bounds = [log.last_stable_offset, active]
    if options.min_compaction_lag_ms > 0:
        youngest = now_ms - options.min_compaction_lag_ms
        bounds += [each.base_offset for each in dirty if each.batches.max_timestamp > youngest][:1]
    uncleanable = max(first_dirty, min(bounds))
    # A cleaning ends at the border of a segment.
    later = segments_between(log, uncleanable, active)
    end_offset = later[0].base_offset if later else active
    firsts = [each.batches.first_timestamp for each in dirty if each.batches.first_timestamp > 0]
    return Cleanable(
        first_dirty,
        end_offset,
        _size(each for each in log.segments if each.base_offset < first_dirty),
        _size(segments_between(log, min(first_dirty, end_offset), end_offset)),
        min(firsts, default=now_ms) < now_ms - options.max_compaction_lag_ms,
    )


def segments_between(log: PartitionLog, offset: int, end_offset: int) -> Sequence[DataSegment]:
    """The segments from the one that holds `offset` on that begin before `end_offset` (`LogSegments.values`)."""
    if offset >= end_offset:
        return ()
    segments = [each for each in log.segments if each.base_offset < end_offset]
    floor = max((at for at, each in enumerate(segments) if each.base_offset <= offset), default=0)
    return segments[floor:]


def _size(segments: Iterable[DataSegment]) -> int:
    return sum(each.batches.size_bytes for each in segments)
