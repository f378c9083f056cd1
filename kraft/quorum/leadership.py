"""Leadership: its beginning, its announcement, its end (Kafka: `KafkaRaftClient`, Begin/EndQuorumEpoch)."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kraft.quorum.appending import append_control
from kraft.quorum.effects import SendReply
from kraft.quorum.events import Received, Resign
from kraft.quorum.exchanges import Verdict, is_addressed, known_leader, learn_leader, on_common_reply, send, settle
from kraft.quorum.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
)
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import FollowerState, LeaderState, ResignedState
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voter_history import STATIC
from kraft.quorum.voters import VoterSet
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error

STAY_MS: Final = 250
"""How long a leader that shuts down stays to vote for its successor, which campaigns at once: the other voters have
heard this leader a moment ago and may refuse the pre-vote. Kafka waits for five seconds, even without another voter.
"""


# The voter's side


def on_begin_quorum_epoch(quorum: QuorumState, event: Received, request: BeginQuorumEpoch, now_ms: int) -> None:
    """Handle a leader's announcement. The voter first adopts the epoch, then checks that it is the addressed voter."""
    error = _adopt_announced(quorum, request, now_ms, "begin-quorum-epoch")
    if error == Error.NONE and not is_addressed(quorum, request.voter):
        error = Error.INVALID_VOTER_KEY
    leader_id, endpoints = known_leader(quorum)
    reply = BeginQuorumEpochReply(epoch=quorum.epoch, leader_id=leader_id, endpoints=endpoints, error=error)
    quorum.emit(SendReply(event.request_id, reply))


def on_end_quorum_epoch(quorum: QuorumState, event: Received, request: EndQuorumEpoch, now_ms: int) -> None:
    """Handle the leader's resignation: wait according to the rank among the successors, then campaign."""
    error = _adopt_announced(quorum, request, now_ms, "end-quorum-epoch")
    match quorum.state:
        case FollowerState(leader_id=leader_id) as follower if error == Error.NONE and leader_id == request.leader_id:
            backoff_ms = ranked_backoff_ms(request.successors, quorum.local, quorum.config.election_backoff_max_ms)
            follower.leader_resigned(now_ms + backoff_ms)
    leader_id, endpoints = known_leader(quorum)
    reply = EndQuorumEpochReply(epoch=quorum.epoch, leader_id=leader_id, endpoints=endpoints, error=error)
    quorum.emit(SendReply(event.request_id, reply))


def _adopt_announced(quorum: QuorumState, request: BeginQuorumEpoch | EndQuorumEpoch, now_ms: int, cause: str) -> Error:
    if request.epoch < quorum.epoch:
        return Error.FENCED_LEADER_EPOCH
    if request.leader_id < 0:
        return Error.INVALID_REQUEST
    return learn_leader(quorum, request.leader_id, request.epoch, request.leader_id, request.endpoints, now_ms, cause)


def ranked_backoff_ms(successors: tuple[ReplicaKey, ...], local: ReplicaKey, maximum_ms: int) -> int:
    """How long a voter waits after EndQuorumEpoch: nothing for the first in the list, doubling down the list, then the
    maximum (`FollowerState.overrideFetchTimeout`, `strictExponentialElectionBackoffMs`). An empty list ranks no voter.
    """
    count = len(successors)
    position = next((at for at, key in enumerate(successors) if key.matches(local)), count)
    if position == 0:
        return 0
    if position >= count:
        return maximum_ms
    return min(maximum_ms, (maximum_ms >> (count - 1)) << (position - 1))


# The leader's side


def begin_leadership(quorum: QuorumState, granting: tuple[int, ...], now_ms: int) -> None:
    """Become the leader: append the epoch's LeaderChange batch; the next poll announces the epoch to the voters."""
    leader = quorum.become_leader(now_ms)
    quorum.log.assign_epoch(leader.epoch)
    change = LeaderChangeMessage(
        version=0,
        leader_id=quorum.local.id,
        voters=tuple(LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in quorum.voters.ids),
        granting_voters=tuple(LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in granting),
    )
    own_voters = _voters_to_record(quorum)
    if own_voters is None:
        append_control(quorum, leader, (change,), now_ms)
    else:
        version = KRaftVersionRecord(kraft_version=quorum.history.kraft_version)
        append_control(quorum, leader, (change, version, own_voters.to_record()), now_ms)


def _voters_to_record(quorum: QuorumState) -> VoterSet | None:
    """The voter set that a new leader must append: its log has no set yet, or another address of this leader."""
    history = quorum.history
    own = history.voters.find(quorum.local.id)
    if history.kraft_version == STATIC or own is None:
        return None
    now = quorum.own_voter
    return history.voters.with_voter(now) if own != now or history.voters_offset == NO_OFFSET else None


