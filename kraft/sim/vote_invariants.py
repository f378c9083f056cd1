"""What must hold of votes and of who leads (Kafka: `SingleLeader` of `RaftEventSimulationTest`; TLA+: ValidVotesRecv).

A vote counts as given once it stands in quorum-state. It binds the disk that it was written to, so that a voter with
another one may vote again, and what it has given before has elected whom it has elected.
"""

from __future__ import annotations

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import VoterSet


class VoteLedger:
    """The votes and the leaders of one run. What a method returns is what is wrong."""

    def __init__(self) -> None:
        self._disks: dict[int, list[ReplicaKey]] = {}
        """By node the disks with which it has voted."""
        self._votes: dict[tuple[ReplicaKey, int], int] = {}
        self._former_votes: set[tuple[ReplicaKey, int, int]] = set()
        """Votes that the disk may have lost: of a node, in an epoch, for a candidate. They have elected leaders, but
        bind nobody.
        """
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
        voted = self._votes.setdefault((key, epoch), candidate_id)
        disks = self._disks.setdefault(key.id, [])
        if key not in disks:
            disks.append(key)
        if voted != candidate_id:
            return f"node {key.id} votes twice in epoch {epoch}: for {voted} and for {candidate_id}"
        if not self._has_granted(ReplicaKey(candidate_id), epoch, candidate_id):
            return f"node {key.id} votes for {candidate_id}, which does not stand in epoch {epoch}"
        return None

    def is_bound(self, key: ReplicaKey, epoch: int, candidate_id: int) -> bool:
        """Whether this vote stands on this disk."""
        return self._votes.get((key, epoch)) == candidate_id

    def release(self, node_id: int) -> None:
        """A node comes back with a damaged disk: it need not know whom it has voted for."""
        for key, epoch in [vote for vote in self._votes if vote[0].id == node_id]:
            self._former_votes.add((key, epoch, self._votes.pop((key, epoch))))

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
        return any(
            self.is_bound(disk, epoch, candidate_id) or (disk, epoch, candidate_id) in self._former_votes
            for disk in self._disks.get(voter.id, ())
            if voter.matches(disk)
        )
