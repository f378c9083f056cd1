"""Bugs in rules that the specification of the protocol states, for `bench/traces.py`.

The first list names planted bugs of the simulator, the second has ten more, chosen before any of them was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum import core, replication
from kraft.quorum.core import _first_state
from kraft.quorum.exchanges import epoch_error
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import Fetch
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import (
    CandidateState,
    EpochState,
    LeaderState,
    ProspectiveState,
    ResignedState,
    UnattachedState,
    VotedState,
)
from kraft.quorum.values import ElectionState
from metadata_log.types import NO_NODE
from planted_bugs import MUTANTS
from planted_bugs.registry import Patches
from transport.protocol.errors import Error

OF_PROTOCOL: Final = ("planted_bugs.elections", "planted_bugs.replication", "planted_bugs.membership")
"""The modules with planted bugs in the rules of the quorum."""


class Bug(Struct, frozen=True):
    """A bug and the kind of runs that may show it."""

    name: str
    members: str
    plant: Callable[[Patches], None]
    nodes: int | None = None
    """The number of voters; None for the choice of the profile."""


PLANTED: Final = tuple(
    Bug(mutant.name, str(mutant.scope), mutant.plant)
    for mutant in MUTANTS.values()
    if mutant.plant.__module__ in OF_PROTOCOL and mutant.scope in ("core", "replica", "dynamic")
)


OF_PARTITIONS: Final = (
    "watermark-of-the-leader-alone",
    "one-follower-is-enough-for-the-watermark",
    "min-isr-is-not-checked",
    "isr-expanded-before-catching-up",
    "truncation-to-the-watermark",
    "followers-believe-any-watermark",
    "watermark-from-a-stale-fetch",
    "ends-of-followers-never-fall",
    "removals-count-before-the-controller-agrees",
    "unanswered-proposals-are-withdrawn",
    "every-restart-is-trusted",
    "partition-epochs-are-overlooked",
    "leader-from-outside-of-the-isr",
    "leader-epoch-stays",
    "fenced-broker-leads-on",
    "checkpointed-watermark-above-the-log-end",
    "unclean-leaders-truncate-no-follower",
    "fetches-of-former-incarnations-count",
    "follower-offsets-outlive-a-leadership",
    "member-epochs-are-overlooked",
    "fenced-brokers-in-an-isr",
    "older-metadata-replaces-the-answer-of-the-controller",
    "older-answers-of-the-controller-are-taken",
    "truncated-logs-keep-their-epochs",
)
"""The planted bugs in rules that the module of a partition states, listed before any of them was tried."""


def asks_with_its_unflushed_end(code: Patches) -> None:
    """A nominee asks with the end of its log, of which the last records are not on disk."""
    code.replace(LogView, "flushed_end", LogView.end)


def nominee_drops_its_vote(code: Patches) -> None:
    """A nominee forgets the vote of its epoch when it begins a round of pre-votes, and may vote again."""
    sound = QuorumState.become_prospective

    def become_prospective(quorum: QuorumState, now_ms: int, cause: str) -> None:
        sound(quorum, now_ms, cause)
        assert isinstance(quorum.state, ProspectiveState)
        quorum.state.voted = None
        quorum.persisted = ElectionState(epoch=quorum.epoch, leader_id=quorum.leader_id, voters=quorum.voters.ids)

    code.replace(QuorumState, "become_prospective", become_prospective)


def resigned_leader_skips_an_epoch(code: Patches) -> None:
    """A resigned leader goes to the epoch after the next one."""
    sound = QuorumState.become_unattached

    def become_unattached(quorum: QuorumState, epoch: int, now_ms: int, cause: str) -> None:
        sound(quorum, epoch + isinstance(quorum.state, ResignedState), now_ms, cause)

    code.replace(QuorumState, "become_unattached", become_unattached)


def candidate_skips_an_epoch(code: Patches) -> None:
    """A candidate raises the epoch by two."""

    def become_candidate(quorum: QuorumState, now_ms: int, cause: str) -> None:
        deadline_ms = now_ms + quorum.random_election_timeout_ms()
        quorum.transition_to(CandidateState(quorum.epoch + 2, quorum.local, quorum.new_tally(), deadline_ms), cause)

    code.replace(QuorumState, "become_candidate", become_candidate)


def observers_commit(code: Patches) -> None:
    """A leader counts the ends of observers as those of voters."""

    def committable(leader: LeaderState) -> int | None:
        known = (*leader.progress.values(), *leader.observers.values())
        offsets = sorted((one.end_offset for one in known), reverse=True)
        offset = offsets[len(leader.progress) // 2]
        return offset if offset > leader.epoch_start_offset and offset > leader.high_watermark else None

    code.replace(LeaderState, "committable", committable)


def fetches_of_earlier_epochs_count(code: Patches) -> None:
    """A leader counts a Fetch that a replica has sent in an earlier epoch."""

    def refusal(quorum: QuorumState, request: Fetch) -> Error:
        if request.offset < 0 or request.last_epoch < 0:
            return Error.INVALID_REQUEST
        state = quorum.state
        if request.epoch > state.epoch:
            return epoch_error(quorum, request.epoch)
        if type(state) is not LeaderState:
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.UNKNOWN_SERVER_ERROR if request.replica.id == quorum.local.id else Error.NONE

    code.replace(replication, "_refusal", refusal)


def divergence_cuts_to_the_watermark(code: Patches) -> None:
    """A diverging follower cuts its log down to its high watermark."""
    code.replace(LogView, "truncation_point", lambda log, diverging: min(log.never_below, log.end_offset - 1))


def epoch_of_the_log_overlooked_at_the_start(code: Patches) -> None:
    """A start takes the epoch of quorum-state, although the log has records of a later one."""

    def first_state(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
        sound = _first_state(quorum, election, now_ms)
        if election.epoch < quorum.log.last_epoch:
            return UnattachedState(election.epoch, NO_NODE, sound.deadline_ms())
        return sound

    code.replace(core, "_first_state", first_state)


def vote_while_the_leader_is_known(code: Patches) -> None:
    """A replica that knows the leader of its epoch still votes in that epoch."""
    code.replace(UnattachedState, "can_grant", lambda state, vote, *, up_to_date: up_to_date)
    code.replace(
        ProspectiveState,
        "can_grant",
        lambda state, vote, *, up_to_date: up_to_date if state.voted is None else state.voted.matches(vote.candidate),
    )


def restarted_candidate_waits(code: Patches) -> None:
    """A former candidate starts as a voter that has voted for itself, and asks nobody again."""

    def first_state(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
        sound = _first_state(quorum, election, now_ms)
        match sound:
            case CandidateState():
                return VotedState(sound.epoch, NO_NODE, replace(sound.voted), sound.election_deadline_ms)
        return sound

    code.replace(core, "_first_state", first_state)


OWN: Final = (
    Bug("asks-with-its-unflushed-end", "core", asks_with_its_unflushed_end),
    Bug("nominee-drops-its-vote", "core", nominee_drops_its_vote),
    Bug("resigned-leader-skips-an-epoch", "core", resigned_leader_skips_an_epoch),
    Bug("candidate-skips-an-epoch", "core", candidate_skips_an_epoch),
    Bug("observers-commit", "dynamic", observers_commit),
    Bug("fetches-of-earlier-epochs-count", "core", fetches_of_earlier_epochs_count),
    Bug("divergence-cuts-to-the-watermark", "core", divergence_cuts_to_the_watermark),
    Bug("epoch-of-the-log-overlooked-at-the-start", "core", epoch_of_the_log_overlooked_at_the_start),
    Bug("vote-while-the-leader-is-known", "core", vote_while_the_leader_is_known, nodes=5),
    Bug("restarted-candidate-waits", "core", restarted_candidate_waits),
)