def on_resign(quorum: QuorumState, event: Resign, now_ms: int) -> None:
    """Resign on behalf of the application, if this node still leads the epoch."""
    match quorum.state:
        case LeaderState(epoch=epoch) if epoch == event.epoch:
            resign(quorum, now_ms, event.cause, event.successor)


def resign(quorum: QuorumState, now_ms: int, cause: str, successor: int | None = None) -> None:
    """Resign in favour of one voter, then of those with the highest log end offsets."""
    leader = quorum.state
    assert isinstance(leader, LeaderState), leader
    # The sort keeps the order of the others.
    ranked = sorted(leader.ranked_successors(), key=lambda key: key.id != successor)
    quorum.become_resigned(tuple(ranked), now_ms, cause)


def on_begin_shutdown(quorum: QuorumState, now_ms: int) -> None:
    """Begin a graceful shutdown."""
    quorum.is_shutting_down = True
    if isinstance(quorum.state, LeaderState):
        resign(quorum, now_ms, "shutdown")


def on_commit(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
    """Handle a higher high watermark: end a committed voter change, and note this leader's own committed removal."""
    change = leader.change
    if change is not None and 0 <= change.offset < leader.high_watermark:
        end_change(quorum, leader)
    offset = quorum.history.voters_offset
    if not leader.is_voter and offset is not None and offset < leader.high_watermark:
        leader.is_removed = True
        leader.begin_deadline_ms = now_ms


def end_change(quorum: QuorumState, leader: LeaderState, error: Error = Error.NONE, text: str | None = None) -> None:
    """Answer the request for the pending voter change. The change's record, if there is one, stays in the log."""
    change, leader.change = leader.change, None
    assert change is not None, leader
    if change.reply is not None:
        quorum.emit(SendReply(change.request_id, replace(change.reply, error=error, text=text)))


def poll_leader(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
    """Resign if the leader has not heard a majority for too long; announce the epoch to voters that do not fetch."""
    if now_ms >= leader.check_quorum_deadline_ms:
        resign(quorum, now_ms, "check-quorum")
        return
    if leader.is_removed:
        resign(quorum, now_ms, "removed")
        return
    if leader.change is not None and now_ms >= leader.change.deadline_ms:
        end_change(quorum, leader, Error.REQUEST_TIMED_OUT, "The change of the voters is not committed in time.")
    if now_ms < leader.begin_deadline_ms:
        return
    silence_ms = quorum.config.fetch_timeout_ms // 2
    leader.begin_deadline_ms = now_ms + max(silence_ms, 1)
    for voter_id in leader.silent_voters(now_ms, silence_ms):
        if quorum.peers.is_ready(voter_id, now_ms):
            voter = leader.progress[voter_id].key
            message = BeginQuorumEpoch(
                epoch=leader.epoch, leader_id=quorum.local.id, voter=voter, endpoints=quorum.endpoints
            )
            send(quorum, voter_id, message, now_ms)


def on_begin_reply(quorum: QuorumState, peer_id: int, reply: BeginQuorumEpochReply, now_ms: int) -> None:
    """Handle the reply to BeginQuorumEpoch."""
    settle(quorum, peer_id, on_common_reply(quorum, peer_id, reply, now_ms), now_ms)


# The resigned leader's side


def poll_resigned(quorum: QuorumState, resigned: ResignedState, now_ms: int) -> None:
    """Send EndQuorumEpoch until each voter has acknowledged it; then enter the next epoch."""
    if now_ms >= resigned.election_deadline_ms and not quorum.is_shutting_down:
        if quorum.may_raise_epoch(now_ms):
            quorum.become_unattached(resigned.epoch + 1, now_ms, "election-timeout")
            return
        resigned.election_deadline_ms = now_ms + quorum.random_election_timeout_ms()
    for voter_id in resigned.unacknowledged:
        if quorum.peers.is_ready(voter_id, now_ms):
            message = EndQuorumEpoch(epoch=resigned.epoch, leader_id=quorum.local.id, successors=resigned.successors)
            send(quorum, voter_id, message, now_ms)


def on_peer_gone(quorum: QuorumState, peer_id: int) -> None:
    """A voter's address refuses connections. A node that shuts down need not wait until that voter hears it resign."""
    match quorum.state:
        case ResignedState() as resigned if quorum.is_shutting_down:
            resigned.unacknowledged = tuple(one for one in resigned.unacknowledged if one != peer_id)


def on_end_reply(quorum: QuorumState, peer_id: int, reply: EndQuorumEpochReply, now_ms: int) -> None:
    """Handle the reply to EndQuorumEpoch."""
    verdict = on_common_reply(quorum, peer_id, reply, now_ms)
    match quorum.state:
        case ResignedState() as resigned if verdict is Verdict.CONTINUE and reply.error == Error.NONE:
            resigned.unacknowledged = tuple(one for one in resigned.unacknowledged if one != peer_id)
            resigned.stay_until_ms = now_ms + STAY_MS
    settle(quorum, peer_id, verdict, now_ms)
