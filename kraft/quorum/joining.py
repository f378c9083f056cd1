"""What a controller that joins by itself (KIP-1186) concludes from the voters in its log about other replicas that have
its node id (decision 0017).

A replaced disk makes another replica with the same id. The new replica first requests the removal of the former one.
Two running replicas with one id would remove each other for ever.
"""

from __future__ import annotations

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voter_history import VoterHistory


class Joining:
    """`rival` is the replica that votes under this replica's id and is known to be alive; None as long as there is
    none.
    """

    def __init__(self, local: ReplicaKey) -> None:
        self.rival: ReplicaKey | None = None
        self._local = local
        self._seen_offset = -2
        """Up to where the committed records of the voters were taken into account."""
        self._has_voted = False
        self._removed: ReplicaKey | None = None
        """The voter that this replica has asked the leader to remove."""
        self._is_removed = False
        """Whether that removal was committed."""

    def removes(self, key: ReplicaKey) -> None:
        """This replica asks for the removal of its former self."""
        if key != self._removed:
            self._removed, self._is_removed = key, False

    def take_committed(self, history: VoterHistory, high_watermark: int) -> None:
        """Follow the voters up to the high watermark. A voter of this id that is back after its removal, or that has
        taken the place of this very replica, is alive: a former self could not have asked for that.
        """
        for offset, voters in history.sets:
            if not self._seen_offset < offset < high_watermark:
                continue
            self._seen_offset = offset
            entry = voters.find(self._local.id)
            if entry is None:
                self._is_removed = self._removed is not None
                self.rival = None
            elif entry.key == self._local:
                self._has_voted = True
                self._removed, self._is_removed, self.rival = None, False, None
            elif self._has_voted or (self._is_removed and entry.key == self._removed):
                self.rival = entry.key
