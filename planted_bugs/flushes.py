"""Mutants of fsyncs and truncations of a replica's log: a promise about bytes that are not on the disk."""

from __future__ import annotations

from metadata_log.log.epochs import EpochHistory
from metadata_log.log.log import MetadataLog
from metadata_log.log.segment import Segment
from planted_bugs.registry import Patches, Scope, mutant, survivor


@survivor(
    Scope.REPLICA,
    tried_classic=79,
    tried=200,
    killed_by="tests/metadata_log/log/test_log.py::test_flush_outlived_by_a_truncation",
    because="Only the publication of snapshots and the retention read this offset; the core has its own.",
)
def flush_of_a_former_log_counts(code: Patches) -> None:
    """A completed fsync raises the flushed offset of the log, although a truncation has removed its records since."""

    def flush_done(of: MetadataLog) -> None:
        handle = of.flushing
        sound(of)
        if handle is not None:
            of.flushed_offset = max(of.flushed_offset, handle.offset)

    sound = MetadataLog.flush_done
    code.replace(MetadataLog, "flush_done", flush_done)


# Truncations


@survivor(
    Scope.REPLICA,
    tried_classic=79,
    tried=200,
    killed_by="tests/metadata_log/log/test_crash_log.py",
    because="After the crash the node fetches, and truncates the same records again.",
)
def truncation_without_fsync(code: Patches) -> None:
    """A truncation of the log is not flushed: a crash restores the removed records."""
    code.replace(Segment, "cut_file", lambda segment, size: segment.file.truncate(size))


@mutant(Scope.REPLICA, budget=200)
def truncated_records_stay_in_memory(code: Patches) -> None:
    """A truncated record remains in the tail that the log keeps in memory, and is sent to followers."""
    code.replace(MetadataLog, "_forget_tail", lambda of, end_offset: None)


@survivor(
    Scope.REPLICA,
    tried_classic=72,
    tried=200,
    killed_by="tests/metadata_log/log/test_log.py::test_a_truncation_removes_its_epochs_from_the_checkpoint",
    because="Each start builds leader-epoch-checkpoint again from the log; only Kafka reads the file.",
)
def epoch_file_keeps_truncated_epochs(code: Patches) -> None:
    """A truncation does not remove the epochs of its records from leader-epoch-checkpoint."""

    def set_epochs(of: MetadataLog, epochs: EpochHistory) -> None:
        if len(epochs.entries) < len(of.epochs.entries):
            of.epochs = epochs
        else:
            sound(of, epochs)

    sound = MetadataLog._set_epochs
    code.replace(MetadataLog, "_set_epochs", set_epochs)
