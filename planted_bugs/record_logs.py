"""Mutants of the logs of brokers with data: what a start recovers, and the offsets of duplicates (KIP-98)."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from kraft.partitions.log import data_segment, loading, retention
from kraft.partitions.log.cleaning.batch_filter import Filter
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.validation import Checked
from kraft.partitions.replicas.hosted_partition import Copy, HostedPartition
from kraft.partitions.replicas.moves import Moves, _Move
from metadata_log.log.segment import scan_file
from metadata_log.records.batch import scan
from planted_bugs.registry import Patches, Scope, mutant

# Producers


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def duplicates_get_a_new_offset(code: Patches) -> None:
    """A batch that the log holds already is answered with the offset at which it would be appended now."""
    append = PartitionLog.append_as_leader

    def append_as_leader(
        log: PartitionLog, data: bytes | Checked, *, epoch: int, now_ms: int, is_client: bool = True
    ) -> Appended | RefusedAppend:
        end = log.end_offset
        found = append(log, data, epoch=epoch, now_ms=now_ms, is_client=is_client)
        if isinstance(found, Appended) and found.is_duplicate:
            return Appended(end, found.last_offset, found.append_time_ms, is_duplicate=True)
        return found

    code.replace(PartitionLog, "append_as_leader", append_as_leader)


# Files


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def nothing_is_recovered_after_a_crash(code: Patches) -> None:
    """A start after a crash takes the files as they are."""

    def recover_unflushed(loader: object) -> Generator[None, None, None]:
        yield from ()

    code.replace(loading._Loader, "_recover_unflushed", recover_unflushed)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def recovery_believes_every_checksum(code: Patches) -> None:
    """The recovery of a segment does not compare checksums, so that a torn batch stays in the log."""
    code.replace(data_segment, "scan_file", partial(scan_file, verify=False))


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None, profile="small-logs")
def retention_above_the_watermark(code: Patches) -> None:
    """Retention deletes segments above the high watermark, as if everything were committed."""

    expired = retention.expired_segments

    def expired_to_the_end(log: PartitionLog, *, now_ms: int, leads: bool = True) -> int:
        watermark, log.high_watermark = log.high_watermark, log.end_offset
        try:
            return expired(log, now_ms=now_ms, leads=leads)
        finally:
            log.high_watermark = watermark

    code.replace(retention, "expired_segments", expired_to_the_end)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None, profile="small-logs")
def moved_logs_lose_their_tail(code: Patches) -> None:
    """A copy takes the place of a log after its first step, though the copy lacks the last batches."""
    step = Moves._step

    def step_once(moves: Moves, part: HostedPartition, copy: Copy, move: _Move, found: bytes, now_ms: int) -> None:
        first = next(scan(found), None)
        step(moves, part, copy, move, b"" if first is None else first.data, now_ms)
        if part.copy is copy and copy.log.end_offset < part.log.end_offset:
            moves._finish(part, copy, move, now_ms)

    code.replace(Moves, "_step", step_once)


# Compaction


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None, profile="small-logs")
def compaction_removes_the_last_value(code: Patches) -> None:
    """The cleaner removes a record with the last value of its key, too."""
    code.replace(Filter, "_keeps", lambda kept, offset, key, **_: offset > kept.offsets.latest_offset)
