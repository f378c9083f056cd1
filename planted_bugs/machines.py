"""Mutants of state machines and their clients: duplicate commands and stale reads (Raft dissertation §6.3 and
§6.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kraft.quorum import reads, replication
from kraft.quorum.effects import ReadConfirmed
from kraft.quorum.messages import Fetch
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.quorum.states.leader import ReadRound
from kraft.state_machine import server as state_machine_host
from kraft.state_machine.calls import StateMachineCalls, _Pending
from kraft.state_machine.log import Command, Entry, Expired, Outcome, SessionState, Superseded
from kraft.state_machine.reads import StateMachineReads
from kraft.state_machine.sessions import Sessions
from metadata_log.types import NO_OFFSET
from planted_bugs.registry import Patches, Scope, mutant

# Commands


@mutant(Scope.MACHINE, budget=400)
def copies_are_applied(code: Patches) -> None:
    """A repeated command, perhaps sent to another leader, is applied again."""
    admit = Sessions.admit

    def admit_copies(sessions: Sessions, entry: Command) -> Outcome | None:
        known = admit(sessions, entry)
        return known if isinstance(known, Expired) else None

    code.replace(Sessions, "admit", admit_copies)


@mutant(Scope.MACHINE, budget=50)
def snapshot_without_sessions(code: Patches) -> None:
    """A snapshot contains no client sessions."""

    def sessions_without_results(now_ms: int = 0, sessions: Iterable[SessionState] = ()) -> Sessions:
        return Sessions(now_ms, [replace(one, kept={}) for one in sessions])

    code.replace(state_machine_host, "Sessions", sessions_without_results)


@mutant(Scope.MACHINE, budget=600)
def result_dropped_at_acknowledged(code: Patches) -> None:
    """A session forgets the result of the first command that its client has not acknowledged, too."""
    admit = Sessions.admit

    def admit_and_forget(sessions: Sessions, entry: Command) -> Outcome | None:
        session = sessions._by_id.get(entry.session)
        former = 0 if session is None else session.acknowledged
        known = admit(sessions, entry)
        if session is not None and session.acknowledged > former:
            session.kept.pop(session.acknowledged, None)
        return known

    code.replace(Sessions, "admit", admit_and_forget)


@mutant(Scope.MACHINE, budget=50)
def session_dies_in_use(code: Patches) -> None:
    """The lifetime of a session begins when the session is opened, and no use of the session extends it."""

    def move_to_the_end(sessions: Sessions, session: SessionState) -> None:
        sessions._by_id[session.id] = sessions._by_id.pop(session.id)

    code.replace(Sessions, "_touch", move_to_the_end)


@mutant(Scope.MACHINE, budget=50)
def session_that_never_ends(code: Patches) -> None:
    """A session goes on after its lifetime, if no other session was opened meanwhile."""
    code.replace(Sessions, "known", _known_in_any_session)


def _known_in_any_session(sessions: Sessions, session_id: int, sequence: int) -> Outcome | None:
    session = sessions._by_id.get(session_id)
    if session is None:
        return Expired()
    return Superseded() if sequence < session.acknowledged else session.kept.get(sequence)


@mutant(Scope.MACHINE, budget=600)
def own_commands_acknowledged_early(code: Patches) -> None:
    """A node acknowledges its former commands with each new one, though it has not applied them yet."""
    entry_of = StateMachineCalls._entry

    def entry_that_acknowledges(calls: StateMachineCalls, call_id: int, pending: _Pending) -> Entry:
        entry = entry_of(calls, call_id, pending)
        return replace(entry, acknowledged=entry.sequence) if isinstance(entry, Command) else entry

    code.replace(StateMachineCalls, "_entry", entry_that_acknowledges)


# Reads


@mutant(Scope.MACHINE, budget=1000)
def reads_without_a_majority(code: Patches) -> None:
    """A leader serves reads without confirming its leadership."""

    def confirm_at_once(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        if leader.high_watermark != NO_OFFSET:
            quorum.emit(ReadConfirmed(leader.waiting_reads, leader.high_watermark))
            leader.waiting_reads = ()

    code.replace(reads, "advance", confirm_at_once)


@mutant(Scope.MACHINE, budget=8000)
def fetches_confirm_the_leader(code: Patches) -> None:
    """Any fetch confirms the leader, although the follower may have sent it before it voted for another leader."""
    count_fetch = replication._count_fetch

    def count_and_confirm(quorum: QuorumState, leader: LeaderState, request: Fetch, now_ms: int) -> None:
        count_fetch(quorum, leader, request, now_ms)
        current, voter_id = leader.read_round, request.replica.id
        if isinstance(current, ReadRound) and voter_id in leader.progress and voter_id not in current.confirmed:
            leader.read_round = replace(current, confirmed=(*current.confirmed, voter_id))

    code.replace(replication, "_count_fetch", count_and_confirm)


@mutant(Scope.MACHINE, budget=50)
def reads_do_not_wait(code: Patches) -> None:
    """A node serves a read once the leader confirms it, without waiting to apply the log up to the read offset."""
    release = StateMachineReads.release
    code.replace(StateMachineReads, "release", lambda waiting, applied_offset: release(waiting, 2**63))
