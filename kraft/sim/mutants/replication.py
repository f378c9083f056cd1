"""Mutants of replication: what is acknowledged, what counts as committed, and what is cut off (Raft §5.3, §5.4.2;
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
from kraft.sim.mutants.registry import Patches, Scope, mutant
from metadata_log.types import OffsetAndEpoch

# What is acknowledged


@mutant(Scope.CORE, budget=20)
def fetch_before_flush(code: Patches) -> None:
    """A follower fetches on, and so acknowledges, before what it has fetched is on disk."""
    code.replace(LogView, "is_flushed", True)


@mutant(Scope.CORE, budget=2000)
def one_flush_for_all(code: Patches) -> None:
    """An fsync that is done counts for what was appended after it had begun, too."""

    def flushed(log: LogView, offset: int, epoch: int) -> bool:
        return sound(log, log.end_offset, log.last_epoch)

    sound = LogView.flushed
    code.replace(LogView, "flushed", flushed)


@mutant(Scope.CORE, budget=50)
def leader_counts_itself_before_its_flush(code: Patches) -> None:
    """A leader counts its own log as far as it is written, flushed or not."""
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
    """A leader counts what it sends to a follower, not what that has."""
    count_fetch = replication._count_fetch

    def count_what_is_sent(quorum: QuorumState, leader: LeaderState, request: Fetch, now_ms: int) -> None:
        count_fetch(quorum, leader, replace(request, offset=quorum.log.end_offset), now_ms)

    code.replace(replication, "_count_fetch", count_what_is_sent)


@mutant(Scope.CORE, budget=200)
def fetch_counts_before_it_is_checked(code: Patches) -> None:
    """The offset of a Fetch counts, of whatever epoch it is and whether or not the logs agree."""
    judge = replication._judge

    def count_and_judge(quorum: QuorumState, request: Fetch, now_ms: int) -> FetchReply | None:
        leader = quorum.state
        if isinstance(leader, LeaderState) and request.offset <= quorum.log.end_offset:
            replication._count_fetch(quorum, leader, request, now_ms)
        return judge(quorum, request, now_ms)

    code.replace(replication, "_judge", count_and_judge)


# What is committed


@mutant(Scope.CORE, budget=20)
def former_epochs_commit(code: Patches) -> None:
    """A leader commits records of former epochs as soon as a majority has them (Raft figure 8)."""

    def advance_high_watermark(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        offset = sorted(one.end_offset for one in leader.progress.values())[-leader.voters.majority]
        if offset > leader.high_watermark:
            leader.high_watermark = offset
            quorum.move_high_watermark(offset)
            replication.answer_parked(quorum, now_ms)

    code.replace(replication, "advance_high_watermark", advance_high_watermark)


@mutant(Scope.CORE, budget=0)
def raft_figure_8(code: Patches) -> None:
    """A leader commits records of former epochs, and nothing is said until one of them is lost."""
    former_epochs_commit(code)
    code.replace(Invariants, "_check_own_epoch_first", lambda ledger, known, view: None)
    code.replace(Invariants, "_check_progress", lambda ledger, node_id, view: None)


def _commit_with(code: Patches, is_enough: Callable[[int], int]) -> None:
    """Let so many of the voters, by their number, make a majority."""

    def committable(leader: LeaderState) -> int | None:
        offsets = sorted((one.end_offset for one in leader.progress.values()), reverse=True)
        offset = offsets[is_enough(len(offsets)) - 1]
        return offset if offset > max(leader.epoch_start_offset, leader.high_watermark) else None

    code.replace(LeaderState, "committable", committable)


@mutant(Scope.CORE, budget=20)
def one_commits(code: Patches) -> None:
    """What a single voter has on disk is committed."""
    _commit_with(code, lambda voters: 1)


@mutant(Scope.CORE, budget=20)
def minority_commits(code: Patches) -> None:
    """What one voter less than a majority has is committed."""
    _commit_with(code, lambda voters: max(voters // 2, 1))


@mutant(Scope.CORE, budget=20)
def high_watermark_carried_to_a_new_leader(code: Patches) -> None:
    """A new leader takes all of its log for committed."""
    become_leader = QuorumState.become_leader

    def become_leader_of_all(quorum: QuorumState, now_ms: int) -> LeaderState:
        leader = become_leader(quorum, now_ms)
        leader.high_watermark = quorum.log.end_offset
        quorum.move_high_watermark(quorum.log.end_offset)
        return leader

    code.replace(QuorumState, "become_leader", become_leader_of_all)


@mutant(Scope.CORE, budget=50)
def follower_believes_any_high_watermark(code: Patches) -> None:
    """A follower takes the leader's high watermark for its own, also where its log does not reach so far."""

    def commit(log: LogView, offset: int) -> None:
        log.high_watermark = offset

    def follow_high_watermark(quorum: QuorumState, high_watermark: int) -> None:
        if high_watermark >= 0:
            quorum.move_high_watermark(high_watermark)

    code.replace(LogView, "commit", commit)
    code.replace(replication, "_follow_high_watermark", follow_high_watermark)


@mutant(Scope.CORE, budget=20)
def follower_commits_all_it_has(code: Patches) -> None:
    """A follower takes whatever the leader sends for committed."""

    def follow_high_watermark(quorum: QuorumState, high_watermark: int) -> None:
        if high_watermark >= 0:
            quorum.move_high_watermark(quorum.log.end_offset)

    code.replace(replication, "_follow_high_watermark", follow_high_watermark)


# What is cut off


@mutant(Scope.CORE, budget=50)
def divergence_overlooked(code: Patches) -> None:
    """A leader does not compare logs: who is not as long as its own log follows it."""

    def check(log: LogView, offset: int, last_epoch: int) -> PositionCheck:
        return PositionCheck(Position.VALID, OffsetAndEpoch(epoch=last_epoch, offset=offset))

    code.replace(LogView, "check", check)


@mutant(Scope.CORE, budget=20)
def divergence_not_cut(code: Patches) -> None:
    """A follower that is told to cut its log does not, and asks again."""
    code.replace(replication, "_truncate", lambda quorum, peer_id, diverging, now_ms: Verdict.CONTINUE)


def _truncate_with_shift(code: Patches, shift: int) -> None:
    truncation_point = LogView.truncation_point

    def shifted(log: LogView, diverging: OffsetAndEpoch) -> int:
        return max(truncation_point(log, diverging) + shift, log.start_offset)

    code.replace(LogView, "truncation_point", shifted)


@mutant(Scope.CORE, budget=200)
def one_record_too_many_is_cut(code: Patches) -> None:
    """A truncation takes the last record with it that both logs have."""
    _truncate_with_shift(code, -1)


@mutant(Scope.CORE, budget=100)
def one_record_too_few_is_cut(code: Patches) -> None:
    """A truncation leaves the first record that differs."""
    _truncate_with_shift(code, 1)


@mutant(Scope.CORE, budget=100)
def new_leader_cuts_its_log(code: Patches) -> None:
    """A new leader drops what it does not know to be committed."""

    def cut_and_begin(quorum: QuorumState, granting: tuple[int, ...], now_ms: int) -> None:
        log = quorum.log
        offset = log.never_below
        if offset < log.end_offset:
            log.truncated(offset)
            quorum.emit(TruncateLog(offset))
            quorum.change_voters(quorum.history.truncated(offset), now_ms)
        begin_leadership(quorum, granting, now_ms)

    code.replace(elections, "begin_leadership", cut_and_begin)
