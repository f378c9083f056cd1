"""Mutants of leadership: start-up rules, announcements, check-quorum and pre-votes (KIP-595, KIP-996)."""

from __future__ import annotations

from msgspec.structs import replace

from kraft.quorum import core, elections, exchanges, leadership, replication
from kraft.quorum.events import Received
from kraft.quorum.messages import Fetch, FetchReply, Vote
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import (
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
from metadata_log.types import NEVER_MS, NO_NODE
from planted_bugs.registry import Patches, Scope, mutant, survivor
from transport.protocol.errors import Error

# Epochs


@survivor(
    Scope.CORE,
    tried_classic=193,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[transitions]",
    because="Check-quorum ends the leadership soon, and its records cannot be committed; the mutant only delays that.",
)
def leader_ignores_higher_epochs(code: Patches) -> None:
    """A leader continues to lead after a higher epoch has begun."""
    learn_leader = exchanges.learn_leader

    def learn_unless_leading(
        quorum: QuorumState, peer_id: int, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int, cause: str
    ) -> Error:
        if isinstance(quorum.state, LeaderState):
            return Error.NONE
        return learn_leader(quorum, peer_id, epoch, leader_id, endpoints, now_ms, cause)

    def consider(quorum: QuorumState, vote: Vote, now_ms: int) -> Error:
        return Error.FENCED_LEADER_EPOCH if isinstance(quorum.state, LeaderState) else sound(quorum, vote, now_ms)

    sound = elections._consider
    code.replace(leadership, "learn_leader", learn_unless_leading)
    code.replace(exchanges, "learn_leader", learn_unless_leading)
    code.replace(elections, "_consider", consider)


@mutant(Scope.CORE, budget=4000)
def vote_in_a_past_epoch(code: Patches) -> None:
    """A voter grants a vote that a candidate requests in a past epoch."""
    consider = elections._consider

    def consider_any_epoch(quorum: QuorumState, vote: Vote, now_ms: int) -> Error:
        error = consider(quorum, vote, now_ms)
        return Error.NONE if error is Error.FENCED_LEADER_EPOCH else error

    code.replace(elections, "_consider", consider_any_epoch)


@mutant(Scope.CORE, budget=200)
def vote_without_adopting_the_epoch(code: Patches) -> None:
    """A voter grants a vote in a higher epoch and stays in its own epoch."""

    def consider(quorum: QuorumState, vote: Vote, now_ms: int) -> Error:
        return sound(quorum, replace(vote, epoch=min(vote.epoch, quorum.epoch)), now_ms)

    sound = elections._consider
    code.replace(elections, "_consider", consider)


@survivor(
    Scope.CORE,
    tried_classic=188,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[check_quorum]",
    because=(
        "A voter in a later epoch fetches from a former leader only as from a bootstrap server, and the "
        "response of the former epoch is dropped."
    ),
)
def fetches_of_any_epoch_are_answered(code: Patches) -> None:
    """A leader answers fetches of former and of later epochs as those of its own epoch."""
    refusal = replication._refusal

    def refusal_but_for_the_epoch(quorum: QuorumState, request: Fetch) -> Error:
        return refusal(quorum, replace(request, epoch=quorum.epoch, last_epoch=min(request.last_epoch, quorum.epoch)))

    code.replace(replication, "_refusal", refusal_but_for_the_epoch)


# Start-up


@mutant(Scope.CORE, budget=400)
def vote_forgotten_at_the_start(code: Patches) -> None:
    """A voter that restarts reads the epoch of quorum-state and not the vote."""
    first_state = core._first_state

    def first_state_without_vote(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
        return first_state(quorum, replace(election, voted=None), now_ms)

    code.replace(core, "_first_state", first_state_without_vote)


@mutant(Scope.CORE, budget=400)
def leader_forgotten_at_the_start(code: Patches) -> None:
    """A leader that restarts is Unattached in the epoch that it has led, and grants a vote in that epoch."""
    first_state = core._first_state

    def unattached(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
        state = first_state(quorum, election, now_ms)
        if not isinstance(state, ResignedState):
            return state
        return UnattachedState(state.epoch, NO_NODE, state.election_deadline_ms)

    code.replace(core, "_first_state", unattached)


@survivor(
    Scope.CORE,
    tried_classic=181,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[startup_rules]",
    because="The mutant makes an election later, and breaks no promise; the quorum still makes progress in the calm.",
)
def candidate_forgets_its_epoch_at_the_start(code: Patches) -> None:
    """A candidate that restarts stays in its epoch as a voter for another replica, and not as a candidate."""
    first_state = core._first_state

    def voted(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
        if election.voted is not None and election.voted.matches(quorum.local) and election.leader_id == NO_NODE:
            return VotedState(election.epoch, NO_NODE, election.voted, now_ms + 1000)
        return first_state(quorum, election, now_ms)

    code.replace(core, "_first_state", voted)


# Elections


@mutant(Scope.CORE, budget=1000)
def election_timeouts_are_equal(code: Patches) -> None:
    """All replicas have the same election timeout, so that they request votes at the same time (Raft §5.2)."""
    code.replace(QuorumState, "random_election_timeout_ms", lambda quorum: quorum.config.election_timeout_ms)


@survivor(
    Scope.CORE,
    tried_classic=181,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[votes]",
    because="A simulated message always reaches the replica that it addresses.",
)
def vote_at_any_address(code: Patches) -> None:
    """A replica answers requests that address another voter id or another directory id."""
    for module in (elections, leadership):
        code.replace(module, "is_addressed", lambda quorum, voter: True)


@mutant(Scope.CORE, budget=400)
def pre_votes_against_a_live_leader(code: Patches) -> None:
    """A follower that hears its leader grants pre-votes to other replicas (KIP-996)."""
    code.replace(FollowerState, "can_grant", lambda follower, vote, *, up_to_date: vote.pre_vote and up_to_date)


@survivor(
    Scope.CORE,
    tried_classic=172,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[pre_vote]",
    because="Epochs rise more often and leaders change more often, which no promise forbids.",
)
def no_pre_vote_before_an_election(code: Patches) -> None:
    """A replica begins a new epoch without a round of pre-votes (KIP-996)."""

    def campaign(quorum: QuorumState, now_ms: int, cause: str) -> None:
        quorum.become_prospective(now_ms, cause)
        if isinstance(quorum.state, ProspectiveState):
            elections._campaign(quorum, now_ms, cause)

    code.replace(elections, "campaign", campaign)


@survivor(
    Scope.CORE,
    tried_classic=91,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py",
    because="A voter rejects each repeated request, so that only messages are lost.",
)
def rejected_votes_are_forgotten(code: Patches) -> None:
    """A candidate requests the vote of a voter again after a rejection."""
    record = Tally.record

    def record_grants(tally: Tally, voter_id: int, *, granted: bool) -> Tally:
        return record(tally, voter_id, granted=True) if granted else tally

    code.replace(Tally, "record", record_grants)


# Announcements


@mutant(Scope.CORE, budget=2000)
def no_record_at_the_start_of_an_epoch(code: Patches) -> None:
    """A new leader appends no record, so that it commits nothing before a client writes (Raft §8)."""

    def begin_leadership(quorum: QuorumState, granting: tuple[int, ...], now_ms: int) -> None:
        leader = quorum.become_leader(now_ms)
        quorum.log.assign_epoch(leader.epoch)

    code.replace(elections, "begin_leadership", begin_leadership)


@survivor(
    Scope.CORE,
    tried_classic=163,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[check_quorum]",
    because="A voter without the announcement finds the leader by a Fetch to any voter.",
)
def epoch_is_announced_once(code: Patches) -> None:
    """A leader sends BeginQuorumEpoch once, and not again to voters that do not fetch."""
    poll_leader = leadership.poll_leader

    def poll_and_stop(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        poll_leader(quorum, leader, now_ms)
        if leader.begin_deadline_ms > now_ms:
            leader.begin_deadline_ms = NEVER_MS

    code.replace(leadership, "poll_leader", poll_and_stop)


@survivor(
    Scope.CORE,
    tried_classic=146,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[check_quorum]",
    because="The mutant makes an election later, and breaks no promise; the quorum still makes progress in the calm.",
)
def resignation_is_not_announced(code: Patches) -> None:
    """A leader that resigns sends no EndQuorumEpoch."""
    become_resigned = QuorumState.become_resigned

    def resign_silently(quorum: QuorumState, successors: tuple[ReplicaKey, ...], now_ms: int, cause: str) -> None:
        become_resigned(quorum, successors, now_ms, cause)
        assert isinstance(quorum.state, ResignedState), quorum.state
        quorum.state.unacknowledged = ()

    code.replace(QuorumState, "become_resigned", resign_silently)


@survivor(
    Scope.CORE,
    tried_classic=130,
    tried=200,
    killed_by="tests/kraft/quorum/test_quorum_parts.py::test_successors_wait_by_rank",
    because="The mutant makes an election later, and breaks no promise; the quorum still makes progress in the calm.",
)
def successors_do_not_wait_by_rank(code: Patches) -> None:
    """All voters campaign at once after EndQuorumEpoch, whatever their rank (KIP-595)."""
    code.replace(leadership, "ranked_backoff_ms", lambda successors, local, maximum_ms: 0)


@survivor(
    Scope.CORE,
    tried_classic=146,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[check_quorum]",
    because="The mutant makes an election later, and breaks no promise; the quorum still makes progress in the calm.",
)
def successors_are_ranked_backwards(code: Patches) -> None:
    """A leader that resigns prefers the voter with the shortest log."""
    ranked_successors = LeaderState.ranked_successors
    code.replace(LeaderState, "ranked_successors", lambda leader: ranked_successors(leader)[::-1])


# Check-quorum


@mutant(Scope.CORE, budget=400, faults=None)
def leader_counts_itself_twice_for_check_quorum(code: Patches) -> None:
    """A leader needs one contact fewer than a majority of the voters (with five voters: one instead of two)."""

    def note_contact(leader: LeaderState, voter_id: int) -> bool:
        wanted = leader.contacts_wanted
        leader.contacts_wanted = max(wanted - 1, 1)
        try:
            return sound(leader, voter_id)
        finally:
            leader.contacts_wanted = wanted

    sound = LeaderState.note_contact
    code.replace(LeaderState, "note_contact", note_contact)


@survivor(
    Scope.CORE,
    tried_classic=157,
    tried=200,
    killed_by=(
        "tests/kraft/replica/test_known_bugs.py::test_requests_with_the_leaders_own_id_do_not_count_for_check_quorum"
    ),
    because="No simulated node sends requests under the id of another node.",
)
def own_id_counts_for_check_quorum(code: Patches) -> None:
    """A request under the leader's own id counts for check-quorum as that of another voter."""

    def note_contact(leader: LeaderState, voter_id: int) -> bool:
        if voter_id not in leader.fetched_voters:
            leader.fetched_voters = (*leader.fetched_voters, voter_id)
        if len(leader.fetched_voters) < leader.contacts_wanted:
            return False
        leader.fetched_voters = ()
        return True

    code.replace(LeaderState, "note_contact", note_contact)


@survivor(
    Scope.CORE,
    tried_classic=154,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[check_quorum]",
    because=(
        "A voter that follows another leader also tells the former leader of the higher epoch, which ends the "
        "leadership first."
    ),
)
def refused_fetches_count_for_check_quorum(code: Patches) -> None:
    """A Fetch that the leader refuses counts for check-quorum, although its sender may follow another leader."""
    on_fetch = replication.on_fetch

    def count_and_answer(quorum: QuorumState, event: Received, request: Fetch, now_ms: int) -> None:
        leader = quorum.state
        is_voter = isinstance(leader, LeaderState) and leader.voter_progress(request.replica) is not None
        if isinstance(leader, LeaderState) and is_voter and leader.note_contact(request.replica.id):
            leader.check_quorum_deadline_ms = now_ms + quorum.check_quorum_ms
        on_fetch(quorum, event, request, now_ms)

    code.replace(replication, "on_fetch", count_and_answer)


@mutant(Scope.DYNAMIC, budget=400)
def observers_count_for_check_quorum(code: Patches) -> None:
    """The fetches of observers count for check-quorum (KIP-853)."""
    judge = replication._judge

    def count_all(quorum: QuorumState, request: Fetch, now_ms: int) -> FetchReply | None:
        reply = judge(quorum, request, now_ms)
        leader = quorum.state
        if reply is not None or not isinstance(leader, LeaderState) or request.replica.id < 0:
            return reply
        if leader.voter_progress(request.replica) is None and leader.note_contact(request.replica.id):
            leader.check_quorum_deadline_ms = now_ms + quorum.check_quorum_ms
        return reply

    code.replace(replication, "_judge", count_all)


@mutant(Scope.DYNAMIC, budget=1000, faults=None)
def removed_leader_counts_itself_for_check_quorum(code: Patches) -> None:
    """A leader that has removed itself from the voters still counts itself for check-quorum and for reads."""
    count_voters = LeaderState._count_voters

    def count_and_count_itself(leader: LeaderState) -> None:
        count_voters(leader)
        leader.contacts_wanted = leader.voters.majority - 1

    code.replace(LeaderState, "_count_voters", count_and_count_itself)
