"""Replication by fetching, and the commits that follow from it (Kafka: `KafkaRaftClient`, Fetch; KIP-595, KIP-1166).

A Fetch acknowledges all records before its offset, so a replica fetches only from its flushed end on.
Likewise the leader counts its own log only as far as it is flushed, which is stricter than Kafka.
"""

from __future__ import annotations

from itertools import pairwise, takewhile

from msgspec.structs import replace

from kraft.quorum.appending import write_gathered
from kraft.quorum.effects import (
    AppendFetched,
    FlushLog,
    SendRecords,
    SendReply,
    TruncateLog,
)
from kraft.quorum.events import AnswerHeld, LogFlushed, Received
from kraft.quorum.exchanges import Verdict, epoch_error, known_leader, on_common_reply, send, settle
from kraft.quorum.leadership import on_commit
from kraft.quorum.log_view import Position
from kraft.quorum.messages import (
    AddVoter,
    BatchFacts,
    DescribeQuorum,
    DescribeQuorumReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    RemoveVoter,
    ReplicaProgress,
    UpdateVoter,
)
from kraft.quorum.purgatory import ParkedFetch
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.snapshots import begin_download, download_request, give_up_download
from kraft.quorum.states import FollowerState, LeaderState, Progress
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voter_history import STATIC
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.errors import Error

# The leader's side: appending


def drain(quorum: QuorumState, now_ms: int) -> None:
    """Write the batches of the accumulator when they are due, with one flush, and answer the parked fetches."""
    leader = quorum.state
    if type(leader) is not LeaderState:
        return
    drain_at_ms = leader.accumulator.drain_at_ms
    if drain_at_ms is None or now_ms < drain_at_ms:
        return
    write_gathered(quorum, leader)
    quorum.emit(FlushLog(quorum.log.end_offset, leader.epoch))
    answer_parked(quorum, now_ms)


def on_log_flushed(quorum: QuorumState, event: LogFlushed, now_ms: int) -> None:
    """Handle a flush: a leader counts its own log, and a follower acknowledges the records by its next Fetch."""
    if quorum.log.flushed(event.offset, event.epoch):
        state = quorum.state
        if type(state) is LeaderState:
            count_own_log(quorum, state, now_ms)


