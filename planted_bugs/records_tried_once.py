"""Five mutants of brokers with data that were committed as a list before any search for them, and were then tried once.

The page of mutants says how many of them the search found.
"""

from __future__ import annotations

from msgspec.structs import replace

from kraft.partitions.log.loading import LoadedLog
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.followers import Followers
from kraft.partitions.replicas.key import PartitionKey
from metadata_log.disk import Disk
from metadata_log.records.batch import RecordBatch
from planted_bugs.registry import Patches, Scope, mutant


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def truncated_logs_keep_their_epochs(code: Patches) -> None:
    """A follower that truncates its log keeps the leader epochs of the removed records in its epoch cache."""
    truncate = PartitionLog.truncate

    def truncate_records_alone(log: PartitionLog, offset: int, *, now_ms: int) -> None:
        epochs = log.epochs
        truncate(log, offset, now_ms=now_ms)
        log._set_epochs(epochs)

    code.replace(PartitionLog, "truncate", truncate_records_alone)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def checkpointed_watermark_above_the_log_end(code: Patches) -> None:
    """A start takes the high watermark of the checkpoint file, also above the end of a log that a crash has cut."""
    load = PartitionLog.__init__

    def load_as_written(
        log: PartitionLog,
        disk: Disk,
        directory: str,
        options: LogOptions,
        loaded: LoadedLog,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        load(log, disk, directory, options, loaded, high_watermark, now_ms)
        log.high_watermark = max(log.high_watermark, high_watermark)

    code.replace(PartitionLog, "__init__", load_as_written)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def flush_messages_is_forgotten(code: Patches) -> None:
    """An append does not wait for the fsync that `flush.messages` promises."""
    write = PartitionLog._write

    def write_alone(log: PartitionLog, batches: list[RecordBatch]) -> None:
        options = log.options
        log.options = replace(options, flush_messages=None)
        try:
            write(log, batches)
        finally:
            log.options = options

    code.replace(PartitionLog, "_write", write_alone)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def followers_do_not_learn_producers(code: Patches) -> None:
    """A follower appends batches and does not note their producers, so that a new leader accepts a batch again."""
    append = PartitionLog.append_as_follower

    def append_bytes_alone(log: PartitionLog, data: bytes, *, leader_epoch: int, now_ms: int) -> Appended:
        states = log.producers.states.copy()
        appended = append(log, data, leader_epoch=leader_epoch, now_ms=now_ms)
        log.producers.states = states
        return appended

    code.replace(PartitionLog, "append_as_follower", append_bytes_alone)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def backoff_leaves_the_fetch_session(code: Patches) -> None:
    """A partition that waits after an error is taken out of the fetch session, and is not put back after the wait."""

    def delay(followers: Followers, key: PartitionKey, now_ms: int, wait_ms: int | None = None) -> None:
        one = followers._fetching.get(key)
        if one is not None:
            one.not_before_ms = now_ms + followers._settings.replication.fetch_backoff_ms
            followers._exchange(one.leader).changed[key] = None

    code.replace(Followers, "_delay", delay)
