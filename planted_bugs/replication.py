"""Mutants of replication: acknowledgement, commit and truncation (Raft §5.3, §5.4.2;
KIP-595).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from kraft.invariants.quorum import Invariants
from kraft.quorum import elections, replication
from kraft.quorum.effects import TruncateLog
from kraft.quorum.exchanges import Verdict
from kraft.quorum.leadership import begin_leadership
from kraft.quorum.log_view import LogView, Position, PositionCheck
from kraft.quorum.messages import Fetch, FetchReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from metadata_log.types import OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant

# Acknowledgement


@mutant(Scope.CORE, budget=20)
def fetch_before_flush(code: Patches) -> None:
    """A follower fetches the next records, and so acknowledges the last ones, before those are on disk."""
    code.replace(LogView, "is_flushed", True)


@mutant(Scope.CORE, budget=2000)
def one_flush_for_all(code: Patches) -> None:
    """A completed fsync also counts for records appended after its start."""

    def flushed(log: LogView, offset: int, epoch: int) -> bool:
        return sound(log, log.end_offset, log.last_epoch)

    sound = LogView.flushed
    code.replace(LogView, "flushed", flushed)


@mutant(Scope.CORE, budget=50)
def leader_counts_itself_before_its_flush(code: Patches) -> None:
    """A leader counts its own records as replicated once they are written, flushed or not."""
    drain = replication.drain

    def drain_and_count(quorum: QuorumState, now_ms: int) -> None:
        drain(quorum, now_ms)
        leader = quorum.state
        if isinstance(leader, LeaderState):
            leader.progress[quorum.local.id].end_offset = quorum.log.end_offset
            replication.advance_high_watermark(quorum, leader, now_ms)

    code.replace(replication, "drain", drain_and_count)


@mutant(Scope.CORE, budget=20)
def what_is_sent_counts(code: Patches) -> None:
    """A leader counts the records sent to a follower, not those that the follower has acknowledged."""
    count_fetch = replication._count_fetch

    def count_what_is_sent(quorum: QuorumState, leader: LeaderState, request: Fetch, now_ms: int) -> None:
        count_fetch(quorum, leader, replace(request, offset=quorum.log.end_offset), now_ms)

    code.replace(replication, "_count_fetch", count_what_is_sent)


@mutant(Scope.CORE, budget=200)
def fetch_counts_before_it_is_checked(code: Patches) -> None:
    """A leader counts the offset of any Fetch request, without a check of its epoch and of the follower's log."""
    judge = replication._judge

    def count_and_judge(quorum: QuorumState, request: Fetch, now_ms: int) -> FetchReply | None:
        leader = quorum.state
        if isinstance(leader, LeaderState) and request.offset <= quorum.log.end_offset:
            replication._count_fetch(quorum, leader, request, now_ms)
        return judge(quorum, request, now_ms)

    code.replace(replication, "_judge", count_and_judge)


# Commit


