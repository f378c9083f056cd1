"""What was seen of a node, and of the disk that it has."""

from __future__ import annotations

from msgspec import Struct

from kraft.invariants.observation import LogBatch, View
from kraft.invariants.voters import VotersInLog
from kraft.quorum.values import ElectionState, ReplicaKey


class ObservedNode(Struct):
    """What was seen of one disk so far, and of the node on it; its log and its promise outlive its crashes.

    What lies before the beginning of the log counts as part of it: a snapshot has it.
    """

    key: ReplicaKey
    view: View | None = None
    election: ElectionState | None = None
    former_election: ElectionState | None = None
    """As it was before the last step."""
    judged_election: ElectionState | None = None
    """As it was when the state was last compared with it."""
    log: list[LogBatch] = []
    flushed_offset: int = 0
    verified: int = 0
    applied_offset: int = 0
    was_interrupted: bool = False
    start_offset: int = 0
    voters: VotersInLog = []

    @property
    def end_offset(self) -> int:
        """Where the log ended when it was last seen."""
        return self.log[-1].next_offset if self.log else 0


def forgets(observed: ElectionState, now: ElectionState | None) -> bool:
    """Whether a vote or an epoch is gone. A leader may be: who had voted for itself starts as a candidate again."""
    if now is None or now.epoch != observed.epoch:
        return now is None or now.epoch < observed.epoch
    if observed.voted is None or now.voted is None:
        return observed.voted is not None
    return observed.voted.id != now.voted.id
