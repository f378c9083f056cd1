"""The states of a quorum member, one module each: data, timers and vote rules."""

from kraft.quorum.states.candidate import CandidateState
from kraft.quorum.states.election import Tally
from kraft.quorum.states.follower import Download, FollowerState
from kraft.quorum.states.leader import LeaderState, PendingChange, Progress
from kraft.quorum.states.prospective import ProspectiveState
from kraft.quorum.states.resigned import ResignedState
from kraft.quorum.states.unattached import UnattachedState
from kraft.quorum.states.voted import VotedState

EpochState = (
    UnattachedState | VotedState | ProspectiveState | CandidateState | FollowerState | LeaderState | ResignedState
)

__all__ = [
    "CandidateState",
    "Download",
    "EpochState",
    "FollowerState",
    "LeaderState",
    "PendingChange",
    "Progress",
    "ProspectiveState",
    "ResignedState",
    "Tally",
    "UnattachedState",
    "VotedState",
]
