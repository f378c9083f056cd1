"""The log of a replica in the form in which the invariants compare logs; parsed batches are cached."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kraft.invariants.observation import LogBatch
from kraft.quorum.voters import QuorumChange
from kraft.replica.storage.quorum_records import changes_in
from metadata_log.log.log import MetadataLog
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.record import records

REMEMBERED: Final = 1024
"""The number of cached pieces of logs, and of cached batches."""
_ALL: Final = 2**31


def batches_from(log: MetadataLog, offset: int) -> list[LogBatch]:
    """The batches from `offset` to the end of a log."""
    batches: list[LogBatch] = []
    while offset < log.end_offset:
        batches += _batches_in(log.read(offset, _ALL))
        offset = batches[-1].next_offset
    return batches


@lru_cache(REMEMBERED)
def _batches_in(data: bytes) -> tuple[LogBatch, ...]:
    """The batches in a piece of a log, cached, as several nodes append the same."""
    return tuple(LogBatch(batch.base_offset, batch.next_offset, batch.epoch, bytes(batch.data)) for batch in scan(data))


def values_in(batch: LogBatch) -> tuple[bytes, ...]:
    """The submitted values in a batch; none in a control batch."""
    whole = _parsed(batch.content)
    return () if whole.is_control else tuple(record.value or b"" for record in records(whole))


def quorum_changes_in(batch: LogBatch) -> tuple[QuorumChange, ...]:
    """The changes of the quorum in a batch; none in a batch of data."""
    whole = _parsed(batch.content)
    return tuple(changes_in(whole)) if whole.is_control else ()


def timestamp_of(batch: LogBatch) -> int:
    """The time of a batch, in ms since 1970."""
    return _parsed(batch.content).base_timestamp


@lru_cache(REMEMBERED)
def _parsed(content: bytes) -> RecordBatch:
    (whole,) = scan(content)
    return whole
