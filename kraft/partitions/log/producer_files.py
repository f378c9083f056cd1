"""The producer snapshots in a partition directory (Kafka: the files of `ProducerStateManager`)."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Final

from kraft.limits import PRODUCERS_AT_ONCE
from kraft.partitions.log.producers import EndedTransaction, Producer, ProducerStates, marker_of, stored_in_steps
from metadata_log.disk import Disk
from metadata_log.errors import DecodeError
from metadata_log.log.producer_snapshot import (
    SUFFIX,
    StoredProducer,
    decode_producer_snapshot,
    encode_head,
    encode_producer_snapshot,
)
from metadata_log.log.segment import file_name, parse_file_name
from metadata_log.records.batch import RecordBatch

_DONE: Final = object()


class ProducerStateManager:
    """The producers of a partition up to an offset, and the snapshots of earlier states (`ProducerStateManager`).

    Args:
        disk: The disk.
        directory: The partition directory.
        expiration_ms: How long a producer without an open transaction is known, `producer.id.expiration.ms`.
        names: What is in the directory, if somebody has just looked.
    """

    def __init__(self, disk: Disk, directory: str, expiration_ms: int, names: Sequence[str] | None = None) -> None:
        self.states = ProducerStates()
        self.end_offset = 0
        """The states cover the log up to this offset."""
        self.findings: list[str] = []
        self._disk = disk
        self._directory = directory
        self._expiration_ms = expiration_ms
        self._snapshot_offset = 0
        self._writing: tuple[int, Generator[None, None, None]] | None = None
        """The offset of a snapshot of many producers, and the steps that still have to be made."""
        names = disk.list(directory) if names is None else names
        self.snapshots = [base for name in names if (base := parse_file_name(name, SUFFIX)) is not None]
        """The offsets of the snapshots, smallest first."""

    def path(self, offset: int) -> str:
        """The path of the snapshot at an offset."""
        return f"{self._directory}/{file_name(offset, SUFFIX)}"

    def expire(self, now_ms: int) -> None:
        """Forget the producers that wrote nothing for `producer.id.expiration.ms` (`removeExpiredProducers`)."""
        self.states.expire(now_ms, self._expiration_ms)

    def relocate(self, directory: str) -> None:
        """Take the new name of the partition directory."""
        self._directory = directory

    def note(self, batch: RecordBatch) -> EndedTransaction | None:
        """Go on after a batch; returns the transaction that the batch ends. The caller calls `states.end` with it.

        Raises:
            CorruptBatch: The control record of the batch is damaged.
        """
        is_marker = batch.is_control and batch.producer_id >= 0
        ended = self.states.note(batch, marker_of(batch, where=self._directory) if is_marker else None)
        self.end_offset = batch.next_offset
        return ended

    def remove_snapshot(self, offset: int) -> None:
        """Remove the snapshot at an offset, if there is one."""
        if offset == self.unwritten:
            self._abandon()
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            if self._disk.exists(self.path(offset)):
                self._disk.remove(self.path(offset))

    def remove_stray_snapshots(self, base_offsets: Collection[int]) -> None:
        """Remove the snapshots that are at no segment's base, but the newest one (`removeStraySnapshots`)."""
        strays = [offset for offset in self.snapshots if offset not in base_offsets]
        newest = max(base_offsets, default=None)
        if strays and (newest is None or strays[-1] >= newest):
            strays.pop()
        for offset in strays:
            self.remove_snapshot(offset)

    def truncate_and_reload(self, start_offset: int, end_offset: int, now_ms: int) -> None:
        """Go back to the newest sound snapshot in a range; later and earlier snapshots are removed.

        Args:
            start_offset: The log start.
            end_offset: The end of the log.
            now_ms: The time in ms since 1970, at which old producers are forgotten.
        """
        for offset in tuple(self.snapshots):
            if offset > end_offset or offset <= start_offset:
                self.remove_snapshot(offset)
        if end_offset == self.end_offset:
            return
        self._abandon()
        self.states = ProducerStates()
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                stored = decode_producer_snapshot(self._disk.read(self.path(offset)), self.path(offset))
            except DecodeError as bad:
                self.findings.append(f"removed a producer snapshot: {bad}")
                self.remove_snapshot(offset)
                continue
            self.states.load(stored)
            self.states.expire(now_ms, self._expiration_ms)
            self.end_offset = self._snapshot_offset = offset
            return
        self.end_offset = self._snapshot_offset = start_offset

    def reset(self, offset: int) -> None:
        """Forget all producers and remove all snapshots (`truncateFullyAndStartAt`)."""
        self._abandon()
        for each in tuple(self.snapshots):
            self.remove_snapshot(each)
        self.states = ProducerStates()
        self.end_offset = self._snapshot_offset = offset

    def begin(self, offset: int, stored: Iterable[StoredProducer]) -> None:
        """Begin at an offset with producers of which no batch is in the log: only their snapshot tells of them."""
        self.reset(offset)
        self.states.load(stored)
        self._snapshot_offset = offset - 1
        self.take_snapshot()

    def take_snapshot_later(self) -> None:
        """Write the snapshot of this state, now if it is small; else `write_more` does it in steps.

        Without the snapshot, which a crash may prevent, the producers are rebuilt from an older one and the log, as in
        Kafka, which flushes it in another thread.
        """
        if len(self.states.producers) <= PRODUCERS_AT_ONCE:
            self.take_snapshot()
        elif self.end_offset > self._snapshot_offset:
            self._abandon()
            producers = list(self.states.producers.values())
            self._writing = self.end_offset, self._write_in_steps(self.end_offset, producers)
            self._snapshot_offset = self.end_offset

    @property
    def unwritten(self) -> int | None:
        """The offset of the snapshot of which `write_more` has still to write a part; None without one."""
        return None if self._writing is None else self._writing[0]

    def write_more(self) -> None:
        """Make a step of the snapshot that is being written; raises `OSError`."""
        if self._writing is not None and next(self._writing[1], _DONE) is _DONE:
            self._writing = None

    def finish_writing(self) -> None:
        """Make all steps of the snapshot that is being written; raises `OSError`."""
        while self._writing is not None:
            self.write_more()

    def _abandon(self) -> None:
        """Give up the snapshot that is being written, with its file: a later history may end beyond its offset."""
        if self._writing is not None:
            offset, steps = self._writing
            steps.close()
            self._writing = None
            if self._disk.exists(self.path(offset)):
                self._disk.remove(self.path(offset))

    def _write_in_steps(self, offset: int, producers: list[Producer]) -> Generator[None, None, None]:
        pieces = yield from stored_in_steps(producers)
        head = encode_head(len(producers), pieces)
        yield None
        path = self.path(offset)
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.open(path, create=True)
        try:
            for piece in (head, *pieces):
                file.append(piece)
                yield None
        finally:
            file.close()
        self.snapshots = sorted({*self.snapshots, offset})

    def take_snapshot(self) -> None:
        """Write the snapshot of this state, unless there is one (`takeSnapshot`); `PartitionLog.flush` flushes it."""
        if self.end_offset <= self._snapshot_offset:
            return
        path = self.path(self.end_offset)
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.open(path, create=True)
        try:
            file.append(encode_producer_snapshot(self.states.stored()))
        finally:
            file.close()
        if self.end_offset not in self.snapshots:
            self.snapshots = sorted((*self.snapshots, self.end_offset))
        self._snapshot_offset = self.end_offset
