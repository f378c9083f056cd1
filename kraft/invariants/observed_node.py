"""What the invariants have observed of a node and of its disk."""

from __future__ import annotations

from msgspec import Struct

from kraft.invariants.observation import LogBatch, View
from kraft.invariants.voters import VotersInLog
from kraft.quorum.values import ElectionState, ReplicaKey


class ObservedNode(Struct):
    """What the invariants have observed of one disk and of the node on it. The log and the promise outlive crashes.

    Batches before the log start count as part of the log: a snapshot covers them.
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
