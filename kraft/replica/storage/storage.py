"""The directory of one replica: its recovery at the start, and the effects of the core on it (Kafka: `KafkaRaftLog`,
`FileQuorumStateStore`, the start of `KafkaRaftManager`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from random import Random
from typing import Final

from kraft.limits import BATCH_BYTES, START_RECORDS_PER_STEP
from kraft.quorum.core import CoreStart
from kraft.quorum.effects import AppendBatch, AppendControl, AppendFetched, FlushLog, TruncateLog
from kraft.quorum.events import LogFlushed
from kraft.quorum.values import ElectionState, ReplicaKey
from kraft.quorum.voter_history import STATIC, VoterHistory
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.replica.interface.events import StartFlush
from kraft.replica.interface.options import ReplicaOptions
from kraft.replica.storage.quorum_records import changes_in, changes_of_snapshot
from kraft.replica.storage.snapshots import SnapshotFiles
from metadata_log.disk import Disk
from metadata_log.errors import REMEDY, CorruptBatch, DirectoryError, MetadataLogError, UnsupportedVersion
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import HOSTS, META_PROPERTIES, LogDirectory, open_directory, read_bootstrap
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.quorum_state_file import StoredElection, read_quorum_state, write_quorum_state
from metadata_log.log.snapshot import snapshot_name, sweep_snapshots
from metadata_log.records.batch import RecordBatch, read_batch
from metadata_log.records.batch_builder import new_batch, new_control_batch
from metadata_log.records.frame import decode_record, encode_control
from metadata_log.records.record import records
from metadata_log.serde import Message
from metadata_log.types import NO_NODE, OffsetAndEpoch, Uuid

ANSWER_BYTES: Final = BATCH_BYTES
"""The most bytes of records in the answer to a Fetch, unless one batch is larger. The sender cannot raise it."""


_OPENED_BY: Final = {
    "a raw log": "Open it without a state machine: kraft.create(directory), kraft.join, kraft.open_node(config).",
    "a store": "Open it with kraft.create_store(directory), kraft.join_store or kraft.open_store(config).",
    "": "Open it with the same state machine: kraft.create(directory, state_machine=…).",
}
"""How to open a directory, by what its log is of."""
NEWER_RELEASE: Final = "If a newer release has written the record, run that release."


class Flush:
    """The fsync that is under way, and the newest request for one that it does not cover."""

    __slots__ = ("running", "ticket", "wanted")

    def __init__(self) -> None:
        self.ticket = 0
        self.running: FlushLog | None = None
        self.wanted: FlushLog | None = None


class Storage:
    """The log, the quorum-state file and the snapshots of one replica. Open it with `open`."""

    def __init__(self, disk: Disk, directory: LogDirectory, log: MetadataLog) -> None:
        self._disk = disk
        self._directory = directory
        self._flush = Flush()
        self.log = log
        self.snapshots = SnapshotFiles(disk, log)
        self.removed: tuple[str, ...] = ()
        """The names of unfinished or outdated snapshots that were removed at the start."""

    # At the start

    @classmethod
    def opening(cls, disk: Disk, options: ReplicaOptions, rng: Random, now_ms: int) -> Generator[None, None, Storage]:
        """Take the directory's lock and recover the log, in steps of some milliseconds.

        Raises `MetadataLogError` for an invalid file, `OSError` where the disk fails.
        """
        directory = open_directory(
            disk,
            options.directory,
            node_id=options.node_id,
            rng=rng,
            now_ms=now_ms,
            cluster_id=options.cluster_id,
        )
        try:
            path = directory.partition_path
            log = yield from MetadataLog.opening(
                disk, path, segment_bytes=options.segment_bytes, segment_ms=options.segment_ms
            )
            storage = cls(disk, directory, log)
            if options.may_vote:
                storage._check_election()
            storage._reconcile_snapshots()
            # Last, so that a refused directory loses no file, and the newest snapshot is known.
            storage.removed = sweep_snapshots(disk, path, log.start_offset)
        except BaseException:
            directory.release()
            raise
        return storage

    def _check_election(self) -> None:
        """Refuse a directory that has lost a vote: an epoch is in quorum-state before a record of it is in the log.

        Kafka begins in the epoch of the log, and may vote a second time in it or in a later one.
        """
        path = self._directory.partition_path
        stored = read_quorum_state(self._disk, path)
        newest = self.log.last_epoch
        if newest is None:
            # An empty log may begin where a snapshot ends that this replica has installed.
            begins_at = (one.epoch for one in self.snapshots.ids() if one.offset == self.log.start_offset)
            newest = max(begins_at, default=0)
        if stored is None and self.log.end_offset > 0:
            what = f"{QUORUM_STATE} is missing beside a log that ends at offset {self.log.end_offset}"
        elif stored is not None and stored.leader_epoch < newest:
            what = f"{QUORUM_STATE} has epoch {stored.leader_epoch}, and the log has epoch {newest}"
        else:
            return
        raise DirectoryError(
            f"{what}: this node may have voted in an epoch that it does not know any more",
            where=f"{path}/{QUORUM_STATE}",
            hint=REMEDY,
        )

    def _reconcile_snapshots(self) -> None:
        """Reconcile log and snapshots. A log that begins later needs one; a snapshot ahead of the log replaces it."""
        log, path = self.log, self._directory.partition_path
        snapshots = self.snapshots.ids()
        if log.start_offset > 0 and not any(one.offset >= log.start_offset for one in snapshots):
            raise DirectoryError(
                f"the log begins at offset {log.start_offset} and no snapshot covers what came before",
                where=path,
                hint=f"Snapshots (.checkpoint) are missing. {REMEDY}",
            )
        if not snapshots:
            return
        latest = snapshots[-1]
        begins_there = log.start_offset == log.end_offset == latest.offset
        if latest > OffsetAndEpoch(epoch=log.last_epoch or 0, offset=log.end_offset) and not begins_there:
            log.reset_to(latest.offset)
        foreign = [one for one in snapshots if not self._is_of_this_log(one)]
        if foreign:
            raise DirectoryError(
                f"snapshot {snapshot_name(foreign[0])} is not one of this log, which ends at offset {log.end_offset}"
                f" of epoch {log.last_epoch or 0}",
                where=path,
                hint=f"Remove the snapshot if it was put here. {REMEDY}",
            )

    def _is_of_this_log(self, snapshot: OffsetAndEpoch) -> bool:
        """Whether the log has the last record of a snapshot in the same epoch; True before the log start."""
        log = self.log
        if snapshot.offset <= log.start_offset:
            return True
        return snapshot.offset <= log.end_offset and log.epochs.epoch_at(snapshot.offset - 1) == snapshot.epoch

    @property
    def cluster_id(self) -> str:
        """The cluster that the directory was formatted for."""
        return self._directory.meta.cluster_id

    def check_kind(self, kind: str) -> None:
        """Raise `DirectoryError` if the log is of something else, as far as the directory says what it is of."""
        hosts = self._directory.meta.hosts
        if hosts is not None and hosts != kind:
            raise DirectoryError(
                f"the directory has the log of {hosts}, and not of {kind}",
                where=f"{self._directory.path}/{META_PROPERTIES}",
                field=HOSTS,
                hint=f"{_OPENED_BY.get(hosts, _OPENED_BY[''])} Or give another directory.",
            )

    @property
    def local(self) -> ReplicaKey:
        """The node id and directory id of this replica."""
        return ReplicaKey(self._directory.meta.node_id, self._directory.directory_id)

    def bootstrap(self) -> tuple[Message, ...]:
        """The records that a new cluster begins with; none if the directory has none."""
        found = []
        for path, value in read_bootstrap(self._disk, self._directory.path):
            framed = decode_record(value, where=path)
            if framed.record is None:
                raise UnsupportedVersion(f"{framed.name} cannot be read", where=path, hint=NEWER_RELEASE)
            found.append(framed.record)
        return tuple(found)

    def start(self) -> CoreStart:
        """The start of the core. Raises `CorruptBatch` if the records of the log about voters contradict each other."""
        snapshots = self.snapshots.ids()
        changes = tuple(self._changes(snapshots))
        if VoterHistory(VoterSet(())).with_changes(changes).is_contradictory:
            where = self._directory.partition_path
            raise CorruptBatch("a voter set stands in the log, but its kraft.version is 0", where=where)
        stored = read_quorum_state(self._disk, self._directory.partition_path)
        return CoreStart(
            election=None if stored is None else election_of(stored),
            log_start_offset=self.log.start_offset,
            log_end_offset=self.log.end_offset,
            epochs=self.log.epochs,
            snapshots=snapshots,
            changes=changes,
        )

    def _changes(self, snapshots: tuple[OffsetAndEpoch, ...]) -> Iterator[QuorumChange]:
        """The quorum changes in the newest snapshot and in the log after it. Raises the errors of `quorum_records`."""
        since = 0
        if snapshots:
            since = snapshots[-1].offset
            yield from changes_of_snapshot(self._disk, self.snapshots.path(snapshots[-1]), snapshots[-1])
        for batch in self.log.control_batches:
            if since <= batch.base_offset < self.log.end_offset:
                yield from changes_in(batch, self._directory.partition_path)

    @contextmanager
    def naming_snapshot(self, snapshot: OffsetAndEpoch) -> Iterator[None]:
        """Turn a reading error within the block into a `CorruptBatch` that names the snapshot file and the remedy."""
        try:
            yield
        except MetadataLogError as bad:
            if bad.hint is not None:
                raise
            path = self.snapshots.path(snapshot)
            hint = f"{NEWER_RELEASE} {REMEDY}"
            raise CorruptBatch(f"the snapshot cannot be read: {bad}", where=path, hint=hint) from bad

    def checking_records(self, check: Callable[[Sequence[bytes]], object]) -> Generator[None, None, None]:
        """Raise `CorruptBatch`, with file, byte and remedy, unless `check` reads all values after the newest snapshot.

        Each step checks the records of one batch, and at most `START_RECORDS_PER_STEP` of them.

        An earlier release may have appended values that no application can apply (decision 0021). The node would then
        end after each start, as soon as it knows that the records are committed.
        """
        snapshots = self.snapshots.ids()
        since = snapshots[-1].offset if snapshots else self.log.start_offset
        for batch, path in self.log.stored_batches(since):
            if batch.is_control:
                continue
            source = records(batch, where=path)
            try:
                while values := [record.value or b"" for record in islice(source, START_RECORDS_PER_STEP)]:
                    check(values)
                    yield None
            except MetadataLogError as bad:
                raise CorruptBatch(
                    f"a record in the batch of offset {batch.base_offset} cannot be read: {bad.what}",
                    where=path,
                    position=batch.position,
                    hint=f"{NEWER_RELEASE} {REMEDY}",
                ) from bad

    # Effects

    def persist_election(self, state: ElectionState, kraft_version: int) -> None:
        """Write quorum-state; durable when this returns. A static quorum has data version 0, without directory ids."""
        is_dynamic = kraft_version > STATIC
        stored = StoredElection(
            leader_epoch=state.epoch,
            leader_id=state.leader_id,
            voted_id=NO_NODE if state.voted is None else state.voted.id,
            voted_directory_id=Uuid.ZERO if state.voted is None else state.voted.directory_id,
            current_voters=() if is_dynamic else state.voters,
            data_version=int(is_dynamic),
        )
        write_quorum_state(self._disk, self._directory.partition_path, stored)

    def append_batch(self, effect: AppendBatch) -> int:
        """Append a leader's own data records; returns the size of the batch."""
        batch = new_batch(effect.base_offset, effect.epoch, effect.timestamp_ms, effect.values)
        self.log.append(batch.data, [batch])
        return batch.size_bytes

    def append_control(self, effect: AppendControl) -> int:
        """Append a leader's own control records; returns the size of the batch."""
        encoded = [encode_control(record) for record in effect.records]
        values = [(kind, value) for kind, _, value in encoded]
        batch = new_control_batch(effect.base_offset, effect.epoch, effect.timestamp_ms, values)
        self.log.append(batch.data, [batch])
        return batch.size_bytes

    def append_fetched(self, effect: AppendFetched) -> None:
        """Append a leader's batches byte for byte. They were parsed and checked when they arrived (`fetched`)."""
        batches: list[RecordBatch] = []
        for facts in effect.batches:
            assert facts.parsed is not None, facts
            batches.append(facts.parsed)
        self.log.append(effect.data, batches)
        assert self.log.end_offset == effect.next_offset, (self.log.end_offset, effect.next_offset)

    def splits_batch(self, offset: int) -> bool:
        """Whether a truncation at this offset would split a batch of the log."""
        log = self.log
        if not log.start_offset <= offset < log.end_offset:
            return False
        return read_batch(log.read(offset, 1), verify=False).base_offset != offset

    def truncate(self, effect: TruncateLog) -> None:
        """Truncate the log at the beginning of a batch; durable when this returns."""
        end = self.log.truncate(effect.offset)
        assert end == effect.offset, (end, effect.offset)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Read whole batches from `offset`: at least one."""
        return self.log.read(offset, min(max_bytes, ANSWER_BYTES))

    # Flushing

    def flush_now(self, effect: FlushLog) -> LogFlushed:
        """Flush the log within this call."""
        self.log.flush()
        return LogFlushed(effect.offset, effect.epoch)

    def request_flush(self, effect: FlushLog) -> StartFlush | None:
        """The flush to run; None while another one is under way, which this one then follows."""
        flush = self._flush
        if flush.running is not None:
            flush.wanted = effect
            return None
        flush.running = effect
        flush.ticket += 1
        return StartFlush(flush.ticket, self.log.flush_handle())

    def flush_done(self, ticket: int) -> tuple[LogFlushed, StartFlush | None]:
        """Finish a flush; returns the event for the core, and the next flush if one was requested meanwhile."""
        flush = self._flush
        done, wanted = flush.running, flush.wanted
        assert ticket == flush.ticket, (ticket, flush.ticket)
        assert done is not None, ticket
        self.log.flush_done()
        flush.running = flush.wanted = None
        following = None if wanted is None else self.request_flush(wanted)
        return LogFlushed(done.offset, done.epoch), following

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way."""
        return self._flush.running is not None

    @property
    def outstanding_flush(self) -> StartFlush | None:
        """The flush that is under way."""
        handle = self.log.flushing
        return None if handle is None else StartFlush(self._flush.ticket, handle)

    # The end

    def close(self) -> None:
        """Bring the log to the disk and let go of the directory."""
        try:
            self.log.close()
        finally:
            self._directory.release()

    def abandon(self) -> None:
        """Let go of the directory as a killed process does: nothing more is written."""
        self._directory.release()


def election_of(stored: StoredElection) -> ElectionState:
    """The election state in quorum-state, in either data version; version 0 does not name the directory voted for."""
    voted = None if stored.voted_id == NO_NODE else ReplicaKey(stored.voted_id, stored.voted_directory_id)
    return ElectionState(
        epoch=stored.leader_epoch, leader_id=stored.leader_id, voted=voted, voters=stored.current_voters
    )
