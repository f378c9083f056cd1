"""A snapshot that arrives in pieces: checked batch by batch as it comes, published at once when it is whole (KIP-630;
Kafka: `KafkaRaftLog.createNewSnapshotUnchecked`, `FileRawSnapshotWriter`).

Kafka publishes what has the announced size. Here a batch that is damaged, on the way or on the sender's disk, ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metadata_log.batch import RecordBatch, data_values, quorum_records, scan
from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, IncompleteBatch
from metadata_log.records.frame import ControlRecordType
from metadata_log.snapshot import PARTIAL_SUFFIX, SUFFIX, control_types, snapshot_name
from metadata_log.snapshot_writer import FSYNC_BYTES, MAX_BATCH_BYTES
from metadata_log.types import OffsetAndEpoch

_AT_THE_BEGIN: Final = (ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS)


class SnapshotReceiver:
    """Nobody sees the file before `publish`. The batches that are not complete yet are the only bytes in memory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshot: OffsetAndEpoch,
        check: Callable[[tuple[bytes, ...]], None] = lambda values: None,
    ) -> None:
        """`check` is called with the values of each batch of data, and raises `MetadataLogError` for wrong ones."""
        self.snapshot = snapshot
        self._check_values = check
        self.size_bytes = 0
        """What has arrived so far."""
        self._disk = disk
        self._path = f"{directory}/{snapshot_name(snapshot)}"
        self._partial = self._path.removesuffix(SUFFIX) + PARTIAL_SUFFIX
        self._directory = directory
        if disk.exists(self._partial):
            disk.remove(self._partial)
        self._file = disk.open(self._partial, create=True)
        self._is_open = True
        self._unsynced_bytes = 0
        self._rest = b""
        self._last: RecordBatch | None = None
        self._has_ended = False

    def append(self, data: bytes) -> None:
        """Take the next bytes; raises `CorruptBatch` or `UnsupportedVersion` if no snapshot can have them."""
        position = self.size_bytes - len(self._rest)
        piece = self._rest + data
        self._file.append(data)
        self.size_bytes += len(data)
        self._unsynced_bytes += len(data)
        whole = 0
        try:
            for batch in scan(piece, where=self._path, at=position):
                self._check(batch)
                whole = batch.end_position - position
        except IncompleteBatch:
            pass
        self._rest = piece[whole:]
        if len(self._rest) > 2 * MAX_BATCH_BYTES:
            raise CorruptBatch("a batch of a snapshot is larger than any", where=self._path, position=position + whole)
        if self._unsynced_bytes >= FSYNC_BYTES:
            self._file.fsync()
            self._unsynced_bytes = 0

    def _check(self, batch: RecordBatch) -> None:
        kinds: list[int] = []
        if batch.is_control:
            quorum_records(batch, where=self._path)
            kinds = control_types(batch, self._path)
        if self._last is None and kinds[:1] != [ControlRecordType.SNAPSHOT_HEADER]:
            raise CorruptBatch("the snapshot does not begin with its header", where=self._path, position=0)
        self._check_kinds(kinds, batch)
        # No checksum covers these two.
        if batch.epoch != self.snapshot.epoch:
            what = f"a batch of epoch {batch.epoch} is in a snapshot of epoch {self.snapshot.epoch}"
            raise CorruptBatch(what, where=self._path, position=batch.position)
        expected = 0 if self._last is None else self._last.next_offset
        if batch.base_offset != expected:
            what = f"a batch begins at offset {batch.base_offset}, where {expected} was due"
            raise CorruptBatch(what, where=self._path, position=batch.position)
        if not batch.is_control:
            self._check_values(data_values(batch, where=self._path))
        self._last = batch

    def _check_kinds(self, kinds: list[int], batch: RecordBatch) -> None:
        """Header, level and voters stand in the first batch, and the footer is a batch of its own, the last one."""
        is_footer = kinds == [ControlRecordType.SNAPSHOT_FOOTER]
        allowed = not kinds if self._last is not None else all(kind in _AT_THE_BEGIN for kind in kinds[1:])
        if self._has_ended or not (allowed or is_footer):
            what = f"a batch with the control records {kinds} is out of place in a snapshot"
            raise CorruptBatch(what, where=self._path, position=batch.position)
        self._has_ended = is_footer

    @property
    def path(self) -> str:
        """Where the bytes are."""
        return self._partial

    def check_end(self) -> None:
        """Nothing more will come: raises `CorruptBatch` unless what has come ends with a footer."""
        if self._rest or self._last is None:
            raise IncompleteBatch("the snapshot ends inside a batch", where=self._path, position=self.size_bytes)
        if not self._has_ended:
            raise CorruptBatch("the snapshot ends without its footer", where=self._path, position=self.size_bytes)

    def publish(self) -> None:
        """Give the file its name, durably and for good."""
        self._file.fsync()
        self._close()
        self._disk.make_read_only(self._partial)
        self._disk.rename(self._partial, self._path)
        self._disk.fsync_dir(self._directory)

    def abandon(self) -> None:
        """Remove what was not published; nothing if it was."""
        if self._is_open:
            self._close()
            self._disk.remove(self._partial)

    def fork(self, disk: Disk) -> SnapshotReceiver:
        """An independent copy over the copy of a disk."""
        copy = object.__new__(SnapshotReceiver)
        copy.__dict__.update(self.__dict__)
        copy._disk = disk
        copy._file = disk.open(self._partial)
        return copy

    def _close(self) -> None:
        self._file.close()
        self._is_open = False
