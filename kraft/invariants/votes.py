"""The invariants of votes and leaders (Kafka: `SingleLeader` of `RaftEventSimulationTest`; TLA+: ValidVotesRecv).

A vote counts as granted once it is in quorum-state. A vote binds the disk with that file: a voter with another disk may
vote again. Leaders elected by former votes remain legal.
"""

from __future__ import annotations

from itertools import chain

from kraft.invariants.majorities import is_majority, is_voter
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import VoterSet


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
