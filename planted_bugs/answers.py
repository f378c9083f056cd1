"""Mutants of answers to clients, of reads and of sessions: what a caller may conclude from an answer (Raft
dissertation §6.3 and §6.4).
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from kraft.quorum import reads
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.quorum.states.leader import ReadRound
from kraft.replica.confirmations import Confirmations
from kraft.replica.deferred import Abandoned, Deferred, Held
from kraft.state_machine import sessions as session_rules
from kraft.state_machine.log import Command, Outcome, SessionState
from kraft.state_machine.sessions import Sessions
from metadata_log.types import NO_OFFSET
from planted_bugs.registry import Patches, Scope, mutant, survivor

# Proposals


@mutant(Scope.REPLICA, budget=200)
def answer_one_record_before_its_commit(code: Patches) -> None:
    """A client receives a success when the high watermark reaches its last record, not when it passes that record."""
    release, is_due = Deferred.release, Deferred.is_due
    code.replace(Deferred, "release", lambda held, offset, room: release(held, offset + 1, room))
    code.replace(Deferred, "is_due", lambda held, offset: is_due(held, offset + 1))


@survivor(
    Scope.REPLICA,
    tried_classic=84,
    tried=200,
    killed_by=(
        "tests/kraft/process/test_answer_rules.py::"
        "test_an_answer_waits_for_the_commit_of_the_last_record_of_its_proposal"
    ),
    because="Each proposal of these runs has one record.",
)
def answer_by_the_first_record(code: Patches) -> None:
    """A client receives a success when the first record of its proposal is committed."""
    hold = Deferred.hold

    def hold_first(deferred: Deferred, held: Held) -> None:
        hold(deferred, replace(held, last_offset=max([held.base_offset, *(one.last_offset for one in deferred.held)])))

    code.replace(Deferred, "hold", hold_first)


@survivor(
    Scope.REPLICA,
    tried_classic=73,
    tried=200,
    killed_by=(
        "tests/kraft/process/test_answer_rules.py::"
        "test_a_committed_proposal_is_a_success_after_the_end_of_the_leadership"
    ),
    because="An uncertain answer is always allowed: the client has to ask again.",
)
def committed_proposal_reported_as_uncertain(code: Patches) -> None:
    """A leader that loses its leadership reports the committed proposals among the waiting ones as uncertain."""
    add = Abandoned.add

    def add_all_as_lost(abandoned: Abandoned, held: deque[Held], committed_offset: int) -> None:
        add(abandoned, held, NO_OFFSET)

    code.replace(Abandoned, "add", add_all_as_lost)


# Reads


@survivor(
    Scope.MACHINE,
    tried_classic=59,
    tried=100,
    killed_by="tests/kraft/quorum/test_leader_rules.py::"
    "test_a_new_leader_confirms_no_read_before_the_first_commit_of_its_epoch",
    because=(
        "A read has to arrive in the few milliseconds between an election and the first commit, at a leader "
        "with a high watermark that is out of date."
    ),
)
def reads_before_the_first_commit_of_an_epoch(code: Patches) -> None:
    """A new leader serves reads before it has committed a record of its epoch, from its former high watermark."""
    current_round = reads._current_round

    def round_at_once(quorum: QuorumState, leader: LeaderState) -> ReadRound | None:
        if leader.high_watermark != NO_OFFSET or leader.read_round is not None or quorum.log.high_watermark < 0:
            return current_round(quorum, leader)
        leader.read_round = ReadRound(leader.waiting_reads, quorum.log.high_watermark, leader.voters)
        leader.waiting_reads = ()
        return leader.read_round

    code.replace(reads, "_current_round", round_at_once)


@survivor(
    Scope.MACHINE,
    tried_classic=56,
    tried=100,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[reads]",
    because=(
        "The read has to arrive after another leader has committed, and the voters must have confirmed the "
        "round before they elected that leader."
    ),
)
def reads_join_the_round_in_progress(code: Patches) -> None:
    """A read joins the round of confirmations that began before the read arrived."""
    current_round = reads._current_round

    def round_with_all(quorum: QuorumState, leader: LeaderState) -> ReadRound | None:
        current = current_round(quorum, leader)
        if current is not None and leader.waiting_reads:
            current = replace(current, read_ids=(*current.read_ids, *leader.waiting_reads))
            leader.waiting_reads, leader.read_round = (), current
        return current

    code.replace(reads, "_current_round", round_with_all)


@survivor(
    Scope.DYNAMIC,
    tried=200,
    killed_by=(
        "tests/kraft/quorum/test_leader_rules.py::"
        "test_a_voter_that_is_removed_during_a_round_of_confirmations_confirms_no_read"
    ),
    because=(
        "A voter change has to fall into a round of confirmations, and another leader has to commit by the new voters "
        "before the round ends."
    ),
)
def reads_by_the_former_voters(code: Patches) -> None:
    """A voter change during a round of confirmations does not begin the round again."""
    current_round = reads._current_round

    def round_of_any_voters(quorum: QuorumState, leader: LeaderState) -> ReadRound | None:
        if leader.read_round is not None:
            return leader.read_round
        return current_round(quorum, leader)

    code.replace(reads, "_current_round", round_of_any_voters)


@survivor(
    Scope.MACHINE,
    tried_classic=56,
    tried=100,
    killed_by=(
        "tests/kraft/process/test_answer_rules.py::"
        "test_a_confirmed_read_waits_until_the_application_has_applied_the_log_up_to_its_offset"
    ),
    because="A leader of the simulation applies its committed records in the same step, before a round can end.",
)
def reads_at_any_applied_offset(code: Patches) -> None:
    """A leader serves a confirmed read before it has applied the log up to the offset of the round."""
    take = Confirmations.take
    code.replace(Confirmations, "take", lambda waiting, applied_offset: take(waiting, 2**62))


# Sessions


@mutant(Scope.MACHINE, budget=200, faults=None)
def results_dropped_one_too_early(code: Patches) -> None:
    """A session drops the result of the first command that its client has not acknowledged."""
    admit = Sessions.admit

    def admit_and_drop(sessions: Sessions, entry: Command) -> Outcome | None:
        known = admit(sessions, entry)
        session = sessions._by_id.get(entry.session)
        if session is not None and known is None:
            session.kept.pop(entry.acknowledged, None)
        return known

    code.replace(Sessions, "admit", admit_and_drop)


@mutant(Scope.MACHINE, budget=200, faults=None)
def sessions_of_clients_never_expire(code: Patches) -> None:
    """A session stays alive after its client has been silent for longer than the session's time to live."""
    code.replace(Sessions, "_is_alive", lambda sessions, session: True)


@mutant(Scope.MACHINE, budget=200, faults=None)
def sessions_are_not_touched(code: Patches) -> None:
    """A command does not prolong the session of its client, so that the session ends while the client uses it."""

    def touch(sessions: Sessions, session: SessionState) -> None:
        sessions._by_id[session.id] = sessions._by_id.pop(session.id)

    code.replace(Sessions, "_touch", touch)


@survivor(
    Scope.MACHINE,
    tried_classic=45,
    tried=100,
    killed_by=(
        "tests/kraft/state_machine/test_session_rules.py::"
        "test_a_command_beyond_the_window_of_its_session_is_not_applied"
    ),
    because="A simulated client has four commands outstanding at most; the window has 4,096.",
)
def any_sequence_is_admitted(code: Patches) -> None:
    """A session admits commands far beyond the window of outstanding commands."""
    code.replace(session_rules, "SESSION_WINDOW", 2**62)
