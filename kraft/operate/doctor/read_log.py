"""Reads one copy of the metadata log into facts. Damage is a fact here, not an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.operate.doctor.facts.log_facts import (
    Batch,
    ImageFacts,
    LeaderChange,
    LogFacts,
    Moment,
    NamedVoter,
    UnknownRecord,
    VoterChange,
)
from metadata_log.disk import Disk, file_bytes
from metadata_log.errors import CorruptBatch, DecodeError, MetadataLogError, ReplayError, UnsupportedVersion
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.quorum_state_file import parse_quorum_state
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import list_snapshots, read_snapshot_start, snapshot_name
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.entries import Entry
from metadata_log.reading.missing import missing_end, segments_in
from metadata_log.reading.reader import gap_before, read_file
from metadata_log.reading.timeline import Base, read_timeline
from metadata_log.records.batch import RecordBatch
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from metadata_log.records.frame import RECORD_TYPES, decode_control, decode_record, peek_type
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from metadata_log.records.record import records
from metadata_log.releases import METADATA_VERSION, unknown_record_text
from metadata_log.types import OffsetAndEpoch

_MOST_UNKNOWN: Final = 20
_ATTEMPTS: Final = 3


def read_log(disk: Disk, partition: str, advance: Callable[[int], None] = lambda batches: None) -> LogFacts:
    """The facts of a partition directory of the metadata log; calls `advance` with numbers of batches read.

    A running node may delete its oldest files meanwhile; then the directory is read again. Raises `OSError` for a
    directory or a file that cannot be read.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return _read_once(disk, partition, advance)
        except FileNotFoundError:
            if not disk.exists(partition):
                raise
    return _read_once(disk, partition, advance)


def _read_once(disk: Disk, partition: str, advance: Callable[[int], None]) -> LogFacts:
    snapshots = list_snapshots(disk, partition)
    segments = segments_in(disk, partition)
    log = LogFacts(path=partition, segments=tuple(segments), snapshots=snapshots)
    _read_quorum_state(disk, log)
    epochs = f"{partition}/{EPOCHS_FILE}"
    if disk.exists(epochs):
        try:
            log.epochs = parse_epochs(disk.read(epochs), where=epochs)
        except MetadataLogError:
            log.epochs = None  # a node builds this file again
    for snapshot in snapshots:
        _read_start(disk, log, snapshot)
    if snapshots:
        _read_newest(disk, log, max(snapshots, key=lambda one: one.offset))
    _read_segments(disk, log, advance)
    return log


def _read_quorum_state(disk: Disk, log: LogFacts) -> None:
    path = f"{log.path}/{QUORUM_STATE}"
    if not disk.exists(path):
        return
    try:
        log.quorum_state = parse_quorum_state(disk.read(path), where=path)
    except MetadataLogError as bad:
        log.quorum_state_problem = bad.what


def _read_start(disk: Disk, log: LogFacts, snapshot: OffsetAndEpoch) -> None:
    """The kraft.version and the voters of a snapshot."""
    path = f"{log.path}/{snapshot_name(snapshot)}"
    try:
        start = read_snapshot_start(disk, path)
    except (MetadataLogError, StopIteration):
        return  # a damaged one is a finding if no newer one is there
    if start.kraft_version:
        log.kraft_versions.append((snapshot.offset - 1, start.kraft_version))
    if start.voters is not None:
        log.voters.append(VoterChange(snapshot.offset - 1, _voters(start.voters), path))


def _voters(record: VotersRecord) -> tuple[NamedVoter, ...]:
    return tuple(
        NamedVoter(
            id=one.voter_id,
            directory_id=one.voter_directory_id,
            endpoints=tuple((at.name.upper(), at.host, at.port) for at in one.endpoints),
        )
        for one in record.voters
    )


def _read_newest(disk: Disk, log: LogFacts, snapshot: OffsetAndEpoch) -> None:
    """The damage and the unknown records of the newest snapshot."""
    path = f"{log.path}/{snapshot_name(snapshot)}"
    log.snapshot_bytes = file_bytes(disk, path)
    for item in read_file(disk, path):
        if isinstance(item, Damage):
            log.snapshot_damage = log.snapshot_damage or item
        elif not item.is_control:
            _look_for_unknown(log, item, path)


def _read_segments(disk: Disk, log: LogFacts, advance: Callable[[int], None]) -> None:
    expected: int | None = None
    pending: Damage | None = None
    covered = max((one.offset for one in log.snapshots), default=0)
    last_size = 0
    for number, base in enumerate(log.segments):
        path = f"{log.path}/{file_name(base)}"
        if number and expected != base:
            is_empty = number > 0 and expected == log.segments[number - 1]
            gap = None if is_empty and base <= covered else gap_before(path, base, expected)
            if gap is not None:
                log.gaps.append(gap)
        last_size = file_bytes(disk, path)
        log.log_bytes += last_size
        if expected is None or not pending:
            expected = base
        known = len(log.batches)
        for item in read_file(disk, path):
            if isinstance(item, Damage):
                pending = item
                continue
            if pending is not None:
                log.gaps.append(pending)
                pending = None
            _take(log, item, path)
            expected = item.next_offset
        advance(len(log.batches) - known)
    if pending is not None and not (pending.unfinished and file_bytes(disk, pending.where) != last_size):
        log.torn = pending  # and no node is writing the end of the file
    end = expected if expected is not None else 0
    for damage in missing_end(disk, log.path, log.segments, log.snapshots, end):
        # A snapshot beyond the end is no damage: a node continues there.
        if damage.offset is not None and f"{log.path}/{file_name(damage.offset)}" == damage.where:
            is_snapshot = any(one.offset > end for one in log.snapshots) and damage.offset == end
            if not is_snapshot:
                log.gaps.append(damage)


