"""What must hold of votes and of who leads (Kafka: `SingleLeader` of `RaftEventSimulationTest`; TLA+: ValidVotesRecv).

A vote counts as given once it stands in quorum-state. It binds the disk that it was written to, so that a voter with
another one may vote again, and what it has given before has elected whom it has elected.
"""

from __future__ import annotations

from itertools import chain

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import VoterSet


class VoteLedger:
    """The votes and the leaders of one run. What a method returns is what is wrong."""

    def __init__(self) -> None:
        self._votes: dict[int, dict[ReplicaKey, int]] = {}
        """By epoch and disk the candidate."""
        self._former_votes: dict[int, list[tuple[ReplicaKey, int]]] = {}
        """By epoch the votes that the disk may have lost. They have elected leaders, but bind nobody."""
        self._leaders: dict[int, int] = {}

    @property
    def elections(self) -> int:
        """How many epochs have had a leader."""
        return len(self._leaders)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Who led, in the order of epochs."""
        return tuple(self._leaders[epoch] for epoch in sorted(self._leaders))

    def voted(self, key: ReplicaKey, epoch: int, candidate_id: int) -> str | None:
        """A vote was written down: one per epoch, and only for who stands in it, that is, has voted for itself; a
        pre-vote is no vote.
        """
        voted = self._votes.setdefault(epoch, {}).setdefault(key, candidate_id)
        if voted != candidate_id:
            return f"node {key.id} votes twice in epoch {epoch}: for {voted} and for {candidate_id}"
        if not self._has_granted(ReplicaKey(candidate_id), epoch, candidate_id):
            return f"node {key.id} votes for {candidate_id}, which does not stand in epoch {epoch}"
        return None

    def is_bound(self, key: ReplicaKey, epoch: int, candidate_id: int) -> bool:
        """Whether this vote stands on this disk."""
        return self._votes.get(epoch, {}).get(key) == candidate_id

    def release(self, node_id: int) -> None:
        """A node comes back with a damaged disk: it need not know whom it has voted for."""
        for epoch, votes in self._votes.items():
            for key in [one for one in votes if one.id == node_id]:
                self._former_votes.setdefault(epoch, []).append((key, votes.pop(key)))

    def led(self, node_id: int, epoch: int, leader_id: int) -> str | None:
        """A node takes another one, or itself, for the leader of an epoch."""
        leader = self._leaders.setdefault(epoch, leader_id)
        if leader == leader_id:
            return None
        return f"epoch {epoch} has two leaders: {leader}, and for node {node_id} {leader_id}"

    def elected(self, own: ReplicaKey, epoch: int, voters: VoterSet) -> str | None:
        """Who leads was voted for by a majority, itself included."""
        granting = [key.id for key in voters.keys if key.matches(own) or self._has_granted(key, epoch, own.id)]
        if len(granting) >= voters.majority:
            return None
        return f"node {own.id} leads epoch {epoch}, and only {granting} of {voters.ids} have voted for it"

    def _has_granted(self, voter: ReplicaKey, epoch: int, candidate_id: int) -> bool:
        """Whether a voter has voted so, be it with a disk that it has lost."""
        votes = chain(self._votes.get(epoch, {}).items(), self._former_votes.get(epoch, ()))
        return any(chosen == candidate_id and voter.matches(disk) for disk, chosen in votes)
