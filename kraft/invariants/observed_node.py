"""The observations of each node and of its disks, which the invariants compare."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from msgspec import Struct

from kraft.invariants.majorities import is_voter
from kraft.invariants.observation import LogBatch, ObservedMember, View
from kraft.invariants.voters import VotersInLog
from kraft.quorum.values import ElectionState, ReplicaKey

_next_offset = attrgetter("next_offset")


class ObservedNode(Struct):
    """The observations of one disk and of the node on it. The log and the flushed offset outlive crashes.

    Batches before the log start offset count as part of the log: a snapshot covers them.
    """

    key: ReplicaKey
    view: View | None = None
    election: ElectionState | None = None
    former_election: ElectionState | None = None
    """The election state before the last step."""
    judged_election: ElectionState | None = None
    """The election state at the last comparison with the node's state."""
    log: list[LogBatch] = []
    flushed_offset: int = 0
    verified: int = 0
    """The number of batches that were compared with the committed ones."""
    applied_offset: int = 0
    was_interrupted: bool = False
    start_offset: int = 0
    voters: VotersInLog = []

    @property
    def end_offset(self) -> int:
        """The log end offset at the last observation."""
        return self.log[-1].next_offset if self.log else 0


def forgets(observed: ElectionState, now: ElectionState | None) -> bool:
    """Whether a vote or an epoch is lost. The leader may be lost: after a restart, a node that voted for itself is a
    candidate again.
    """
    if now is None or now.epoch != observed.epoch:
        return now is None or now.epoch < observed.epoch
    if observed.voted is None or now.voted is None:
        return observed.voted is not None
    return observed.voted.id != now.voted.id


class ObservedNodes:
    """The nodes of one run: what was observed of the present disk of each node and of its former disks."""

    def __init__(self) -> None:
        self.by_id: dict[int, ObservedNode] = {}
        self._former: dict[int, list[ObservedNode]] = {}
        self._damaged: set[int] = set()

    def observed(self, node_id: int) -> ObservedNode:
        """The observations of a node; empty before its first start."""
        return self.by_id.setdefault(node_id, ObservedNode(ReplicaKey(node_id)))

    def disk_of(self, member: ObservedMember) -> ObservedNode:
        """The observations of the disk with which a node starts; it may be another disk than before."""
        observed = self.by_id.get(member.node_id)
        if observed is not None and observed.key != member.key:
            self._former.setdefault(member.node_id, []).append(observed)
            observed = None
        if observed is None:
            observed = self.by_id[member.node_id] = ObservedNode(member.key)
        return observed

    def damaged(self, node_id: int) -> None:
        """The disk of a node has lost data, perhaps a snapshot that no check has read since."""
        self._damaged.add(node_id)

    def healed(self, node_id: int) -> None:
        """A node has started without anything of the damage on its disk: from now on no damage explains a failure."""
        self._damaged.discard(node_id)

    def was_damaged(self, node_id: int) -> bool:
        """Whether the disk of a node has lost data, and the damage may still be there."""
        return node_id in self._damaged

    def has_on_disk(self, key: ReplicaKey, place: int, batch: LogBatch) -> bool:
        """Whether a batch, at this place of its log, is on a voter's disk, or was when the voter lost that disk."""
        observed = self.by_id.get(key.id)
        if observed is None or not is_voter(key, observed.key):
            observed = next(reversed(self._disks(key)), None)
        if observed is None or place >= len(observed.log) or observed.log[place] != batch:
            return False
        view = observed.view
        return (observed.flushed_offset if view is None else view.flushed_offset) >= batch.next_offset

    def _disks(self, key: ReplicaKey) -> list[ObservedNode]:
        """The present and former disks of a voter; only one if the voter key has a directory id."""
        observed = self.by_id.get(key.id)
        disks = [*self._former.get(key.id, ()), *(() if observed is None else (observed,))]
        return [disk for disk in disks if is_voter(key, disk.key)]

    def acknowledged_upto(self, node_id: int, leader_id: int) -> int:
        """How many batches of a leader's log another node may have acknowledged as flushed."""
        own, model = self.observed(node_id), self.observed(leader_id).log
        count = min(bisect_right(own.log, own.flushed_offset, key=_next_offset), len(model))
        # Two logs with the same batch are equal up to that batch.
        while count > 0 and own.log[count - 1] != model[count - 1]:
            count -= 1
        return count