def _take(log: LogFacts, batch: RecordBatch, path: str) -> None:
    log.batches.append(
        Batch(
            batch.base_offset,
            batch.next_offset,
            batch.epoch,
            batch.size_bytes,
            batch.crc,
            batch.base_timestamp,
            batch.max_timestamp,
        )
    )
    if not batch.is_control:
        _look_for_unknown(log, batch, path)
        return
    try:
        for record in records(batch, where=path):
            match decode_control(record.key or b"", record.value or b"", where=path)[1]:
                case LeaderChangeMessage() as change:
                    voters = tuple(sorted(voter.voter_id for voter in change.voters))
                    log.elections.append(
                        LeaderChange(record.offset, batch.epoch, record.timestamp, change.leader_id, voters)
                    )
                case VotersRecord() as voter_set:
                    log.voters.append(VoterChange(record.offset, _voters(voter_set), path))
                case KRaftVersionRecord(kraft_version=level):
                    log.kraft_versions.append((record.offset, level))
    except (CorruptBatch, DecodeError) as bad:
        _note_unknown(log, batch.base_offset, bad.what, path, is_type=True)


def _look_for_unknown(log: LogFacts, batch: RecordBatch, path: str) -> None:
    try:
        for record in records(batch, where=path):
            kind, version = peek_type(record.value or b"", where=path)
            known = RECORD_TYPES.get(kind)
            if known is FeatureLevelRecord:
                _follow_level(log, record.value or b"", path)
            if known is None or version > known.__schema__.versions.highest:
                what = unknown_record_text(kind, version, log.metadata_version)
                _note_unknown(log, record.offset, what, path, is_type=known is None)
    except (CorruptBatch, DecodeError) as bad:
        _note_unknown(log, batch.base_offset, bad.what, path, is_type=True)


def _follow_level(log: LogFacts, value: bytes, path: str) -> None:
    record = decode_record(value, where=path).record
    if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
        log.metadata_version = record.feature_level


def _note_unknown(log: LogFacts, offset: int, what: str, path: str, *, is_type: bool) -> None:
    if len(log.unknown) < _MOST_UNKNOWN:
        log.unknown.append(UnknownRecord(offset, what, path, is_type))


# ------------------------------------------------------------------------------------------------------------- image


class _Replay:
    """An image in progress, and since when some states last."""

    def __init__(self) -> None:
        self.delta = MetadataDelta(MetadataImage())
        self.problem = ""
        self.end = OffsetAndEpoch(epoch=0, offset=0)
        self.end_ms = -1
        self.transaction: Moment | None = None
        self.fenced: dict[int, Moment] = {}
        self.changed: dict[tuple[bytes, int], Moment] = {}

    def take(self, entry: Entry, timestamp_ms: int, offset: int) -> None:
        record = entry.record
        if entry.is_control or record is None:
            return
        try:
            self.delta.replay(record, entry.offset)
        except ReplayError as bad:
            self.problem = self.problem or f"{bad.what} (offset {entry.offset})"
            return
        moment = Moment(timestamp_ms, offset)
        match record:
            case RegisterBrokerRecord(broker_id=broker) | BrokerRegistrationChangeRecord(broker_id=broker):
                self.fenced[broker] = moment
            case FenceBrokerRecord(id=broker):
                self.fenced[broker] = moment
            case PartitionRecord() | PartitionChangeRecord():
                self.changed[record.topic_id, record.partition_id] = moment
            case _:
                pass


def read_image_facts(disk: Disk, partition: str, advance: Callable[[int], None] = lambda batches: None) -> ImageFacts:
    """The metadata at the end of a copy of the log, as far as the copy can be replayed."""
    replay = _Replay()
    try:
        for item in read_timeline(disk, partition, from_base="latest", on_damage=OnDamage.SKIP):
            match item:
                case Damage():
                    continue
                case Base():
                    replay.delta = MetadataDelta(MetadataImage(), is_snapshot=True)
                    replay.end, replay.end_ms = item.end, item.timestamp_ms
                    for entry in item.entries:
                        if isinstance(entry, Entry):
                            replay.take(entry, item.timestamp_ms, -1)
                    replay.delta = MetadataDelta(replay.delta.apply(item.end))
                    continue
            replay.end = item.end
            replay.end_ms = max(replay.end_ms, item.batch.max_timestamp)
            advance(1)
            if item.batch.is_control:
                continue
            for entry in item.entries():
                if isinstance(entry, Entry):
                    replay.take(entry, entry.timestamp, entry.offset)
    except (MetadataLogError, UnsupportedVersion) as bad:
        replay.problem = replay.problem or bad.what
    return _facts_of(replay, partition)


def _facts_of(replay: _Replay, partition: str) -> ImageFacts:
    try:
        image = replay.delta.apply(replay.end)
    except ReplayError as bad:
        return ImageFacts(where=partition, image=MetadataImage(), end_ms=replay.end_ms, problem=bad.what)
    transaction = image.transaction
    stable = image.stable
    return ImageFacts(
        where=partition,
        image=stable,
        end_ms=replay.end_ms,
        open_transaction=None if transaction is None else Moment(replay.end_ms, transaction.start_offset),
        fenced_since={
            broker: moment
            for broker, moment in replay.fenced.items()
            if (known := stable.brokers.by_id.get(broker)) is not None and known.fenced
        },
        changed={
            (topic.id, number): moment
            for topic in stable.topics.by_id.values()
            for number, partition_image in enumerate(topic.partitions)
            if (partition_image.is_reassigning or partition_image.leader_recovery_state)
            and (moment := replay.changed.get((topic.id, number))) is not None
        },
        problem=replay.problem,
    )
