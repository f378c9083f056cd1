"""A ledger that checks nothing, for runs with forged messages that a receiver cannot distinguish from genuine ones.

Kafka has no defence against a forged vote or acknowledgement on an open port either. `World` still requires that no
step of a node raises an exception, and that every node starts again with the content of its disk.
"""

from __future__ import annotations

import operator

from kraft.invariants.commits import IsRecordOf
from kraft.invariants.observation import Applied, ObservedMember, View
from kraft.invariants.quorum import Invariants
from kraft.quorum.voters import VoterSet
from kraft.sim.world.check_quorum import CheckQuorum


class Unchecked(Invariants):
    """Accepts every observation."""

    def started(self, member: ObservedMember, *, is_damaged: bool = False) -> View:
        """A node has started; returns its view."""
        return self.stepped(member)

    def stepped(self, member: ObservedMember) -> View:
        """A node has completed a step; returns its new view."""
        return member.view()

    def voters_of(self, node_id: int) -> VoterSet:
        """The voter set at the beginning of the run."""
        return self.voter_sets()[-1]

    def granted(self, node_id: int, epoch: int, candidate_id: int) -> None:
        """Accept any vote."""

    def pre_granted(self, node_id: int, epoch: int) -> None:
        """Accept any pre-vote."""

    def fetched(self, node_id: int, offset: int) -> None:
        """Accept any fetch offset."""

    def applied(self, member: ObservedMember, applied: Applied) -> None:
        """Accept any applied batch."""

    def acknowledged(
        self, node_id: int, value: bytes, offset: int | None, is_record_of: IsRecordOf = operator.eq
    ) -> None:
        """Accept any acknowledgement."""

    def refused(self, values: list[bytes]) -> None:
        """Accept any refusal."""

    def concluded(self, member: ObservedMember) -> None:
        """Accept any content of a log."""


class NoCheckQuorum(CheckQuorum):
    """Accepts every leadership."""

    def led(self, node_id: int, epoch: int, voters: VoterSet, now_ms: int) -> None:
        """Any node may lead."""
