"""Read a partition directory, change nothing: the state of a broker after a start (Kafka: `UnifiedLog.create`)."""

from __future__ import annotations

from msgspec import Struct

from kraft.partitions.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from kraft.partitions.log.loading import loading
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.overlay import OverlayDisk
from metadata_log.disk import Disk, check_exists
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from metadata_log.log.partition_names import PartitionName, parse_partition_name
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch


class SegmentFacts(Struct, frozen=True):
    """One segment of a log.

    Args:
        base_offset: The offset in the file name.
        end_offset: The offset after the last record.
        size_bytes: The size of the batches.
        max_timestamp: The largest time in the index or in the checked batches, in ms since 1970; -1 for none.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int


class PartitionFacts(Struct, frozen=True, kw_only=True):
    """The state of one partition's log.

    Args:
        name: The partition.
        is_clean: Whether the log directory proves a clean shutdown.
        start_offset: The log start offset.
        end_offset: The log end offset.
        high_watermark: The checkpointed high watermark, within the log.
        checkpointed_recovery_point: The recovery point in the checkpoint file; 0 for none.
        recovery_point: The recovery point after the load.
        last_stable_offset: The first offset that a reader of committed records may not read.
        epochs: The first offset of each leader epoch.
        segments: The segments in order.
        producers: The producers, as a snapshot at the end of the log would hold them.
        aborted: The aborted transactions in the order of their markers.
        findings: What a start of the broker would truncate, remove or rebuild; and damaged checkpoint files.
    """

    name: PartitionName
    is_clean: bool
    start_offset: int
    end_offset: int
    high_watermark: int
    checkpointed_recovery_point: int
    recovery_point: int
    last_stable_offset: int
    epochs: tuple[OffsetAndEpoch, ...]
    segments: tuple[SegmentFacts, ...]
    producers: tuple[StoredProducer, ...]
    aborted: tuple[AbortedTxn, ...]
    findings: tuple[str, ...]

    @property
    def last_epoch(self) -> int | None:
        """The newest leader epoch; None for an empty cache."""
        return self.epochs[-1].epoch if self.epochs else None


def read_partition(
    disk: Disk, log_directory: str, directory_name: str, *, now_ms: int, options: LogOptions | None = None
) -> PartitionFacts:
    """Say what a start of the broker would find in a partition directory; nothing is changed.

    Args:
        disk: The disk.
        log_directory: The log directory, with the checkpoint files.
        directory_name: The name of the partition directory, such as `orders-0`.
        now_ms: The time in ms since 1970, at which old producers are forgotten.
        options: The settings of the log; None for those of Kafka.

    Returns:
        The facts, after the recovery that a start would run.

    Raises:
        ValueError: The name is not that of a partition directory.
        FileNotFoundError: The directory does not exist.
        DecodeError: The leader-epoch-checkpoint is damaged.
        OSError: The disk failed.
    """
    name = parse_partition_name(directory_name)
    if name is None:
        raise ValueError(f"{directory_name!r} is not the name of a partition directory, such as orders-0")
    path = f"{log_directory}/{directory_name}"
    check_exists(disk, path)
    plain = PartitionName(name.topic, name.number)
    findings = list[str]()
    checkpointed = dict[str, int | None]()
    for file in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        offsets, defect = read_offsets(disk, log_directory, file)
        checkpointed[file] = offsets.get(plain)
        findings += [] if defect is None else [f"took {file} for empty: {defect}"]
    is_clean = disk.exists(f"{log_directory}/{CLEAN_SHUTDOWN_FILE}")
    loaded = finished(
        loading(
            OverlayDisk(disk),
            path,
            options or LogOptions(),
            start_checkpoint=checkpointed[LOG_STARTS] or 0,
            recovery_point=checkpointed[RECOVERY_POINTS] or 0,
            is_clean=is_clean,
            now_ms=now_ms,
        )
    )
    segments = loaded.segments
    for segment in segments:
        segment.close()
    wanted = checkpointed[HIGH_WATERMARKS]
    high_watermark = min(max(wanted or 0, loaded.start_offset), loaded.end_offset)
    loaded.producers.states.pass_high_watermark(high_watermark)
    unstable = loaded.producers.states.first_unstable_offset
    return PartitionFacts(
        name=name,
        is_clean=is_clean,
        start_offset=loaded.start_offset,
        end_offset=loaded.end_offset,
        high_watermark=high_watermark,
        checkpointed_recovery_point=checkpointed[RECOVERY_POINTS] or 0,
        recovery_point=loaded.recovery_point,
        last_stable_offset=high_watermark if unstable is None else min(unstable, high_watermark),
        epochs=loaded.epochs.entries,
        segments=tuple(
            SegmentFacts(each.base_offset, each.batches.end_offset, each.batches.size_bytes, each.batches.max_timestamp)
            for each in segments
        ),
        producers=tuple(loaded.producers.states.stored()),
        aborted=tuple(entry for each in segments for entry in each.aborted),
        findings=(*findings, *loaded.findings),
    )
