"""The invariants of the log of each node (Raft: Log Matching, Leader Append-Only; Kafka: `ConsistentCommittedData` of
`RaftEventSimulationTest`; TLA+: NoLogDivergence).

The leader of an epoch writes an offset once. So an epoch and an offset name the same bytes in every log, for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from kraft.invariants.observation import LogBatch, ObservedMember, View
from kraft.invariants.observed_node import ObservedNode
from kraft.invariants.voters import VoterLedger

_next_offset = attrgetter("next_offset")
_epoch = attrgetter("epoch")


class LogLedger:
    """Every batch that any node of one run has written. A check returns a description of the violation, or None."""

    def __init__(self, voters: VoterLedger) -> None:
        """`voters` receives the voter set in each batch."""
        self._voters = voters
        self._written: dict[tuple[int, int], tuple[LogBatch, int]] = {}
        """Each batch and the epoch of the batch before it, by epoch and offset."""

    def appended(self, member: ObservedMember, observed: ObservedNode, batch: LogBatch) -> str | None:
        """Add a batch to what was observed of a log; returns what is wrong with the batch."""
        node_id = member.node_id
        last = observed.log[-1] if observed.log else None
        last_epoch, end_offset = (0, 0) if last is None else (last.epoch, last.next_offset)
        if batch.base_offset != end_offset or batch.epoch < last_epoch:
            return f"node {node_id} appends {batch} after {observed.log[-1:]}"
        place = batch.epoch, batch.base_offset
        written = self._written.get(place)
        if written is None:
            self._written[place] = (batch, last_epoch)
            self._voters.written(batch.epoch, batch.base_offset, member.changes(batch))
        elif written != (batch, last_epoch):
            return (
                f"node {node_id} has {batch} after epoch {last_epoch}, where before {written[0]} was written"
                f" after epoch {written[1]}"
            )
        voters = self._voters.set_in(batch.epoch, batch.base_offset)
        if voters is not None:
            violation = self._voters.appended(node_id, observed.voters, len(observed.log), voters)
            if violation is not None:
                return violation
        observed.log.append(batch)
        return None

    def changes_too_early(self, observed: ObservedNode, view: View, batches: Sequence[LogBatch]) -> str | None:
        """Check the batches that a leader writes: it changes the voters only after a batch of its own epoch is
        committed (Raft, the correction of 2015).
        """
        begin = observed.log[bisect_left(observed.log, view.epoch, key=_epoch)].base_offset
        if view.high_watermark <= begin and any(
            self._voters.set_in(batch.epoch, batch.base_offset) for batch in batches if batch.base_offset > begin
        ):
            return f"node {observed.key.id} changes the voters before anything of its epoch is committed"
        return None


def lost_by_restart(node_id: int, observed: ObservedNode, log: Sequence[LogBatch], *, is_later: bool) -> str | None:
    """Check the log of a restarted node: flushed records are still there.

    An interrupted step may have truncated the log, or replaced it by a snapshot (`is_later`), but committed records
    remain.
    """
    promised = bisect_right(observed.log, observed.flushed_offset, key=_next_offset)
    if observed.was_interrupted:
        promised = min(promised, observed.verified if is_later else max(len(log), observed.verified))
    if log[:promised] != observed.log[:promised]:
        return f"node {node_id} has lost records below {observed.flushed_offset}, which it had flushed"
    return None


def written_in_another_epoch(observed: ObservedNode, view: View, batches: Sequence[LogBatch]) -> str | None:
    """Check the batches that a leader writes: they have the leader's own epoch."""
    if any(batch.epoch != view.epoch for batch in batches):
        return f"node {observed.key.id} leads epoch {view.epoch} and writes {batches}"
    return None
