"""Reads the quorum changes in a log and in its snapshots (Kafka: `KRaftControlRecordStateMachine`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraft.quorum.values import OWN_KRAFT_VERSIONS
from kraft.quorum.voter_history import recorded_in
from kraft.quorum.voters import QuorumChange, VoterSet
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.log.snapshot import read_snapshot_start
from metadata_log.records.batch import RecordBatch
from metadata_log.records.control import KRaftVersionRecord, VotersRecord
from metadata_log.records.frame import decode_control
from metadata_log.records.record import Record, records
from metadata_log.types import OffsetAndEpoch

_HINT: Final = "Run a release that supports the level on every node."


def changes_in(batch: RecordBatch, where: str | None = None) -> Iterator[QuorumChange]:
    """The quorum changes in a control batch; raises `CorruptBatch` or `UnsupportedVersion`."""
    return changes_of(_in_order(batch, where), where)


def _in_order(batch: RecordBatch, where: str | None) -> Iterator[Record]:
    """The records of a batch. Raises `CorruptBatch` unless the offsets rise one by one within the batch."""
    for offset, record in enumerate(records(batch, where=where), batch.base_offset):
        if record.offset != offset or offset >= batch.next_offset:
            what = f"a control record has offset {record.offset}, where {offset} of {batch.next_offset} was due"
            raise CorruptBatch(what, where=where, position=batch.position)
        yield record


def changes_of(contents: Iterable[Record], where: str | None = None) -> Iterator[QuorumChange]:
    """The quorum changes in records of a control batch; errors as of `changes_in`."""
    for record in contents:
        match decode_control(record.key or b"", record.value or b"", where=where)[1]:
            case KRaftVersionRecord(kraft_version=level):
                yield QuorumChange(record.offset, _supported(level, where))
            case VotersRecord() as voters:
                yield QuorumChange(record.offset, voter_set(voters, where))


def changes_of_snapshot(disk: Disk, path: str, snapshot: OffsetAndEpoch) -> tuple[QuorumChange, ...]:
    """The quorum changes at the beginning of a snapshot; errors as of `changes_in`."""
    start = read_snapshot_start(disk, path)
    voters = None if start.voters is None else voter_set(start.voters, path)
    return recorded_in(snapshot.offset, _supported(start.kraft_version, path), voters)


def voter_set(record: VotersRecord, where: str | None = None) -> VoterSet:
    """The voter set in a record; raises `CorruptBatch` for a record that is no valid voter set."""
    for one in record.voters:
        if one.voter_id < 0 or not one.endpoints:
            raise CorruptBatch(f"voter {one.voter_id} in a voter set cannot be reached", where=where)
    try:
        return VoterSet.of_record(record)
    except ValueError as bad:
        raise CorruptBatch(str(bad), where=where) from bad


def _supported(level: int, where: str | None) -> int:
    if not OWN_KRAFT_VERSIONS.holds(level):
        raise UnsupportedVersion(
            f"kraft.version is {level}, and this release supports at most {OWN_KRAFT_VERSIONS.highest}",
            where=where,
            hint=_HINT,
        )
    return level
