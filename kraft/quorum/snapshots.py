"""Transfer of snapshots in pieces, from the leader to replicas that need removed records (Kafka: `KafkaRaftClient`,
FetchSnapshot; KIP-630).

An error in a download ends the download; in Kafka it ends the process. The reply to the next Fetch names a snapshot
again.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kraft.quorum.effects import (
    AbandonDownload,
    AppendDownload,
    BeginDownload,
    CheckDownload,
    InstallSnapshot,
    SendReply,
    SendSnapshot,
    TruncateLog,
)
from kraft.quorum.events import LogStartRaised, Received, SnapshotChecked, SnapshotTaken
from kraft.quorum.exchanges import Verdict, epoch_error, known_leader, on_common_reply, settle
from kraft.quorum.messages import FetchSnapshot, FetchSnapshotReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import Download, FollowerState, LeaderState
from metadata_log.types import OffsetAndEpoch
from transport.protocol.errors import Error

MAX_OFFSET: Final = 2**62
"""The limit of snapshot offsets, which no real log reaches. A log that begins at 2**63 - 1 could not grow any more."""

# The leader's side


def on_fetch_snapshot(quorum: QuorumState, event: Received, request: FetchSnapshot, now_ms: int) -> None:
    """Send a piece of a snapshot. The request counts for check-quorum, but acknowledges no records."""
    leader_id, endpoints = known_leader(quorum)
    reply = FetchSnapshotReply(
        epoch=quorum.epoch,
        leader_id=leader_id,
        endpoints=endpoints,
        error=_refusal(quorum, request),
        snapshot=request.snapshot,
        position=request.position,
    )
    leader = quorum.state
    if reply.error != Error.NONE or not isinstance(leader, LeaderState):
        quorum.emit(SendReply(event.request_id, reply))
        return
    if leader.voter_progress(request.replica) is not None and leader.note_contact(request.replica.id):
        leader.check_quorum_deadline_ms = quorum.check_quorum_deadline_ms(now_ms)
    most = leader.answer_bytes(request.replica, request.max_bytes)
    quorum.emit(SendSnapshot(event.request_id, reply, request.snapshot, request.position, most))


def _refusal(quorum: QuorumState, request: FetchSnapshot) -> Error:
    """The error of a refused FetchSnapshot, in Kafka's order of checks. The bootstrap snapshot is never sent."""
    error = epoch_error(quorum, request.epoch)
    if error is not Error.NONE:
        return error
    if not isinstance(quorum.state, LeaderState):
        return Error.NOT_LEADER_OR_FOLLOWER
    if request.snapshot.offset <= 0 or request.snapshot not in quorum.log.snapshots:
        return Error.SNAPSHOT_NOT_FOUND
    if request.position < 0:
        return Error.POSITION_OUT_OF_RANGE
    return Error.NONE


# The follower's side


def begin_download(quorum: QuorumState, follower: FollowerState, peer_id: int, snapshot: OffsetAndEpoch) -> Verdict:
    """Begin to download the leader's snapshot, as the leader has removed records that this log lacks."""
    log = quorum.log
    if follower.download is not None and follower.download.snapshot == snapshot:
        return Verdict.CONTINUE
    if not 0 <= snapshot.epoch <= quorum.epoch or snapshot.offset > MAX_OFFSET or log.cut_for(snapshot) is None:
        held = f"our log ends at {log.end}, and what is below {log.never_below} is committed"
        quorum.report_peer_fault(peer_id, f"it sends us to snapshot {snapshot}, but {held}")
        return Verdict.BACK_OFF
    follower.download = Download(snapshot)
    quorum.emit(BeginDownload(snapshot))
    return Verdict.CONTINUE


def download_request(quorum: QuorumState, download: Download) -> FetchSnapshot:
    """The request for the next piece."""
    return FetchSnapshot(
        epoch=quorum.epoch,
        replica=quorum.local,
        snapshot=download.snapshot,
        position=download.position,
        max_bytes=quorum.config.fetch_snapshot_max_bytes,
    )


