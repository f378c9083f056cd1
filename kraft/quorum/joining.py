"""Detects another running replica with the same node id from the committed voter sets (KIP-1186, decision 0017).

A replaced disk makes another replica with the same id. The new replica first requests the removal of the former one.
Two running replicas with one id would remove each other for ever.
"""

from __future__ import annotations

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voter_history import VoterHistory


class Joining:
    """`rival` is the running replica that votes with this replica's node id, or None."""

    def __init__(self, local: ReplicaKey) -> None:
        self.rival: ReplicaKey | None = None
        self._local = local
        self._seen_offset = -2
        """The offset of the last committed voters record that was examined."""
        self._has_voted = False
        self._removed: ReplicaKey | None = None
        """The voter that this replica has asked the leader to remove."""
        self._is_removed = False
        """Whether that removal was committed."""

    def removes(self, key: ReplicaKey) -> None:
        """Record that this replica requests the removal of its former replica."""
        if key != self._removed:
            self._removed, self._is_removed = key, False

    def take_committed(self, history: VoterHistory, high_watermark: int) -> None:
        """Examine the voter sets up to the high watermark. A voter with this node id is running if it returns after its
        removal, or if it replaces this replica: a former disk could not have requested that.
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
