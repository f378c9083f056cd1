"""Kafka's `raft-metrics` of a node (Kafka: `KafkaRaftMetrics`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.metrics import kafka
from kraft.metrics.names import Mbean, Reading
from kraft.metrics.view import NodeView
from kraft.quorum.core import RaftCore
from kraft.quorum.states import CandidateState, FollowerState, LeaderState, ProspectiveState, VotedState
from kraft.quorum.values import ReplicaKey
from metadata_log.types import NO_NODE, Uuid


def raft_readings(view: NodeView) -> Iterator[Reading]:
    """The metrics of every role; some exist on the leader only, as in Kafka."""
    core, counted = view.replica.core, view.counted
    state, log = core.state, core.log
    vote = _vote(core)
    numbers: dict[Mbean, float] = {
        kafka.CURRENT_LEADER: state.leader_id,
        kafka.CURRENT_EPOCH: state.epoch,
        kafka.CURRENT_VOTE: NO_NODE if vote is None else vote.id,
        kafka.HIGH_WATERMARK: log.high_watermark,
        kafka.LOG_END_OFFSET: log.end_offset,
        kafka.LOG_END_EPOCH: log.last_epoch,
        kafka.NUMBER_OF_VOTERS: len(core.voters.voters),
        kafka.UNKNOWN_VOTER_CONNECTIONS: sum(one.endpoints.default is None for one in core.voters.voters),
        kafka.COMMIT_LATENCY_AVG: counted.commit_ms_avg,
        kafka.COMMIT_LATENCY_MAX: counted.commit_ms_max,
        kafka.ELECTION_LATENCY_AVG: counted.election_ms_avg,
        kafka.ELECTION_LATENCY_MAX: counted.election_ms_max,
        kafka.APPEND_RECORDS_RATE: counted.appended_per_s,
        kafka.FETCH_RECORDS_RATE: counted.fetched_per_s,
        kafka.POLL_IDLE_RATIO: 1 - counted.busy_ratio,
    }
    if isinstance(state, LeaderState):
        numbers[kafka.NUMBER_OF_OBSERVERS] = len(state.observers)
        is_pending = state.change is not None or core.history.uncommitted_changes(log.high_watermark) > 0
        numbers[kafka.UNCOMMITTED_VOTER_CHANGE] = int(is_pending)
    yield Reading(kafka.CURRENT_STATE, kafka_state(core))
    directory_id = Uuid.ZERO if vote is None else vote.directory_id
    yield Reading(kafka.CURRENT_VOTE_DIRECTORY_ID, str(directory_id))
    for metric, value in numbers.items():
        yield Reading(metric, value)


_NAMES: Final = {"Leader": "leader", "Candidate": "candidate", "Voted": "unattached-voted"}


def kafka_state(core: RaftCore) -> str:
    """Kafka's name of the state: a resigned leader is unattached, and a follower that is no voter is an observer."""
    match core.state:
        case FollowerState():
            return "follower" if core.is_voter else "observer"
        case ProspectiveState(voted=voted):
            return "prospective" if voted is None else "prospective-voted"
        case state:
            return _NAMES.get(state.name, "unattached")


def _vote(core: RaftCore) -> ReplicaKey | None:
    """The voter that has this replica's vote in this epoch. A leader has voted for itself."""
    match core.state:
        case LeaderState():
            return core.local
        case FollowerState() | ProspectiveState() | CandidateState() | VotedState() as state:
            return state.voted
    return None
