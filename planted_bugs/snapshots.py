"""Mutants of snapshots: their content, their adoption and the log start offset (KIP-630)."""

from __future__ import annotations

from msgspec.structs import replace

from kraft.committed import CommittedBatch
from kraft.quorum import snapshots
from kraft.quorum.events import SnapshotChecked
from kraft.quorum.exchanges import Verdict
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import FetchSnapshotReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import Download, FollowerState
from kraft.replica.commits import Commits
from kraft.replica.storage.quorum_records import changes_of_snapshot
from kraft.replica.storage.snapshots import SnapshotFiles, SnapshotMaker
from metadata_log.errors import MetadataLogError
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.types import OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant

# Content


@mutant(Scope.DYNAMIC, budget=50)
def snapshot_holds_more_than_its_name_says(code: Patches) -> None:
    """The id of a snapshot is that of the batch before its last one."""
    note = SnapshotMaker.note

    def note_one_late(maker: SnapshotMaker, batch: CommittedBatch) -> None:
        before = maker._last
        note(maker, batch)
        maker._last = before or batch

    code.replace(SnapshotMaker, "note", note_one_late)


@mutant(Scope.DYNAMIC, budget=50)
def snapshot_without_footer(code: Patches) -> None:
    """A follower adopts a snapshot after its first part, complete or not."""
    take_piece = snapshots._take_piece

    def take_last_piece(
        quorum: QuorumState, follower: FollowerState, download: Download, reply: FetchSnapshotReply, now_ms: int
    ) -> Verdict:
        return take_piece(quorum, follower, download, replace(reply, size=reply.position + len(reply.data)), now_ms)

    def check(files: SnapshotFiles, _check_snapshot: object) -> SnapshotChecked:
        receiver = files._receiver
        assert receiver is not None, "nothing is arriving"
        try:
            changes = changes_of_snapshot(files._disk, receiver.path, receiver.snapshot)
        except MetadataLogError:
            changes = ()
        return SnapshotChecked(receiver.snapshot, None, changes)

    code.replace(snapshots, "_take_piece", take_last_piece)
    code.replace(SnapshotFiles, "check", check)


# The log


@mutant(Scope.DYNAMIC, budget=50)
def snapshot_not_loaded(code: Patches) -> None:
    """The log begins at the end of a snapshot that the application has not loaded."""
    code.replace(Commits, "load_snapshot", lambda commits, snapshot: commits.applier.begin_at(snapshot.offset))


@mutant(Scope.DYNAMIC, budget=300)
def former_epochs_outlive_a_snapshot(code: Patches) -> None:
    """A log that a snapshot replaces keeps its former epochs."""

    def reset_to(log: LogView, snapshot: OffsetAndEpoch) -> None:
        epochs = log.epochs
        sound(log, snapshot)
        log._set_epochs(epochs)

    sound = LogView.reset_to
    code.replace(LogView, "reset_to", reset_to)


@mutant(Scope.DYNAMIC, budget=100)
def records_instead_of_a_snapshot(code: Patches) -> None:
    """A leader also sends records to followers that need the snapshot before its log."""
    code.replace(LogView, "_needs_snapshot", lambda log, offset, last_epoch: False)


@mutant(Scope.DYNAMIC, budget=100)
def snapshot_published_without_fsync(code: Patches) -> None:
    """A snapshot gets its name before its content is on disk, and its log is deleted."""

    def publish(receiver: SnapshotReceiver) -> None:
        receiver._close()
        receiver._disk.rename(receiver._partial, receiver._path)
        receiver._disk.fsync_dir(receiver._directory)

    code.replace(SnapshotReceiver, "publish", publish)
