"""Reads the files of one node without changing them: log batches, elections, snapshots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import EpochHistory, parse_epochs
from metadata_log.log.log_dir import META_PROPERTIES, MetaProperties, parse_meta_properties, read_meta_properties
from metadata_log.log.quorum_state_file import StoredElection, read_quorum_state
from metadata_log.log.segment import parse_file_name
from metadata_log.log.snapshot import list_snapshots, snapshot_name
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.missing import check_topic, missing_end
from metadata_log.reading.reader import read_file
from metadata_log.records.batch import RecordBatch
from metadata_log.records.control import LeaderChangeMessage, VotersRecord
from metadata_log.records.frame import decode_control
from metadata_log.records.record import records
from metadata_log.types import PARTITION_DIRECTORY, OffsetAndEpoch


class BatchId(Struct, frozen=True, gc=False):
    """The identity of a batch: two batches with the same length and CRC-32C count as the same bytes."""

    base_offset: int
    next_offset: int
    epoch: int
    size_bytes: int
    crc: int


class Election(Struct, frozen=True):
    """A LeaderChange record with its offset and epoch."""

    offset: int
    epoch: int
    change: LeaderChangeMessage


class Voters(Struct, frozen=True):
    """A voter set and its offset; for a voter set in a snapshot, the end offset of the snapshot."""

    offset: int
    record: VotersRecord


class NodeFiles(Struct, kw_only=True):
    """Everything in one directory that the checks need."""

    path: str
    partition: str
    meta: MetaProperties | None = None
    election: StoredElection | None = None
    epochs: EpochHistory | None = None
    batches: list[BatchId] = []
    elections: list[Election] = []
    voters: list[Voters] = []
    snapshots: dict[OffsetAndEpoch, str] = {}
    damages: list[Damage] = []
    unfinished: list[Damage] = []
    """The ends of logs in the midst of a batch, as a crash or a running node leaves them; not checked."""

    @property
    def name(self) -> str:
        """The name of the node in findings."""
        return self.path if self.meta is None else f"node {self.meta.node_id} ({self.path})"

    @property
    def start_offset(self) -> int:
        """The log start offset."""
        return self.batches[0].base_offset if self.batches else 0

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self.batches[-1].next_offset if self.batches else 0

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at an offset; None if the log does not have that offset."""
        place = bisect_right(self.batches, offset, key=_base_offset) - 1
        if place < 0 or offset >= self.batches[place].next_offset:
            return None
        return self.batches[place].epoch

    def log(self, disk: Disk) -> Iterator[RecordBatch]:
        """Read the undamaged batches of the log again."""
        for _, path in _segments(disk, self.partition):
            for item in read_file(disk, path, on_damage=OnDamage.STOP):
                if isinstance(item, RecordBatch):
                    yield item


def read_node(disk: Disk, path: str, advance: Callable[[int], None]) -> NodeFiles:
    """Read a log directory, or the directory of the metadata partition; calls `advance` with numbers of batches read.

    Raises `MetadataLogError` if there is no log or a small file cannot be read. Damage of logs is part of the result.
    """
    base = path.rstrip("/")
    partition = f"{base}/{PARTITION_DIRECTORY}"
    if not disk.exists(partition):
        base, partition = base.rpartition("/")[0], base
    check_topic(disk, partition)
    segments, snapshots = _segments(disk, partition), list_snapshots(disk, partition)
    node = NodeFiles(path=path, partition=partition)
    if not segments and not snapshots:
        read_meta_properties(disk, path.rstrip("/"))  # which may say that the node never had a metadata log
        raise MetadataLogError("there is no metadata log", where=path, hint="Name log directories, as in log.dirs.")
    meta = f"{base}/{META_PROPERTIES}"
    if disk.exists(meta):
        node.meta = parse_meta_properties(disk.read(meta), where=meta)
    node.election = read_quorum_state(disk, partition)
    epochs = f"{partition}/{EPOCHS_FILE}"
    if disk.exists(epochs):
        node.epochs = parse_epochs(disk.read(epochs), where=epochs)
    for snapshot in snapshots:
        node.snapshots[snapshot] = f"{partition}/{snapshot_name(snapshot)}"
        _read_snapshot(disk, node, snapshot)
    for base_offset, segment in segments:
        known = len(node.batches)
        _read_segment(disk, node, base_offset, segment)
        advance(len(node.batches) - known)
    bases = [base for base, _ in segments]
    end = max(node.end_offset, bases[-1] if bases else 0)
    node.damages += missing_end(disk, partition, bases, snapshots, end)
    return node


def _segments(disk: Disk, partition: str) -> list[tuple[int, str]]:
    names = ((parse_file_name(name), name) for name in disk.list(partition))
    return sorted((base, f"{partition}/{name}") for base, name in names if base is not None)


def _read_segment(disk: Disk, node: NodeFiles, base_offset: int, path: str) -> None:
    if node.batches and base_offset != node.end_offset:
        what = f"a segment begins at offset {base_offset}, and the one before it ends at {node.end_offset}"
        expected = f"a segment that begins at {node.end_offset}"
        node.damages.append(Damage(where=path, what=what, expected=expected, position=0, offset=base_offset))
    for item in read_file(disk, path, on_damage=OnDamage.SKIP):
        if isinstance(item, Damage):
            (node.unfinished if item.unfinished else node.damages).append(item)
            continue
        node.batches.append(BatchId(item.base_offset, item.next_offset, item.epoch, item.size_bytes, item.crc))
        _note_control(node, item, path)


def _read_snapshot(disk: Disk, node: NodeFiles, snapshot: OffsetAndEpoch) -> None:
    path = node.snapshots[snapshot]
    for item in read_file(disk, path, on_damage=OnDamage.SKIP):
        if isinstance(item, Damage):
            node.damages.append(item)
        else:
            _note_control(node, item, path, snapshot.offset)


def _note_control(node: NodeFiles, batch: RecordBatch, path: str, offset: int | None = None) -> None:
    if not batch.is_control:
        return
    for record in records(batch, where=path):
        match decode_control(record.key or b"", record.value or b"", where=path)[1]:
            case LeaderChangeMessage() as change:
                node.elections.append(Election(record.offset, batch.epoch, change))
            case VotersRecord() as voters:
                node.voters.append(Voters(record.offset if offset is None else offset, voters))


def _base_offset(batch: BatchId) -> int:
    return batch.base_offset
