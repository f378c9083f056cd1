"""Mutants of elections: votes, pre-votes, epochs and leaders (Raft §5.2 and §5.4.1; KIP-595, KIP-996)."""

from __future__ import annotations

from msgspec.structs import replace

from kraft.quorum import core, elections, exchanges, leadership
from kraft.quorum.effects import SendReply
from kraft.quorum.events import Received
from kraft.quorum.exchanges import Verdict, known_leader
from kraft.quorum.leadership import resign
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import BeginQuorumEpoch, EndQuorumEpoch, LeaderReply, Vote, VoteReply
from kraft.quorum.peers import Peers
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import (
    CandidateState,
    EpochState,
    FollowerState,
    LeaderState,
    ProspectiveState,
    ResignedState,
    UnattachedState,
    VotedState,
)
from kraft.quorum.states.election import Tally
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from metadata_log.types import NO_NODE, OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant
from transport.protocol.errors import Error

# Granting votes


def _judge_logs_by(code: Patches, is_up_to_date: object) -> None:
    """Let `is_up_to_date(log, candidate's end)` decide whether a candidate's log is good enough."""
    assert callable(is_up_to_date)

    def on_vote(quorum: QuorumState, event: Received, vote: Vote, now_ms: int) -> None:
        error = elections._consider(quorum, vote, now_ms)
        up_to_date = is_up_to_date(quorum.log, vote.last)
        granted = error == Error.NONE and quorum.state.can_grant(vote, up_to_date=up_to_date)
        if granted and not vote.pre_vote and quorum.state.voted is None:
            quorum.become_voted(vote.candidate, now_ms)
        leader_id, endpoints = known_leader(quorum)
        reply = VoteReply(epoch=quorum.epoch, leader_id=leader_id, endpoints=endpoints, error=error, granted=granted)
        quorum.emit(SendReply(event.request_id, reply))

    code.replace(elections, "on_vote", on_vote)


@mutant(Scope.CORE, budget=100)
def vote_without_log_check(code: Patches) -> None:
    """A voter grants its vote without a check of the candidate's log."""
    _judge_logs_by(code, lambda log, last: True)


@mutant(Scope.CORE, budget=600)
def vote_by_offset_alone(code: Patches) -> None:
    """A voter compares only the end offsets of the logs, not the epochs of the last records."""

    def is_longer(log: LogView, last: OffsetAndEpoch) -> bool:
        return last.offset >= log.end_offset

    _judge_logs_by(code, is_longer)


@mutant(Scope.CORE, budget=200)
def vote_by_epoch_alone(code: Patches) -> None:
    """A voter compares only the epochs of the last records, so a candidate's log may be shorter."""

    def is_as_new(log: LogView, last: OffsetAndEpoch) -> bool:
        return last.epoch >= log.last_epoch

    _judge_logs_by(code, is_as_new)


@mutant(Scope.CORE, budget=100)
def vote_by_high_watermark(code: Patches) -> None:
    """A voter requires only that the candidate's log reaches the voter's high watermark."""

    def has_committed(log: LogView, last: OffsetAndEpoch) -> bool:
        return last.offset >= log.high_watermark

    _judge_logs_by(code, has_committed)


@mutant(Scope.CORE, budget=200)
def vote_again(code: Patches) -> None:
    """A voter that has voted grants a second vote in the same epoch."""
    code.replace(VotedState, "can_grant", lambda state, vote, *, up_to_date: up_to_date)


@mutant(Scope.CORE, budget=200)
def candidate_votes_for_others(code: Patches) -> None:
    """A candidate, which has voted for itself, also votes for another candidate."""
    code.replace(CandidateState, "can_grant", lambda state, vote, *, up_to_date: up_to_date)


# What must be on disk


@mutant(Scope.CORE, budget=20)
def vote_in_memory_only(code: Patches) -> None:
    """A voter does not persist its vote in quorum-state, and so votes again after a restart (as PySyncObj did)."""

    def become_voted(quorum: QuorumState, candidate: ReplicaKey, now_ms: int) -> None:
        deadline_ms = now_ms + quorum.random_election_timeout_ms()
        target = VotedState(quorum.epoch, quorum.leader_id, candidate, deadline_ms)
        quorum.transition_to(target, "vote", persist=False, keep_peers=True)

    code.replace(QuorumState, "become_voted", become_voted)


@mutant(Scope.CORE, budget=20)
def epoch_in_memory_only(code: Patches) -> None:
    """A candidate does not persist its new epoch, and so uses the same epoch again after a restart."""

    def become_candidate(quorum: QuorumState, now_ms: int, cause: str) -> None:
        deadline_ms = now_ms + quorum.random_election_timeout_ms()
        target = CandidateState(quorum.epoch + 1, quorum.local, quorum.new_tally(), deadline_ms)
        quorum.transition_to(target, cause, persist=False)

    code.replace(QuorumState, "become_candidate", become_candidate)


