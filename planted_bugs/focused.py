"""Mutants that the broad runs miss, and that a focused profile finds: fsyncs and full batches."""

from __future__ import annotations

from kraft.quorum.accumulator import BatchAccumulator, GatheredBatch
from kraft.quorum.events import LogFlushed
from kraft.quorum.log_view import LogView
from kraft.replica.interface.events import StartFlush
from kraft.replica.storage.storage import Storage
from metadata_log.log.log import MetadataLog
from planted_bugs.registry import Patches, Scope, mutant

# Fsyncs


@mutant(Scope.REPLICA, budget=200, faults=None)
def flush_done_for_the_newest_wish(code: Patches) -> None:
    """The end of an fsync acknowledges the newest flush that the core asked for, although the fsync began earlier."""
    sound = Storage.flush_done

    def flush_done(files: Storage, ticket: int) -> tuple[LogFlushed, StartFlush | None]:
        wanted = files._flush.wanted
        done, following = sound(files, ticket)
        return done if wanted is None else LogFlushed(wanted.offset, wanted.epoch), following

    code.replace(Storage, "flush_done", flush_done)


@mutant(Scope.REPLICA, budget=200, faults=None)
def one_flush_for_all_of_a_replica(code: Patches) -> None:
    """The end of an fsync counts for all records of the log, also for those appended after the fsync began."""
    sound = LogView.flushed

    def flushed(log: LogView, offset: int, epoch: int) -> bool:
        return sound(log, log.end_offset, log.last_epoch)

    code.replace(LogView, "flushed", flushed)


@mutant(Scope.REPLICA, budget=200, faults=None)
def segment_not_flushed_when_full(code: Patches) -> None:
    """A new segment begins before the last one is on disk, and later fsyncs flush only the new one."""

    def roll(of: MetadataLog) -> None:
        last = of._segments[-1]
        if last.base_offset < of.end_offset:
            last.write_indexes()
            of._segments.append(of._new_segment(of.end_offset))

    code.replace(MetadataLog, "roll", roll)


# Batches


@mutant(Scope.CORE, budget=200, faults=None)
def leader_writes_one_batch_at_a_time(code: Patches) -> None:
    """A leader with records for more than one batch writes the first batch, and loses the records of the next ones."""
    sound = BatchAccumulator.drain

    def drain(accumulator: BatchAccumulator) -> list[GatheredBatch]:
        return sound(accumulator)[:1]

    code.replace(BatchAccumulator, "drain", drain)
