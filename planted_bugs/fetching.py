"""Mutants of fetching: positions, epochs of the log, the high watermark and its news (KIP-595, KIP-1166)."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from weakref import WeakKeyDictionary

from kraft.quorum import replication
from kraft.quorum.exchanges import Verdict
from kraft.quorum.log_view import LogView, Position, PositionCheck
from kraft.quorum.messages import FetchReply
from kraft.quorum.purgatory import Purgatory
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import EpochState, FollowerState, LeaderState
from kraft.quorum.states.leader import Progress
from kraft.sim.faults.profiles import CORRUPTION
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant, survivor

# Positions


@mutant(Scope.CORE, budget=200)
def fetch_beyond_the_end_is_valid(code: Patches) -> None:
    """A leader accepts a Fetch position beyond the end of its own log."""
    check = LogView.check

    def check_without_end(log: LogView, offset: int, last_epoch: int) -> PositionCheck:
        found = check(log, offset, last_epoch)
        if found.position is Position.DIVERGING and found.at.epoch == last_epoch:
            return PositionCheck(Position.VALID, OffsetAndEpoch(epoch=last_epoch, offset=min(offset, log.end_offset)))
        return found

    code.replace(LogView, "check", check_without_end)


@mutant(Scope.CORE, budget=200)
def epoch_ends_where_it_begins(code: Patches) -> None:
    """A leader reports the first offset of an epoch as the end of that epoch."""

    def end_offset_for(history: EpochHistory, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        last = history.last_epoch
        if last is None or epoch >= last:
            return sound(history, epoch, log_end_offset)
        at = bisect_left(history.entries, epoch, key=attrgetter("epoch"))
        entry = history.entries[at]
        return entry if entry.epoch == epoch else sound(history, epoch, log_end_offset)

    sound = EpochHistory.end_offset_for
    code.replace(EpochHistory, "end_offset_for", end_offset_for)


@mutant(Scope.CORE, budget=200)
def truncation_keeps_the_epochs(code: Patches) -> None:
    """A truncation leaves the epochs of the removed records in the history of epochs."""
    truncated = LogView.truncated

    def truncated_but_for_epochs(log: LogView, offset: int) -> None:
        epochs = log.epochs
        truncated(log, offset)
        log._set_epochs(epochs)

    code.replace(LogView, "truncated", truncated_but_for_epochs)


@mutant(Scope.CORE, budget=1000)
def truncation_to_the_leaders_offset_alone(code: Patches) -> None:
    """A follower truncates to the offset in the response, although its own records of that epoch may end earlier."""

    def truncation_point(log: LogView, diverging: OffsetAndEpoch) -> int:
        return min(diverging.offset, log.end_offset)

    code.replace(LogView, "truncation_point", truncation_point)


@survivor(
    Scope.CORE,
    tried_classic=137,
    tried=200,
    killed_by="tests/kraft/quorum/test_quorum_parts.py::test_truncation_below_the_high_watermark_is_refused",
    because="A sound leader has all committed records, and never requests such a truncation.",
)
def truncation_below_the_high_watermark(code: Patches) -> None:
    """A follower truncates committed records when its leader requests that."""
    never_below = property(lambda log: log.start_offset)
    code.replace(LogView, "never_below", never_below)


# Flushes


@survivor(
    Scope.CORE,
    tried_classic=164,
    tried=200,
    killed_by=(
        "tests/kraft/quorum/test_quorum_parts.py::test_a_flush_of_truncated_records_does_not_advance_the_flushed_offset"
    ),
    because=(
        "The fsync has to last through a truncation and through the append of other records up to the same "
        "offset, and a crash has to follow."
    ),
)
def flush_outlives_a_truncation(code: Patches) -> None:
    """A completed fsync counts for the records that are at these offsets now, even if a truncation removed its own."""

    def flushed(log: LogView, offset: int, epoch: int) -> bool:
        if offset <= log.flushed_offset or offset > log.end_offset:
            return False
        log.flushed_offset = offset
        return True

    code.replace(LogView, "flushed", flushed)


@survivor(
    Scope.CORE,
    tried_classic=159,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py::test_transcript[unflushed_candidate]",
    because=(
        "A candidate has to be elected by records that are not on its disk, crash, and win again in the same "
        "epoch without them."
    ),
)
def candidate_reports_records_that_are_not_flushed(code: Patches) -> None:
    """A candidate reports the end of its log in a vote request, although a crash may remove the last records."""
    code.replace(LogView, "flushed_end", property(lambda log: log.end))


# Progress


@survivor(
    Scope.CORE,
    tried_classic=172,
    tried=200,
    killed_by=(
        "tests/kraft/quorum/test_leader_rules.py::test_a_leader_that_is_elected_again_knows_no_offset_of_another_voter"
    ),
    because=(
        "A voter has to lose records between two leaderships of one node; a sound voter loses only records "
        "that were never committed, and fetches before that matters."
    ),
)
def progress_kept_from_a_former_leadership(code: Patches) -> None:
    """A leader that is elected again counts the offsets that the voters reported in its former leadership."""
    become_leader, transition = QuorumState.become_leader, QuorumState.transition_to
    reported: WeakKeyDictionary[QuorumState, dict[int, int]] = WeakKeyDictionary()

    def transition_to(
        quorum: QuorumState, target: EpochState, cause: str, *, persist: bool = True, keep_peers: bool = False
    ) -> None:
        match quorum.state:
            case LeaderState(progress=progress):
                reported[quorum] = {voter_id: one.end_offset for voter_id, one in progress.items()}
        transition(quorum, target, cause, persist=persist, keep_peers=keep_peers)

    def become_leader_again(quorum: QuorumState, now_ms: int) -> LeaderState:
        leader = become_leader(quorum, now_ms)
        for voter_id, end_offset in reported.get(quorum, {}).items():
            leader.progress[voter_id].end_offset = end_offset
        return leader

    code.replace(QuorumState, "transition_to", transition_to)
    code.replace(QuorumState, "become_leader", become_leader_again)


@survivor(
    Scope.CORE,
    tried_classic=180,
    tried=200,
    killed_by=(
        "tests/kraft/quorum/test_leader_rules.py::test_a_voter_that_fetches_from_a_lower_offset_has_no_more_than_that"
    ),
    because="A sound voter of the same epoch never fetches from a lower offset.",
)
def progress_never_falls(code: Patches) -> None:
    """A leader keeps the highest offset of a voter, even if the voter has lost records since."""
    fetched = Progress.fetched

    def fetched_at_least(one: Progress, offset: int, leader_end_offset: int, now_ms: int) -> None:
        before = one.end_offset
        fetched(one, offset, leader_end_offset, now_ms)
        one.end_offset = max(before, offset)

    code.replace(Progress, "fetched", fetched_at_least)


# The high watermark


def _commit_at(code: Patches, index: int, *, strictly: bool = True, rises: bool = True) -> None:
    """Take the offset at `(voters + index) // 2`; compare with the start of the epoch, and with the high watermark."""

    def committable(leader: LeaderState) -> int | None:
        offsets = sorted((one.end_offset for one in leader.progress.values()), reverse=True)
        offset = offsets[(len(offsets) + index) // 2]
        if offset < leader.epoch_start_offset or (strictly and offset == leader.epoch_start_offset):
            return None
        return offset if not rises or offset > leader.high_watermark else None

    code.replace(LeaderState, "committable", committable)


@mutant(Scope.DYNAMIC, budget=200)
def half_of_an_even_number_commits(code: Patches) -> None:
    """A record on the disks of two of four voters counts as committed."""
    _commit_at(code, -1)


@mutant(Scope.CORE, budget=200)
def end_of_the_former_epoch_commits(code: Patches) -> None:
    """A leader commits the records before its epoch once a majority has them, without a record of its epoch."""
    _commit_at(code, 0, strictly=False)


@mutant(Scope.DYNAMIC, budget=200)
def high_watermark_may_fall(code: Patches) -> None:
    """A leader adopts a lower high watermark after a voter without these records was added."""
    _commit_at(code, 0, rises=False)


@survivor(
    Scope.CORE,
    tried_classic=200,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py",
    because="The followers learn of the commit with their next Fetch, so that only time is lost.",
)
def news_of_a_commit_waits_for_the_timeout(code: Patches) -> None:
    """A leader does not answer parked fetches when its high watermark rises (KIP-1166)."""
    advance = replication.advance_high_watermark

    def advance_in_silence(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
        parked, quorum.purgatory = quorum.purgatory, Purgatory()
        advance(quorum, leader, now_ms)
        quorum.purgatory = parked

    code.replace(replication, "advance_high_watermark", advance_in_silence)


@survivor(
    Scope.CORE,
    tried_classic=195,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py",
    because="The followers learn of the commit with their next Fetch, so that only time is lost.",
)
def high_watermark_before_the_records(code: Patches) -> None:
    """A follower adopts the high watermark of a response only up to the end of its log before that response."""
    take, follow = replication._take, replication._follow_high_watermark
    ends: list[int] = []

    def take_late(
        quorum: QuorumState, follower: FollowerState, peer_id: int, reply: FetchReply, now_ms: int
    ) -> Verdict:
        ends[:] = [quorum.log.end_offset]
        return take(quorum, follower, peer_id, reply, now_ms)

    def follow_to_the_former_end(quorum: QuorumState, high_watermark: int) -> None:
        follow(quorum, min(high_watermark, *ends))

    code.replace(replication, "_follow_high_watermark", follow_to_the_former_end)
    code.replace(replication, "_take", take_late)


@survivor(
    Scope.CORE,
    tried_classic=195,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py",
    because="The sender of the Fetch gives up after its timeout, so that only time is lost.",
)
def parked_fetches_outlive_a_leadership(code: Patches) -> None:
    """A leader that loses its leadership does not answer its parked fetches."""

    def forget(quorum: QuorumState) -> None:
        quorum.purgatory.take_all()

    code.replace(replication, "fail_parked", forget)


# What a follower appends


@mutant(Scope.REPLICA, budget=200, faults=CORRUPTION.faults)
def records_of_later_epochs_are_appended(code: Patches) -> None:
    """A follower appends batches of epochs that are later than its own epoch."""

    def append(quorum: QuorumState, peer_id: int, reply: FetchReply, now_ms: int) -> Verdict:
        state = quorum.state
        epoch = state.epoch
        try:
            state.epoch = max([epoch, *(batch.epoch for batch in reply.batches)])
            return sound(quorum, peer_id, reply, now_ms)
        finally:
            state.epoch = epoch

    sound = replication._append_fetched
    code.replace(replication, "_append_fetched", append)
