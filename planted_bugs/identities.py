"""Mutants of identities in a quorum: node ids and directory ids of replicas that have replaced each other (KIP-853).

The first five were committed as a list before any search for them, and were then tried once. The other two are kinds of
bugs that an audit had planted before.
"""

from __future__ import annotations

from kraft.quorum import elections, leadership, membership
from kraft.quorum.effects import AbandonDownload
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import FollowerState, LeaderState, Progress
from kraft.quorum.values import Endpoints, ReplicaKey
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import VoterSet
from metadata_log.types import NO_NODE
from planted_bugs.registry import Patches, Scope, mutant, survivor

# Tried once


@mutant(Scope.DYNAMIC, budget=100, faults=None, profile="former-selves")
def former_directories_are_addressed(code: Patches) -> None:
    """A replica answers a Vote that is addressed to the replica which had its node id before."""

    def is_addressed(quorum: QuorumState, voter: ReplicaKey) -> bool:
        return voter.id in (NO_NODE, quorum.local.id)

    for module in (elections, leadership):
        code.replace(module, "is_addressed", is_addressed)


@mutant(Scope.DYNAMIC, budget=100, faults=None, profile="former-selves")
def fetches_of_any_directory_count_for_a_voter(code: Patches) -> None:
    """A leader counts the Fetch of a replica with an empty disk for the voter that had its node id before."""
    code.replace(LeaderState, "voter_progress", lambda leader, replica: leader.progress.get(replica.id))


@survivor(
    Scope.DYNAMIC,
    tried=80,
    killed_by=(
        "tests/kraft/quorum/test_leader_rules.py::"
        "test_a_voter_that_returns_with_another_directory_has_no_offset_of_its_former_self"
    ),
    because=(
        "A replica is added once it has caught up, so that its own offset is no less than that of its former self."
    ),
)
def new_directories_take_the_progress_of_former_ones(code: Patches) -> None:
    """A voter that returns with another directory id has the offset at its leader that its former self had reached."""
    take_voters = LeaderState.take_voters

    def take_voters_by_id(leader: LeaderState, voters: VoterSet) -> None:
        former = dict[int, Progress]()
        for key, one in leader.observers.items():
            if key.id not in former or one.end_offset > former[key.id].end_offset:
                former[key.id] = one
        known = {one.key for one in leader.progress.values()}
        take_voters(leader, voters)
        for voter_id, one in leader.progress.items():
            if one.key not in known and voter_id in former:
                one.end_offset = max(one.end_offset, former[voter_id].end_offset)

    code.replace(LeaderState, "take_voters", take_voters_by_id)


@mutant(Scope.DYNAMIC, budget=100, faults=None, profile="former-selves")
def any_directory_of_a_voter_id_votes(code: Patches) -> None:
    """A replica with an empty disk takes itself for the voter that had its node id before."""
    take_voters = QuorumState._take_voters

    def take_voters_by_id(quorum: QuorumState, history: VoterHistory) -> None:
        take_voters(quorum, history)
        quorum.is_voter = quorum.local.id in history.voters.ids

    code.replace(QuorumState, "_take_voters", take_voters_by_id)


@survivor(
    Scope.DYNAMIC,
    tried=100,
    killed_by=("tests/kraft/replica/test_voter_changes.py::test_every_refusal_of_an_addition_has_kafkas_error"),
    because=("The new voter fetches at once, so that only the time to the next commit is lost."),
)
def former_directories_have_caught_up(code: Patches) -> None:
    """A leader adds a replica with an empty disk as a voter, because its former self had caught up."""
    is_caught_up = membership._is_caught_up

    def has_any_caught_up(leader: LeaderState, key: ReplicaKey, now_ms: int) -> bool:
        return any(is_caught_up(leader, one, now_ms) for one in leader.observers if one.id == key.id)

    code.replace(membership, "_is_caught_up", has_any_caught_up)


# Two kinds of an audit


@mutant(Scope.UPGRADED, budget=100, faults=None, profile="former-selves")
def reports_of_former_directories_are_taken(code: Patches) -> None:
    """Before kraft.version rises, a late UpdateRaftVoter of a replaced directory takes the place of the present one."""
    code.replace(membership, "_is_present", lambda leader, key: True)


@mutant(Scope.DYNAMIC, budget=100, faults=None, profile="former-selves")
def downloads_go_on_with_another_leader(code: Patches) -> None:
    """A follower that learns of another leader goes on with the snapshot that it downloads, at the same position."""
    become_follower = QuorumState.become_follower

    def follow_and_go_on(
        quorum: QuorumState, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int, cause: str
    ) -> None:
        before = quorum.state
        download = before.download if isinstance(before, FollowerState) else None
        effects = quorum.effects
        count = len(effects)
        become_follower(quorum, epoch, leader_id, endpoints, now_ms, cause)
        after = quorum.state
        if download is not None and not download.is_whole and isinstance(after, FollowerState):
            after.download = download
            effects[count:] = [one for one in effects[count:] if not isinstance(one, AbandonDownload)]

    code.replace(QuorumState, "become_follower", follow_and_go_on)
