"""The readings of the metrics that Kafka lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.metrics import own_names
from kraft.metrics.names import Own, Reading
from kraft.metrics.view import NodeView
from kraft.quorum.states import CandidateState, FollowerState, LeaderState, ProspectiveState
from kraft.quorum.states.leader import NEVER_FETCHED, Progress
from metadata_log.types import NO_NODE

NOT_A_VOTER: Final = "not-a-voter-and-no-answer"
STARTING: Final = "starting"
RESIGNED: Final = "this-node-resigned"
NO_MAJORITY: Final = "no-majority-reachable"
REFUSED: Final = "votes-refused"
SILENT: Final = "leader-silent"
ELECTING: Final = "electing"
REASONS: Final = (STARTING, RESIGNED, NOT_A_VOTER, NO_MAJORITY, REFUSED, SILENT, ELECTING)
"""Every reason of `no_leader_reason`."""


def own_readings(view: NodeView) -> Iterator[Reading]:
    """The readings of every role; those of voters exist on the leader only."""
    core, counted = view.replica.core, view.counted
    log = core.log
    numbers: dict[Own, float] = {
        own_names.CONTACT_AGE: view.contact_age_s,
        own_names.HAS_QUORUM: int(view.has_quorum),
        own_names.APPLY_LAG: max(0, log.high_watermark - view.replica.status().applied_offset),
        own_names.UNFLUSHED: log.end_offset - log.flushed_offset,
        own_names.LONGEST_TURN: counted.longest_turn_s,
        own_names.LOOP_GAP: counted.longest_gap_s,
        own_names.BUSY_RATIO: counted.busy_ratio,
        own_names.OLDEST_FSYNC: counted.oldest_fsync_s,
        own_names.LEADERSHIP_SECONDS: counted.led_s,
        own_names.LOG_BYTES: view.replica.log.size_bytes,
        own_names.COUNTS_COMPLETE: int(view.topics.is_complete),
    }
    if counted.snapshot is not None:
        numbers[own_names.SNAPSHOT_AGE] = max(0, view.now_ms - counted.snapshot.written_ms) / 1000
        numbers[own_names.SNAPSHOT_OFFSET] = counted.snapshot.end_offset
    for metric, value in numbers.items():
        yield Reading(metric, value)
    yield Reading(own_names.NODE_INFO, 1, (("node_id", str(view.replica.options.node_id)),))
    if (reason := no_leader_reason(view)) is not None:
        yield Reading(own_names.NO_LEADER, 1, (("reason", reason),))
    match core.state:
        case LeaderState() as leader:
            for voter_id, progress in sorted(leader.progress.items()):
                yield from _voter_readings(view, leader, voter_id, progress)


def _voter_readings(view: NodeView, leader: LeaderState, voter_id: int, progress: Progress) -> Iterator[Reading]:
    labels = (("voter", str(voter_id)),)
    end = view.replica.core.log.end_offset
    yield Reading(own_names.VOTER_LAG, end - max(0, progress.end_offset), labels)
    if voter_id != leader.local.id:
        yield Reading(own_names.VOTER_FETCH_AGE, _age_s(view, progress.last_fetch_ms), labels)
        yield Reading(own_names.VOTER_CAUGHT_UP_AGE, _age_s(view, progress.last_caught_up_ms), labels)


def _age_s(view: NodeView, at_ms: int) -> float:
    return float("inf") if at_ms == NEVER_FETCHED else max(0, view.now_ms - at_ms) / 1000


def no_leader_reason(view: NodeView) -> str | None:
    """Why this node knows no live leader, as one of `REASONS`; None if it knows one.

    A round of votes that is under way answers by the replies so far, and otherwise the last lost round answers.
    """
    core, counted = view.replica.core, view.counted
    if view.has_quorum:
        return None
    if view.is_resigned:
        return RESIGNED
    match core.state:
        case ProspectiveState(tally=tally) | CandidateState(tally=tally):
            if tally.is_lost or len(tally.rejected) > len(tally.unrecorded):
                return REFUSED
            return _of_lost_election(counted.lost_election) or ELECTING
        case FollowerState():
            return _of_lost_election(counted.lost_election) or SILENT
    if not core.is_voter:
        return NOT_A_VOTER
    if counted.lost_election:
        return _of_lost_election(counted.lost_election)
    return STARTING if core.leader.leader_id == NO_NODE and view.heard_ms is None else SILENT


def _of_lost_election(cause: str) -> str | None:
    if not cause:
        return None
    return REFUSED if cause == "pre-vote-lost" else NO_MAJORITY
