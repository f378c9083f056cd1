"""Pre-votes, votes, and the timers that lead to them (Kafka: the Vote half of `KafkaRaftClient`, KIP-595 and KIP-996).

Election timeouts are random in [E, 2E). After a lost election a candidate waits for its election timer. Kafka 4.3 has
no exponential backoff any more: pre-votes prevent disruptive candidates, and random timeouts prevent split votes.
"""

from __future__ import annotations

from kraft.quorum.effects import SendReply
from kraft.quorum.events import Received
from kraft.quorum.exchanges import Verdict, is_addressed, known_leader, on_common_reply, send, settle
from kraft.quorum.leadership import begin_leadership
from kraft.quorum.messages import Vote, VoteReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.replication import fetch_from_bootstrap, poll_follower
from kraft.quorum.states import CandidateState, FollowerState, ProspectiveState, UnattachedState, VotedState
from kraft.quorum.states.election import Tally
from kraft.quorum.states.follower import LeaderContact
from metadata_log.types import NO_NODE
from transport.protocol.errors import Error

# The voter's side


def on_vote(quorum: QuorumState, event: Received, vote: Vote, now_ms: int) -> None:
    """Answer a vote request. A granted vote is on disk before the reply is sent."""
    error = _consider(quorum, vote, now_ms)
    can_grant = quorum.state.can_grant(vote, up_to_date=vote.last >= quorum.log.end)
    granted = error == Error.NONE and (can_grant or _may_grant_prevote_after_leader_exit(quorum, vote))
    if granted and not vote.pre_vote and quorum.state.voted is None:
        quorum.become_voted(vote.candidate, now_ms)
    leader_id, endpoints = known_leader(quorum)
    reply = VoteReply(epoch=quorum.epoch, leader_id=leader_id, endpoints=endpoints, error=error, granted=granted)
    quorum.emit(SendReply(event.request_id, reply))


def _may_grant_prevote_after_leader_exit(quorum: QuorumState, vote: Vote) -> bool:
    """Whether to grant a pre-vote because the leader's process has ended and the nominee's log is not behind this one.

    Otherwise leader stickiness delays the election until this voter is a nominee, too. (Kafka does not detect ended
    processes.) Votes seldom split, as nominees have turns: see `on_leader_gone`.
    """
    match quorum.state:
        case FollowerState(contact=LeaderContact.REFUSED):
            return vote.pre_vote and vote.last >= quorum.log.end
    return False


def _consider(quorum: QuorumState, vote: Vote, now_ms: int) -> Error:
    """Check a vote request in Kafka's order. The voter adopts a higher epoch, also from a pre-vote."""
    highest_epoch = vote.epoch if vote.pre_vote else vote.epoch - 1
    if vote.last.offset < 0 or vote.last.epoch < 0 or vote.last.epoch > highest_epoch:
        return Error.INVALID_REQUEST
    if vote.epoch < quorum.epoch:
        return Error.FENCED_LEADER_EPOCH
    if vote.candidate.id < 0:
        return Error.INVALID_REQUEST
    if not quorum.believes_epoch(vote.candidate.id, vote.epoch, now_ms):
        return Error.UNKNOWN_LEADER_EPOCH
    if vote.epoch > quorum.epoch:
        quorum.become_unattached(vote.epoch, now_ms, f"vote-request-of-{vote.candidate.id}")
    return Error.NONE if is_addressed(quorum, vote.voter) else Error.INVALID_VOTER_KEY


# The nominee's side


def poll_unattached(quorum: QuorumState, state: UnattachedState | VotedState, now_ms: int) -> None:
    """Campaign when the election timer expires; until then ask the other voters for the leader."""
    if now_ms >= state.election_deadline_ms and quorum.can_campaign and not quorum.is_shutting_down:
        campaign(quorum, now_ms, "election-timeout")
    else:
        fetch_from_bootstrap(quorum, now_ms)


def poll_following(quorum: QuorumState, follower: FollowerState, now_ms: int) -> None:
    """Campaign after the fetch timeout without a reply of the leader; otherwise, and as an observer, continue to fetch.

    After that timeout an observer refuses no more pre-votes; Kafka's observer refuses them until a new leader is
    elected. By the candidate's log this observer may be a voter, and the election may need its vote.
    """
    if now_ms >= follower.fetch_deadline_ms and not quorum.is_shutting_down:
        if quorum.can_campaign:
            campaign(quorum, now_ms, "leader-gone" if follower.contact is LeaderContact.REFUSED else "fetch-timeout")
            return
        follower.leader_is_silent()
    poll_follower(quorum, follower, now_ms)


def on_leader_gone(quorum: QuorumState, peer_id: int, now_ms: int) -> None:
    """Shorten the fetch timeout after a known leader refuses connections, as its process has ended.

    The other voters take turns, in the order of their ids after the leader's: each delays its pre-votes into the first
    half of its own share of the longest delay, so that the first is elected before the second asks. Kafka waits for
    the fetch timeout. A refusal at the advertised address means nothing if the leader was last heard at a bootstrap
    server's address: the advertised address may never have reached the leader.
    """
    most_ms = quorum.config.lost_leader_backoff_max_ms
    match quorum.state:
        case FollowerState(contact=LeaderContact.DIRECT) as follower if peer_id == follower.leader_id:
            if most_ms and quorum.is_voter:
                drawn_ms = quorum.rng.randrange(most_ms)
                nominees = len(quorum.other_voter_ids)
                delay_ms = (2 * most_ms * _turn_after(quorum, peer_id) + drawn_ms) // (2 * nominees)
                follower.leader_refused(now_ms + 1 + delay_ms)


