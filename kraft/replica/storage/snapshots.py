"""The snapshots of one replica: served, downloaded, made and cleaned away beside the log (Kafka: `KafkaRaftLog`,
`SnapshotGenerator`; KIP-630).

The work is done in small pieces between other events, so that neither an election nor a commit waits for a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.committed import CommittedBatch
from kraft.limits import BATCH_BYTES, SNAPSHOT_BATCH_BYTES, SNAPSHOT_RECORDS_PER_PIECE
from kraft.quorum.events import SnapshotChecked
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange
from kraft.replica.interface.options import SnapshotOptions
from kraft.replica.storage.quorum_records import changes_of_snapshot
from metadata_log.disk import Disk, File
from metadata_log.errors import MetadataLogError
from metadata_log.log.log import MetadataLog
from metadata_log.log.retention import REMOVE_AFTER_MS, Cleaned, Retention, clean, remove_files
from metadata_log.log.snapshot import list_snapshots, mark_snapshots_deleted, read_snapshot_values, snapshot_name
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.types import BOOTSTRAP_SNAPSHOT, NEVER_MS, NO_OFFSET, OffsetAndEpoch

FLUSH_WAIT_MS: Final = 10
"""How often a complete snapshot checks whether the log is flushed up to its offset."""
PIECE_BYTES: Final = BATCH_BYTES
"""The most bytes in the answer to a FetchSnapshot. The sender cannot raise it."""

Source = Callable[[], Iterator[bytes | None]]
"""Returns the record values of an image from the first one, each time it is called. At a None the work may pause."""


class SnapshotFiles:
    """The snapshots on disk, and the one that is being downloaded."""

    def __init__(self, disk: Disk, log: MetadataLog) -> None:
        self._disk = disk
        self._log = log
        self._receiver: SnapshotReceiver | None = None
        self._problem: str | None = None

    def path(self, snapshot: OffsetAndEpoch) -> str:
        """The file of a snapshot."""
        return f"{self._log.directory}/{snapshot_name(snapshot)}"

    def ids(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots on disk, oldest first."""
        return list_snapshots(self._disk, self._log.directory)

    @property
    def newest(self) -> OffsetAndEpoch:
        """The newest snapshot on disk; one of offset 0 holds nothing of the log."""
        return (BOOTSTRAP_SNAPSHOT, *self.ids())[-1]

    def values(self, snapshot: OffsetAndEpoch) -> Iterable[bytes]:
        """The record values of a snapshot. Each iteration reads the file, and may raise `CorruptBatch`."""
        return _Values(self._disk, self.path(snapshot))

    def open(self, snapshot: OffsetAndEpoch) -> File:
        """The file of a snapshot, to read."""
        return self._disk.open(self.path(snapshot), writable=False)

    def piece(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """The size of a snapshot's file, and at most `max_bytes` of its bytes from a position; none past its end."""
        file = self.open(snapshot)
        try:
            size = file.size()
            wanted = min(max_bytes, size - position, PIECE_BYTES)
            return size, file.pread(wanted, position) if wanted > 0 else b""
        finally:
            file.close()

    def begin(self, snapshot: OffsetAndEpoch, check: Callable[[tuple[bytes, ...]], object]) -> None:
        """Begin the download of a snapshot. `check` raises `MetadataLogError` for values that cannot be read."""
        self.abandon()
        self._receiver = SnapshotReceiver(self._disk, self._log.directory, snapshot, check)

    def judging(self, data: bytes) -> tuple[object, Iterator[int]]:
        """Judge the next bytes in portions before `append` takes them.

        Returns the basis of the judgement, and the steps of `SnapshotReceiver.judging`. There are no steps without a
        download, or after an error in it.
        """
        receiver = self._receiver
        if receiver is None or self._problem is not None:
            return None, iter(())
        return (receiver, receiver.size_bytes), receiver.judging(data)

    def append(self, data: bytes) -> str | None:
        """Append the next bytes of the download; returns the error in it, if there is one."""
        assert self._receiver is not None, "nothing is arriving"
        try:
            self._receiver.append(data)
        except MetadataLogError as bad:
            self._problem = str(bad)
        return self._problem

    def check(self, check_snapshot: Callable[[Iterable[bytes]], None]) -> SnapshotChecked:
        """Check the complete download; returns its error or its quorum changes. `check_snapshot` checks the values as a
        whole, and raises `MetadataLogError`.
        """
        receiver = self._receiver
        assert receiver is not None, "nothing is arriving"
        changes: tuple[QuorumChange, ...] = ()
        if self._problem is None:
            try:
                receiver.check_end()
                changes = changes_of_snapshot(self._disk, receiver.path, receiver.snapshot)
                check_snapshot(_Values(self._disk, receiver.path))
            except MetadataLogError as bad:
                self._problem = str(bad)
        return SnapshotChecked(receiver.snapshot, self._problem, changes)

    def abandon(self) -> None:
        """Remove the download."""
        if self._receiver is not None:
            self._receiver.abandon()
        self._receiver = self._problem = None

    def install(self, snapshot: OffsetAndEpoch) -> tuple[str, ...]:
        """Publish the download, and begin the log at its end. Returns the obsolete files, which are removed later.

        A crash in between leaves a snapshot ahead of the log, which the next start repairs.
        """
        receiver = self._receiver
        assert receiver is not None, snapshot
        assert receiver.snapshot == snapshot, (receiver.snapshot, snapshot)
        assert self._problem is None, self._problem
        older = [one for one in self.ids() if one < snapshot]
        receiver.publish()
        self._receiver = None
        self._log.reset_to(snapshot.offset)
        return mark_snapshots_deleted(self._disk, self._log.directory, older)

    def clean(self, retention: Retention, now_ms: int) -> Cleaned:
        """Raise the log start if there is more history than the retention keeps."""
        return clean(self._log, self._disk, retention, now_ms)

    def remove(self, files: tuple[str, ...]) -> None:
        """Remove obsolete files."""
        remove_files(self._disk, self._log.directory, files)


class _Values:
    """The record values of a snapshot's file, read during the iteration."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        return read_snapshot_values(self._disk, self._path)


class _Work(Struct):
    """A snapshot that is being written."""

    writer: SnapshotWriter
    source: Source
    values: Iterator[bytes | None]
    timestamp_ms: int
    taken: int = 0


class SnapshotMaker:
    """Decides when the next snapshot is due, and writes it."""

    def __init__(self, disk: Disk, directory: str, options: SnapshotOptions, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        self._bytes = 0
        self._since_ms = now_ms
        self._last: CommittedBatch | None = None
        self._work: _Work | None = None
        self.is_wanted = False
        """Whether the next snapshot is due whatever its size."""
        self.deadline_ms = NEVER_MS
        """When to go on writing."""

    def note(self, batch: CommittedBatch) -> None:
        """Note a committed batch that was applied, and is in no snapshot yet."""
        self._bytes += batch.size_bytes
        self._last = batch

    def is_due(self, now_ms: int) -> bool:
        """Whether enough bytes are in no snapshot, the last snapshot is old enough, or somebody wants one."""
        if self._work is not None or self._last is None:
            return False
        if self.is_wanted:
            return True
        interval_ms = self._options.max_interval_ms
        return self._bytes >= self._options.max_bytes or 0 < interval_ms <= now_ms - self._since_ms

    @property
    def next_end(self) -> int:
        """The end of what a snapshot that begins now would hold, and no snapshot does; -1 if there is nothing."""
        return NO_OFFSET if self._last is None else self._last.next_offset

    @property
    def writing_end(self) -> int:
        """The end of the snapshot that is being written; -1 if there is none."""
        return NO_OFFSET if self._work is None else self._work.writer.snapshot.offset

    def begin(self, source: Source, history: VoterHistory, now_ms: int) -> None:
        """Begin a snapshot that ends at the last noted batch, with the voters at that offset."""
        batch = self._last
        assert batch is not None, "there is nothing new"
        snapshot = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        self.begin_at(snapshot, batch.timestamp_ms, source, history, now_ms)

    def begin_at(
        self, snapshot: OffsetAndEpoch, last_timestamp_ms: int, source: Source, history: VoterHistory, now_ms: int
    ) -> None:
        """Begin a snapshot, with the time of its last record, and with the voters at its end."""
        voters = history.voters_at(snapshot.offset - 1)
        writer = SnapshotWriter(
            self._disk,
            self._directory,
            snapshot,
            timestamp_ms=now_ms,
            last_contained_log_timestamp=last_timestamp_ms,
            kraft_version=history.kraft_version_at(snapshot.offset - 1),
            voters=None if voters is None else voters.to_record(),
            max_batch_bytes=SNAPSHOT_BATCH_BYTES,
        )
        self._work = _Work(writer, source, source(), now_ms)
        self.deadline_ms = now_ms
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        """Begin to count anew: a snapshot contains all applied batches."""
        self._bytes, self._since_ms, self._last = 0, now_ms, None

    def write_some(self, now_ms: int, flushed_offset: int) -> OffsetAndEpoch | None:
        """Write the next piece; returns the snapshot once it is complete and published.

        A snapshot is published only after the log is flushed up to its offset. At a start the snapshot proves that the
        log was flushed (`metadata_log.log.torn_write`).
        """
        work = self._work
        assert work is not None, "nothing is being written"
        self.deadline_ms = now_ms + 1
        size = 0
        for count, value in enumerate(work.values, 1):
            work.taken += 1
            if value is not None:
                work.writer.append((value,), work.timestamp_ms)
                size += len(value)
            if count == SNAPSHOT_RECORDS_PER_PIECE or size >= SNAPSHOT_BATCH_BYTES:
                return None
        if flushed_offset < work.writer.snapshot.offset:
            self.deadline_ms = now_ms + FLUSH_WAIT_MS
            return None
        work.writer.freeze(work.timestamp_ms)
        self._work = None
        self.deadline_ms = NEVER_MS
        return work.writer.snapshot

    def abandon(self) -> None:
        """Stop writing, as a newer snapshot takes the place of the log."""
        if self._work is not None:
            self._work.writer.abandon()
        self._work = None
        self.deadline_ms = NEVER_MS


class SnapshotCleaner:
    """Decides when to clean snapshots, and when to remove the obsolete files."""

    def __init__(self, count: int, now_ms: int, every_ms: int) -> None:
        self._every_ms = every_ms
        self._marked: list[tuple[int, tuple[str, ...]]] = []
        self._round_ms = NEVER_MS
        self.deadline_ms = NEVER_MS
        """When there is something to do."""
        self.wait(count, now_ms)

    def wait(self, count: int, now_ms: int) -> None:
        """Plan the next round of cleaning, given the number of snapshots. The newest always stays, so one needs none.

        A planned round is not delayed: snapshots may be made more often than there are rounds.
        """
        if count <= 1:
            self._round_ms = NEVER_MS
        elif not now_ms < self._round_ms < NEVER_MS:
            self._round_ms = now_ms + self._every_ms
        self._plan()

    def _plan(self) -> None:
        """Set the deadline: the next round, or the next removal."""
        self.deadline_ms = min(self._round_ms, self._marked[0][0]) if self._marked else self._round_ms

    def is_round_due(self, now_ms: int) -> bool:
        """Whether a round of cleaning is due."""
        return now_ms >= self._round_ms

    def mark(self, files: tuple[str, ...], now_ms: int) -> None:
        """Schedule the removal of renamed files, after the last reader has finished."""
        if files:
            self._marked.append((now_ms + REMOVE_AFTER_MS, files))
            self._plan()

    def take_due(self, now_ms: int) -> Iterator[tuple[str, ...]]:
        """Take the files that are due for removal."""
        while self._marked and self._marked[0][0] <= now_ms:
            _, files = self._marked.pop(0)
            self._plan()
            yield files