def count_own_log(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
    """Count the flushed records of this leader."""
    if leader.is_voter:
        leader.progress[leader.local.id].end_offset = quorum.log.flushed_offset
        advance_high_watermark(quorum, leader, now_ms)


def advance_high_watermark(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
    """Commit the records that a majority has, and answer the requests that wait for the commit."""
    offset = leader.committable()
    if offset is None:
        return
    assert offset > quorum.log.high_watermark, (offset, quorum.log.high_watermark)
    leader.high_watermark = offset
    quorum.move_high_watermark(offset)
    if leader.change is not None or not leader.is_voter:
        on_commit(quorum, leader, now_ms)
    if not quorum.purgatory.parked:
        return
    if quorum.config.high_watermark_propagation_delay_ms:
        quorum.purgatory.cap_deadlines(
            _empty_reply(quorum, leader), now_ms + quorum.config.high_watermark_propagation_delay_ms
        )
    else:
        answer_parked(quorum, now_ms)


# The leader's side: fetches


def on_fetch(quorum: QuorumState, event: Received, request: Fetch, now_ms: int) -> None:
    """Answer a Fetch, or park it until there are records or a new high watermark."""
    reply = _judge(quorum, request, now_ms)
    if reply is not None:
        quorum.emit(SendReply(event.request_id, reply))
        return
    leader = quorum.state
    assert isinstance(leader, LeaderState), leader
    reply = _empty_reply(quorum, leader)
    if request.offset < quorum.log.end_offset:
        most = leader.answer_bytes(request.replica, request.max_bytes)
        quorum.emit(SendRecords(event.request_id, reply, request.offset, most))
    else:
        has_news = request.high_watermark < leader.high_watermark
        wait_ms = min(request.max_wait_ms, quorum.longest_wait_ms)
        if has_news:
            wait_ms = min(wait_ms, quorum.config.high_watermark_propagation_delay_ms)
        if wait_ms:
            quorum.purgatory.park(ParkedFetch(event.request_id, request, reply, now_ms + wait_ms))
        else:
            quorum.emit(SendReply(event.request_id, reply))


def _judge(quorum: QuorumState, request: Fetch, now_ms: int) -> FetchReply | None:
    """The reply to a Fetch that gets no records; None if the Fetch gets records, after its offset was counted."""
    error = _refusal(quorum, request)
    if error is not Error.NONE:
        return _reply(quorum, error=error)
    leader = quorum.state
    assert isinstance(leader, LeaderState), leader
    if quorum.log.holds(request.offset, request.last_epoch):
        _count_fetch(quorum, leader, request, now_ms)
        return None
    check = quorum.log.check(request.offset, request.last_epoch)
    match check.position:
        case Position.DIVERGING:
            return replace(_empty_reply(quorum, leader), diverging=check.at)
        case Position.SNAPSHOT:
            return replace(_empty_reply(quorum, leader), snapshot=check.at)
        case Position.VALID:
            _count_fetch(quorum, leader, request, now_ms)
            return None


def _refusal(quorum: QuorumState, request: Fetch) -> Error:
    """The error of a refused Fetch, in Kafka's order of checks. A higher epoch in a Fetch changes no state: a replica
    does not adopt epochs from fetches.
    """
    if request.max_wait_ms < 0 or request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
        return Error.INVALID_REQUEST
    state = quorum.state
    if request.epoch != state.epoch:
        return epoch_error(quorum, request.epoch)
    if type(state) is not LeaderState:
        return Error.NOT_LEADER_OR_FOLLOWER
    return Error.UNKNOWN_SERVER_ERROR if request.replica.id == quorum.local.id else Error.NONE


def _count_fetch(quorum: QuorumState, leader: LeaderState, request: Fetch, now_ms: int) -> None:
    """Record the sender's flushed offset from a valid Fetch; a replica without an id only reads."""
    replica, offset = request.replica, request.offset
    if replica.id < 0:
        return
    voter = leader.voter_progress(replica)
    if voter is None:
        observer = leader.observer_progress(replica, now_ms, quorum.config.fetch_timeout_ms)
        observer.fetched(offset, quorum.log.end_offset, now_ms)
        return
    if offset < voter.end_offset:
        what = f"it had fetched up to {voter.end_offset} and asks for {offset} now"
        quorum.report_peer_fault(
            replica.id, f"{what}: its log has lost records, or the Fetch arrived after its deadline"
        )
    voter.fetched(offset, quorum.log.end_offset, now_ms)
    voter.directory_id = replica.directory_id
    if leader.note_contact(replica.id):
        # Another voter has fetched, so this leader is not the only one.
        leader.check_quorum_deadline_ms = now_ms + quorum.check_quorum_ms
    # Everything else that a majority has was already committed.
    if offset > leader.high_watermark:
        advance_high_watermark(quorum, leader, now_ms)


def _reply(quorum: QuorumState, *, error: Error) -> FetchReply:
    leader_id, endpoints = known_leader(quorum)
    return FetchReply(
        epoch=quorum.epoch,
        leader_id=leader_id,
        endpoints=endpoints,
        error=error,
        log_start_offset=quorum.log.start_offset,
    )


def _empty_reply(quorum: QuorumState, leader: LeaderState) -> FetchReply:
    return FetchReply(
        epoch=leader.epoch,
        leader_id=leader.local.id,
        endpoints=leader.endpoints,
        high_watermark=leader.high_watermark,
        log_start_offset=quorum.log.start_offset,
    )


def answer_parked(quorum: QuorumState, now_ms: int) -> None:
    """Answer every parked fetch, even without records to send."""
    leader = quorum.state
    assert isinstance(leader, LeaderState), leader
    reply = _empty_reply(quorum, leader)
    end_offset = quorum.log.end_offset
    for parked in quorum.purgatory.take_all():
        request = parked.request
        offset, replica, most = request.offset, request.replica, request.max_bytes
        if offset < end_offset:
            # The Fetch was valid when it was parked, and this leader's log has only grown since.
            voter = leader.voter_progress(replica)
            if voter is not None and voter.end_offset == offset <= leader.high_watermark:
                # It was counted on arrival, and commits nothing: only the time and the end of the log are other ones.
                voter.fetched(offset, end_offset, now_ms)
                voter.directory_id = replica.directory_id
                if leader.note_contact(replica.id):
                    leader.check_quorum_deadline_ms = now_ms + quorum.check_quorum_ms
            else:
                _count_fetch(quorum, leader, request, now_ms)
                most = leader.answer_bytes(replica, most)
                if reply.high_watermark != leader.high_watermark:
                    reply = _empty_reply(quorum, leader)
            quorum.emit(SendRecords(parked.request_id, reply, offset, most))
        else:
            request = replace(request, max_wait_ms=0)
            on_fetch(quorum, Received(parked.request_id, request), request, now_ms)


def fail_parked(quorum: QuorumState) -> None:
    """Fail the parked fetches, as this replica has lost its leadership."""
    for parked in quorum.purgatory.take_all():
        quorum.emit(SendReply(parked.request_id, _reply(quorum, error=Error.NOT_LEADER_OR_FOLLOWER)))


def expire_parked(quorum: QuorumState, now_ms: int) -> None:
    """Answer the fetches that have reached their maximum wait time with the reply they would have had on arrival."""
    for parked in quorum.purgatory.take_expired(now_ms):
        quorum.emit(SendReply(parked.request_id, parked.timeout_reply))


def on_describe_quorum(quorum: QuorumState, event: Received, request: DescribeQuorum, now_ms: int) -> None:
    """Report the progress of every replica to an operator; only the leader knows the progress."""
    leader = quorum.state
    if not isinstance(leader, LeaderState):
        leader_id, _ = known_leader(quorum)
        refusal = DescribeQuorumReply(epoch=quorum.epoch, leader_id=leader_id, error=Error.NOT_LEADER_OR_FOLLOWER)
        quorum.emit(SendReply(event.request_id, refusal))
        return
    leader.forget_observers(now_ms - quorum.config.observer_timeout_ms)
    own = ReplicaProgress(
        key=leader.progress[leader.local.id].key if leader.is_voter else leader.local,
        log_end_offset=quorum.log.end_offset,
        last_fetch_ms=now_ms,
        last_caught_up_ms=now_ms,
    )
    reply = DescribeQuorumReply(
        epoch=leader.epoch,
        leader_id=leader.local.id,
        high_watermark=leader.high_watermark,
        voters=tuple(
            own if voter_id == leader.local.id else _progress(one) for voter_id, one in sorted(leader.progress.items())
        ),
        observers=(
            *(() if leader.is_voter else (own,)),
            *(_progress(one) for _, one in sorted(leader.observers.items())),
        ),
        nodes=tuple((voter.id, voter.endpoints) for voter in leader.voters.voters),
    )
    quorum.emit(SendReply(event.request_id, reply))


def _progress(one: Progress) -> ReplicaProgress:
    return ReplicaProgress(
        key=one.key,
        log_end_offset=one.end_offset,
        last_fetch_ms=one.last_fetch_ms,
        last_caught_up_ms=one.last_caught_up_ms,
    )


# The follower's side


def poll_follower(quorum: QuorumState, follower: FollowerState, now_ms: int) -> None:
    """Send the next Fetch once all fetched records are on disk; ask other voters while the leader does not answer."""
    download = follower.download
    is_busy = not quorum.log.is_flushed or (download is not None and download.is_whole)
    if is_busy or (quorum.is_shutting_down and quorum.is_voter):
        return
    leader_id, peers = follower.leader_id, quorum.peers
    if peers.is_idle:
        send(quorum, leader_id, _next_request(quorum, follower, now_ms), now_ms)
        return
    is_leader_silent = peers.has_timed_out(leader_id, now_ms) or peers.is_backing_off(leader_id, now_ms)
    # The leader may answer at its own address and at a bootstrap server's. Only one of the replies has the due offset.
    peers.forget_late(now_ms)
    if is_leader_silent:
        fetch_from_bootstrap(quorum, now_ms)
    elif not peers.is_any_awaiting(now_ms):
        send(quorum, leader_id, _next_request(quorum, follower, now_ms), now_ms)


def _next_request(
    quorum: QuorumState, follower: FollowerState, now_ms: int
) -> Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter:
    if now_ms >= follower.report_at_ms:
        follower.report_at_ms = now_ms + quorum.config.fetch_timeout_ms
        report = own_report(quorum, follower)
        if report is not None:
            return report
    download = follower.download
    return _fetch(quorum) if download is None else download_request(quorum, download)


def own_report(quorum: QuorumState, follower: FollowerState) -> AddVoter | RemoveVoter | UpdateVoter | None:
    """The voter request that a follower sends to the leader from time to time (KIP-1186 for automatic joining)."""
    own, is_dynamic = quorum.own_voter, quorum.history.kraft_version != STATIC
    if own.key.directory_id == Uuid.ZERO:
        return None
    entry = quorum.voters.find(own.id)
    if quorum.is_voter:
        is_known = entry == own if is_dynamic else follower.has_reported
        return None if is_known else UpdateVoter(epoch=quorum.epoch, voter=own)
    if not (is_dynamic and quorum.config.auto_join):
        return None
    return AddVoter(own, ack_when_committed=False) if entry is None else _remove_former_self(quorum, entry.key)


def _remove_former_self(quorum: QuorumState, key: ReplicaKey) -> RemoveVoter | None:
    """The request to remove the replica that this node was before its disk was replaced; None if that one is alive."""
    joining = quorum.joining
    joining.take_committed(quorum.history, quorum.log.high_watermark)
    if joining.rival is None:
        joining.removes(key)
        return RemoveVoter(key)
    own, other = quorum.local.directory_id, joining.rival.directory_id
    quorum.report_peer_fault(
        key.id, f"two replicas have node id {key.id}: {other} votes, and {own}, which is this one, joins no more"
    )
    return None


def fetch_from_bootstrap(quorum: QuorumState, now_ms: int) -> None:
    """Send a Fetch to any voter; the reply names the leader."""
    if not quorum.log.is_flushed:
        return
    contact_ids, leader_id = quorum.contact_ids, quorum.leader_id
    if leader_id in contact_ids:
        contact_ids = tuple([peer_id for peer_id in contact_ids if peer_id != leader_id]) or contact_ids
    peer_id = quorum.peers.choose_ready(contact_ids, now_ms, quorum.rng)
    if peer_id is not None:
        send(quorum, peer_id, _fetch(quorum), now_ms)


def _fetch(quorum: QuorumState) -> Fetch:
    return Fetch(
        epoch=quorum.epoch,
        replica=quorum.local,
        offset=quorum.log.end_offset,
        last_epoch=quorum.log.last_epoch,
        max_wait_ms=quorum.config.fetch_max_wait_ms,
        max_bytes=quorum.config.fetch_max_bytes,
        high_watermark=quorum.log.high_watermark,
    )


def on_fetch_reply(quorum: QuorumState, peer_id: int, reply: FetchReply, now_ms: int) -> None:
    """Handle the leader's reply: records, a divergence, or the id of a snapshot."""
    verdict = on_common_reply(quorum, peer_id, reply, now_ms)
    follower = quorum.state
    if verdict is Verdict.CONTINUE:
        # The leader may have been reached at a bootstrap server's address, and only there (KAFKA-20514).
        if not isinstance(follower, FollowerState) or follower.leader_id not in (peer_id, reply.leader_id):
            verdict = Verdict.BACK_OFF
        elif reply.error != Error.NONE:
            quorum.report_peer_fault(peer_id, f"it answers our fetch with {reply.error.name}")
            verdict = Verdict.BACK_OFF
        else:
            verdict = _take(quorum, follower, peer_id, reply, now_ms)
    settle(quorum, peer_id, verdict, now_ms)


def on_answer_held(quorum: QuorumState, event: AnswerHeld, now_ms: int) -> None:
    """The time that a follower spends on a reply does not count as silence of the sender."""
    if quorum.peers.is_expected(event.peer_id, event.request_id):
        quorum.peers.hold(event.peer_id, now_ms + event.grace_ms)
        quorum.state.wait_at_least_until(now_ms + event.grace_ms)


def _take(quorum: QuorumState, follower: FollowerState, peer_id: int, reply: FetchReply, now_ms: int) -> Verdict:
    if follower.download is not None and reply.snapshot is None:
        # The reply came from a bootstrap server, while the leader's own address did not answer.
        give_up_download(quorum, follower)
    if reply.diverging is not None:
        if reply.splits_batch:
            # Epochs end where batches do, and the batches of one epoch are the same in every log.
            quorum.report_peer_fault(peer_id, f"it wants our log cut inside a batch: its log ends at {reply.diverging}")
            return Verdict.BACK_OFF
        verdict = _truncate(quorum, peer_id, reply.diverging, now_ms)
    elif reply.snapshot is not None:
        verdict = begin_download(quorum, follower, peer_id, reply.snapshot)
    else:
        verdict = _append_fetched(quorum, peer_id, reply, now_ms)
        if verdict is Verdict.CONTINUE and reply.damage is not None and not reply.is_later:
            verdict = Verdict.BACK_OFF
        if verdict is Verdict.CONTINUE:
            # What a later release wrote follows the record of its level. When that record is committed, the application
            # says which release it is, and ends.
            _follow_high_watermark(quorum, reply.high_watermark)
    if verdict is Verdict.CONTINUE:
        follower.heard_leader(peer_id, now_ms + quorum.config.fetch_timeout_ms)
    # The batches before the damage are appended. The rest is fetched after a backoff, as it may be damaged again.
    return verdict if reply.damage is None else Verdict.BACK_OFF


def _truncate(quorum: QuorumState, peer_id: int, diverging: OffsetAndEpoch, now_ms: int) -> Verdict:
    """Truncate records that the leader lacks. A truncation of committed records is refused as a peer fault."""
    log = quorum.log
    offset = log.truncation_point(diverging)
    if offset < log.never_below or offset >= log.end_offset:
        quorum.report_peer_fault(
            peer_id,
            f"it wants our log cut at {offset}, but {log.never_below} is committed and {log.end_offset} the end",
        )
        return Verdict.BACK_OFF
    log.truncated(offset)
    quorum.emit(TruncateLog(offset))
    quorum.change_voters(quorum.history.truncated(offset), now_ms)
    return Verdict.CONTINUE


def _append_fetched(quorum: QuorumState, peer_id: int, reply: FetchReply, now_ms: int) -> Verdict:
    """Append the batches up to this epoch; the replica fetches later ones again once it is in their epoch."""
    if reply.damage is not None:
        quorum.report_peer_fault(peer_id, reply.damage)
    epoch = quorum.state.epoch
    batches = reply.batches
    if batches and batches[-1].epoch > epoch:
        batches = tuple(takewhile(lambda batch: batch.epoch <= epoch, batches))
    if not batches:
        return Verdict.CONTINUE
    expected, epoch = quorum.log.end_offset, quorum.log.last_epoch
    for batch in batches:
        if batch.base_offset != expected or batch.next_offset <= expected or batch.epoch < epoch:
            sent = f"offsets {batch.base_offset} to {batch.next_offset - 1} of epoch {batch.epoch}"
            quorum.report_peer_fault(
                peer_id, f"it sent {sent}, where offset {expected} of epoch {epoch} or later was due"
            )
            return Verdict.BACK_OFF
        if batch.changes and not _are_in_order(batch):
            quorum.report_peer_fault(
                peer_id, f"it sent control records out of order, at offset {expected} of epoch {epoch}"
            )
            return Verdict.BACK_OFF
        expected, epoch = batch.next_offset, batch.epoch
    history = quorum.history
    for batch in batches:
        if batch.changes:
            history = history.with_changes(batch.changes)
    if history is not quorum.history and history.is_contradictory:
        quorum.report_peer_fault(peer_id, f"it sent a voter set, but kraft.version is {history.kraft_version}")
        return Verdict.BACK_OFF
    _emit_append(quorum, batches, reply.data)
    if history is not quorum.history:
        quorum.change_voters(history, now_ms)
    return Verdict.CONTINUE


def _are_in_order(batch: BatchFacts) -> bool:
    """Whether each control record has an offset of its own within the batch, and in the order of the batch."""
    offsets = [batch.base_offset - 1, *(change.offset for change in batch.changes), batch.next_offset]
    return all(before < after for before, after in pairwise(offsets))


def _emit_append(quorum: QuorumState, batches: tuple[BatchFacts, ...], data: bytes) -> None:
    last = batches[-1]
    taken = data if last.end_position == len(data) else data[: last.end_position]
    quorum.emit(AppendFetched(batches[0].base_offset, last.next_offset, last.epoch, taken, batches))
    start = quorum.log.end_offset
    for batch in batches:
        quorum.log.appended(batch.next_offset, batch.epoch)
    assert quorum.log.end_offset > start, start
    quorum.emit(FlushLog(quorum.log.end_offset, last.epoch))


def _follow_high_watermark(quorum: QuorumState, high_watermark: int) -> None:
    """A follower's high watermark is the leader's, as far as its log goes; an unknown one (-1) changes nothing."""
    if high_watermark >= 0:
        quorum.move_high_watermark(min(high_watermark, quorum.log.end_offset))
