"""Backups, from which another quorum begins (as etcd's): of a state machine the file of a snapshot; of a raw log the
snapshot and the log in a file of the same format.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from random import Random, SystemRandom
from secrets import token_hex
from typing import Final

import trio
from msgspec import MsgspecError, Struct, msgpack

from kraft.config.embedded import LISTENER, RANDOM_IDS
from kraft.limits import APPLIED_BYTES_PER_STEP
from kraft.node.errors import NodeError, NodeStopped
from kraft.replica.replica import Replica
from kraft.state_machine.raw_log import RAW_LOG
from kraft.state_machine.raw_snapshot import pieces_of, raw_snapshot_values, state_of
from metadata_log.disk import File, OsDisk, make_directory
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import (
    already_formatted,
    first_voter,
    format_directory,
    locked_to_format,
    read_meta_properties,
)
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.snapshot import (
    control_types,
    parse_snapshot_name,
    read_snapshot_start,
    read_snapshot_values,
    snapshot_name,
    values_of_snapshot,
)
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records.batch import RecordBatch, scan, sound_batches
from metadata_log.records.batch_builder import build_control_batch
from metadata_log.records.control import VotersRecord
from metadata_log.records.frame import ControlRecordType, encode_control
from metadata_log.records.record import records
from metadata_log.types import PARTITION_DIRECTORY, OffsetAndEpoch, random_uuid

_PIECE: Final = 1 << 20
_EXAMPLE: Final = OffsetAndEpoch(epoch=4, offset=1234)
_EMPTY: Final = "Restore into another directory: this one has a node."


def check_folder(folder: str) -> None:
    """Raise `OSError` if there is no directory with this path."""
    if not os.path.isdir(folder):
        number = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
        raise OSError(number, "the folder of a backup must exist: make the directory first", folder)


def copy_snapshot(file: File, snapshot: OffsetAndEpoch, folder: str) -> str:
    """Copy the file of a snapshot into a folder; returns the path of the copy, which is on disk."""
    path = f"{folder}/{snapshot_name(snapshot)}"
    # Nodes of one quorum, and calls at one node, may write into one folder at a time.
    partial = f"{path}.{token_hex(8)}.part"
    disk = OsDisk()
    copy = disk.open(partial, create=True)
    try:
        for position in range(0, file.size(), _PIECE):
            copy.append(file.pread(min(_PIECE, file.size() - position), position))
        copy.fsync()
    except BaseException:
        disk.remove(partial)
        raise
    finally:
        copy.close()
    disk.rename(partial, path)
    disk.fsync_dir(folder)
    return path


def read_state(file: File) -> bytes:
    """The state in the snapshot of a raw log. Raises `CorruptBatch`, `OSError`."""
    return state_of(values_of_snapshot(file), file.path)


# The backup of a raw log is a snapshot with these values: the tag, the head, the state in pieces, the log in pieces.

_LOG_TAG: Final = b"kraft raw log: backup"


class _Head(Struct, frozen=True, array_like=True):
    start: int
    """Where the log begins."""
    snapshot: OffsetAndEpoch | None
    state_pieces: int


async def copy_log(replica: Replica, folder: str, has_ended: Callable[[], bool]) -> str:
    """Write the newest snapshot and the committed records of a raw log into a file; see `Node.backup`.

    The log is read in the turns of its owner, and written by threads.
    """
    log = replica.log
    while True:
        start, newest, end = log.start_offset, replica.newest_snapshot, replica.core.log.high_watermark
        if end <= 0:
            raise NodeError("there is nothing to back up: nothing was committed so far")
        last_epoch = log.epochs.epoch_at(end - 1)
        backup = OffsetAndEpoch(epoch=newest.epoch if last_epoch is None else last_epoch, offset=end)
        # Opened in this turn: the snapshot may be removed later.
        file = replica.open_snapshot(newest) if newest.offset else None
        try:
            writer = await trio.to_thread.run_sync(_begun, folder, backup, start, newest, file)
        finally:
            # Here, because a call that is cancelled starts no thread.
            if file is not None:
                file.close()
        try:
            at = start
            while at < end and not has_ended() and log.start_offset == start:
                data = log.read(at, APPLIED_BYTES_PER_STEP, end_offset=end)
                at = await trio.to_thread.run_sync(writer.append, data, log.directory)
            if at == end:
                return await trio.to_thread.run_sync(writer.finish)
        finally:
            writer.abandon()
        if has_ended():
            raise NodeStopped("the node has stopped, and there is no backup")
        # A snapshot has taken the place of records meanwhile.


def _begun(
    folder: str, backup: OffsetAndEpoch, start: int, snapshot: OffsetAndEpoch, file: File | None
) -> _BackupWriter:
    """A backup with all that comes before the log."""
    pieces = () if file is None else tuple(pieces_of(read_state(file)))
    writer = _BackupWriter(folder, backup)
    try:
        writer.begin(_Head(start, None if file is None else snapshot, len(pieces)), pieces)
    except BaseException:
        writer.abandon()
        raise
    return writer


class _BackupWriter:
    """The backup of a raw log, which is invisible before `finish`."""

    def __init__(self, folder: str, backup: OffsetAndEpoch) -> None:
        self._disk = OsDisk()
        self._folder = folder
        # Several calls may write into one folder at a time.
        self._own = f"{folder}/{token_hex(8)}.part"
        self._name = snapshot_name(backup)
        self._now_ms = time.time_ns() // 1_000_000
        self._disk.mkdir(self._own)
        self._writer = SnapshotWriter(
            self._disk, self._own, backup, timestamp_ms=self._now_ms, last_contained_log_timestamp=self._now_ms
        )

    def begin(self, head: _Head, state: tuple[bytes, ...]) -> None:
        """Write what comes before the log."""
        for value in (_LOG_TAG, msgpack.encode(head), *state):
            self._writer.append((value,), self._now_ms)

    def append(self, data: bytes, where: str) -> int:
        """Write whole batches of the log; returns the offset after them. Raises `CorruptBatch` for damage."""
        for batch in scan(data, where=where):
            end = batch.next_offset
        for piece in pieces_of(data):
            self._writer.append((piece,), self._now_ms)
        return end

    def finish(self) -> str:
        """Publish the file; returns its path."""
        self._writer.freeze(self._now_ms)
        path = f"{self._folder}/{self._name}"
        self._disk.rename(f"{self._own}/{self._name}", path)
        self._disk.fsync_dir(self._folder)
        return path

    def abandon(self) -> None:
        """Remove what is not published."""
        self._writer.abandon()
        for name in self._disk.list(self._own):
            self._disk.remove(f"{self._own}/{name}")
        os.rmdir(self._own)


class _LogBackup:
    """The backup of a raw log as it is read; raises `CorruptBatch` where it contradicts itself."""

    def __init__(self, path: str, values: Iterator[bytes], end: OffsetAndEpoch) -> None:
        self._path = path
        self._values = values
        self._end = end
        try:
            self.head = msgpack.decode(next(values, b""), type=_Head)
        except MsgspecError as bad:
            raise CorruptBatch(f"this is not the head of a backup: {bad}", where=path) from bad
        self.state = b"".join(islice(values, self.head.state_pieces))

    def batches(self) -> Iterator[tuple[bytes, list[RecordBatch]]]:
        """The log, some whole batches at a time."""
        at, epoch, left = self.head.start, 0, b""
        for piece in self._values:
            left += piece
            batches = sound_batches(left, offset=at, epoch=epoch)
            if batches:
                at, epoch, size = batches[-1].next_offset, batches[-1].epoch, batches[-1].end_position
                yield left[:size], batches
                left = left[size:]
        snapshot = self.head.snapshot
        covered = 0 if snapshot is None else snapshot.offset
        if left or at != self._end.offset or not self.head.start <= covered <= at:
            raise CorruptBatch(f"the log ends at offset {at}, and the backup at {self._end}", where=self._path)


def restore(path: str, directory: str, *, node_id: int | None = None) -> None:
    """Begin a quorum with a backup: prepare the directory of its first node, which `create` then opens.

    The quorum has a new cluster id, so that nodes of the former one are refused, and this node as its only voter. Other
    nodes `join` it, with empty directories.

    Args:
        path: The file that `Node.backup` has written.
        directory: The directory of the node, which is made; it must not be formatted.
        node_id: The id of the node; by default a random one.

    Raises:
        DirectoryError: The directory is formatted already, is in use, or has a log; or the file has not the name of a
            backup.
        CorruptBatch: The file is damaged or incomplete; nothing was made of the directory.
        OSError: The disk has failed, or there is no such file.
    """
    disk, rng = OsDisk(), Random(SystemRandom().getrandbits(128))
    snapshot = parse_snapshot_name(os.path.basename(path))
    if snapshot is None:
        raise DirectoryError(
            "this is not the name of a backup", where=path, hint=f"`backup` makes names like {snapshot_name(_EXAMPLE)}."
        )
    if read_meta_properties(disk, directory) is not None:
        raise already_formatted(directory, _EMPTY)
    values = read_snapshot_values(disk, path)
    is_log = next(values, b"") == _LOG_TAG
    # The whole file is sound, before anything is written.
    for _ in _LogBackup(path, values, snapshot).batches() if is_log else values:
        pass
    now_ms = time.time_ns() // 1_000_000
    node_id = rng.randrange(*RANDOM_IDS) if node_id is None else node_id
    # Once it leads, the node puts its actual address in place of this one.
    voters = VotersRecord(voters=(first_voter(node_id, random_uuid(rng), LISTENER, "localhost", 0),))
    with locked_to_format(disk, directory):
        if read_meta_properties(disk, directory) is not None:
            raise already_formatted(directory, _EMPTY)
        partition = f"{directory}/{PARTITION_DIRECTORY}"
        make_directory(disk, partition)
        begin = partial(
            SnapshotWriter,
            disk,
            partition,
            timestamp_ms=now_ms,
            last_contained_log_timestamp=read_snapshot_start(disk, path).header.last_contained_log_timestamp,
            kraft_version=1,
            voters=voters,
        )
        if is_log:
            _restore_log(disk, partition, path, snapshot, begin, voters, now_ms)
        else:
            _write_snapshot(begin(snapshot), read_snapshot_values(disk, path), now_ms)
        write_quorum_state(disk, partition, StoredElection(leader_epoch=snapshot.epoch, data_version=1))
        # Last: a directory with meta.properties counts as formatted.
        format_directory(
            disk,
            directory,
            node_id=node_id,
            cluster_id=str(random_uuid(rng)),
            rng=rng,
            now_ms=now_ms,
            dynamic=True,
            initial_voters=voters,
            hosts=RAW_LOG if is_log else None,
        )


def _write_snapshot(writer: SnapshotWriter, values: Iterable[bytes], now_ms: int) -> None:
    for value in values:
        writer.append((value,), now_ms)
    writer.freeze(now_ms)


def _with_voters(batch: RecordBatch, voters: VotersRecord) -> bytes:
    """A batch with these voters in place of others."""
    kinds = control_types(batch)
    if ControlRecordType.KRAFT_VOTERS not in kinds:
        return batch.data
    _, _, new = encode_control(voters)
    values = [
        (kind, new if kind == ControlRecordType.KRAFT_VOTERS else record.value or b"")
        for kind, record in zip(kinds, records(batch), strict=True)
    ]
    return build_control_batch(batch.base_offset, batch.epoch, batch.base_timestamp, values)


def _restore_log(
    disk: OsDisk,
    partition: str,
    path: str,
    end: OffsetAndEpoch,
    begin: Callable[[OffsetAndEpoch], SnapshotWriter],
    voters: VotersRecord,
    now_ms: int,
) -> None:
    """Write the snapshot and the log of a backup. Records of the former voters name the new one: who joins the quorum
    reads the log, and accepts no change of several voters at once.
    """
    values = read_snapshot_values(disk, path)
    next(values)
    backup = _LogBackup(path, values, end)
    if backup.head.snapshot is not None:
        _write_snapshot(begin(backup.head.snapshot), raw_snapshot_values(backup.state), now_ms)
    log = MetadataLog.open(disk, partition)
    try:
        if backup.head.start:
            log.reset_to(backup.head.start)
        for data, batches in backup.batches():
            is_as_it_was = not any(batch.is_control for batch in batches)
            log.append(data if is_as_it_was else b"".join(_with_voters(batch, voters) for batch in batches))
        log.flush()
    finally:
        log.close()