@mutant(Scope.CORE, budget=20)
def vote_forgotten_on_following(code: Patches) -> None:
    """A voter that learns the leader of an epoch deletes its vote of that epoch."""
    become_follower = QuorumState.become_follower

    def become_follower_without_vote(
        quorum: QuorumState, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int, cause: str
    ) -> None:
        become_follower(quorum, epoch, leader_id, endpoints, now_ms, cause)
        follower = quorum.state
        assert isinstance(follower, FollowerState), follower
        follower.voted = None
        quorum.persisted = None
        quorum._persist()

    code.replace(QuorumState, "become_follower", become_follower_without_vote)


@mutant(Scope.CORE, budget=20)
def pre_vote_that_persists(code: Patches) -> None:
    """A voter persists a pre-vote as if it were a vote."""
    on_vote = elections.on_vote

    def on_vote_or_pre_vote(quorum: QuorumState, event: Received, vote: Vote, now_ms: int) -> None:
        on_vote(quorum, event, vote, now_ms)
        match quorum.state, quorum.effects[-1]:
            case (
                UnattachedState(voted=None) | ProspectiveState(voted=None),
                SendReply(message=VoteReply(granted=True)),
            ) if vote.pre_vote:
                quorum.become_voted(vote.candidate, now_ms)

    code.replace(elections, "on_vote", on_vote_or_pre_vote)


@mutant(Scope.CORE, budget=600)
def lead_on_after_a_restart(code: Patches) -> None:
    """A restarted leader continues to lead its epoch, and writes the offsets of its lost records a second time."""
    first_state = core._first_state

    def lead_on(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
        state = first_state(quorum, election, now_ms)
        if not isinstance(state, ResignedState):
            return state
        quorum.state = UnattachedState(state.epoch - 1, NO_NODE, now_ms)
        quorum.become_prospective(now_ms, "lead-on")
        quorum.become_candidate(now_ms, "lead-on")
        leader = quorum.become_leader(now_ms)
        quorum.persisted = None
        quorum.effects.clear()
        leader.epoch_start_offset -= 1
        return leader

    code.replace(core, "_first_state", lead_on)


# Counting


@mutant(Scope.CORE, budget=20)
def minority_elects(code: Patches) -> None:
    """Half of the voters, rounded down, count as a majority."""
    code.replace(Tally, "is_won", property(lambda tally: len(tally.granted) >= len(tally.voters) // 2))


@mutant(Scope.CORE, budget=20)
def pre_votes_count_as_votes(code: Patches) -> None:
    """The winner of a pre-vote becomes the leader at once, as if the granted pre-votes were votes."""
    become_candidate = QuorumState.become_candidate

    def become_candidate_with_pre_votes(quorum: QuorumState, now_ms: int, cause: str) -> None:
        nominee = quorum.state
        become_candidate(quorum, now_ms, cause)
        if isinstance(nominee, ProspectiveState) and isinstance(quorum.state, CandidateState):
            quorum.state.tally = nominee.tally

    code.replace(QuorumState, "become_candidate", become_candidate_with_pre_votes)


@mutant(Scope.CORE, budget=20)
def refusal_counts_as_vote(code: Patches) -> None:
    """Every response to a Vote request counts as a vote."""
    record = Tally.record
    code.replace(Tally, "record", lambda tally, voter_id, *, granted: record(tally, voter_id, granted=True))


@mutant(Scope.CORE, budget=50)
def vote_of_a_past_epoch_counts(code: Patches) -> None:
    """Vote responses count for any request and any epoch."""
    on_common_reply = exchanges.on_common_reply

    def on_reply_of_any_epoch(quorum: QuorumState, peer_id: int, reply: LeaderReply, now_ms: int) -> Verdict:
        if isinstance(reply, VoteReply) and reply.epoch < quorum.epoch:
            reply = replace(reply, epoch=quorum.epoch, leader_id=NO_NODE)
        return on_common_reply(quorum, peer_id, reply, now_ms)

    code.replace(Peers, "is_expected", lambda peers, peer_id, request_id: True)
    code.replace(elections, "on_common_reply", on_reply_of_any_epoch)


# Leadership


@mutant(Scope.CORE, budget=600)
def stale_begin_is_obeyed(code: Patches) -> None:
    """A node accepts the announcement of a former epoch's leader as that of the present leader."""
    adopt_announced = leadership._adopt_announced

    def adopt_any(quorum: QuorumState, request: BeginQuorumEpoch | EndQuorumEpoch, now_ms: int, cause: str) -> Error:
        epoch = max(request.epoch, quorum.epoch)
        return adopt_announced(quorum, replace(request, epoch=epoch), now_ms, cause)

    code.replace(leadership, "_adopt_announced", adopt_any)


@mutant(Scope.CORE, budget=200)
def check_quorum_missing(code: Patches) -> None:
    """A leader without fetches from a majority does not resign."""

    def resign_unless_alone(quorum: QuorumState, now_ms: int, cause: str, successor: int | None = None) -> None:
        leader = quorum.state
        if cause == "check-quorum" and isinstance(leader, LeaderState):
            leader.check_quorum_deadline_ms = quorum.check_quorum_deadline_ms(now_ms)
        else:
            resign(quorum, now_ms, cause, successor)

    code.replace(leadership, "resign", resign_unless_alone)
