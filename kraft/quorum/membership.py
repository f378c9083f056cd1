"""The leader adds, removes and updates voters, one at a time (Kafka: `AddVoterHandler`, `RemoveVoterHandler`,
`UpdateVoterHandler`; KIP-853).

The error REQUEST_TIMED_OUT means that the client should try again later, even if no timeout has passed.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kraft.limits import LISTENERS_PER_VOTER
from kraft.quorum.appending import append_control
from kraft.quorum.effects import SendReply, SendRequest
from kraft.quorum.events import Received, UpgradeQuorum
from kraft.quorum.exchanges import Verdict, epoch_error, known_leader, on_common_reply
from kraft.quorum.leadership import end_change
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    UpdateVoter,
    UpdateVoterReply,
)
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.replication import answer_parked
from kraft.quorum.states import FollowerState, LeaderState, PendingChange
from kraft.quorum.values import Endpoints, ReplicaKey
from kraft.quorum.voter_history import STATIC
from kraft.quorum.voters import VoterSet
from metadata_log.records.control import KRaftVersionRecord
from metadata_log.types import Uuid
from transport.protocol.errors import Error

CAUGHT_UP_WITHIN_MS: Final = 3_600_000
"""A replica without a Fetch for this time does not count as caught up any more."""
_ORDINARY_ANSWERS: Final = (
    Error.NONE,
    Error.REQUEST_TIMED_OUT,
    Error.DUPLICATE_VOTER,
    Error.VOTER_NOT_FOUND,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.BROKER_NOT_AVAILABLE,
)
"""The replies to a replica that wants to become a voter; the sender of the reply may have lost its leadership."""

Refusal = tuple[Error, str]


def on_add_voter(quorum: QuorumState, event: Received, request: AddVoter, now_ms: int) -> None:
    """Request the supported versions of the new voter; the change continues with the reply."""
    refusal = _refusal(quorum, request.voter.key, request.voter.endpoints)
    if refusal is None and request.voter.id in quorum.voters.ids:
        refusal = Error.DUPLICATE_VOTER, f"The voter id {request.voter.id} is already in the set of voters."
    if refusal is None and not quorum.peers.is_ready(request.voter.id, now_ms):
        refusal = Error.REQUEST_TIMED_OUT, f"Voter {request.voter.id} cannot be asked for what it supports now."
    if refusal is not None:
        quorum.emit(SendReply(event.request_id, AddVoterReply(*refusal)))
        return
    leader, address = quorum.state, request.voter.endpoints.find(quorum.listener)
    assert isinstance(leader, LeaderState), leader
    assert address is not None, request
    timeout_ms = quorum.config.request_timeout_ms
    probe_id = quorum.peers.sent(request.voter.id, now_ms)
    quorum.emit(SendRequest(probe_id, request.voter.id, address, ProbeVersions(), timeout_ms))
    leader.change = PendingChange(event.request_id, AddVoterReply(), now_ms + timeout_ms, request, probe_id=probe_id)


def _adding(leader: LeaderState, request_id: int) -> PendingChange | None:
    """The change that waits for the outcome of this probe. The probe of a change that has ended may come back later,
    while another replica is being added.
    """
    change = leader.change
    return change if change is not None and change.adding is not None and change.probe_id == request_id else None


def on_versions(quorum: QuorumState, peer_id: int, request_id: int, reply: ProbeVersionsReply, now_ms: int) -> None:
    """Add the new voter after it has reported its supported versions, if it can be a voter of this quorum."""
    leader = quorum.state
    change = _adding(leader, request_id) if isinstance(leader, LeaderState) else None
    if not isinstance(leader, LeaderState) or change is None or change.adding is None:
        quorum.peers.answered(peer_id)
        return
    if reply.error != Error.NONE:
        quorum.peers.back_off(peer_id, now_ms)
        end_change(quorum, leader, Error.REQUEST_TIMED_OUT, f"Voter {peer_id} does not say what it supports.")
        return
    quorum.peers.answered(peer_id)
    voter, level = change.adding.voter, quorum.history.kraft_version
    supported = reply.kraft_versions
    if supported is None or supported.lowest < 0 or not supported.holds(level):
        end_change(quorum, leader, Error.INVALID_REQUEST, f"Voter {peer_id} does not support kraft.version {level}.")
    elif not _is_caught_up(leader, voter.key, now_ms):
        text = f"Replica {peer_id} has not caught up with the leader."
        end_change(quorum, leader, Error.REQUEST_TIMED_OUT, text)
    else:
        offset = _write(quorum, leader, quorum.voters.with_voter(replace(voter, kraft_versions=supported)), now_ms)
        leader.change = replace(change, adding=None, offset=offset)
        if not change.adding.ack_when_committed:
            quorum.emit(SendReply(change.request_id, AddVoterReply()))
            leader.change = replace(leader.change, reply=None)
        answer_parked(quorum, now_ms)


def on_probe_failed(quorum: QuorumState, peer_id: int, request_id: int) -> None:
    """Refuse the pending change, as the new voter cannot be reached."""
    match quorum.state:
        case LeaderState() as leader if _adding(leader, request_id) is not None:
            end_change(quorum, leader, Error.REQUEST_TIMED_OUT, f"Voter {peer_id} cannot be reached.")


def on_remove_voter(quorum: QuorumState, event: Received, request: RemoveVoter, now_ms: int) -> None:
    """Append the set without the voter; the leader answers once the remaining voters have committed the set."""
    refusal = _refusal(quorum, request.voter, None)
    if refusal is None and (request.voter not in quorum.voters.keys or len(quorum.voters) == 1):
        refusal = Error.VOTER_NOT_FOUND, f"Cannot remove voter {request.voter.id} from the set of voters."
    if refusal is not None:
        quorum.emit(SendReply(event.request_id, RemoveVoterReply(*refusal)))
        return
    leader = quorum.state
    assert isinstance(leader, LeaderState), leader
    deadline_ms = now_ms + quorum.config.request_timeout_ms
    offset = _write(quorum, leader, quorum.voters.without(request.voter.id), now_ms)
    leader.change = PendingChange(event.request_id, RemoveVoterReply(), deadline_ms, None, offset)
    answer_parked(quorum, now_ms)


def on_update_voter(quorum: QuorumState, event: Received, request: UpdateVoter, now_ms: int) -> None:
    """Update the endpoints and supported versions of a voter; the reply does not wait for the commit."""
    error = _update(quorum, request, now_ms)
    leader_id, endpoints = known_leader(quorum)
    reply = UpdateVoterReply(epoch=quorum.epoch, leader_id=leader_id, endpoints=endpoints, error=error)
    quorum.emit(SendReply(event.request_id, reply))


def _update(quorum: QuorumState, request: UpdateVoter, now_ms: int) -> Error:
    error = epoch_error(quorum, request.epoch)
    if error is not Error.NONE:
        return error
    voter, leader = request.voter, quorum.state
    lowest, highest = voter.kraft_versions.lowest, voter.kraft_versions.highest
    refusal = _refusal(quorum, voter.key, voter.endpoints, is_update=True)
    if refusal is not None:
        return refusal[0]
    assert isinstance(leader, LeaderState), leader
    if not 0 <= lowest <= highest or not voter.kraft_versions.holds(quorum.history.kraft_version):
        return Error.INVALID_REQUEST
    is_static = quorum.history.kraft_version == STATIC
    known = leader.reported if is_static else quorum.voters
    entry = known.find(voter.id)
    if entry is None or not (_is_present(leader, voter.key) if is_static else entry.key.matches(voter.key)):
        return Error.VOTER_NOT_FOUND
    if is_static:
        leader.reported = known.with_voter(voter)
    elif entry != voter:
        _write(quorum, leader, known.with_voter(voter), now_ms)
        answer_parked(quorum, now_ms)
    if leader.note_contact(voter.id):
        leader.check_quorum_deadline_ms = quorum.check_quorum_deadline_ms(now_ms)
    return Error.NONE


def _is_present(leader: LeaderState, key: ReplicaKey) -> bool:
    """Whether a static voter has this directory now: its last Fetch came from there. A voter whose disk was replaced
    reports once more, and a late report of its former disk is refused. Kafka takes any report
    (`VoterSet.updateVoterIgnoringDirectoryId`).
    """
    progress = leader.progress[key.id]
    if key.id == leader.local.id:
        return key == leader.local
    return progress.directory_id in (Uuid.ZERO, key.directory_id)


def upgrade_obstacle(quorum: QuorumState, level: int) -> str | None:
    """Why kraft.version cannot be `level` now. Every voter must have reported its directory id and supported versions
    (`KRaftVersionUpgrade`, `LeaderState.maybeAppendUpgradedKRaftVersion`).
    """
    leader, now = quorum.state, quorum.history.kraft_version
    if not isinstance(leader, LeaderState):
        return "This controller does not lead the quorum."
    if level <= now:
        return None if level == now else f"kraft.version is {now} and does not go down."
    silent = [str(one.id) for one in leader.reported.voters if one.key.directory_id == Uuid.ZERO]
    if silent:
        return f"These voters have not told their directory ids yet: {', '.join(silent)}."
    unable = [str(one.id) for one in leader.reported.voters if not one.kraft_versions.holds(level)]
    return f"These voters do not support kraft.version {level}: {', '.join(unable)}." if unable else None


def on_upgrade(quorum: QuorumState, event: UpgradeQuorum, now_ms: int) -> None:
    """Write the voters to the log, with their directory ids; the voters of the configuration are not used any more."""
    leader = quorum.state
    if not isinstance(leader, LeaderState) or leader.epoch != event.epoch:
        return
    assert event.level > quorum.history.kraft_version, (event, quorum.history)
    records = (KRaftVersionRecord(kraft_version=event.level), leader.reported.to_record())
    append_control(quorum, leader, records, now_ms)
    answer_parked(quorum, now_ms)


def _refusal(
    quorum: QuorumState, key: ReplicaKey, endpoints: Endpoints | None, *, is_update: bool = False
) -> Refusal | None:
    """Why the voter set cannot be changed now, in Kafka's order of checks."""
    leader = quorum.state
    if quorum.is_shutting_down:
        return Error.BROKER_NOT_AVAILABLE, Error.BROKER_NOT_AVAILABLE.message
    if not isinstance(leader, LeaderState):
        return Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_LEADER_OR_FOLLOWER.message
    if key.id < 0 or key.directory_id == Uuid.ZERO:
        return Error.INVALID_REQUEST, "A voter has an id and a directory id."
    listener = quorum.listener
    if endpoints is not None and endpoints.find(listener) is None:
        return Error.INVALID_REQUEST, f"The voter does not listen on the default listener {listener}."
    if endpoints is not None and len(endpoints) > LISTENERS_PER_VOTER:
        return Error.INVALID_REQUEST, f"The voter has more than {LISTENERS_PER_VOTER} listeners."
    if leader.change is not None:
        return Error.REQUEST_TIMED_OUT, "Another change of the voters is under way."
    if leader.high_watermark < 0:
        return Error.REQUEST_TIMED_OUT, "The leader has committed nothing of its epoch yet."
    if quorum.history.kraft_version == STATIC:
        text = "The quorum has static voters: kraft.version is 0."
        return None if is_update else (Error.UNSUPPORTED_VERSION, text)
    offset = quorum.history.voters_offset
    if offset is None or offset >= leader.high_watermark:
        return Error.REQUEST_TIMED_OUT, "The last change of the voters is not committed yet."
    return None


