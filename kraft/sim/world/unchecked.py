"""A ledger that checks nothing, for runs in which peers forge what only the true sender could deny.

Kafka is as helpless against a forged vote or acknowledgement on an open port. What is left to demand is in `World`: no
step of a node raises anything, and every node starts again with what is on its disk.
"""

from __future__ import annotations

from kraft.invariants.observation import Applied, ObservedMember, View
from kraft.invariants.quorum import Invariants
from kraft.quorum.voters import VoterSet
from kraft.sim.world.check_quorum import CheckQuorum


class Unchecked(Invariants):
    """Looks at nodes, and believes everything."""

    def started(self, member: ObservedMember, *, is_damaged: bool = False) -> View:
        """A node has started; returns its view."""
        return self.stepped(member)

    def stepped(self, member: ObservedMember) -> View:
        """A node has completed a step; returns its new view."""
        return member.view()

    def voters_of(self, node_id: int) -> VoterSet:
        """The voters at the beginning."""
        return self.voter_sets()[-1]

    def granted(self, node_id: int, epoch: int, candidate_id: int) -> None:
        """Anything may be granted."""

    def pre_granted(self, node_id: int, epoch: int) -> None:
        """Anything may be granted."""

    def fetched(self, node_id: int, offset: int) -> None:
        """Anything may be acknowledged."""

    def applied(self, member: ObservedMember, applied: Applied) -> None:
        """Anything may be applied."""

    def acknowledged(self, node_id: int, value: bytes, base_offset: int | None) -> None:
        """Anything may be acknowledged."""

    def refused(self, values: list[bytes]) -> None:
        """Anything may have been written."""

    def concluded(self, member: ObservedMember) -> None:
        """Anything may be on a disk, as long as it can be read."""


class NoCheckQuorum(CheckQuorum):
    """Checks no leader."""

    def led(self, node_id: int, epoch: int, voters: VoterSet, now_ms: int) -> None:
        """Any node may lead."""
