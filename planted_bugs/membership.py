"""Mutants of voter changes: overlapping changes, and majorities of the wrong set (KIP-853; Raft dissertation §4)."""

from __future__ import annotations

from msgspec.structs import replace

from kraft.invariants.quorum import Invariants
from kraft.quorum import leadership, membership, reads, replication
from kraft.quorum.effects import ReadConfirmed, SendReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import FollowerState, LeaderState
from kraft.quorum.values import Endpoints, ReplicaKey
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import VoterSet
from metadata_log.types import NO_OFFSET
from planted_bugs.registry import Patches, Scope, mutant
from transport.protocol.errors import Error

# Begin of a change


def _refuse_unless(code: Patches, is_overlooked: object) -> None:
    """Refuse changes as before, except for refusals for which `is_overlooked(quorum, text)` is true."""
    assert callable(is_overlooked)
    sound = membership._refusal

    def refusal(
        quorum: QuorumState, key: ReplicaKey, endpoints: Endpoints | None, *, is_update: bool = False
    ) -> membership.Refusal | None:
        refused = sound(quorum, key, endpoints, is_update=is_update)
        return None if refused is not None and is_overlooked(quorum, refused[1]) else refused

    code.replace(membership, "_refusal", refusal)


@mutant(Scope.DYNAMIC, budget=400)
def two_pending_voter_changes(code: Patches) -> None:
    """Once no request waits for a voter change any more, the next change begins, committed or not (KAFKA-20740)."""

    def is_uncommitted(quorum: QuorumState, text: str) -> bool:
        return text == "The last change of the voters is not committed yet."

    _refuse_unless(code, is_uncommitted)
    code.replace(VoterHistory, "uncommitted_changes", lambda history, high_watermark: 0)


@mutant(Scope.DYNAMIC, budget=200)
def voter_change_before_the_own_epoch_commits(code: Patches) -> None:
    """A new leader changes the voters before it has committed a record of its epoch (the flaw of 2015 in Raft)."""

    def is_new(quorum: QuorumState, text: str) -> bool:
        is_first = text == "The leader has committed nothing of its epoch yet."
        return is_first and not quorum.history.uncommitted_changes(quorum.log.high_watermark)

    _refuse_unless(code, is_new)


@mutant(Scope.DYNAMIC, budget=0)
def single_server_change_of_2015(code: Patches) -> None:
    """A new leader changes the voters before it has committed a record, and the checks wait for a lost record."""
    voter_change_before_the_own_epoch_commits(code)
    code.replace(Invariants, "_check_change", lambda ledger, known, view, batches: None)


# Majorities


@mutant(Scope.DYNAMIC, budget=20)
def removed_voters_count(code: Patches) -> None:
    """A leader still counts removed voters."""
    take_voters = LeaderState.take_voters

    def take_voters_and_keep_others(leader: LeaderState, voters: VoterSet) -> None:
        before = dict(leader.progress)
        take_voters(leader, voters)
        leader.progress = {**before, **leader.progress}

    code.replace(LeaderState, "take_voters", take_voters_and_keep_others)


@mutant(Scope.DYNAMIC, budget=20)
def leader_counts_former_voters(code: Patches) -> None:
    """A leader that changes the voters still uses majorities of the former voters."""
    code.replace(LeaderState, "take_voters", lambda leader, voters: None)


@mutant(Scope.DYNAMIC, budget=20)
def observers_stand(code: Patches) -> None:
    """An observer becomes a candidate."""
    take_voters = QuorumState._take_voters

    def take_voters_and_vote(quorum: QuorumState, history: VoterHistory) -> None:
        take_voters(quorum, history)
        quorum.is_voter = True

    code.replace(QuorumState, "_take_voters", take_voters_and_vote)


@mutant(Scope.DYNAMIC, budget=200)
def directories_are_not_compared(code: Patches) -> None:
    """A voter with a lost disk and a new directory id still counts as the same voter."""
    code.replace(ReplicaKey, "matches", lambda key, other: key.id == other.id)


