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

In a dynamic quorum a node with an empty disk is another voter, and starts at any time. A node that has lost a part of
its disk keeps its directory id, and returns under the same rules, with a majority of every voter set. If the rest of
its log ends before the other voters joined, the node would lead alone: the operator formats its disk
(`SimulatedQuorum.needs_format`).

Under these rules no vote and no acknowledgement from before the damage counts any more. So all invariants hold: no
committed record is lost, and each epoch has at most one leader.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.invariants.majorities import is_majority, is_voter
from kraft.invariants.observation import LogBatch
from kraft.invariants.quorum import Invariants
from kraft.quorum.values import ReplicaKey
from kraft.sim.world.disk_damage import Damage
from metadata_log.types import NO_NODE


class DiskLosses:
    """The damaged disks of one run."""

    def __init__(
        self,
        voter_ids: tuple[int, ...],
        *,
        spared: tuple[int, ...] = (),
        has_dynamic_damage: bool = False,
        is_careless: bool = False,
    ) -> None:
        """`voter_ids` are the static voters. A dynamic quorum has none of these; with `has_dynamic_damage` the disks of
        its nodes may be damaged, and the driver leaves a possible majority. A careless operator starts every node
        at once. The disks of `spared` voters have the records of a broker, too, and are never damaged.
        """
        self._voter_ids = voter_ids
        self._spared = frozenset(spared)
        self.is_of_dynamic_quorum = has_dynamic_damage
        """Whether the nodes have directory ids, and their disks may be damaged."""
        self._is_careless = is_careless
        self.has_broken_rules = False
        """Whether a careless operator has started a node with a damaged disk against the rules."""
        self._damaged: dict[int, None] = {}

    def is_damaged(self, node_id: int) -> bool:
        """Whether the disk of a node has lost something since its last start."""
        return node_id in self._damaged

    def is_bearable(self, node_id: int) -> bool:
        """Whether this node's disk may be damaged, too."""
        if self.is_of_dynamic_quorum:
            return True
        sound = set(self._voter_ids).difference(self._damaged, (node_id,))
        may_be = node_id in self._voter_ids and node_id not in self._spared
        return may_be and is_majority(len(sound), len(self._voter_ids))

    def is_new_voter(self, what: Damage) -> bool:
        """Whether a node has another directory id after this damage, and so is bound by none of its former promises."""
        return self.is_of_dynamic_quorum and what is Damage.WIPED

    def damage(self, node_id: int) -> None:
        """The disk of a node has lost something."""
        self._damaged[node_id] = None

    def end(self, node_id: int) -> None:
        """A node has started: from now on its promises are those on its disk."""
        self._damaged.pop(node_id, None)

    def may_return(self, node_id: int, running: Iterable[int], ledger: Invariants) -> bool:
        """Whether a stopped node may start with the rest of its disk; `running` are the running voters, in a dynamic
        quorum all running nodes.
        """
        if node_id not in self._damaged:
            return True
        if self._is_bearable_return(node_id, running, ledger):
            return True
        self.has_broken_rules = self.has_broken_rules or self._is_careless
        return self._is_careless

    def may_stop(self, node_id: int, running: Iterable[int], ledger: Invariants) -> bool:
        """Whether the operator may stop a node with a damaged disk: the other sound nodes have a majority of each voter
        set. A voter may be added after its disk was damaged, and be needed for a majority since.
        """
        sound = set(running).difference(self._damaged, (node_id,))
        return all(
            is_majority(sum(key.id in sound and _is_on_its_disk(ledger, key) for key in voters.keys), len(voters.keys))
            for voters in ledger.voter_sets()
        )

    def _is_bearable_return(self, node_id: int, running: Iterable[int], ledger: Invariants) -> bool:
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
        sound = {one for one in running if one not in self._damaged}
        batch = model[needed - 1] if needed else None
        return all(
            is_majority(
                sum(key.id in sound and _has_on_disk(ledger, key, needed - 1, batch) for key in voters.keys),
                len(voters.keys),
            )
            for voters in ledger.voter_sets()
        )


def _is_on_its_disk(ledger: Invariants, key: ReplicaKey) -> bool:
    """Whether the node of a voter runs with the directory of that voter."""
    return is_voter(key, ledger.observed(key.id).key)


def _has_on_disk(ledger: Invariants, key: ReplicaKey, place: int, batch: LogBatch | None) -> bool:
    """Whether a voter runs with its own disk, and has the batch at this place on the disk; None needs no batch."""
    is_own = _is_on_its_disk(ledger, key)
    return is_own and (batch is None or ledger.nodes.has_on_disk(key, place, batch))