def on_fetch_snapshot_reply(quorum: QuorumState, peer_id: int, reply: FetchSnapshotReply, now_ms: int) -> None:
    """Handle the reply with the next piece of the snapshot."""
    verdict = on_common_reply(quorum, peer_id, reply, now_ms)
    if verdict is Verdict.CONTINUE:
        match quorum.state:
            case FollowerState(download=Download() as download) as follower if peer_id == follower.leader_id:
                verdict = _take_piece(quorum, follower, download, reply, now_ms)
            case _:
                verdict = Verdict.BACK_OFF
    settle(quorum, peer_id, verdict, now_ms)


def _take_piece(
    quorum: QuorumState, follower: FollowerState, download: Download, reply: FetchSnapshotReply, now_ms: int
) -> Verdict:
    leader_id = follower.leader_id
    if reply.error == Error.SNAPSHOT_NOT_FOUND:
        give_up_download(quorum, follower)
        follower.heard_leader(leader_id, now_ms + quorum.config.fetch_timeout_ms)
        return Verdict.HANDLED
    if reply.error != Error.NONE:
        quorum.report_peer_fault(leader_id, f"it answers our request for {download.snapshot} with {reply.error.name}")
        give_up_download(quorum, follower)
        return Verdict.BACK_OFF
    end = download.position + len(reply.data)
    if (reply.snapshot, reply.position) != (download.snapshot, download.position) or not (
        download.position < end <= reply.size
    ):
        sent = f"{len(reply.data)} bytes from {reply.position} of {reply.snapshot}, which has {reply.size}"
        quorum.report_peer_fault(
            leader_id, f"it sent {sent}; those from {download.position} of {download.snapshot} were due"
        )
        give_up_download(quorum, follower)
        return Verdict.BACK_OFF
    follower.download = replace(download, position=end, is_whole=end == reply.size)
    follower.heard_leader(leader_id, now_ms + quorum.config.fetch_timeout_ms)
    quorum.emit(AppendDownload(download.snapshot, reply.data))
    if end == reply.size:
        quorum.emit(CheckDownload(download.snapshot))
    return Verdict.CONTINUE


def on_snapshot_checked(quorum: QuorumState, event: SnapshotChecked, now_ms: int) -> None:
    """Replace the log by a valid snapshot. An invalid snapshot replaces nothing."""
    match quorum.state:
        case FollowerState(download=Download(snapshot=snapshot) as download) as follower if snapshot == event.snapshot:
            pass
        case _:
            return
    if event.problem is not None:
        quorum.report_peer_fault(follower.leader_id, f"its snapshot {snapshot} is damaged: {event.problem}")
        give_up_download(quorum, follower)
        quorum.peers.back_off(follower.leader_id, now_ms)
        return
    assert download.is_whole, download
    log = quorum.log
    cut = log.cut_for(snapshot)
    if cut is None:
        quorum.report_peer_fault(
            follower.leader_id, f"its snapshot {snapshot} contradicts our log, which ends at {log.end}"
        )
        give_up_download(quorum, follower)
        quorum.peers.back_off(follower.leader_id, now_ms)
        return
    follower.download = None
    if cut < log.end_offset:
        log.truncated(cut)
        quorum.emit(TruncateLog(cut))
    quorum.emit(InstallSnapshot(snapshot))
    log.reset_to(snapshot)
    quorum.change_voters(quorum.history.begun_with(event.changes), now_ms)
    quorum.move_high_watermark(snapshot.offset)


def give_up_download(quorum: QuorumState, follower: FollowerState) -> None:
    """Discard an incomplete download. The reply to the next Fetch names a snapshot again."""
    follower.download = None
    quorum.emit(AbandonDownload())


# Snapshots made by this node


def on_snapshot_taken(quorum: QuorumState, event: SnapshotTaken) -> None:
    """Add a new snapshot, for followers that are too far behind."""
    quorum.log.snapshot_taken(event.snapshot)


def on_log_start_raised(quorum: QuorumState, event: LogStartRaised) -> None:
    """Raise the log start, after the host has removed the records and snapshots before a snapshot."""
    quorum.log.raise_start(event.offset)
    quorum.history = quorum.history.pruned(event.offset)