def _turn_after(quorum: QuorumState, leader_id: int) -> int:
    """How many voters are nominated before this one when the leader is gone: those between their ids, in a ring."""
    own_id = quorum.local.id
    if own_id > leader_id:
        return sum(leader_id < one < own_id for one in quorum.other_voter_ids)
    return sum(one > leader_id or one < own_id for one in quorum.other_voter_ids)


def campaign(quorum: QuorumState, now_ms: int, cause: str) -> None:
    """Become Prospective; the only voter of a quorum becomes the leader at once."""
    quorum.become_prospective(now_ms, cause)
    advance(quorum, now_ms)


def advance(quorum: QuorumState, now_ms: int) -> None:
    """Act on the tally: a won pre-vote makes this replica a candidate, a won vote makes it the leader."""
    match quorum.state:
        case ProspectiveState(tally=tally) if tally.is_won:
            _campaign(quorum, now_ms, "pre-vote-won")
        case CandidateState(tally=tally) if tally.is_won:
            begin_leadership(quorum, tally.granted, now_ms)
        case ProspectiveState(tally=tally) if tally.is_lost:
            deadline_ms = now_ms + quorum.random_election_timeout_ms()
            _give_up(quorum, deadline_ms, now_ms, "pre-vote-lost")


def _campaign(quorum: QuorumState, now_ms: int, cause: str) -> None:
    """Request votes in the next epoch, if that epoch is within the epoch limit. Otherwise this round of pre-votes ends
    when its timer expires.
    """
    if quorum.may_raise_epoch(now_ms):
        quorum.become_candidate(now_ms, cause)
        advance(quorum, now_ms)


def _give_up(quorum: QuorumState, deadline_ms: int, now_ms: int, cause: str) -> None:
    """Follow the leader again if one is known; otherwise wait for the deadline."""
    state = quorum.state
    if state.leader_id != NO_NODE and len(state.endpoints):
        quorum.become_follower(state.epoch, state.leader_id, state.endpoints, now_ms, cause)
    else:
        quorum.become_unattached_in_epoch(deadline_ms, cause)


def poll_prospective(quorum: QuorumState, state: ProspectiveState, now_ms: int) -> None:
    """Ask each voter that has not answered; begin again when the election timer expires without a majority."""
    if now_ms >= state.election_deadline_ms and not quorum.is_shutting_down:
        _give_up(quorum, now_ms, now_ms, "election-timeout")
    else:
        _ask_for_votes(quorum, state.tally, now_ms, pre_vote=True)


def poll_candidate(quorum: QuorumState, state: CandidateState, now_ms: int) -> None:
    """Ask each voter that has not answered; after a lost election wait for the election timer."""
    if now_ms >= state.election_deadline_ms and not quorum.is_shutting_down:
        campaign(quorum, now_ms, "election-timeout")
    elif not state.tally.is_lost:
        _ask_for_votes(quorum, state.tally, now_ms, pre_vote=False)


def _ask_for_votes(quorum: QuorumState, tally: Tally, now_ms: int, *, pre_vote: bool) -> None:
    for voter_id in tally.unrecorded:
        voter = quorum.voters.find(voter_id)
        assert voter is not None, voter_id
        if quorum.peers.is_ready(voter_id, now_ms):
            vote = Vote(
                epoch=quorum.epoch,
                candidate=quorum.local,
                voter=voter.key,
                last=quorum.log.flushed_end,
                pre_vote=pre_vote,
            )
            send(quorum, voter_id, vote, now_ms)


def on_vote_reply(quorum: QuorumState, peer_id: int, reply: VoteReply, now_ms: int) -> None:
    """Count a vote. If a voter does not support pre-votes, this replica skips the pre-vote."""
    if reply.top_error == Error.UNSUPPORTED_VERSION:
        skip_pre_vote(quorum, peer_id, now_ms)
        return
    verdict = on_common_reply(quorum, peer_id, reply, now_ms)
    if verdict is Verdict.CONTINUE and reply.error != Error.NONE:
        # A reply with an error grants no vote (`handleUnexpectedError`).
        quorum.report_peer_fault(peer_id, f"it answers our request for a vote with {reply.error.name}")
        verdict = Verdict.BACK_OFF
    settle(quorum, peer_id, verdict, now_ms)
    if verdict is not Verdict.CONTINUE:
        return
    match quorum.state:
        case ProspectiveState() | CandidateState() as nominee:
            if isinstance(nominee, CandidateState) and peer_id not in nominee.tally.unrecorded:
                return
            nominee.tally = nominee.tally.record(peer_id, granted=reply.granted)
            advance(quorum, now_ms)


def skip_pre_vote(quorum: QuorumState, peer_id: int, now_ms: int) -> None:
    """Campaign without pre-votes, as a peer does not support them (KIP-996). A follower sends no more voter requests to
    a leader that does not support them.
    """
    match quorum.state:
        case ProspectiveState():
            quorum.peers.back_off(peer_id, now_ms)
            _campaign(quorum, now_ms, f"no-pre-vote-at-{peer_id}")
        case FollowerState() as follower:
            follower.has_reported = True
            quorum.peers.back_off(peer_id, now_ms)
        case _:
            quorum.peers.back_off(peer_id, now_ms)