@mutant(Scope.DYNAMIC, budget=50)
def removed_leader_leads_on(code: Patches) -> None:
    """A leader that was removed from the voters does not resign when the removal is committed."""

    def on_commit(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        sound(quorum, leader, now_ms)
        leader.is_removed = False

    sound = leadership.on_commit
    for module in (leadership, replication):
        code.replace(module, "on_commit", on_commit)


# Adoption of a change


@mutant(Scope.DYNAMIC, budget=50)
def voters_survive_a_truncation(code: Patches) -> None:
    """A truncated voter change stays in force."""
    code.replace(VoterHistory, "truncated", lambda history, offset: history)


@mutant(Scope.DYNAMIC, budget=50)
def followers_overlook_changes(code: Patches) -> None:
    """Only the leader adopts a voter change; the other nodes adopt it at their next start."""
    change_voters = QuorumState.change_voters

    def change_voters_unless_following(quorum: QuorumState, history: VoterHistory, now_ms: int) -> None:
        if not isinstance(quorum.state, FollowerState) or not quorum.history.sets:
            change_voters(quorum, history, now_ms)

    code.replace(QuorumState, "change_voters", change_voters_unless_following)


# Answers to changes


@mutant(Scope.DYNAMIC, budget=20)
def voter_change_answered_at_once(code: Patches) -> None:
    """A leader answers a voter change with success once the change is in its log, committed or not."""
    answer_parked = replication.answer_parked

    def answer_the_change_too(quorum: QuorumState, now_ms: int) -> None:
        leader = quorum.state
        change = leader.change if isinstance(leader, LeaderState) else None
        if isinstance(leader, LeaderState) and change is not None and change.offset >= 0 and change.reply is not None:
            quorum.emit(SendReply(change.request_id, change.reply))
            leader.change = replace(change, reply=None)
        answer_parked(quorum, now_ms)

    code.replace(membership, "answer_parked", answer_the_change_too)


@mutant(Scope.DYNAMIC, budget=200)
def voter_change_answered_one_record_early(code: Patches) -> None:
    """A leader answers a voter change with success when the high watermark reaches its record, and not when it passes
    the record.
    """
    on_commit = leadership.on_commit

    def on_commit_or_before(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        change = leader.change
        if change is not None and 0 <= change.offset == leader.high_watermark:
            leadership.end_change(quorum, leader)
        on_commit(quorum, leader, now_ms)

    for module in (leadership, replication):
        code.replace(module, "on_commit", on_commit_or_before)


@mutant(Scope.DYNAMIC, budget=200)
def late_voter_change_answered_with_success(code: Patches) -> None:
    """A leader that stops waiting for the commit of a voter change answers with success."""
    end_change = leadership.end_change

    def end_change_well(
        quorum: QuorumState, leader: LeaderState, error: Error = Error.NONE, text: str | None = None
    ) -> None:
        is_written = leader.change is not None and leader.change.offset >= 0
        end_change(quorum, leader, Error.NONE if is_written else error, None if is_written else text)

    for module in (leadership, membership):
        code.replace(module, "end_change", end_change_well)


@mutant(Scope.DYNAMIC, budget=600)
def updated_voter_is_not_written(code: Patches) -> None:
    """A leader answers the update of a voter with success and writes nothing."""
    write = membership._write

    def write_other_changes(quorum: QuorumState, leader: LeaderState, voters: VoterSet, now_ms: int) -> int:
        is_update = voters.keys == quorum.voters.keys
        return quorum.log.end_offset - 1 if is_update else write(quorum, leader, voters, now_ms)

    code.replace(membership, "_write", write_other_changes)


# Reads


@mutant(Scope.DYNAMIC, budget=800)
def reads_confirmed_by_former_voters(code: Patches) -> None:
    """A leader confirms reads by as many voters as were a majority when it was elected, whatever changes follow."""
    advance = reads.advance

    def advance_with_former_voters(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        present = leader.voters, leader.contacts_wanted
        former = quorum.history.truncated(leader.epoch_start_offset).voters
        if len(former):
            leader.voters, leader.contacts_wanted = former, former.majority - former.contains(leader.local)
        advance(quorum, leader, now_ms)
        leader.voters, leader.contacts_wanted = present

    code.replace(reads, "advance", advance_with_former_voters)


@mutant(Scope.DYNAMIC, budget=200)
def reads_unconfirmed_while_voters_change(code: Patches) -> None:
    """A leader answers a read as soon as a voter change is pending, without a round of confirmations."""
    advance = reads.advance

    def advance_unless_voters_change(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        if leader.change is None or leader.high_watermark == NO_OFFSET or not leader.waiting_reads:
            advance(quorum, leader, now_ms)
        else:
            quorum.emit(ReadConfirmed(leader.waiting_reads, leader.high_watermark))
            leader.waiting_reads = ()

    code.replace(reads, "advance", advance_unless_voters_change)
