"""Receives a snapshot in pieces: each batch is checked on arrival, the whole is published at once (KIP-630; Kafka:
`KafkaRaftLog.createNewSnapshotUnchecked`, `FileRawSnapshotWriter`).

Kafka publishes any bytes of the announced size. Here a damaged batch ends the transfer, whether the network or the
sender's disk damaged it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.errors import CorruptBatch, IncompleteBatch, MetadataLogError
from metadata_log.log.snapshot import PARTIAL_SUFFIX, SUFFIX, control_types, snapshot_name
from metadata_log.log.snapshot_writer import FSYNC_BYTES, MAX_BATCH_BYTES
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.frame import ControlRecordType
from metadata_log.records.quorum_batch import MAX_CONTROL_RECORDS, data_values_by_portions, overhead, quorum_records
from metadata_log.types import OffsetAndEpoch

_AT_THE_BEGIN: Final = (ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS)


class _Seen(Struct, frozen=True):
    """The state after the batches so far, which the next batch must fit."""

    is_empty: bool = True
    next_offset: int = 0
    has_ended: bool = False
    """Whether the footer has arrived."""


class _Judged(Struct, frozen=True):
    """The result of checking bytes at a position."""

    data: bytes
    position: int
    seen: _Seen
    rest: bytes
    wrong: MetadataLogError | None


class SnapshotReceiver:
    """A snapshot file that is invisible before `publish`. Only the bytes of incomplete batches are in memory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshot: OffsetAndEpoch,
        check: Callable[[tuple[bytes, ...]], object] = lambda values: None,
    ) -> None:
        """`check` is called with the values of each data batch, and raises `MetadataLogError` for invalid ones."""
        self.snapshot = snapshot
        self._check_values = check
        self.size_bytes = 0
        """The size of the received bytes."""
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
        self._seen = _Seen()
        self._judged: _Judged | None = None

    def append(self, data: bytes) -> None:
        """Take the next bytes; raises `CorruptBatch` or `UnsupportedVersion` for bytes that no snapshot has."""
        judged, self._judged = self._judged, None
        if judged is None or judged.data is not data or judged.position != self.size_bytes:
            for _ in self.judging(data):
                pass
            judged, self._judged = self._judged, None
        assert judged is not None, "what was judged is there"
        self._file.append(data)
        self.size_bytes += len(data)
        self._unsynced_bytes += len(data)
        if judged.wrong is not None:
            raise judged.wrong
        self._seen, self._rest = judged.seen, judged.rest
        if self._unsynced_bytes >= FSYNC_BYTES:
            self._file.fsync()
            self._unsynced_bytes = 0

    def judging(self, data: bytes) -> Iterator[int]:
        """Check the next bytes in portions before `append` takes them; no other bytes may be appended in between.

        Work may pause at each yielded number: the records, or equivalent work, since the number before.
        """
        position = self.size_bytes - len(self._rest)
        piece = self._rest + data
        seen = self._seen
        whole = 0
        wrong: MetadataLogError | None = None
        try:
            for batch in scan(piece, where=self._path, at=position):
                yield overhead(batch)
                seen = self._check(batch, seen)
                if not batch.is_control:
                    for values in data_values_by_portions(batch, where=self._path):
                        self._check_values(tuple(values))
                        yield len(values)
                whole = batch.end_position - position
        except IncompleteBatch:
            pass
        except MetadataLogError as bad:
            wrong = bad
        rest = piece[whole:]
        if wrong is None and len(rest) > 2 * MAX_BATCH_BYTES:
            what = "a batch of a snapshot is larger than any"
            wrong = CorruptBatch(what, where=self._path, position=position + whole)
        self._judged = _Judged(data, self.size_bytes, seen, rest, wrong)

    def _check(self, batch: RecordBatch, seen: _Seen) -> _Seen:
        """Check a batch without the values of its data; returns the new state."""
        kinds: list[int] = []
        if batch.is_control:
            if batch.record_count > MAX_CONTROL_RECORDS:
                what = f"a batch of {batch.record_count} control records, which no snapshot holds"
                raise CorruptBatch(what, where=self._path, position=batch.position)
            quorum_records(batch, where=self._path)
            kinds = control_types(batch, self._path)
        if seen.is_empty and kinds[:1] != [ControlRecordType.SNAPSHOT_HEADER]:
            raise CorruptBatch("the snapshot does not begin with its header", where=self._path, position=0)
        has_ended = self._check_kinds(kinds, batch, seen)
        # No checksum covers these two.
        if batch.epoch != self.snapshot.epoch:
            what = f"a batch of epoch {batch.epoch} is in a snapshot of epoch {self.snapshot.epoch}"
            raise CorruptBatch(what, where=self._path, position=batch.position)
        if batch.base_offset != seen.next_offset:
            what = f"a batch begins at offset {batch.base_offset}, where {seen.next_offset} was due"
            raise CorruptBatch(what, where=self._path, position=batch.position)
        return _Seen(is_empty=False, next_offset=batch.next_offset, has_ended=has_ended)

    def _check_kinds(self, kinds: list[int], batch: RecordBatch, seen: _Seen) -> bool:
        """Header, kraft.version and voters belong to the first batch; the footer is a batch of its own, at the end.

        Returns whether this is the footer.
        """
        is_footer = kinds == [ControlRecordType.SNAPSHOT_FOOTER]
        allowed = not kinds if not seen.is_empty else all(kind in _AT_THE_BEGIN for kind in kinds[1:])
        if seen.has_ended or not (allowed or is_footer):
            what = f"a batch with the control records {kinds} is out of place in a snapshot"
            raise CorruptBatch(what, where=self._path, position=batch.position)
        return is_footer

    @property
    def path(self) -> str:
        """The path of the unpublished file."""
        return self._partial

    def check_end(self) -> None:
        """Raise `CorruptBatch` unless the received bytes end with a footer."""
        if self._rest or self._seen.is_empty:
            raise IncompleteBatch("the snapshot ends inside a batch", where=self._path, position=self.size_bytes)
        if not self._seen.has_ended:
            raise CorruptBatch("the snapshot ends without its footer", where=self._path, position=self.size_bytes)

    def publish(self) -> None:
        """Rename the file to its final name, durably."""
        self._file.fsync()
        self._close()
        self._disk.make_read_only(self._partial)
        self._disk.rename(self._partial, self._path)
        self._disk.fsync_dir(self._directory)

    def abandon(self) -> None:
        """Remove an unpublished file; does nothing after `publish`."""
        if self._is_open:
            self._close()
            self._disk.remove(self._partial)

    def _close(self) -> None:
        self._file.close()
        self._is_open = False
