"""Reads one surviving copy of the metadata log: its end, its image, its voters and its damage. Nothing is written.

A damaged copy counts up to its first damage. After damage that a sound snapshot covers, the copy counts again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct, field

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.quorum_state_file import StoredElection, read_quorum_state
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import list_snapshots, snapshot_name
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.missing import missing_end, no_beginning, segments_in
from metadata_log.reading.reader import gap_before, read_file
from metadata_log.reading.replay_log import replay
from metadata_log.reading.timeline import At
from metadata_log.records.batch import RecordBatch
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from metadata_log.records.frame import decode_control
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch

EMPTY_END = OffsetAndEpoch(epoch=0, offset=0)


class LogBatch(Struct, frozen=True, gc=False):
    """One batch of a copy. Two batches with the same offsets, epoch, size and CRC-32C count as the same bytes."""

    base_offset: int
    next_offset: int
    epoch: int
    size_bytes: int
    crc: int
    max_timestamp: int
    base: int
    """The base offset of the segment."""
    position: int
    """The position in the segment."""

    def is_same(self, other: LogBatch) -> bool:
        """Whether two copies have the same bytes here."""
        return (self.base_offset, self.next_offset, self.epoch, self.size_bytes, self.crc) == (
            *(other.base_offset, other.next_offset, other.epoch),
            *(other.size_bytes, other.crc),
        )


class VotersAt(Struct, frozen=True):
    """A voter set and the place of its record; in a snapshot, the end of the snapshot."""

    offset: int
    epoch: int
    record: VotersRecord


class QuorumRecords(Struct, kw_only=True):
    """The control records of a copy that tell of the quorum, up to the end of the copy."""

    voters: VotersAt | None = None
    kraft_version: int = 0
    last_election: LeaderChangeMessage | None = None
    last_election_offset: int = -1


class MetadataCopy(Struct, kw_only=True):
    """One copy of the metadata log.

    Args:
        partition: The path of the `__cluster_metadata-0` directory.
        log_start: The first offset.
        end: The last epoch in the log, and the log end offset; (0, 0) for an empty log.
        batches: The usable batches, without a gap.
        snapshots: The sound snapshots that end at or before `end`, oldest first.
        quorum: The control records of the quorum.
        quorum_state: The stored election; None if the file is missing or unreadable.
        quorum_state_problem: The defect of quorum-state, if any.
        damages: Damage of the copy.
        is_log_whole: Whether the files of the log can be copied up to `end`; else only the image can be written.
        image: The image at `end`; None for an unusable copy.
        unusable: The reason why the copy cannot become the seed, if any.
    """

    partition: str
    log_start: int = 0
    end: OffsetAndEpoch = EMPTY_END
    batches: list[LogBatch] = []
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    quorum: QuorumRecords = field(default_factory=QuorumRecords)
    quorum_state: StoredElection | None = None
    quorum_state_problem: str | None = None
    damages: list[Damage] = []
    is_log_whole: bool = True
    image: MetadataImage | None = None
    unusable: str | None = None

    @property
    def epochs(self) -> EpochHistory:
        """The epochs of the usable batches."""
        history = EpochHistory()
        for batch in self.batches:
            if batch.epoch != history.last_epoch:
                history = history.assign(batch.epoch, batch.base_offset)
        return history

    @property
    def last_timestamp(self) -> int:
        """The latest time of a batch near the end, in ms; -1 without batches."""
        return max((batch.max_timestamp for batch in self.batches[-16:]), default=-1)

    @property
    def highest_epoch(self) -> int:
        """The highest epoch in the log, its snapshots and quorum-state."""
        stored = 0 if self.quorum_state is None else self.quorum_state.leader_epoch
        return max(self.end.epoch, stored, *(one.epoch for one in self.snapshots), 0)

    def batches_from(self, offset: int) -> list[LogBatch]:
        """The batches that begin at an offset or later."""
        return self.batches[bisect_left(self.batches, offset, key=_base_offset) :]

    def segment_path(self, batch: LogBatch) -> str:
        """The file of a batch."""
        return f"{self.partition}/{file_name(batch.base)}"

    def read_from(self, disk: Disk, offset: int) -> Iterator[tuple[RecordBatch, str]]:
        """Read the usable batches from an offset on again, each with its file."""
        wanted = {(batch.base, batch.position) for batch in self.batches_from(offset)}
        for base in sorted({base for base, _ in wanted}):
            path = f"{self.partition}/{file_name(base)}"
            for item in read_file(disk, path, on_damage=OnDamage.SKIP):
                if isinstance(item, RecordBatch) and (base, item.position) in wanted:
                    yield item, path


def _base_offset(batch: LogBatch) -> int:
    return batch.base_offset


def read_copy(disk: Disk, partition: str) -> MetadataCopy:
    """Read a partition directory of the metadata log, `__cluster_metadata-0`. Damage is part of the result."""
    copy = MetadataCopy(partition=partition)
    try:
        copy.quorum_state = read_quorum_state(disk, partition)
        if copy.quorum_state is None:
            copy.quorum_state_problem = f"{partition}/{QUORUM_STATE} is missing"
    except MetadataLogError as bad:
        copy.quorum_state_problem = str(bad)
    segments, snapshots = segments_in(disk, partition), list_snapshots(disk, partition)
    sound = [one for one in snapshots if _is_sound(disk, copy, one)]
    runs = _runs(disk, copy, segments)
    _choose_end(copy, runs, sound)
    if segments:  # without a segment, Kafka continues at the newest snapshot
        copy.damages += missing_end(disk, partition, segments, sound, max(copy.end.offset, segments[-1]))
    if copy.end.offset == 0:
        copy.unusable = "the metadata log is empty"
        return copy
    copy.quorum = _quorum_records(disk, copy)
    _read_image(disk, copy)
    return copy


def _is_sound(disk: Disk, copy: MetadataCopy, snapshot: OffsetAndEpoch) -> bool:
    damages = [
        item
        for item in read_file(disk, f"{copy.partition}/{snapshot_name(snapshot)}", on_damage=OnDamage.SKIP)
        if isinstance(item, Damage)
    ]
    copy.damages += damages
    return not damages


def _runs(disk: Disk, copy: MetadataCopy, segments: list[int]) -> list[list[LogBatch]]:
    """The batches of the log, cut at damage and gaps."""
    runs: list[list[LogBatch]] = [[]]
    for base in segments:
        path = f"{copy.partition}/{file_name(base)}"
        before = runs[-1][-1].next_offset if runs[-1] else None
        gap = gap_before(path, base, before)
        if gap is not None:
            copy.damages.append(gap)
            runs.append([])
        for item in read_file(disk, path, on_damage=OnDamage.SKIP):
            if isinstance(item, Damage):
                copy.damages.append(item)
                if runs[-1]:
                    runs.append([])
                continue
            expected = runs[-1][-1] if runs[-1] else None
            if expected is not None and (
                item.base_offset != expected.next_offset or item.epoch < expected.epoch
            ):  # its damage comes before it
                runs.append([])
            runs[-1].append(
                LogBatch(
                    *(item.base_offset, item.next_offset, item.epoch, item.size_bytes, item.crc),
                    *(item.max_timestamp, base, item.position),
                )
            )
    return [run for run in runs if run]


def _choose_end(copy: MetadataCopy, runs: list[list[LogBatch]], snapshots: list[OffsetAndEpoch]) -> None:
    """The longest history that begins at offset 0 or with a sound snapshot."""
    best: list[LogBatch] = []
    for run in runs:
        start, end = run[0].base_offset, run[-1].next_offset
        is_based = start == 0 or any(start <= one.offset <= end for one in snapshots)
        if is_based and (not best or end > best[-1].next_offset):
            best = run
    if runs and not best and not snapshots:
        copy.unusable = no_beginning(copy.partition, runs[0][0].base_offset).what
        best = runs[0]
    last = OffsetAndEpoch(epoch=best[-1].epoch, offset=best[-1].next_offset) if best else EMPTY_END
    if snapshots and snapshots[-1].offset > last.offset:
        copy.end, copy.log_start = snapshots[-1], snapshots[-1].offset
        copy.is_log_whole = False
    elif best:
        copy.batches, copy.end, copy.log_start = best, last, best[0].base_offset
        copy.is_log_whole = best is runs[0] and best[0].position == 0
    copy.snapshots = tuple(one for one in snapshots if one.offset <= copy.end.offset)


def _quorum_records(disk: Disk, copy: MetadataCopy) -> QuorumRecords:
    """The last of each control record, in the newest snapshot and in the log."""
    quorum_records = QuorumRecords()
    for snapshot in copy.snapshots[-1:]:
        path = f"{copy.partition}/{snapshot_name(snapshot)}"
        for item in read_file(disk, path, on_damage=OnDamage.SKIP):
            if isinstance(item, RecordBatch) and item.is_control:
                _note(quorum_records, item, path, snapshot)
    for batch, path in copy.read_from(disk, copy.log_start):
        if batch.is_control:
            _note(quorum_records, batch, path, None)
    return quorum_records


def _note(found: QuorumRecords, batch: RecordBatch, path: str, snapshot: OffsetAndEpoch | None) -> None:
    for record in records(batch, where=path):
        offset = record.offset if snapshot is None else snapshot.offset
        if snapshot is None and found.voters is not None and offset < found.voters.offset:
            continue  # the snapshot is newer
        match decode_control(record.key or b"", record.value or b"", where=path)[1]:
            case LeaderChangeMessage() as change:
                found.last_election, found.last_election_offset = change, offset
            case KRaftVersionRecord(kraft_version=level):
                found.kraft_version = level
            case VotersRecord() as voters:
                found.voters = VotersAt(offset, batch.epoch if snapshot is None else snapshot.epoch, voters)


def image_at(disk: Disk, copy: MetadataCopy, end_offset: int) -> MetadataImage:
    """The image of a copy after its records below an offset; raises `MetadataLogError` for an unreadable record."""
    on_damage = OnDamage.STOP if copy.damages else OnDamage.STRICT
    path = copy.partition if copy.batches else f"{copy.partition}/{snapshot_name(copy.snapshots[-1])}"
    image = replay(path, At(offset=end_offset - 1), disk, on_damage, is_complete=True)
    if image.transaction is None and image.end.offset > end_offset:
        raise MetadataLogError(f"a snapshot holds records from offset {end_offset} on", where=copy.partition)
    return image


def _read_image(disk: Disk, copy: MetadataCopy) -> None:
    if copy.unusable is not None:
        return
    try:
        copy.image = image_at(disk, copy, copy.end.offset)
    except MetadataLogError as bad:
        copy.unusable = f"the records cannot be replayed: {bad}"
