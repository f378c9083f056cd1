"""Counting votes (Kafka: `EpochElection`)."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.voters import majority


class Tally(Struct, frozen=True):
    """The replies of one election. A candidate that is a voter counts as granting from the start."""

    voters: tuple[int, ...]
    granted: tuple[int, ...]
    rejected: tuple[int, ...] = ()

    @property
    def is_won(self) -> bool:
        """Whether a majority has granted."""
        return len(self.granted) >= majority(len(self.voters))

    @property
    def is_lost(self) -> bool:
        """Whether the remaining voters cannot make a majority any more."""
        return len(self.granted) + len(self.unrecorded) < majority(len(self.voters))

    @property
    def unrecorded(self) -> tuple[int, ...]:
        """The voters without a reply."""
        return tuple(voter for voter in self.voters if voter not in self.granted and voter not in self.rejected)

    def record(self, voter_id: int, *, granted: bool) -> Tally:
        """The tally with a voter's reply, which replaces an earlier one. Replies of non-voters do not count."""
        if voter_id not in self.voters:
            return self
        yes = tuple(voter for voter in self.granted if voter != voter_id)
        no = tuple(voter for voter in self.rejected if voter != voter_id)
        return (
            replace(self, granted=(*yes, voter_id), rejected=no)
            if granted
            else replace(self, granted=yes, rejected=(*no, voter_id))
        )