def _is_caught_up(leader: LeaderState, key: ReplicaKey, now_ms: int) -> bool:
    progress = leader.observers.get(key)
    return (
        progress is not None
        and progress.last_caught_up_ms > 0
        and now_ms - progress.last_fetch_ms <= CAUGHT_UP_WITHIN_MS
    )


def _write(quorum: QuorumState, leader: LeaderState, voters: VoterSet, now_ms: int) -> int:
    """Append a voter set; returns its offset."""
    append_control(quorum, leader, (voters.to_record(),), now_ms)
    return quorum.log.end_offset - 1


# The side of the voters, and of the replicas that want to join


def on_update_voter_reply(quorum: QuorumState, peer_id: int, reply: UpdateVoterReply, now_ms: int) -> None:
    """Handle the reply to UpdateVoter. After any reply this replica fetches at once; a timer starts the next report."""
    verdict = on_common_reply(quorum, peer_id, reply, now_ms)
    match quorum.state:
        case FollowerState(leader_id=leader_id) as follower if verdict is Verdict.CONTINUE and leader_id == peer_id:
            if reply.error in (Error.NONE, Error.UNSUPPORTED_VERSION):
                follower.has_reported = True
                follower.heard_leader(peer_id, now_ms + quorum.config.fetch_timeout_ms)
    quorum.peers.answered(peer_id)


def on_joining_reply(quorum: QuorumState, peer_id: int, reply: AddVoterReply | RemoveVoterReply) -> None:
    """Handle the reply to a request to add this replica or to remove its former self; a timer repeats the request."""
    if reply.error not in _ORDINARY_ANSWERS:
        quorum.report_peer_fault(peer_id, f"it answers our wish to vote with {reply.error.name}: {reply.text}")
    quorum.peers.answered(peer_id)
