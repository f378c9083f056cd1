"""Limits the disk losses of a quorum, and decides when a node with a damaged disk may restart.

KRaft guarantees nothing for a static quorum with voters that lose data: a voter with an empty disk keeps its id, and so
votes and acknowledges again. The operator has to prevent that. The simulation follows these rules:

- At most a minority of the voters' disks is damaged at a time. A damaged disk may stay undetected while its node runs,
  as a running node works from memory.
- A node with a damaged disk restarts only while a majority of undamaged voters is running. All running nodes must
  follow one leader, in an epoch not before the latest one that the damaged node has seen. That majority must have on
  disk everything committed, and everything that the damaged node may have acknowledged to this leader.

No rule is needed for a node that refuses its disk. Damage in a segment that is not the last one proves that
acknowledged records may be lost, so a start that overlooks it breaks a promise (`World._start`), and such a node is
started at any time. The rule is for what nothing proves: an empty, an old or another disk, and the last batches of the
log.

Under these rules no vote and no acknowledgement from before the damage counts any more. So all invariants hold: no
committed record is lost, and each epoch has at most one leader.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.invariants.majorities import is_majority
from kraft.invariants.quorum import Invariants
from kraft.quorum.values import ReplicaKey
from metadata_log.types import NO_NODE


class DiskLosses:
    """The damaged disks of one run."""

    def __init__(self, voter_ids: tuple[int, ...]) -> None:
        """`voter_ids` are the static voters. A voter with a directory id may lose its disk without harm."""
        self._voter_ids = voter_ids
        self._damaged: dict[int, None] = {}

    def is_damaged(self, node_id: int) -> bool:
        """Whether the disk of a node has lost something since its last start."""
        return node_id in self._damaged

    def is_bearable(self, node_id: int) -> bool:
        """Whether this node's disk may be damaged, too."""
        sound = set(self._voter_ids).difference(self._damaged, (node_id,))
        return node_id in self._voter_ids and is_majority(len(sound), len(self._voter_ids))

    def damage(self, node_id: int) -> None:
        """The disk of a node has lost something."""
        self._damaged[node_id] = None

    def end(self, node_id: int) -> None:
        """A node has started: from now on its promises are those on its disk."""
        self._damaged.pop(node_id, None)

    def may_return(self, node_id: int, running: Iterable[int], ledger: Invariants) -> bool:
        """Whether a stopped node may start with the rest of its disk; `running` are the running voters."""
        if node_id not in self._damaged:
            return True
        own, running = ledger.observed(node_id), tuple(running)
        views = [view for one in running if (view := ledger.observed(one).view) is not None]
        if not views:
            return False
        leader = views[0].leader
        if leader.leader_id in (NO_NODE, node_id) or any(view.leader != leader for view in views):
            return False
        if own.election is not None and leader.epoch < own.election.epoch:
            return False
        needed = max(len(ledger.commits.batches), ledger.nodes.acknowledged_upto(node_id, leader.leader_id))
        model = ledger.observed(leader.leader_id).log
        if needed > len(model):
            return False
        sound = [one for one in running if one not in self._damaged]
        holders = [
            one
            for one in sound
            if needed == 0 or ledger.nodes.has_on_disk(ReplicaKey(one), needed - 1, model[needed - 1])
        ]
        return is_majority(len(holders), len(self._voter_ids))
