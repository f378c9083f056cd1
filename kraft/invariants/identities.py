"""The invariants of identities in a quorum: which disk a node id stands for, and from whom a follower takes a snapshot
(KIP-630, KIP-853).

The caller says which directory each node has at a start, which voters a log names, and what followers ask for.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kraft.invariants.violation import InvariantViolated
from kraft.quorum.values import ReplicaKey
from metadata_log.types import NO_OFFSET, OffsetAndEpoch, Uuid


class Piece(Struct, frozen=True):
    """A request for a piece of a snapshot."""

    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch
    position: int


class IdentityLedger:
    """The directories of the nodes of one run, and their downloads. Every method raises `InvariantViolated`."""

    def __init__(self) -> None:
        self._directories: dict[int, set[Uuid]] = {}
        """The directories that each node has had."""
        self._reached: dict[ReplicaKey, int] = {}
        """Up to where the log on each disk was ever flushed."""
        self._asked: dict[int, Piece] = {}
        """The last piece that each node has asked for in this life."""
        self.pieces = 0
        """How many requests for later pieces were checked."""

    def has(self, key: ReplicaKey) -> None:
        """A node has this directory."""
        self._directories.setdefault(key.id, set()).add(key.directory_id)

    def started(self, key: ReplicaKey) -> None:
        """A node has started, with this directory."""
        self.has(key)
        self._asked.pop(key.id, None)

    def flushed(self, key: ReplicaKey, offset: int) -> None:
        """The log of a replica is on its disk up to an offset."""
        if offset > self._reached.get(key, NO_OFFSET):
            self._reached[key] = offset

    def counts(self, leader_id: int, key: ReplicaKey, offset: int) -> None:
        """A leader counts a voter up to an offset, which must have been on the disk of this very replica."""
        if offset > self._reached.get(key, NO_OFFSET) and key.directory_id != Uuid.ZERO:
            raise InvariantViolated(
                f"leader {leader_id} counts voter {key.id} with directory {key.directory_id} up to offset {offset}, and"
                f" that disk was never beyond {self._reached.get(key, NO_OFFSET)}"
            )

    def named(self, node_id: int, keys: Iterable[ReplicaKey]) -> None:
        """The log of a node names these voters. A static voter has no directory there."""
        for key in keys:
            if key.directory_id not in (Uuid.ZERO, *self._directories.get(key.id, ())):
                raise InvariantViolated(
                    f"the log of node {node_id} names voter {key.id} with directory {key.directory_id}, which that node"
                    f" has never had"
                )

    def asked(self, node_id: int, piece: Piece) -> None:
        """A follower asks for a piece of a snapshot: a later piece of the leader that has sent the first one."""
        before = self._asked.get(node_id)
        self._asked[node_id] = piece
        if piece.position == 0:
            return
        self.pieces += 1
        if before is None or (before.leader_id, before.epoch, before.snapshot) != (
            piece.leader_id,
            piece.epoch,
            piece.snapshot,
        ):
            raise InvariantViolated(
                f"node {node_id} goes on with a snapshot that another leader has begun to send: {piece} after {before}"
            )
