"""Mutants of the rules for snapshots: their voters, their publication, their pieces and the start of the log (KIP-630,
KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kraft.quorum import snapshots, voter_history
from kraft.quorum.events import Received
from kraft.quorum.exchanges import Verdict
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import FetchSnapshot, FetchSnapshotReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import Download, FollowerState, LeaderState
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange
from kraft.replica.storage import snapshots as snapshot_files
from kraft.replica.storage.snapshots import SnapshotMaker, Source
from metadata_log.log.snapshot_receiver import SnapshotReceiver
from metadata_log.types import OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant, survivor
from transport.protocol.errors import Error

# Content


@mutant(Scope.DYNAMIC, budget=400)
def snapshot_with_the_newest_voters(code: Patches) -> None:
    """A snapshot contains the newest voter set, which may be uncommitted, and not the set at its offset."""
    begin = SnapshotMaker.begin

    def begin_with_newest(maker: SnapshotMaker, source: Source, history: VoterHistory, now_ms: int) -> None:
        newest = VoterHistory(
            history.static_voters,
            tuple((-1, voters) for _, voters in history.sets[-1:]),
            tuple((-1, version) for _, version in history.versions[-1:]),
        )
        begin(maker, source, newest, now_ms)

    code.replace(SnapshotMaker, "begin", begin_with_newest)


@mutant(Scope.DYNAMIC, budget=200, faults=None)
def snapshot_before_the_log_is_flushed(code: Patches) -> None:
    """A node publishes a snapshot before its log is flushed up to the offset of the snapshot."""
    write_some = SnapshotMaker.write_some

    def write_at_once(maker: SnapshotMaker, now_ms: int, flushed_offset: int) -> OffsetAndEpoch | None:
        return write_some(maker, now_ms, 2**62)

    code.replace(SnapshotMaker, "write_some", write_at_once)


@survivor(
    Scope.DYNAMIC,
    tried_classic=29,
    tried=100,
    killed_by=("tests/metadata_log/log/test_snapshot.py::test_every_snapshot_of_kafka_arrives"),
    because="The reset of the log that follows at once flushes the same directory.",
)
def snapshot_without_directory_flush(code: Patches) -> None:
    """The name of a downloaded snapshot is not fsynced, and its log is deleted."""

    def publish(receiver: SnapshotReceiver) -> None:
        receiver._file.fsync()
        receiver._close()
        receiver._disk.make_read_only(receiver._partial)
        receiver._disk.rename(receiver._partial, receiver._path)

    code.replace(SnapshotReceiver, "publish", publish)


# Adoption


@mutant(Scope.DYNAMIC, budget=400)
def voters_outlive_a_snapshot(code: Patches) -> None:
    """A follower keeps the voter sets of its former log after a snapshot has replaced the log."""

    def begun_with(history: VoterHistory, changes: Iterable[QuorumChange]) -> VoterHistory:
        return history if history.sets else sound(history, changes)

    sound = VoterHistory.begun_with
    code.replace(VoterHistory, "begun_with", begun_with)


@mutant(Scope.DYNAMIC, budget=400)
def last_voters_before_the_start_are_pruned(code: Patches) -> None:
    """A raised log start removes the voter set in force there, which a truncation may need (as Kafka does)."""

    def since(entries: tuple[voter_history.At[object], ...], offset: int) -> tuple[voter_history.At[object], ...]:
        kept = tuple(entry for entry in entries if entry[0] >= offset)
        return kept or entries[-1:]

    code.replace(voter_history, "_since", since)


@survivor(
    Scope.DYNAMIC,
    tried_classic=28,
    tried=100,
    killed_by=(
        "tests/kraft/quorum/test_snapshot_transfer.py::"
        "test_a_snapshot_that_ends_before_the_committed_records_replaces_no_log"
    ),
    because="A sound leader offers a snapshot only to a follower that needs it.",
)
def snapshot_of_any_end_replaces_the_log(code: Patches) -> None:
    """A follower replaces its log by a snapshot that ends before its own committed records."""

    def cut_for(log: LogView, snapshot: OffsetAndEpoch) -> int | None:
        return log.end_offset

    code.replace(LogView, "cut_for", cut_for)


@mutant(Scope.DYNAMIC, budget=1000, faults=None)
def snapshot_of_former_epochs_is_not_needed(code: Patches) -> None:
    """A leader compares only offsets, and not epochs, to decide whether a follower needs a snapshot."""
    code.replace(LogView, "_needs_snapshot", lambda log, offset, last_epoch: offset < log.start_offset)


@mutant(Scope.DYNAMIC, budget=200)
def older_snapshots_outlive_an_installed_one(code: Patches) -> None:
    """A downloaded snapshot leaves older snapshots on the disk, from before the start of the log."""
    code.replace(snapshot_files, "mark_snapshots_deleted", lambda disk, directory, older: ())


# Pieces


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by=(
        "tests/kraft/quorum/test_snapshot_transfer.py::test_a_piece_other_than_the_requested_one_ends_the_download"
    ),
    because="A follower has one request in flight, and a sound leader echoes its position.",
)
def pieces_at_any_position(code: Patches) -> None:
    """A follower appends each piece of a snapshot to its download, whatever the position of the piece."""
    take_piece = snapshots._take_piece

    def take_any(
        quorum: QuorumState, follower: FollowerState, download: Download, reply: FetchSnapshotReply, now_ms: int
    ) -> Verdict:
        return take_piece(quorum, follower, download, replace(reply, position=download.position), now_ms)

    code.replace(snapshots, "_take_piece", take_any)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by=("tests/kraft/quorum/test_snapshot_transfer.py::test_a_leader_sends_only_snapshots_of_records"),
    because="No simulated follower requests that snapshot.",
)
def bootstrap_snapshot_is_sent(code: Patches) -> None:
    """A leader sends the snapshot of a formatted directory, which Kafka never sends."""
    refusal = snapshots._refusal

    def refusal_but_for_the_first(quorum: QuorumState, request: FetchSnapshot) -> Error:
        error = refusal(quorum, request)
        is_known = request.snapshot in quorum.log.snapshots
        return Error.NONE if error is Error.SNAPSHOT_NOT_FOUND and is_known else error

    code.replace(snapshots, "_refusal", refusal_but_for_the_first)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by="tests/kraft/replica/test_known_bugs.py::test_a_follower_that_only_downloads_a_snapshot_keeps_its_leader",
    because="The snapshots of the runs have few pieces, so that a download ends before the check-quorum timer.",
)
def pieces_do_not_count_for_check_quorum(code: Patches) -> None:
    """A FetchSnapshot does not count for check-quorum, so that a leader resigns while its voters download (KIP-595)."""
    on_fetch_snapshot = snapshots.on_fetch_snapshot

    def send_without_count(quorum: QuorumState, event: Received, request: FetchSnapshot, now_ms: int) -> None:
        leader = quorum.state
        before = getattr(leader, "fetched_voters", ()), getattr(leader, "check_quorum_deadline_ms", 0)
        on_fetch_snapshot(quorum, event, request, now_ms)
        if isinstance(leader, LeaderState):
            leader.fetched_voters, leader.check_quorum_deadline_ms = before

    code.replace(snapshots, "on_fetch_snapshot", send_without_count)
