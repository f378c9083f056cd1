"""The invariants of votes, of leaders and of the states of one node (Kafka: `SingleLeader` of
`RaftEventSimulationTest`; TLA+: ValidVotesRecv, `NoIllegalState`, `StatesMatchRoles`).

A vote counts as granted once it is in quorum-state. A vote binds the disk with that file: a voter with another disk may
vote again. Leaders elected by former votes remain legal.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from kraft.invariants.majorities import is_majority, is_voter
from kraft.invariants.observation import View
from kraft.quorum.values import ElectionState, ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.types import NO_NODE

OBSERVER_STATES: Final = frozenset({"Unattached", "Voted", "Follower", "Resigned"})
"""An observer may grant a vote, as a receiver of a vote request does not check its own membership. An observer is never
a candidate.
"""


def illegal(node_id: int, view: View, election: ElectionState | None, *, is_voter: bool) -> str:
    """Why a node's state, with this content of quorum-state, is illegal; empty if the state is legal."""
    if election is None or election.epoch != view.epoch:
        return f"the node is in epoch {view.epoch}, and {election} is on its disk"
    # A resigned node remains the leader of its epoch in quorum-state, but does not name itself to other nodes.
    if election.leader_id != view.leader.leader_id and (view.state != "Resigned" or view.leader.leader_id != NO_NODE):
        return f"the node names the leader {view.leader.leader_id}, and {election} is on its disk"
    if not is_voter and view.state not in OBSERVER_STATES:
        return "the node is not a voter"
    voted = None if election.voted is None else election.voted.id
    leader_id = election.leader_id
    match view.state:
        case "Leader" | "Resigned":
            return "" if leader_id == node_id else f"the leader is {leader_id}"
        case "Follower":
            return "the node follows no other node" if leader_id in (NO_NODE, node_id) else ""
        case "Candidate":
            return "" if voted == node_id and leader_id == NO_NODE else f"a candidate votes for itself: {election}"
        case "Voted":
            # The vote may be for the node itself: a candidate with an expired election timeout and no votes left.
            return "" if voted is not None else f"the node has not voted: {election}"
        case "Unattached":
            return "" if voted is None else f"the node has voted: {election}"
        case "Prospective":
            return ""
        case _:
            return "there is no such state"


class VoteLedger:
    """The votes and the leaders of one run. A method returns a description of the violation, or None."""

    def __init__(self) -> None:
        self._votes: dict[int, dict[ReplicaKey, int]] = {}
        """The candidate, by epoch and disk."""
        self._former_votes: dict[int, list[tuple[ReplicaKey, int]]] = {}
        """The votes that a disk may have lost, by epoch. They have elected leaders, but bind no voter."""
        self._leaders: dict[int, int] = {}

    @property
    def elections(self) -> int:
        """The number of epochs with a leader."""
        return len(self._leaders)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The ids of the leaders, in the order of epochs."""
        return tuple(self._leaders[epoch] for epoch in sorted(self._leaders))

    def voted(self, key: ReplicaKey, epoch: int, candidate_id: int) -> str | None:
        """A voter has persisted a vote: one per epoch, and only for a candidate of that epoch, which has voted for
        itself. A pre-vote is not a vote.
        """
        voted = self._votes.setdefault(epoch, {}).setdefault(key, candidate_id)
        if voted != candidate_id:
            return f"node {key.id} votes twice in epoch {epoch}: for {voted} and for {candidate_id}"
        if not self._has_granted(ReplicaKey(candidate_id), epoch, candidate_id):
            return f"node {key.id} votes for {candidate_id}, which is not a candidate in epoch {epoch}"
        return None

    def is_bound(self, key: ReplicaKey, epoch: int, candidate_id: int) -> bool:
        """Whether this vote is on this disk."""
        return self._votes.get(epoch, {}).get(key) == candidate_id

    def release(self, node_id: int) -> None:
        """A node restarts with a damaged disk and may have lost its votes."""
        for epoch, votes in self._votes.items():
            for key in [one for one in votes if one.id == node_id]:
                self._former_votes.setdefault(epoch, []).append((key, votes.pop(key)))

    def led(self, node_id: int, epoch: int, leader_id: int) -> str | None:
        """A node names another node, or itself, as the leader of an epoch."""
        leader = self._leaders.setdefault(epoch, leader_id)
        if leader == leader_id:
            return None
        return f"epoch {epoch} has two leaders: {leader}, and for node {node_id} {leader_id}"

    def elected(self, own: ReplicaKey, epoch: int, voters: VoterSet) -> str | None:
        """A majority of the voters, the leader included, has voted for the leader."""
        granting = [key.id for key in voters.keys if is_voter(key, own) or self._has_granted(key, epoch, own.id)]
        if is_majority(len(granting), len(voters.voters)):
            return None
        return (
            f"node {own.id} leads epoch {epoch}, and only {granting} of the voters {list(voters.ids)} have voted for"
            f" node {own.id}"
        )

    def _has_granted(self, voter: ReplicaKey, epoch: int, candidate_id: int) -> bool:
        """Whether a voter has voted for this candidate, on its present disk or on a lost one."""
        votes = chain(self._votes.get(epoch, {}).items(), self._former_votes.get(epoch, ()))
        return any(chosen == candidate_id and is_voter(voter, disk) for disk, chosen in votes)
