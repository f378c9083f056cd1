"""Appends of a leader: batches of the application and the leader's own control records (Kafka:
`BatchAccumulator.appendControlMessages`, `LeaderState.appendStartOfEpochControlRecords`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.quorum.effects import AppendBatch, AppendControl, ControlRecord, FlushLog
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.quorum.voters import QuorumChange, VoterSet
from metadata_log.records.control import KRaftVersionRecord, VotersRecord


def write_gathered(quorum: QuorumState, leader: LeaderState) -> None:
    """Write the batches of the accumulator. The caller emits the flush."""
    for batch in leader.accumulator.drain():
        assert batch.base_offset == quorum.log.end_offset, (batch.base_offset, quorum.log.end_offset)
        quorum.emit(AppendBatch(batch.base_offset, leader.epoch, batch.timestamp_ms, batch.values))
        quorum.log.appended(batch.base_offset + len(batch.values), leader.epoch)


def append_control(quorum: QuorumState, leader: LeaderState, records: tuple[ControlRecord, ...], now_ms: int) -> None:
    """Write control records in one batch, after all records of the accumulator. Their changes are in force at once.

    A leader never appends a voter change after an uncommitted one, even if the request for that one has timed out. The
    check reads the log, not the pending requests (KAFKA-20740). The inherited log may hold several changes that this
    leader does not know to be committed yet.
    """
    write_gathered(quorum, leader)
    base_offset = quorum.log.end_offset
    quorum.emit(AppendControl(base_offset, leader.epoch, now_ms, records))
    quorum.log.appended(base_offset + len(records), leader.epoch)
    leader.accumulator.next_offset = quorum.log.end_offset
    quorum.emit(FlushLog(quorum.log.end_offset, leader.epoch))
    changes = tuple(_changes(base_offset, records))
    if changes:
        history = quorum.history.with_changes(changes)
        high_watermark = quorum.log.high_watermark
        most = max(1, quorum.history.uncommitted_changes(high_watermark))
        assert high_watermark < 0 or history.uncommitted_changes(high_watermark) <= most, (high_watermark, history)
        quorum.change_voters(history, now_ms)


def _changes(base_offset: int, records: tuple[ControlRecord, ...]) -> Iterator[QuorumChange]:
    for offset, record in enumerate(records, base_offset):
        match record:
            case KRaftVersionRecord():
                yield QuorumChange(offset, record.kraft_version)
            case VotersRecord():
                yield QuorumChange(offset, VoterSet.of_record(record))