@mutant(Scope.CORE, budget=20)
def former_epochs_commit(code: Patches) -> None:
    """A leader commits records of former epochs once a majority has them (Raft figure 8)."""

    def advance_high_watermark(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        offset = sorted(one.end_offset for one in leader.progress.values())[-leader.voters.majority]
        if offset > leader.high_watermark:
            leader.high_watermark = offset
            quorum.move_high_watermark(offset)
            replication.answer_parked(quorum, now_ms)

    code.replace(replication, "advance_high_watermark", advance_high_watermark)


@mutant(Scope.CORE, budget=0)
def raft_figure_8(code: Patches) -> None:
    """A leader commits records of former epochs, and the checks wait for a lost record."""
    former_epochs_commit(code)
    code.replace(Invariants, "_check_own_epoch_first", lambda ledger, known, view: None)
    code.replace(Invariants, "_check_progress", lambda ledger, node_id, view: None)


def _commit_with(code: Patches, is_enough: Callable[[int], int]) -> None:
    """Let the given function of the number of voters determine the size of a majority."""

    def committable(leader: LeaderState) -> int | None:
        offsets = sorted((one.end_offset for one in leader.progress.values()), reverse=True)
        offset = offsets[is_enough(len(offsets)) - 1]
        return offset if offset > max(leader.epoch_start_offset, leader.high_watermark) else None

    code.replace(LeaderState, "committable", committable)


@mutant(Scope.CORE, budget=20)
def one_commits(code: Patches) -> None:
    """A record on the disk of a single voter counts as committed."""
    _commit_with(code, lambda voters: 1)


@mutant(Scope.CORE, budget=20)
def minority_commits(code: Patches) -> None:
    """A record on the disks of one voter less than a majority counts as committed."""
    _commit_with(code, lambda voters: max(voters // 2, 1))


@mutant(Scope.CORE, budget=20)
def high_watermark_carried_to_a_new_leader(code: Patches) -> None:
    """A new leader regards its whole log as committed."""
    become_leader = QuorumState.become_leader

    def become_leader_of_all(quorum: QuorumState, now_ms: int) -> LeaderState:
        leader = become_leader(quorum, now_ms)
        leader.high_watermark = quorum.log.end_offset
        quorum.move_high_watermark(quorum.log.end_offset)
        return leader

    code.replace(QuorumState, "become_leader", become_leader_of_all)


@mutant(Scope.CORE, budget=50)
def follower_believes_any_high_watermark(code: Patches) -> None:
    """A follower adopts the leader's high watermark, even beyond the end of its own log."""

    def commit(log: LogView, offset: int) -> None:
        log.high_watermark = offset

    def follow_high_watermark(quorum: QuorumState, high_watermark: int) -> None:
        if high_watermark >= 0:
            quorum.move_high_watermark(high_watermark)

    code.replace(LogView, "commit", commit)
    code.replace(replication, "_follow_high_watermark", follow_high_watermark)


@mutant(Scope.CORE, budget=20)
def follower_commits_all_it_has(code: Patches) -> None:
    """A follower regards all records from the leader as committed."""

    def follow_high_watermark(quorum: QuorumState, high_watermark: int) -> None:
        if high_watermark >= 0:
            quorum.move_high_watermark(quorum.log.end_offset)

    code.replace(replication, "_follow_high_watermark", follow_high_watermark)


# Truncation


@mutant(Scope.CORE, budget=50)
def divergence_overlooked(code: Patches) -> None:
    """A leader does not compare logs: any follower with a log no longer than the leader's may fetch."""

    def check(log: LogView, offset: int, last_epoch: int) -> PositionCheck:
        return PositionCheck(Position.VALID, OffsetAndEpoch(epoch=last_epoch, offset=offset))

    code.replace(LogView, "check", check)


@mutant(Scope.CORE, budget=20)
def divergence_not_cut(code: Patches) -> None:
    """A follower ignores the diverging epoch in a response, does not truncate, and fetches again."""
    code.replace(replication, "_truncate", lambda quorum, peer_id, diverging, now_ms: Verdict.CONTINUE)


def _truncate_with_shift(code: Patches, shift: int) -> None:
    truncation_point = LogView.truncation_point

    def shifted(log: LogView, diverging: OffsetAndEpoch) -> int:
        return max(truncation_point(log, diverging) + shift, log.start_offset)

    code.replace(LogView, "truncation_point", shifted)


@mutant(Scope.CORE, budget=200)
def one_record_too_many_is_cut(code: Patches) -> None:
    """A truncation also removes the last record that both logs have."""
    _truncate_with_shift(code, -1)


@mutant(Scope.CORE, budget=100)
def one_record_too_few_is_cut(code: Patches) -> None:
    """A truncation leaves the first record that differs."""
    _truncate_with_shift(code, 1)


@mutant(Scope.CORE, budget=100)
def new_leader_cuts_its_log(code: Patches) -> None:
    """A new leader truncates its log to its high watermark."""

    def cut_and_begin(quorum: QuorumState, granting: tuple[int, ...], now_ms: int) -> None:
        log = quorum.log
        offset = log.never_below
        if offset < log.end_offset:
            log.truncated(offset)
            quorum.emit(TruncateLog(offset))
            quorum.change_voters(quorum.history.truncated(offset), now_ms)
        begin_leadership(quorum, granting, now_ms)

    code.replace(elections, "begin_leadership", cut_and_begin)
